//! The binary of test builds: Tombolo with one deliberate bug, or with none when `TOMBOLO_MUTANT` is not set.
//!
//! Exists only with the cargo feature `mutants`. For `make mutants`, which tests the conformance suite; never for use.

use std::process::ExitCode;

use clap::Parser;
use tombolo::cli::{self, args::Cli};
use tombolo_core::mutant;

/// Environment variable that names the bug.
const VARIABLE: &str = "TOMBOLO_MUTANT";

fn main() -> ExitCode {
    if let Some(name) = std::env::var_os(VARIABLE) {
        let name = name.to_string_lossy();
        let Some(mutant) = mutant::parse(&name) else {
            let known: Vec<_> = mutant::NAMES.iter().map(|(_, name)| *name).collect();
            eprintln!(
                "tombolo: {VARIABLE}={name}: no such mutant; expected one of {}",
                known.join(", ")
            );
            return ExitCode::from(2);
        };
        let first = mutant::choose(mutant);
        assert!(first, "invariant: nobody else chooses");
    }
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::report(&error);
            ExitCode::from(cli::exit_code(&error))
        }
    }
}
