//! The report as YAML: the fields of the upstream suite's `report.yaml`, and under `tombolo` what that does not have.
//!
//! Every case is in it, also those that were not selected: what is missing from a report must not look like success.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Counts;
use crate::{
    budgets::Budgets,
    case::{Blame, Case, Feature, Group},
    cases,
    clusters::Facts,
    coverage::Results,
    lookup::CLUSTERSET,
    suite::Verdict,
    upstream,
};

const KEP: &str = "https://github.com/kubernetes/enhancements/blob/master/keps/sig-multicluster/1645-multi-cluster-services-api/README.md";

/// Whose implementation was tested. Fields of the upstream suite.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Implementation {
    /// Who makes it.
    pub organization: String,
    /// What it is called.
    pub project: String,
    /// Which version it has.
    pub version: String,
    /// Where to read about it.
    pub url: String,
}

/// What was tested, and how.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Whose implementation.
    pub implementation: Implementation,
    /// Where the clusters came from, e.g. `contexts:east,west`.
    pub provider: String,
    /// The clusters.
    pub clusters: Vec<Facts>,
    /// How long cases waited.
    pub budgets: Budgets,
    /// What was declared to be missing.
    pub without: Vec<Feature>,
    /// Why nothing could be run, if so.
    pub suite_failure: String,
}

/// How one case ended, and where its evidence is, if it failed.
#[derive(Debug)]
pub struct Ended {
    /// The case.
    pub case: &'static Case,
    /// How it ended.
    pub verdict: Verdict,
    /// Directory with the evidence.
    pub evidence: Option<PathBuf>,
}

/// Writes the report; cases that are not in `ended` are in it as not run, for want of selection.
pub fn write(path: &Path, about: &About, ended: &[Ended]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let text = serde_saphyr::to_string(&document(about, ended)).map_err(io::Error::other)?;
    fs::write(path, text)
}

/// Where the evidence of a report goes: `report-evidence` beside `report.yaml`.
pub fn evidence_directory(report: &Path) -> PathBuf {
    let stem = report.file_stem().unwrap_or_default().to_string_lossy();
    report.with_file_name(format!("{stem}-evidence"))
}

/// How the cases of a report ended, by id.
pub fn read_results(path: &Path) -> io::Result<Results> {
    #[derive(Deserialize)]
    struct Report {
        tombolo: Ours,
    }
    #[derive(Deserialize)]
    struct Ours {
        cases: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        result: String,
    }
    let text = fs::read_to_string(path)?;
    let report: Report = serde_saphyr::from_str(&text).map_err(io::Error::other)?;
    let entries = report.tombolo.cases.into_iter();
    Ok(entries.map(|entry| (entry.id, entry.result)).collect())
}

#[derive(Debug, Serialize)]
struct Document {
    groups: Vec<UpstreamGroup>,
    suitefailure: String,
    dnsdomain: &'static str,
    passed: usize,
    total: usize,
    implementation: Implementation,
    tombolo: Ours,
}

#[derive(Debug, Serialize)]
struct UpstreamGroup {
    name: &'static str,
    tests: Vec<UpstreamTest>,
}

#[derive(Debug, Serialize)]
struct UpstreamTest {
    desc: &'static str,
    #[serde(rename = "ref")]
    reference: String,
    labels: Vec<String>,
    passed: bool,
    failed: bool,
    skipped: bool,
    conformant: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
struct Ours {
    suite: &'static str,
    provider: String,
    clusters: Vec<Facts>,
    budgets: Seconds,
    without: Vec<&'static str>,
    core: Counts,
    extended: Counts,
    cases: Vec<CaseResult>,
}

#[derive(Debug, Serialize)]
struct Seconds {
    appear: f64,
    stay: f64,
}

#[derive(Debug, Serialize)]
struct CaseResult {
    id: &'static str,
    title: &'static str,
    group: &'static str,
    upstream: Option<&'static str>,
    #[serde(rename = "upstreamtitle")]
    upstream_title: Option<&'static str>,
    rules: Vec<String>,
    bugs: Vec<String>,
    features: Vec<&'static str>,
    result: &'static str,
    reason: Option<String>,
    seconds: Option<f64>,
    #[serde(rename = "slowestwait")]
    slowest_wait: Option<SlowestWait>,
    failure: Option<FailureText>,
    evidence: Option<String>,
}

/// The longest time until something held: how close the case came to its budget.
#[derive(Debug, Serialize)]
struct SlowestWait {
    step: &'static str,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct FailureText {
    step: &'static str,
    cluster: String,
    expected: String,
    observed: String,
}

fn document(about: &About, ended: &[Ended]) -> Document {
    let not_selected = Verdict::NotRun("not selected".to_owned());
    let all: Vec<_> = cases::all()
        .map(|case| {
            let found = ended.iter().find(|ended| ended.case.id == case.id);
            let verdict = found.map_or(&not_selected, |ended| &ended.verdict);
            (
                case,
                verdict,
                found.and_then(|ended| ended.evidence.as_deref()),
            )
        })
        .collect();
    let counts = |wanted: &dyn Fn(&Case) -> bool| {
        let matching = all.iter().filter(|(case, ..)| wanted(case));
        Counts::of(matching.map(|(_, verdict, _)| *verdict))
    };
    let total = counts(&|_| true);
    Document {
        groups: Group::ALL
            .iter()
            .map(|group| UpstreamGroup {
                name: group.upstream(),
                tests: all
                    .iter()
                    .filter(|(case, ..)| case.group() == *group)
                    .map(|(case, verdict, _)| upstream_test(case, verdict))
                    .collect(),
            })
            .collect(),
        suitefailure: about.suite_failure.clone(),
        dnsdomain: CLUSTERSET,
        passed: total.passed,
        total: all.len(),
        implementation: about.implementation.clone(),
        tombolo: Ours {
            suite: env!("CARGO_PKG_VERSION"),
            provider: about.provider.clone(),
            clusters: about.clusters.clone(),
            budgets: Seconds {
                appear: about.budgets.appear.as_secs_f64(),
                stay: about.budgets.stay.as_secs_f64(),
            },
            without: about.without.iter().map(|it| it.as_str()).collect(),
            core: counts(&|case| case.group() == Group::Core),
            extended: counts(&|case| case.group() == Group::Extended),
            cases: all
                .iter()
                .map(|(case, verdict, evidence)| case_result(case, verdict, *evidence))
                .collect(),
        },
    }
}

fn upstream_test(case: &Case, verdict: &Verdict) -> UpstreamTest {
    let (conformant, message) = match verdict {
        Verdict::Passed { .. } => ("Yes", String::new()),
        Verdict::NotRun(reason) => ("Skipped", reason.clone()),
        Verdict::Failed { failure, .. } => {
            let conformant = match failure.blame {
                Blame::Implementation => "No",
                Blame::SetUp => "Unknown",
            };
            (conformant, failure.to_string())
        }
    };
    let section = case.rules.first().map_or("", |rule| rule.section());
    let features = case.features.iter().map(ToString::to_string);
    // Group names are no labels upstream.
    let theirs = case.upstream.and_then(upstream::lookup);
    let theirs = theirs.into_iter().flat_map(|it| &it.labels[1..]);
    UpstreamTest {
        desc: case.title,
        reference: format!("{KEP}#{section}"),
        labels: features.chain(theirs.map(|&it| it.to_owned())).collect(),
        passed: matches!(verdict, Verdict::Passed { .. }),
        failed: matches!(verdict, Verdict::Failed { .. }),
        skipped: matches!(verdict, Verdict::NotRun(_)),
        conformant,
        message,
    }
}

fn case_result(case: &Case, verdict: &Verdict, evidence: Option<&Path>) -> CaseResult {
    let mut result = CaseResult {
        id: case.id,
        title: case.title,
        group: case.group().as_str(),
        upstream: case.upstream,
        upstream_title: case.upstream.and_then(upstream::lookup).map(|it| it.title),
        rules: case.rules.iter().map(ToString::to_string).collect(),
        bugs: case.bugs.iter().map(ToString::to_string).collect(),
        features: case.features.iter().map(|it| it.as_str()).collect(),
        result: "",
        reason: None,
        seconds: None,
        slowest_wait: None,
        failure: None,
        evidence: evidence.map(|path| path.display().to_string()),
    };
    match verdict {
        Verdict::Passed { took, slowest } => {
            result.result = "passed";
            result.seconds = Some(seconds(*took));
            result.slowest_wait = slowest.map(|wait| SlowestWait {
                step: wait.step,
                seconds: seconds(wait.took),
            });
        }
        Verdict::NotRun(reason) => {
            result.result = "not run";
            result.reason = Some(reason.clone());
        }
        Verdict::Failed { failure, took, .. } => {
            result.result = "failed";
            result.seconds = Some(seconds(*took));
            result.failure = Some(FailureText {
                step: failure.step,
                cluster: failure.cluster.clone(),
                expected: failure.expected.clone(),
                observed: failure.observed.clone(),
            });
        }
    }
    result
}

/// Seconds to the millisecond.
fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
