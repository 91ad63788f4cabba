//! The command line of `tombolo-conformance`.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use jiff::SignedDuration;

use crate::{
    case::{Case, Feature},
    cases, clusters,
    coverage::{self, Format},
    evidence,
    report::{
        self, Counts,
        document::{self, About, Ended, Implementation},
    },
    suite::{Cleanup, Suite, Verdict},
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
    /// Show which rules and reported bugs the cases check, and why some are not checked.
    Rules(Rules),
}

#[derive(Debug, Args)]
struct Selection {
    /// Only cases whose id contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

#[derive(Debug, Args)]
struct Rules {
    /// How to write the tables.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    /// Show how each case ended in that report of a run.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
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
    #[arg(long, default_value_t = 16, value_parser = jobs, value_name = "N")]
    jobs: usize,
    /// What the implementation or its clusters do not have: dns, connectivity, endpoint-slices, derived-service, exported-metadata, dual-stack.
    /// Such cases are reported as not run.
    #[arg(long, value_delimiter = ',', value_parser = feature, value_name = "FEATURE")]
    without: Vec<Feature>,
    /// Leave the namespaces of failed cases.
    #[arg(long)]
    keep_failed: bool,
    /// Write the report of the run to this file, as YAML.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the objects and Events of each failed case to files below this directory; by default beside the report.
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
    #[command(flatten)]
    implementation: Tested,
}

/// What the report says about the implementation.
#[derive(Debug, Args)]
struct Tested {
    /// For the report: who makes the implementation.
    #[arg(long, default_value = "", value_name = "NAME")]
    organization: String,
    /// For the report: its name.
    #[arg(long, default_value = "", value_name = "NAME")]
    project: String,
    /// For the report: its version.
    #[arg(long, default_value = "", value_name = "VERSION")]
    project_version: String,
    /// For the report: where to read about it.
    #[arg(long, default_value = "", value_name = "URL")]
    url: String,
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
        Command::Rules(rules) => show_rules(&rules),
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
    anyhow::ensure!(
        !cases.is_empty(),
        "--filter: no case matches; `tombolo-conformance list` shows all"
    );
    shown(cases.into_iter().try_for_each(write_case))
}

fn write_case(case: &Case) -> io::Result<()> {
    let rules: Vec<_> = case.rules.iter().map(ToString::to_string).collect();
    let upstream = case
        .upstream
        .map(|row| format!(", upstream {row}"))
        .unwrap_or_default();
    writeln!(
        io::stdout(),
        "{}: {} [{}{upstream}]",
        case.id,
        case.title,
        rules.join(", ")
    )
}

async fn run_cases(run: Run) -> anyhow::Result<u8> {
    let cases = select(&run.selection);
    anyhow::ensure!(
        !cases.is_empty(),
        "--filter: no case matches; `tombolo-conformance list` shows all"
    );
    let clusters = clusters::from_contexts(&run.kubeconfig, &run.contexts).await?;
    clusters::check(&clusters).await?;
    let mut suite = Suite::new(clusters);
    suite.budgets.appear = run.budget_appear;
    suite.budgets.stay = run.budget_stay;
    suite.without = run.without.iter().copied().collect();
    if run.keep_failed {
        suite.cleanup = Cleanup::KeepFailed;
    }
    let beside_report = run.report.as_deref().map(document::evidence_directory);
    let evidence = run.evidence.clone().or(beside_report);
    let verdicts = suite
        .run_all(cases, run.jobs, |case, verdict| {
            // A closed pipe must not end the run: the exit code still counts.
            let _ = report::write_verdict(&mut io::stdout(), case, verdict);
        })
        .await;
    let ended: Vec<_> = verdicts
        .into_iter()
        .map(|(case, verdict)| Ended {
            evidence: keep_evidence(evidence.as_deref(), case, &verdict),
            case,
            verdict,
        })
        .collect();
    if let Some(path) = &run.report {
        let about = about(&run, &suite).await;
        document::write(path, &about, &ended)
            .with_context(|| format!("--report {}: expected a writable file", path.display()))?;
    }
    let verdicts = ended.iter().map(|ended| (ended.case, &ended.verdict));
    report::write_counts(&mut io::stdout(), verdicts.clone())?;
    Ok(Counts::of(verdicts.map(|(_, verdict)| verdict)).exit_code())
}

async fn about(run: &Run, suite: &Suite) -> About {
    let tested = &run.implementation;
    About {
        implementation: Implementation {
            organization: tested.organization.clone(),
            project: tested.project.clone(),
            version: tested.project_version.clone(),
            url: tested.url.clone(),
        },
        provider: format!("contexts:{}", run.contexts.join(",")),
        clusters: clusters::facts(&suite.clusters).await,
        budgets: suite.budgets,
        without: run.without.clone(),
        suite_failure: String::new(),
    }
}

/// Writes the evidence of a failed case below a directory; says where.
fn keep_evidence(directory: Option<&Path>, case: &Case, verdict: &Verdict) -> Option<PathBuf> {
    let Verdict::Failed { evidence, .. } = verdict else {
        return None;
    };
    let path = directory?.join(evidence::directory_name(case));
    match evidence.write(&path) {
        Ok(()) => Some(path),
        Err(error) => {
            eprintln!(
                "{}: the evidence cannot be written: {error}",
                path.display()
            );
            None
        }
    }
}

fn show_rules(rules: &Rules) -> anyhow::Result<u8> {
    let results = match &rules.report {
        None => coverage::Results::new(),
        Some(path) => document::read_results(path)
            .with_context(|| format!("--report {}: expected a report of a run", path.display()))?,
    };
    shown(coverage::write(&mut io::stdout(), rules.output, &results))
}

/// The exit code of a command that only shows something.
fn shown(written: io::Result<()>) -> anyhow::Result<u8> {
    match written {
        // Whoever reads only the beginning, e.g. `head`, is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        written => written.map(|()| 0).context("standard output"),
    }
}
