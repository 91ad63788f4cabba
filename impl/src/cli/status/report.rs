//! What the answers come to. Pure.

use serde::Serialize;

use super::gather::Gathered;
use crate::status::{Answer, Finding, Level, Verdict, judge};

/// The whole answer of `tombolo status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Report {
    /// What everything comes to.
    pub(in crate::cli) verdict: Verdict,
    /// The verdict in one sentence.
    pub(in crate::cli) summary: String,
    /// Who was asked.
    pub(in crate::cli) processes: Vec<Process>,
    /// What is not as it should be, the worst first.
    pub(in crate::cli) findings: Vec<Row>,
}

/// A process that was asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Process {
    /// Where.
    pub(in crate::cli) address: String,
    /// What it says; none when it did not answer.
    pub(in crate::cli) answer: Option<Box<Answer>>,
    /// Why it did not.
    pub(in crate::cli) error: Option<String>,
}

/// A finding and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Row {
    /// The process that knows of it; empty when none does.
    pub(in crate::cli) process: String,
    /// What is the matter.
    #[serde(flatten)]
    pub(in crate::cli) finding: Finding,
}

impl Process {
    /// What to call it: its role and cluster if it said so, and where it is.
    pub(super) fn name(&self) -> String {
        let Some(answer) = &self.answer else {
            return self.address.clone();
        };
        match &answer.cluster {
            Some(cluster) => format!("{} of {}", answer.role, cluster.name),
            None => answer.role.clone(),
        }
    }
}

/// Judges what was gathered.
pub(super) fn build(gathered: Gathered) -> Report {
    let mut rows: Vec<_> = gathered
        .findings
        .into_iter()
        .map(|finding| Row {
            process: String::new(),
            finding,
        })
        .collect();
    let mut processes = Vec::new();
    for asked in gathered.asked {
        let address = asked.target.to_string();
        let (answer, error) = match asked.answer {
            Ok(answer) => (Some(answer), None),
            Err(error) => (None, Some(error)),
        };
        let found = match (&answer, &error) {
            (Some(answer), _) => judge::findings(answer),
            (None, error) => vec![unreachable(&address, error.as_deref())],
        };
        let process = Process {
            address,
            answer,
            error,
        };
        let name = process.name();
        rows.extend(found.into_iter().map(|finding| Row {
            process: name.clone(),
            finding,
        }));
        processes.push(process);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.finding.level));
    let verdict = Verdict::of(rows.iter().map(|row| &row.finding));
    Report {
        verdict,
        summary: summary(verdict, &rows, &processes),
        processes,
        findings: rows,
    }
}

fn unreachable(address: &str, error: Option<&str>) -> Finding {
    let why = error.unwrap_or("no reason given");
    Finding::new(
        Level::Unknown,
        "process",
        format!("it did not answer: {why}"),
        format!("check that the process runs and that {address} is its --health-address"),
    )
}

fn summary(verdict: Verdict, rows: &[Row], processes: &[Process]) -> String {
    let peers: usize = processes
        .iter()
        .filter_map(|process| process.answer.as_ref()?.peers.as_ref())
        .map(|peers| peers.peers.len())
        .sum();
    let asked = format!(
        "{} asked, {} followed",
        plural(processes.len(), "process", "processes"),
        plural(peers, "peer", "peers")
    );
    let count = |level| {
        let of_level = rows.iter().filter(|row| row.finding.level == level);
        of_level.count()
    };
    let parts = [
        (Level::Problem, "problem", "problems"),
        (Level::Unknown, "unknown", "unknown"),
        (Level::Behind, "behind", "behind"),
    ];
    let parts = parts
        .into_iter()
        .map(|(level, one, many)| (count(level), one, many))
        .filter(|(count, _, _)| *count > 0)
        .map(|(count, one, many)| plural(count, one, many));
    let parts: Vec<_> = parts.collect();
    match verdict {
        Verdict::Well => format!("everything is known and up to date ({asked})"),
        Verdict::Behind | Verdict::Unknown | Verdict::Problem => {
            format!("{} ({asked})", parts.join(", "))
        }
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
