//! The walk-throughs of `docs/guide/walkthroughs.md`, step by step, with packets and names as pods see them; and cluster DNS that
//! is configured from nothing, proven and taken back; and the demo with pods.
//!
//! Needs clusters with nodes (provider `local` or `kind`); where those cannot be had, nothing is run and the reason is told.

mod walkthroughs {
    pub(crate) mod configure;
    pub(crate) mod headless;
    pub(crate) mod pods;
    pub(crate) mod web;
}

use anyhow::Result;
use tombolo_e2e::{
    demo,
    scenarios::{self, Scenario},
};
use tombolo_testbed::{Provider, Testbed};

use walkthroughs::{configure, headless, web};

fn main() -> std::process::ExitCode {
    if let Some(code) = scenarios::exit_without_nodes() {
        return code;
    }
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "a_web_server_is_reached_by_its_clusterset_name_and_not_by_a_local_one",
        Box::new(|bed| Box::pin(web::reached(bed))),
    );
    add(
        "each_pod_of_a_database_is_reached_by_its_own_name",
        Box::new(|bed| Box::pin(headless::reached(bed))),
    );
    add(
        "a_pod_that_turns_unready_leaves_the_answers",
        Box::new(|bed| Box::pin(headless::unready(bed))),
    );
    add(
        "a_pod_that_turns_unready_gets_no_traffic",
        Box::new(|bed| Box::pin(web::unready(bed))),
    );
    add(
        "dns_is_configured_from_nothing_proven_and_taken_back",
        Box::new(|bed| Box::pin(configure::from_nothing(bed))),
    );
    add(
        "the_demo_is_played_with_pods_and_packets",
        Box::new(|bed| Box::pin(async { demo::play_on(bed, &options()).await })),
    );
    scenarios::main(all, || Box::pin(start()))
}

/// What `make demo NODES=1` plays.
fn options() -> demo::Options {
    demo::Options {
        examples: concat!(env!("CARGO_MANIFEST_DIR"), "/../examples").into(),
        keep: false,
        nodes: true,
    }
}

async fn start() -> Result<Testbed> {
    let testbed = Testbed::start_with(&Provider::with_nodes()?, 2).await?;
    testbed.start_mesh().await?;
    Ok(testbed)
}
