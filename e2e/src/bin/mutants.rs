//! `make mutants`: does the conformance suite find wrong implementations?

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use jiff::SignedDuration;
use tombolo_e2e::mutants::{self, InputError, Options, table};
use tombolo_testbed::{Error, interruption, unless_interrupted};

/// Runs the conformance suite against mutants of Tombolo: every one must fail a case. `TOMBOLO_BIN` names the test build.
///
/// Exit codes: 0 all were killed, 1 one survived or a step failed, 2 bad input or missing binaries, 130 Ctrl-C.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these mutants.
    #[arg(long, value_delimiter = ',', value_name = "NAME,NAME")]
    only: Vec<String>,
    /// Every case against every mutant, for the whole matrix.
    #[arg(long)]
    all: bool,
    /// Time for something to appear or to go, in the cases.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    budget_appear: Duration,
    /// Time for which something has to stay, in the cases.
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    budget_stay: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>();
    let parsed = parsed.ok().and_then(|it| Duration::try_from(it).ok());
    let positive = parsed.filter(|duration| !duration.is_zero());
    positive.ok_or_else(|| "expected a positive duration such as `5s` or `500ms`".to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        // The testbed starts the roles from there.
        binary: std::env::var_os("TOMBOLO_BIN").map_or_else(PathBuf::new, PathBuf::from),
        only: arguments.only,
        every_case: arguments.all,
        appear: arguments.budget_appear,
        stay: arguments.budget_stay,
    };
    let Ok(interrupt) = interruption() else {
        eprintln!("mutants: cannot listen to Ctrl-C");
        return ExitCode::FAILURE;
    };
    let run = Box::pin(mutants::run(&options, |fate| {
        eprintln!("{}", table::line(fate));
    }));
    let Some(run) = unless_interrupted(interrupt, run).await else {
        eprintln!("\nmutants: interrupted");
        return ExitCode::from(130);
    };
    match run {
        Ok(outcome) => {
            println!("{}", table::render(&outcome));
            let survivor = outcome.fates.iter().any(|fate| fate.kills.is_empty());
            ExitCode::from(u8::from(survivor))
        }
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::from(if is_input(&error) { 2 } else { 1 })
        }
    }
}

fn is_input(error: &anyhow::Error) -> bool {
    error.is::<InputError>() || matches!(error.downcast_ref(), Some(Error::Assets(_)))
}
