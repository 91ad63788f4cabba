//! `make upstream-conformance`: the upstream suite, as its user built it, on two clusters with Tombolo installed.

use std::{env, path::PathBuf, process::ExitCode};

use clap::Parser;
use tombolo_e2e::upstream::{self, Outcome, binary};

/// Runs the program that CONFORMANCE_TEST names on two clusters with nodes.
///
/// Exit codes: 0 all specs that were run passed, 1 specs failed, 2 it could not be tested, 3 not run, 130 Ctrl-C.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only see whether there is a program.
    #[arg(long)]
    check: bool,
    /// Where the suite's report.yaml and report.html are kept.
    #[arg(
        long,
        value_name = "DIR",
        env = "UPSTREAM_REPORTS",
        default_value = "upstream-conformance"
    )]
    reports: PathBuf,
    /// Flags for the program, such as --ginkgo.label-filter=DNS.
    #[arg(value_name = "FLAG", last = true)]
    flags: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match binary::find(env::var_os(binary::VARIABLE)) {
        Err(missing) => Outcome::NotRun(missing.to_string()),
        Ok(_) if arguments.check => return ExitCode::SUCCESS,
        Ok(program) => upstream::run(program, &arguments.flags, arguments.reports).await,
    };
    let text = format!("upstream conformance: {}", outcome.text());
    if outcome == Outcome::Passed {
        println!("{text}");
    } else {
        eprintln!("{text}");
    }
    ExitCode::from(outcome.exit_code())
}
