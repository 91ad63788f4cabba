//! Packets: a pod of one cluster reaches what another one exports, through the derived Service and by its name in DNS.
//!
//! Needs clusters with nodes: those that `TOMBOLO_CLUSTERS` names, else provider `local`; where those cannot be had, nothing is run and the reason is told.

#[path = "packets/reached.rs"]
mod reached;

use anyhow::Result;
use tombolo_e2e::scenarios::{self, Scenario};
use tombolo_testbed::{Provider, Testbed};

fn main() -> std::process::ExitCode {
    if let Some(code) = scenarios::exit_without_nodes() {
        return code;
    }
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "a_pod_reaches_what_the_other_cluster_exports",
        Box::new(|testbed| Box::pin(reached::reached(testbed))),
    );
    scenarios::main(all, || Box::pin(start()))
}

async fn start() -> Result<Testbed> {
    let testbed = Testbed::start_with(&Provider::with_nodes()?, 2).await?;
    testbed.start_mesh().await?;
    Ok(testbed)
}
