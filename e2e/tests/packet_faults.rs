//! Faults under traffic: clients of both clusters open new connections through the mesh all the time, while its links, roles,
//! stores, API servers and certificates fail one after the other.
//!
//! In each fault a backend leaves the Service that goes on answering, so that no request fails for it, and everybody who still
//! sends to it is seen. No request to a live backend may fail, and that one has to leave the rotation of both clusters in time.
//!
//! Needs clusters with nodes; where those cannot be had, nothing is run and the reason is told.

#[path = "packet_faults/ground.rs"]
mod ground;
#[path = "packet_faults/links.rs"]
mod links;
#[path = "packet_faults/processes.rs"]
mod processes;
#[path = "packet_faults/releases.rs"]
mod releases;

use std::process::ExitCode;

use tombolo_e2e::scenarios::{self, Scenario};

use ground::Ground;

/// Number of the first cluster.
const A: usize = 0;
/// Number of the second.
const B: usize = 1;

fn main() -> ExitCode {
    if let Some(code) = scenarios::exit_without_nodes() {
        return code;
    }
    let mut all: Vec<(String, Scenario<Ground>)> = Vec::new();
    macro_rules! add {
        ($($name:ident => $scenario:path,)*) => {
            $(all.push((stringify!($name).to_owned(), Box::new(|ground| Box::pin($scenario(ground)))));)*
        };
    }
    add! {
        pods_are_cut_apart => links::pods_cut,
        the_store_of_a_peer_is_cut_off => links::store_cut,
        the_leading_operator_is_killed => processes::operator_killed,
        the_mesh_role_that_publishes_is_killed => processes::publisher_killed,
        the_mesh_role_that_copies_is_killed => processes::copier_killed,
        the_etcd_of_the_mesh_is_killed => processes::mesh_etcd_killed,
        the_api_server_is_killed => processes::api_server_killed,
        the_etcd_of_the_api_server_is_killed => processes::etcd_killed,
        certificates_are_rotated => releases::certificates_rotated,
        the_chart_is_upgraded => releases::upgraded,
        the_chart_is_rolled_back => releases::rolled_back,
    }
    scenarios::main(all, || Box::pin(Ground::start()));
}
