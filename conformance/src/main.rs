//! `tombolo-conformance`: checks an implementation of the Multi-Cluster Services API.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use tombolo_conformance::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run(Cli::parse()).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // That nobody listens must not change the exit code.
            let _ = writeln!(io::stderr(), "tombolo-conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}
