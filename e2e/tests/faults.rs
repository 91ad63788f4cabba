//! Faults: processes that die, stores that are away, stale, empty or full of nonsense. After each of them everything
//! converges to what follows from the exports that exist; and while a peer cannot be read, nothing of it is removed and
//! local work goes on.
//!
//! Scenarios run one at a time, on the same two clusters as long as they pass.

#[path = "faults/heal.rs"]
mod heal;
#[path = "faults/kill.rs"]
mod kill;
#[path = "faults/peer_store.rs"]
mod peer_store;
#[path = "faults/records.rs"]
mod records;

use anyhow::Result;
use tombolo_e2e::scenarios::{self, Scenario};
use tombolo_testbed::{Component, Testbed};

/// Number of the cluster in which a fault strikes, or whose peer is struck.
const A: usize = 0;
/// Number of the other one.
const B: usize = 1;

fn main() {
    let mut all: Vec<(String, Scenario)> = Vec::new();
    for component in kill::COMPONENTS {
        for cluster in [A, B] {
            let name =
                format!("{component}_of_{}_is_killed", ["a", "b"][cluster]).replace('-', "_");
            let scenario: Scenario =
                Box::new(move |testbed| Box::pin(kill::and_restarted(testbed, component, cluster)));
            all.push((name, scenario));
        }
    }
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "peer_store_is_down",
        Box::new(|t| Box::pin(peer_store::is_down(t))),
    );
    add(
        "peer_store_is_paused",
        Box::new(|t| Box::pin(peer_store::is_paused(t))),
    );
    add(
        "peer_store_has_no_canary",
        Box::new(|t| Box::pin(peer_store::has_no_canary(t))),
    );
    add(
        "peer_store_comes_back_empty",
        Box::new(|t| Box::pin(peer_store::comes_back_empty(t))),
    );
    add(
        "operator_restarts_while_the_peer_is_unreachable",
        Box::new(|t| Box::pin(peer_store::is_down_while_the_operator_restarts(t))),
    );
    add(
        "peer_loses_its_lease",
        Box::new(|t| Box::pin(peer_store::loses_its_lease(t))),
    );
    add(
        "peer_writes_bad_records",
        Box::new(|t| Box::pin(records::are_skipped(t))),
    );
    add(
        "removals_go_first_after_a_heal",
        Box::new(|t| Box::pin(heal::removals_go_first(t))),
    );
    scenarios::main(all, || Box::pin(start()));
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
        | Component::Scheduler
        | Component::Containerd
        | Component::Kubelet
        | Component::KubeProxy
        | Component::MeshEtcd
        | Component::Mesh
        | Component::Operator
        | Component::SecondOperator
        | Component::SecondMeshEtcd
        | Component::SecondMesh => true,
    }
}
