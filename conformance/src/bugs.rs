//! Bugs that were reported about implementations of the API, and the cases that would show them.
//!
//! The rows are this project's: small objects in, what must come out. A row has a case that cites it, or a reason why the
//! API servers cannot show it; a test holds the two apart.

use std::fmt;

use crate::{case::Case, cases};

/// A citation in a case: the row, and the public report that it comes from, as `project#issue`, `project@commit`, or a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bug(pub &'static str, pub &'static str);

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.1)
    }
}

/// A reported bug.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its number, as cases cite it.
    pub id: &'static str,
    /// Public reports of it.
    pub reports: &'static [&'static str],
    /// What it is about, in short.
    pub title: &'static str,
    /// Why no case shows it, where none does.
    pub not_shown: Option<&'static str>,
}

const fn shown(id: &'static str, reports: &'static [&'static str], title: &'static str) -> Row {
    Row {
        id,
        reports,
        title,
        not_shown: None,
    }
}

const fn not_shown(
    id: &'static str,
    reports: &'static [&'static str],
    title: &'static str,
    reason: &'static str,
) -> Row {
    Row {
        id,
        reports,
        title,
        not_shown: Some(reason),
    }
}

const STATUS_COMMAND: &str =
    "what a command prints about the mesh; no object of the API changes with it";

/// Reported bugs about merging, status, IP families, and naming.
pub const ROWS: &[Row] = &[
    shown(
        "BC-01",
        &["cilium#45109", "cilium#45179"],
        "two ports of a Service with one target port: one of them has no backends",
    ),
    shown(
        "BC-02",
        &["cilium#40848"],
        "the only port has no name: no remote backends",
    ),
    shown(
        "BC-03",
        &["cilium#43251"],
        "one port name with two numbers: traffic reaches the cluster that lost",
    ),
    shown(
        "BC-04",
        &["lighthouse@3136b91"],
        "one port name with two numbers: the import has the name twice",
    ),
    shown(
        "BC-05",
        &["mcs-api@ee95747"],
        "ports that only one cluster has are not joined, or lead to both clusters",
    ),
    shown(
        "BC-07",
        &["KEP-1645#147"],
        "one number for two protocols is taken for a duplicate",
    ),
    shown(
        "BC-08",
        &["lighthouse@3136b91"],
        "ports that differ in appProtocol only are not in conflict",
    ),
    shown(
        "BC-09",
        &["lighthouse#1439"],
        "two exports of one cluster are taken for a conflict",
    ),
    shown(
        "BC-11",
        &["cilium#34439"],
        "the message of a conflict changes though the conflict does not",
    ),
    shown(
        "BC-12",
        &["kubernetes/enhancements#5463"],
        "the import flaps or goes when the oldest of two exports goes",
    ),
    shown(
        "BC-14",
        &["lighthouse#645"],
        "changes of an exported Service do not reach the import",
    ),
    shown(
        "BC-15",
        &["antrea#4814", "lighthouse@a3860a5"],
        "an export whose Service became an ExternalName stays, or does not come back",
    ),
    shown(
        "BC-17",
        &["aws-cloud-map-mcs-controller-for-k8s#254"],
        "the endpoints of a second exporter overwrite those of the first",
    ),
    shown(
        "BC-18",
        &["kubernetes/enhancements#5437"],
        "an export without a Service is taken for valid, or stays invalid when the Service comes",
    ),
    shown(
        "BC-19",
        &["KEP-1645#17"],
        "labels of the Service or the ServiceExport travel to the import",
    ),
    not_shown(
        "BC-47",
        &["cilium#47793"],
        "a peer that cannot publish exports is taken for one that has none",
        "needs a cluster without the CRDs, which all cases of a run share; the implementation's own tests take it away",
    ),
    not_shown(
        "BC-48",
        &["cilium#48555"],
        "the status is fine while the watches stand still",
        STATUS_COMMAND,
    ),
    not_shown(
        "BC-49",
        &["cilium#42330"],
        "the status is fine with 0 of 0 remote clusters",
        STATUS_COMMAND,
    ),
    not_shown(
        "BC-50",
        &["cilium#29161"],
        "the status shows the last error instead of the first",
        STATUS_COMMAND,
    ),
    not_shown(
        "BC-51",
        &["cilium#19217"],
        "disconnecting fails while the peer is away",
        "a command of the implementation; the API has no peers",
    ),
    not_shown(
        "BC-53",
        &["linkerd2#14418"],
        "a check that timed out counts as passed",
        STATUS_COMMAND,
    ),
    not_shown(
        "BC-54",
        &["cilium-cli#286", "cilium#36892"],
        "a conformance run with one cluster passes",
        "a property of this program, which its own tests check: one cluster is refused, what was not run never counts as passed",
    ),
    not_shown(
        "BC-56",
        &["cilium#43681"],
        "a list of backends hides those that affinity does not prefer",
        STATUS_COMMAND,
    ),
    shown(
        "BC-77",
        &["cilium#42145"],
        "differing IP families: an address that reaches a part of the backends only, without a conflict",
    ),
    shown(
        "BC-78",
        &["cilium#37053"],
        "the IPs of an import with two families lack one, or are in another order",
    ),
    shown(
        "BC-79",
        &["mcs-api@8e35cab"],
        "a headless import has the IP `None`",
    ),
    not_shown(
        "BC-81",
        &["KEP-1645#37"],
        "an import whose only family the cluster does not have counts as ready",
        "needs a cluster with one IP family; a run takes its clusters as they are, and these mostly have two",
    ),
    shown(
        "BC-100",
        &["linkerd2#15201"],
        "ending the export of a headless Service removes the one of that name in another namespace",
    ),
    not_shown(
        "BC-102",
        &["istio#61043"],
        "closing a peer's old connection deletes what the new one brought",
        "credentials between clusters are not part of the API",
    ),
    shown(
        "BC-105",
        &["kubernetes/enhancements@ab7b1889e"],
        "the import says that EndpointSlices are there when they are not, or the other way round",
    ),
];

/// The row of that number, if there is one.
pub fn lookup(id: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.id == id)
}

impl Row {
    /// The cases that show it.
    pub fn cases(&self) -> impl Iterator<Item = &'static Case> {
        let id = self.id;
        cases::all().filter(move |case| case.bugs.iter().any(|bug| bug.0 == id))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_case_or_a_reason_and_never_both() {
        for row in ROWS {
            let cases: Vec<_> = row.cases().map(|case| case.id).collect();
            assert_ne!(
                cases.is_empty(),
                row.not_shown.is_none(),
                "{}: cases {cases:?}, reason {:?}",
                row.id,
                row.not_shown
            );
        }
    }

    #[test]
    fn every_citation_names_a_row_with_one_of_its_reports() {
        for case in cases::all() {
            for bug in case.bugs {
                let row = lookup(bug.0);
                let known = row.is_some_and(|row| row.reports.contains(&bug.1));
                assert!(known, "{} cites unknown {bug}", case.id);
            }
        }
    }

    #[test]
    fn all_rows_about_merge_status_families_and_naming_are_there() {
        let wanted: BTreeSet<_> = [
            1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 14, 15, 17, 18, 19, // merge and conflicts
            47, 48, 49, 50, 51, 53, 54, 56, // status
            77, 78, 79, 81, // IP families
            100, 102, 105, // upgrade and naming
        ]
        .map(|number| format!("BC-{number:02}"))
        .into();

        let found: BTreeSet<_> = ROWS.iter().map(|row| row.id.to_owned()).collect();

        assert_eq!(found, wanted);
        assert_eq!(found.len(), ROWS.len(), "a row is there twice");
    }
}
