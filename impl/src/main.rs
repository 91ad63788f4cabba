//! The one binary of Tombolo.

use std::process::ExitCode;

use clap::Parser;
use tombolo::cli::{self, args::Cli};

fn main() -> ExitCode {
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::report(&error);
            ExitCode::from(cli::exit_code(&error))
        }
    }
}
