//! Clusters with Tombolo installed in them, until they are interrupted.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use tombolo_e2e::installed::{Authorities, Mesh};
use tombolo_testbed::{interruption, tombolo, unless_interrupted};

/// Starts clusters with nodes, installs the chart in each, joins them, and says how to reach them, until Ctrl-C.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many.
    #[arg(default_value_t = 2)]
    clusters: usize,
    /// Say how long it took and how much memory it takes, and end.
    #[arg(long)]
    measure: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match until_interrupted(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("installed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn until_interrupted(arguments: &Arguments) -> Result<()> {
    let interrupted = interruption().context("listen to Ctrl-C")?;
    let ended = unless_interrupted(interrupted, Box::pin(run(arguments))).await;
    ended.unwrap_or(Ok(()))
}

async fn run(arguments: &Arguments) -> Result<()> {
    let mesh = Mesh::start(arguments.clusters, Authorities::OfEach).await?;
    let took = mesh.took();
    println!(
        "{} clusters after {:.1?}, installed and well after {:.1?} more, {} MiB resident",
        arguments.clusters,
        took.clusters,
        took.installation,
        mesh.testbed().resident_bytes()? >> 20
    );
    if arguments.measure {
        return Ok(());
    }
    let enter = mesh.testbed().cluster(0).reach();
    let enter: Vec<_> = enter.iter().map(|word| quoted(word)).collect();
    let kubeconfig = mesh.testbed().kubeconfig()?;
    println!(
        "export KUBECONFIG={}\n{} bash\nkubectl --context a get pods -A\n{} status --context b\ninterrupt this to end",
        kubeconfig.display(),
        enter.join(" "),
        tombolo().await?.display()
    );
    std::future::pending().await
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
