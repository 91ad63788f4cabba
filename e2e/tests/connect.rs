//! `tombolo connect` and `disconnect` on real API servers, between installations of the chart with an authority each.
//!
//! There are no nodes: what a kubelet would start of a pod, and the files that it would renew, the scenario does itself.

#[path = "connect/command.rs"]
mod command;
#[path = "connect/invited.rs"]
mod invited;
#[path = "connect/meshed.rs"]
mod meshed;
#[path = "connect/objects.rs"]
mod objects;
#[path = "connect/refused.rs"]
mod refused;

use tombolo_e2e::scenarios::{self, Scenario};
use tombolo_testbed::Testbed;

/// Number of the first cluster.
const A: usize = 0;
/// Number of the second.
const B: usize = 1;
/// Number of the third.
const C: usize = 2;

fn main() {
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "two_installations_become_a_mesh_and_part_again",
        Box::new(|t| Box::pin(meshed::and_parted(t))),
    );
    add(
        "what_is_written_is_written_once_and_outlives_upgrades",
        Box::new(|t| Box::pin(objects::are_written_once(t))),
    );
    add(
        "a_third_cluster_takes_nothing_from_the_others",
        Box::new(|t| Box::pin(objects::of_a_third_cluster(t))),
    );
    add(
        "a_run_that_was_killed_is_completed_by_the_next",
        Box::new(|t| Box::pin(objects::after_a_kill(t))),
    );
    add(
        "clusters_that_do_not_go_together_are_refused",
        Box::new(|t| Box::pin(refused::clusters(t))),
    );
    add(
        "a_user_without_rights_writes_nothing",
        Box::new(|t| Box::pin(refused::users(t))),
    );
    add(
        "a_peer_that_cannot_be_reached_is_named",
        Box::new(|t| Box::pin(meshed::unless_unreachable(t))),
    );
    add(
        "each_side_runs_with_a_file_of_the_other",
        Box::new(|t| Box::pin(invited::by_files(t))),
    );
    scenarios::main(all, || Box::pin(async { Ok(Testbed::start(3).await?) }));
}
