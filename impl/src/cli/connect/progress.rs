//! Whether the processes of a cluster have heard of its peers, by what they say of themselves. Pure.

use tombolo_core::names::ClusterName;

use crate::{
    cli::status::Report,
    status::{Answer, Level, judge},
};

/// Why a process may not have heard of it yet.
const LATE: &str = "kubelets renew mounted files within about a minute";

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// That the peer is read.
    Synced,
    /// That nobody reads the peer any more.
    Gone,
}

/// What is missing with one peer in one cluster; none when nothing is.
pub(super) fn missing(
    report: &Report,
    peer: &ClusterName,
    goal: Goal,
    copies: bool,
) -> Option<String> {
    let answers = || {
        report
            .processes
            .iter()
            .filter_map(|it| it.answer.as_deref())
    };
    let operators: Vec<_> = answers().filter(|it| it.role == "operator").collect();
    let mesh_roles: Vec<_> = answers().filter(|it| it.copies.is_some()).collect();
    if operators.is_empty() {
        return Some(silent(report, "operator"));
    }
    if copies && mesh_roles.is_empty() {
        return Some(silent(report, "mesh role"));
    }
    let leads = |it: &&&Answer| it.copies.as_ref().is_some_and(|copies| copies.leads);
    let copying: Vec<_> = mesh_roles.iter().filter(leads).copied().collect();
    if copies && copying.is_empty() {
        return Some("no mesh role copies the peers yet".to_owned());
    }
    // Who copies knows why a peer is not read; the operator then only knows that its copy is not there.
    let copying = copying.into_iter().filter(|_| copies);
    let mut asked = copying.chain(operators);
    asked.find_map(|answer| of_process(answer, peer, goal))
}

fn of_process(answer: &Answer, peer: &ClusterName, goal: Goal) -> Option<String> {
    let role = &answer.role;
    let peers = answer.peers.iter().flat_map(|it| &it.peers);
    let follows = peers.into_iter().any(|it| it.status.cluster == *peer);
    match goal {
        Goal::Gone => follows.then(|| format!("{role}: still follows {peer}; {LATE}")),
        Goal::Synced if !follows => Some(format!("{role}: has not heard of {peer} yet; {LATE}")),
        Goal::Synced => {
            let subjects = [format!("peer {peer}"), format!("copy of {peer}")];
            let mut findings = judge::findings(answer)
                .into_iter()
                .filter(|it| it.level > Level::Notice && subjects.contains(&it.subject));
            let finding = findings.next()?;
            Some(format!(
                "{role}: {}: {}; {}",
                finding.subject, finding.what, finding.next
            ))
        }
    }
}

/// That nobody of a role has answered, and why as far as anybody says.
fn silent(report: &Report, role: &str) -> String {
    let errors = report.processes.iter().filter_map(|it| {
        let error = it.error.as_deref()?;
        Some(format!("{}: {error}", it.address))
    });
    let findings = report
        .findings
        .iter()
        .filter(|it| it.finding.subject == "cluster");
    let findings = findings.map(|it| it.finding.what.clone());
    let mut why = errors.chain(findings);
    match why.next() {
        Some(why) => format!("no {role} has answered ({why})"),
        None => format!("no {role} has answered"),
    }
}
