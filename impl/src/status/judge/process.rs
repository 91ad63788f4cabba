//! What is the matter with a process as a whole. Pure.

use super::{Finding, Level};
use crate::status::answer::{Answer, Ready};

/// What is the matter with the process as a whole.
pub(super) fn findings(answer: &Answer) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(what) = contradiction(answer) {
        found.push(Finding::new(
            Level::Unknown,
            "process",
            format!("{} {what}", answer.role),
            "use the status command of the version that runs there",
        ));
    }
    if answer.cluster.is_none() {
        found.push(Finding::new(
            Level::Unknown,
            "process",
            "it does not know yet which cluster it is in",
            "check --cluster-name, the ClusterProperty cluster.clusterset.k8s.io and whether the API server answers; see the log",
        ));
    }
    found.extend(answer.stuck.iter().map(|part| {
        Finding::new(
            Level::Problem,
            "process",
            format!("{part} is stuck: a bug"),
            "save the log, restart the process, report it",
        )
    }));
    let closed = answer
        .ready
        .iter()
        .filter(|check| check.counts && !check.ok);
    found.extend(closed.map(|Ready { check, failure, .. }| {
        let why = failure.as_deref().unwrap_or("no reason given");
        Finding::new(
            Level::Behind,
            "process",
            format!("it is not ready: {check}: {why}"),
            "see the log of the process for what it waits for",
        )
    }));
    found
}

/// What an answer lacks, or has, that one of its role does not.
fn contradiction(answer: &Answer) -> Option<&'static str> {
    let (peers, store) = (answer.peers.is_some(), answer.store.is_some());
    let (copies, leadership) = (answer.copies.is_some(), answer.leadership.is_some());
    let counted = answer.ready.iter().any(|check| check.counts);
    match answer.role.as_str() {
        _ if answer.api_server.watches.is_empty() => Some("watches nothing of the API server"),
        _ if !counted => Some("says nothing of whether it is ready"),
        "operator" if !peers => Some("says nothing of peers"),
        "operator" if !leadership => Some("says nothing of who leads"),
        "operator" if answer.queues.is_empty() => Some("says nothing of its queues"),
        "operator" if store || copies => Some("says what only a mesh role knows"),
        "mesh" | "kvstoremesh" if !store => Some("says nothing of its store"),
        "kvstoremesh" if !peers => Some("says nothing of peers"),
        "mesh" | "kvstoremesh" if peers != copies => Some("says not all of peers and copies"),
        "mesh" | "kvstoremesh" if leadership => Some("says what only an operator knows"),
        "operator" | "mesh" | "kvstoremesh" => None,
        _ => Some("is no role that this version knows"),
    }
}
