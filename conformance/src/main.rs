//! `tombolo-conformance`: checks an implementation of the Multi-Cluster Services API.

use std::process::ExitCode;

use clap::Parser as _;
use tombolo_conformance::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run(Cli::parse()).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("tombolo-conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}
