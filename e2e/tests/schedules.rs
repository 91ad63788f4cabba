//! Schedules: what users and machines do in an unlucky order, with three clusters. Whatever the order, nothing goes that
//! nobody took away, and in the end every cluster holds what follows from the exports that exist.
//!
//! The clusters are started in an unlucky order too, see [`start`]. Scenarios run one at a time, on the same clusters as
//! long as they pass.

#[path = "schedules/config_dir.rs"]
mod config_dir;
#[path = "schedules/hands.rs"]
mod hands;
#[path = "schedules/stopping.rs"]
mod stopping;
#[path = "schedules/three.rs"]
mod three;

use anyhow::{Context as _, Result};
use tombolo_e2e::{
    scenarios::{self, Scenario},
    scene::SETTLE,
};
use tombolo_testbed::{Component, Role, Testbed, eventually};

/// Number of the cluster that looks on.
const A: usize = 0;
/// Number of the first peer.
const B: usize = 1;
/// Number of the second peer.
const C: usize = 2;

fn main() {
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "one_peer_withdraws_while_the_other_is_unreachable",
        Box::new(|t| Box::pin(three::one_withdraws_while_the_other_is_unreachable(t))),
    );
    add(
        "a_store_that_is_emptied_by_hand_costs_nothing",
        Box::new(|t| Box::pin(hands::empty_the_store(t))),
    );
    add(
        "a_namespace_that_is_made_anew_gets_its_imports_back",
        Box::new(|t| Box::pin(hands::make_a_namespace_anew(t))),
    );
    add(
        "tampered_slices_are_never_published",
        Box::new(|t| Box::pin(hands::change_labels_of_slices(t))),
    );
    add(
        "a_configuration_that_is_away_for_a_moment_costs_nothing",
        Box::new(|t| Box::pin(config_dir::is_away_for_a_moment(t))),
    );
    add(
        "roles_stop_in_time_and_withdraw_nothing",
        Box::new(|t| Box::pin(stopping::in_time(t))),
    );
    scenarios::main(all, || Box::pin(start()));
}

/// Three clusters. In A the mesh is there before the definitions of the API, in B the operator before the mesh, in C both
/// before the API server.
async fn start() -> Result<Testbed> {
    let testbed = Testbed::start(3).await?;
    testbed.connect_all()?;
    let [a, b, c] = [A, B, C].map(|index| testbed.cluster(index));
    c.kill9(Component::ApiServer)?;
    let back = async {
        let what = "the operator of C to have tried in vain";
        eventually(SETTLE, what, async || {
            let log = c.log_tail(Component::Operator, 20).unwrap_or_default();
            log.contains("trying again").then_some(()).ok_or(log)
        })
        .await?;
        c.restart(Component::ApiServer).await?;
        anyhow::Ok(())
    };
    let late = async {
        tokio::try_join!(
            async { Ok(c.start_role(Role::Mesh, &[]).await?) },
            async { Ok(c.start_role(Role::Operator, &[]).await?) },
            back
        )
        .context("roles that are there before the API server")
    };
    let early = async {
        a.start_role(Role::Mesh, &[]).await?;
        a.start_role(Role::Operator, &[]).await?;
        b.start_role(Role::Operator, &[]).await?;
        b.start_role(Role::Mesh, &[]).await
    };
    tokio::try_join!(late, async { Ok(early.await?) })?;
    Ok(testbed)
}
