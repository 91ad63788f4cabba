//! The upstream conformance suite, unmodified: a program that the user supplies, run on two clusters with Tombolo installed.
//!
//! Nothing of the suite is here: neither its code nor how it is built.

pub mod binary;
pub mod outcome;
pub mod report;
pub mod suite;

pub use binary::Missing;
pub use outcome::Outcome;
pub use suite::Suite;

use std::path::PathBuf;

use anyhow::Result;

use crate::installed::{Authorities, Mesh};
use tombolo_testbed::{Cluster, interruption, unless_interrupted};

/// How many clusters it gets.
const CLUSTERS: usize = 2;

/// Starts and installs clusters, runs the program on them with these flags besides, keeps its reports in a directory, and says
/// what it came to. SIGINT or SIGTERM ends the program, or the start of the clusters.
pub async fn run(program: PathBuf, flags: &[String], reports: PathBuf) -> Outcome {
    let interrupt = match interruption() {
        Ok(interrupt) => interrupt,
        Err(error) => return Outcome::Untested(format!("listen to Ctrl-C: {error}")),
    };
    tokio::pin!(interrupt);
    let start = Box::pin(Mesh::start(CLUSTERS, Authorities::OfEach));
    let mesh = match unless_interrupted(&mut interrupt, start).await {
        None => return Outcome::Interrupted,
        Some(Ok(mesh)) => mesh,
        Some(Err(error)) => return Outcome::Untested(format!("{error:#}")),
    };
    let suite = match of(&mesh, program, flags, reports) {
        Ok(suite) => suite,
        Err(error) => return Outcome::Untested(format!("{error:#}")),
    };
    let outcome = on(&suite, interrupt).await;
    if outcome.keeps_logs() {
        mesh.explain().await;
        mesh.testbed().keep_logs("the upstream suite did not pass");
    }
    outcome
}

/// Runs a suite, prints totals, and says what it came to.
pub async fn on(suite: &Suite, interrupt: impl Future<Output = ()>) -> Outcome {
    let ended = match suite.run(interrupt).await {
        Ok(ended) => ended,
        Err(error) => return Outcome::Untested(format!("{error:#}")),
    };
    if let Some(Ok(report)) = &ended.report {
        for totals in report.totals() {
            println!("{totals}");
        }
        println!("reports are in {}", suite.reports.display());
    }
    match ended.status {
        Some(status) => outcome::judge(status, ended.report),
        None => Outcome::Interrupted,
    }
}

fn of(mesh: &Mesh, program: PathBuf, flags: &[String], reports: PathBuf) -> Result<Suite> {
    let testbed = mesh.testbed();
    let contexts: Vec<_> = testbed.clusters().iter().map(Cluster::name).collect();
    Ok(Suite {
        program,
        enter: testbed.cluster(0).reach(),
        flags: Suite::flags(&testbed.kubeconfig()?, &contexts, flags),
        directory: testbed.directory().join("upstream"),
        reports: std::path::absolute(reports)?,
        grace: suite::GRACE,
    })
}
