//! The command line of `tombolo-conformance`.

use std::{collections::BTreeSet, io, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use jiff::SignedDuration;

use crate::{
    case::{Case, Feature},
    cases, clusters,
    context::Budgets,
    report::{self, Counts},
    suite::{Suite, Verdict},
};

/// Checks an implementation of the Multi-Cluster Services API against KEP-1645.
///
/// Exit codes: 0 everything that was run passed, 1 something failed, 2 bad input or no usable clusters, 3 nothing was run.
#[derive(Debug, Parser)]
#[command(name = "tombolo-conformance", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the cases with the rules they check.
    List(Selection),
    /// Run the cases against clusters.
    Run(Box<Run>),
}

#[derive(Debug, Args)]
struct Selection {
    /// Only cases whose id contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

#[derive(Debug, Args)]
struct Run {
    /// Kubeconfig with a context for each cluster.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Contexts of the clusters, at least two. The first two export.
    #[arg(long, value_delimiter = ',', required = true, value_name = "NAME,NAME")]
    contexts: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Time for something to appear or to go.
    #[arg(long, default_value = "20s", value_parser = duration, value_name = "DURATION")]
    budget_appear: Duration,
    /// Time for which something has to stay.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    budget_stay: Duration,
    /// Cases that run at the same time.
    #[arg(long, default_value_t = 8, value_parser = jobs, value_name = "N")]
    jobs: usize,
    /// What the implementation does not have: endpoint-slices, derived-service. Such cases are reported as not run.
    #[arg(long, value_delimiter = ',', value_parser = feature, value_name = "FEATURE")]
    without: Vec<Feature>,
    /// Leave the namespaces of failed cases.
    #[arg(long)]
    keep_failed: bool,
    /// Write the objects of each failed case to a file in this directory.
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let hint = "expected a positive duration such as `20s` or `500ms`";
    let parsed = text
        .parse::<SignedDuration>()
        .map_err(|error| format!("{hint}: {error}"))?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(hint.to_owned()),
    }
}

fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=64) => Ok(jobs),
        _ => Err("expected a number from 1 to 64".to_owned()),
    }
}

fn feature(text: &str) -> Result<Feature, String> {
    let known: Vec<_> = Feature::ALL
        .iter()
        .map(|feature| feature.as_str())
        .collect();
    Feature::parse(text).ok_or_else(|| format!("expected one of {}", known.join(", ")))
}

/// Does what the command line says; returns the exit code, or an error that means exit code 2.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::List(selection) => list(&selection),
        Command::Run(run) => run_cases(*run).await,
    }
}

fn select(selection: &Selection) -> Vec<&'static Case> {
    let filter = selection.filter.as_deref().unwrap_or_default();
    cases::all()
        .filter(|case| case.id.contains(filter))
        .collect()
}

fn list(selection: &Selection) -> anyhow::Result<u8> {
    let cases = select(selection);
    for case in &cases {
        let rules: Vec<_> = case.rules.iter().map(ToString::to_string).collect();
        let upstream = case
            .upstream
            .map(|row| format!(", upstream {row}"))
            .unwrap_or_default();
        println!(
            "{}: {} [{}{upstream}]",
            case.id,
            case.title,
            rules.join(", ")
        );
    }
    anyhow::ensure!(
        !cases.is_empty(),
        "--filter: no case matches; `tombolo-conformance list` shows all"
    );
    Ok(0)
}

async fn run_cases(run: Run) -> anyhow::Result<u8> {
    let cases = select(&run.selection);
    anyhow::ensure!(
        !cases.is_empty(),
        "--filter: no case matches; `tombolo-conformance list` shows all"
    );
    let clusters = clusters::from_contexts(&run.kubeconfig, &run.contexts).await?;
    clusters::check(&clusters).await?;
    let suite = Suite {
        clusters,
        budgets: Budgets {
            appear: run.budget_appear,
            stay: run.budget_stay,
            ..Budgets::default()
        },
        without: run.without.into_iter().collect::<BTreeSet<_>>(),
        keep_failed: run.keep_failed,
    };
    if let Some(directory) = &run.evidence {
        std::fs::create_dir_all(directory)?;
    }
    let verdicts = suite
        .run_all(cases, run.jobs, |case, verdict| {
            // A closed pipe must not end the run: the exit code still counts.
            let _ = report::write_verdict(&mut io::stdout(), case, verdict);
            if let (Some(directory), Verdict::Failed { evidence, .. }) = (&run.evidence, verdict) {
                let file = directory.join(format!("{}.yaml", case.id.replace('/', "-")));
                if let Err(error) = std::fs::write(&file, evidence) {
                    eprintln!("{}: {error}", file.display());
                }
            }
        })
        .await;
    let counts = Counts::of(verdicts.iter().map(|(_, verdict)| verdict));
    report::write_counts(&mut io::stdout(), counts)?;
    Ok(counts.exit_code())
}
