//! Runs every case against Tombolo on two clusters of the testbed, or against whatever implements the API in the
//! contexts that `TOMBOLO_CLUSTERS=contexts:a,b` names. Each case is a test; `--test-threads N` bounds how many run at once.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;
use tombolo_conformance::{
    case::Case,
    cases,
    clusters::{self, Cluster},
    suite::{Suite, Verdict},
};
use tombolo_testbed::{Error, FAKE_NODE, Provider, Testbed, eventually};

/// Cases at the same time, where the command line does not say: they mostly wait.
const THREADS: usize = 8;
/// Time for the operators to install the CRDs, on a busy machine.
const API_BUDGET: Duration = Duration::from_mins(1);

/// The clusters with their suite; made by the first case that runs.
struct World {
    suite: Suite,
    // Ends its processes when it is dropped.
    testbed: Testbed,
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let runtime = Arc::new(Runtime::new().expect("the system gives threads"));
    let world = Arc::new(OnceLock::new());
    let trials = cases::all()
        .map(|case| {
            let (runtime, world) = (Arc::clone(&runtime), Arc::clone(&world));
            Trial::ignorable_test(case.id, move || run(case, &runtime, &world))
        })
        .collect();

    let conclusion = libtest_mimic::run(&arguments, trials);

    // Destructors do not run at `exit`.
    drop(world);
    conclusion.exit();
}

fn run(
    case: &'static Case,
    runtime: &Runtime,
    world: &OnceLock<Result<World, String>>,
) -> Result<Completion, Failed> {
    let world = world.get_or_init(|| {
        runtime
            .block_on(start())
            .map_err(|error| format!("the clusters cannot be used: {error}"))
    });
    let world = world.as_ref()?;
    match runtime.block_on(world.suite.run(case)) {
        Verdict::Passed { .. } => Ok(Completion::Completed),
        Verdict::NotRun(reason) => {
            println!("not run: {}: {reason}", case.id);
            Ok(Completion::ignored_with(reason))
        }
        Verdict::Failed { failure, evidence } => {
            let file = format!(
                "{}/{}.yaml",
                env!("CARGO_TARGET_TMPDIR"),
                case.id.replace('/', "-")
            );
            let kept = match std::fs::write(&file, evidence) {
                Ok(()) => format!("objects are in {file}"),
                Err(error) => format!("objects cannot be written to {file}: {error}"),
            };
            world.testbed.keep_logs(case.id);
            Err(format!("{}\n{failure}\n{kept}", case.title).into())
        }
    }
}

async fn start() -> Result<World, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Provider::from_env().map_err(Error::from)?;
    let testbed = Testbed::start_with(&provider, 2).await?;
    match provider {
        Provider::Api => testbed.start_mesh().await?,
        // Somebody else's clusters have an implementation of their own.
        Provider::Contexts(_) => {}
    }
    let mut clusters = Vec::new();
    for cluster in testbed.clusters() {
        let fake_node = match cluster.fake_node().await {
            Ok(()) => Some(FAKE_NODE.to_owned()),
            // Cases with pods are then reported as not run.
            Err(Error::Provider(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let name = cluster.name().to_owned();
        clusters.push(Cluster {
            name,
            client: cluster.client(),
            fake_node,
        });
    }
    eventually(API_BUDGET, "the API to be served", async || {
        clusters::check(&clusters)
            .await
            .map_err(|error| error.to_string())
    })
    .await?;
    Ok(World {
        suite: Suite::new(clusters),
        testbed,
    })
}
