//! Replicas: two operators of one cluster of which one leads, and two publishers of one cluster behind one address.
//!
//! Whatever happens to one of them, or to the API server that they share, at most one operator writes at a time, another takes
//! over in time, and nothing goes that nobody took away.

#[path = "replicas/api_server.rs"]
mod api_server;
#[path = "replicas/leader.rs"]
mod leader;
#[path = "replicas/stores.rs"]
mod stores;
#[path = "replicas/storm.rs"]
mod storm;

use anyhow::Result;
use tombolo_e2e::{
    replicas::REPLICAS,
    scenarios::{self, Scenario},
};
use tombolo_testbed::{Role, Testbed};

/// Number of the cluster with the replicas of the operator.
const A: usize = 0;
/// Number of its peer.
const B: usize = 1;

fn main() {
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "the_leader_is_killed",
        Box::new(|t| Box::pin(leader::is_killed(t))),
    );
    add(
        "the_leader_is_told_to_stop",
        Box::new(|t| Box::pin(leader::is_told_to_stop(t))),
    );
    add(
        "the_leader_stands_still_and_goes_on",
        Box::new(|t| Box::pin(leader::stands_still(t))),
    );
    add(
        "the_api_server_hangs_beyond_the_renew_deadline",
        Box::new(|t| Box::pin(leader::api_server_hangs(t))),
    );
    add(
        "the_api_server_is_dead_beyond_the_renew_deadline",
        Box::new(|t| Box::pin(leader::api_server_is_dead(t))),
    );
    add(
        "the_api_server_is_stopped_where_it_is",
        Box::new(|t| Box::pin(api_server::is_stopped_where_it_is(t))),
    );
    add(
        "connections_to_the_api_server_swallow_everything",
        Box::new(|t| Box::pin(api_server::connections_swallow_everything(t))),
    );
    add(
        "two_stores_behind_one_address",
        Box::new(|t| Box::pin(stores::flip_behind_one_address(t))),
    );
    add(
        "a_thousand_changes_a_second",
        Box::new(|t| Box::pin(storm::a_thousand_changes_a_second(t))),
    );
    scenarios::main(all, || Box::pin(start()));
}

async fn start() -> Result<Testbed> {
    let testbed = Testbed::start(2).await?;
    testbed.connect_all()?;
    let (a, b) = (testbed.cluster(A), testbed.cluster(B));
    tokio::try_join!(
        a.start_role(Role::Mesh, &[]),
        b.start_role(Role::Mesh, &[]),
        b.start_role(Role::Operator, &[]),
    )?;
    Ok(testbed)
}

/// One operator in A, without election.
async fn one_operator(testbed: &Testbed) -> Result<()> {
    let a = testbed.cluster(A);
    for replica in REPLICAS {
        if a.pids()?.contains_key(&replica) {
            a.stop(replica).await?;
        }
    }
    Ok(a.start_role(Role::Operator, &[]).await?)
}
