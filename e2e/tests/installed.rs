//! The chart on real nodes, installed as its users do, with an authority in each cluster: pods that may do no harm, packets over
//! both families, every case of the conformance suite, upgrades under traffic, and what an uninstall leaves.
//!
//! Needs clusters with nodes; where those cannot be had, nothing is run and the reason is told.

#[path = "installed/authorities.rs"]
mod authorities;
#[path = "installed/pods.rs"]
mod pods;
#[path = "packets/reached.rs"]
mod reached;
#[path = "installed/releases.rs"]
mod releases;
#[path = "installed/suite.rs"]
mod suite;

use std::process::ExitCode;

use tombolo_e2e::{
    installed::{Authorities, Mesh},
    scenarios::{self, Scenario},
};

/// Number of the first cluster.
const A: usize = 0;
/// Number of the second.
const B: usize = 1;

fn main() -> ExitCode {
    if let Some(code) = scenarios::exit_without_nodes() {
        return code;
    }
    let mut all: Vec<(String, Scenario<Mesh>)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario<Mesh>| all.push((name.to_owned(), scenario));
    add(
        "pods_are_ready_and_may_do_no_harm",
        Box::new(|mesh| Box::pin(pods::may_do_no_harm(mesh))),
    );
    add(
        "accounts_read_no_secrets",
        Box::new(|mesh| Box::pin(pods::accounts_read_no_secrets(mesh))),
    );
    add(
        "each_cluster_has_an_authority_whose_key_stays",
        Box::new(|mesh| Box::pin(authorities::stay(mesh))),
    );
    add(
        "a_pod_reaches_what_the_other_cluster_exports",
        Box::new(|mesh| Box::pin(reached::reached(mesh.testbed()))),
    );
    add(
        "every_case_of_the_suite_passes",
        Box::new(|mesh| Box::pin(suite::passed(mesh))),
    );
    add(
        "upgrade_and_rollback_fail_no_request",
        Box::new(|mesh| Box::pin(releases::upgraded_and_rolled_back(mesh))),
    );
    add(
        "uninstalled_and_installed_again_while_traffic_goes_on",
        Box::new(|mesh| Box::pin(releases::uninstalled(mesh))),
    );
    scenarios::main(all, || Box::pin(Mesh::start(2, Authorities::OfEach)));
}
