//! `make demo`: two real control planes on this machine, one mesh, and what a user sees.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use tombolo_e2e::{
    demo::{self, Options},
    manifest,
};
use tombolo_testbed::{Error, interruption, unless_interrupted};

/// Shows an export, its import, a conflict, a partition, and how each of them ends.
///
/// KEEP=1 leaves the clusters up until Ctrl-C. Exit codes: 0 done, 1 a step failed, 2 bad input or missing binaries, 130 Ctrl-C.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory of the manifests.
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"))]
    examples: PathBuf,
    /// Leave the clusters up at the end, until Ctrl-C.
    #[arg(long, env = "KEEP", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    keep: bool,
    /// Real nodes, pods and packets.
    #[arg(long, env = "NODES", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    nodes: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        examples: arguments.examples,
        keep: arguments.keep,
        nodes: arguments.nodes,
    };
    let played = if options.keep {
        // The demo itself waits for Ctrl-C.
        demo::play(&options).await
    } else {
        let Ok(interrupt) = interruption() else {
            eprintln!("demo: cannot listen to Ctrl-C");
            return ExitCode::FAILURE;
        };
        let Some(played) = unless_interrupted(interrupt, Box::pin(demo::play(&options))).await
        else {
            eprintln!("\ndemo: interrupted");
            return ExitCode::from(130);
        };
        played
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::from(if is_input(&error) { 2 } else { 1 })
        }
    }
}

/// Whether the user can mend it: a manifest, or missing binaries.
fn is_input(error: &anyhow::Error) -> bool {
    error.is::<manifest::Error>()
        || matches!(
            error.downcast_ref(),
            Some(Error::Assets(_) | Error::NodeAssets(_))
        )
}
