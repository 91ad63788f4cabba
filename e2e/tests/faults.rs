//! Faults: processes that die, stores that are away, stale, empty or full of nonsense. After each of them everything
//! converges to what follows from the exports that exist; and while a peer cannot be read, nothing of it is removed and
//! local work goes on.
//!
//! Scenarios run one at a time, on the same two clusters as long as they pass.

#[path = "faults/kill.rs"]
mod kill;
#[path = "faults/peer_store.rs"]
mod peer_store;
#[path = "faults/records.rs"]
mod records;

use std::sync::{Arc, Mutex};

use anyhow::Result;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tombolo_testbed::{Component, Testbed};

/// Number of the cluster in which a fault strikes, or whose peer is struck.
const A: usize = 0;
/// Number of the other one.
const B: usize = 1;

/// A scenario: it leaves the clusters as it found them, or fails.
type Scenario = for<'t> fn(&'t Testbed) -> LocalBoxFuture<'t, Result<()>>;

/// Every scenario by name, except those of [`kill`], which are one for each process.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("peer_store_is_down", |testbed| {
        Box::pin(peer_store::is_down(testbed))
    }),
    ("peer_store_is_paused", |testbed| {
        Box::pin(peer_store::is_paused(testbed))
    }),
    ("peer_store_has_no_canary", |testbed| {
        Box::pin(peer_store::has_no_canary(testbed))
    }),
    ("peer_store_comes_back_empty", |testbed| {
        Box::pin(peer_store::comes_back_empty(testbed))
    }),
    (
        "operator_restarts_while_the_peer_is_unreachable",
        |testbed| Box::pin(peer_store::is_down_while_the_operator_restarts(testbed)),
    ),
    ("peer_loses_its_lease", |testbed| {
        Box::pin(peer_store::loses_its_lease(testbed))
    }),
    ("peer_writes_bad_records", |testbed| {
        Box::pin(records::are_skipped(testbed))
    }),
];

fn main() {
    let mut arguments = Arguments::from_args();
    // Scenarios break what they share.
    arguments.test_threads = Some(1);
    let runtime = Arc::new(Runtime::new().expect("the system gives threads"));
    let shared = Arc::new(Mutex::new(None));
    let mut trials = Vec::new();
    for component in kill::COMPONENTS {
        for cluster in [A, B] {
            let name =
                format!("{component}_of_{}_is_killed", ["a", "b"][cluster]).replace('-', "_");
            let (runtime, shared) = (Arc::clone(&runtime), Arc::clone(&shared));
            trials.push(Trial::test(name, move || {
                run(&runtime, &shared, |testbed| {
                    Box::pin(kill::and_restarted(testbed, component, cluster))
                })
            }));
        }
    }
    for (name, scenario) in SCENARIOS {
        let (runtime, shared) = (Arc::clone(&runtime), Arc::clone(&shared));
        trials.push(Trial::test(*name, move || run(&runtime, &shared, scenario)));
    }

    let conclusion = libtest_mimic::run(&arguments, trials);

    // Destructors do not run at `exit`.
    drop(shared);
    conclusion.exit();
}

/// Runs a scenario on the shared clusters, or on new ones after a failure.
fn run(
    runtime: &Runtime,
    shared: &Mutex<Option<Testbed>>,
    scenario: impl for<'t> FnOnce(&'t Testbed) -> LocalBoxFuture<'t, Result<()>>,
) -> Result<(), Failed> {
    let kept = shared.lock().ok().and_then(|mut shared| shared.take());
    let outcome = runtime.block_on(async {
        let testbed = match kept {
            Some(testbed) => testbed,
            None => start().await?,
        };
        if let Err(error) = scenario(&testbed).await {
            testbed.keep_logs("a scenario failed");
            return Err(error);
        }
        Ok(testbed)
    });
    match outcome {
        Ok(testbed) => {
            if let Ok(mut shared) = shared.lock() {
                *shared = Some(testbed);
            }
            Ok(())
        }
        Err(error) => Err(format!("{error:#}").into()),
    }
}

async fn start() -> Result<Testbed> {
    let testbed = Testbed::start(2).await?;
    testbed.start_mesh().await?;
    Ok(testbed)
}

/// Whether the API server of a cluster works while that component is dead.
fn api_works_without(component: Component) -> bool {
    match component {
        Component::Etcd | Component::ApiServer => false,
        Component::ControllerManager
        | Component::MeshEtcd
        | Component::Mesh
        | Component::Operator => true,
    }
}
