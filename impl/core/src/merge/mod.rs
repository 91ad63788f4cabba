//! Merge: one service out of what several clusters export under one name, and what they disagree on.
//!
//! One rule per file. The answer is the same in every cluster (`KEP-1645#144`): it depends on the exports alone, never on
//! their order of arrival or on the cluster that asks. A rule decides and reports; it must never drop a cluster.

mod disagreement;
mod import_type;
mod ip_families;
mod metadata;
mod ports;
mod precedence;
mod session_affinity;
mod traffic;

#[cfg(test)]
mod ports_tests;
#[cfg(test)]
pub(crate) mod properties;
#[cfg(test)]
mod tests;

pub(crate) use self::precedence::oldest_first;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    mutant::{self, Mutant},
    names::ClusterName,
    service::{
        ExportSpec, ImportType, InternalTrafficPolicy, IpFamily, ServicePort, SessionAffinity,
        TrafficDistribution,
    },
};

/// What clusters disagree on. MCS-API, `pkg/apis/v1beta1`. The order of declaration is the order of reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConflictReason {
    /// Ports differ (`KEP-1645#145`).
    Port,
    /// One is headless, another is not (`KEP-1645#149`).
    Type,
    /// Session affinity differs (`KEP-1645#150`).
    SessionAffinity,
    /// The time-out of the session affinity differs (`KEP-1645#150`).
    SessionAffinityConfig,
    /// Exported labels differ (`KEP-1645#153`).
    Labels,
    /// Exported annotations differ (`KEP-1645#153`).
    Annotations,
    /// Internal traffic policy differs (`KEP-1645#151`).
    InternalTrafficPolicy,
    /// Traffic distribution differs (`KEP-1645#152`).
    TrafficDistribution,
    /// No IP family is common to all (`KEP-1645#21`).
    IpFamily,
}

impl ConflictReason {
    /// Every reason, in the order in which several are reported.
    pub const ALL: &'static [Self] = &[
        Self::Port,
        Self::Type,
        Self::SessionAffinity,
        Self::SessionAffinityConfig,
        Self::Labels,
        Self::Annotations,
        Self::InternalTrafficPolicy,
        Self::TrafficDistribution,
        Self::IpFamily,
    ];

    /// The reason as MCS-API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Port => "PortConflict",
            Self::Type => "TypeConflict",
            Self::SessionAffinity => "SessionAffinityConflict",
            Self::SessionAffinityConfig => "SessionAffinityConfigConflict",
            Self::Labels => "LabelsConflict",
            Self::Annotations => "AnnotationsConflict",
            Self::InternalTrafficPolicy => "InternalTrafficPolicyConflict",
            Self::TrafficDistribution => "TrafficDistributionConflict",
            Self::IpFamily => "IPFamilyConflict",
        }
    }
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that the exporting clusters disagree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What it is about. A merge reports each reason at most once.
    pub reason: ConflictReason,
    /// One or more whole sentences: the field, who disagrees, whose value is used (`KEP-1645#174`).
    pub message: String,
}

/// One service, as the clusters together export it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The cluster whose export is the oldest; its value wins where values differ (`KEP-1645#141`).
    pub oldest: ClusterName,
    /// Every exporting cluster (`KEP-1645#38`).
    pub clusters: BTreeSet<ClusterName>,
    /// Type of the oldest export.
    pub import_type: ImportType,
    /// Union of all ports, those of the oldest export first. No name and no number with protocol occurs twice (`KEP-1645#147`).
    pub ports: Vec<ServicePort>,
    /// Families that every cluster has, in the order of the oldest export; none when no cluster tells (Cilium up to 1.18).
    pub ip_families: Option<Vec<IpFamily>>,
    /// Session affinity of the oldest export.
    pub session_affinity: SessionAffinity,
    /// Session affinity time-out of the oldest export, in seconds.
    pub session_affinity_timeout_seconds: Option<i32>,
    /// Internal traffic policy of the oldest export.
    pub internal_traffic_policy: Option<InternalTrafficPolicy>,
    /// Traffic distribution of the oldest export.
    pub traffic_distribution: Option<TrafficDistribution>,
    /// Exported labels of the oldest export, whole (`KEP-1645#153`).
    pub labels: BTreeMap<String, String>,
    /// Exported annotations of the oldest export, whole (`KEP-1645#153`).
    pub annotations: BTreeMap<String, String>,
    /// What the clusters disagree on, in the order of [`ConflictReason`]; at most one entry per reason.
    pub conflicts: Vec<Conflict>,
}

/// Merges the exports of one name. None when there are none.
///
/// The exports may come in any order. All must be of the same name, at most one of each cluster; of two exports of one
/// cluster the older is used and the other ignored (of two equally old ones, the first in the slice).
///
/// ```
/// use tombolo_core::{merge::{ConflictReason, merge}, names::NamespacedName, service::*};
/// let export = |cluster: &str, second, import_type| ExportSpec {
///     cluster: cluster.try_into().unwrap(),
///     name: NamespacedName::parse("shop", "checkout").unwrap(),
///     created_at: jiff::Timestamp::from_second(second).unwrap(),
///     labels: Default::default(), annotations: Default::default(), ports: vec![], import_type,
///     session_affinity: SessionAffinity::None, session_affinity_timeout_seconds: None,
///     ip_families: vec![IpFamily::V4], internal_traffic_policy: None, traffic_distribution: None,
/// };
///
/// let merged = merge(&[export("west", 2, ImportType::Headless), export("east", 1, ImportType::ClusterSetIp)]).unwrap();
///
/// assert_eq!(merged.import_type, ImportType::ClusterSetIp);
/// assert_eq!(merged.conflicts[0].reason, ConflictReason::Type);
/// assert_eq!(
///     merged.conflicts[0].message,
///     r#"Conflicting type. 1/2 clusters disagree. Using "ClusterSetIP" from oldest service export in cluster "east"."#
/// );
/// ```
pub fn merge(exports: &[ExportSpec]) -> Option<Merged> {
    let mut clusters = BTreeSet::new();
    let mut ordered = precedence::oldest_first(exports);
    ordered.retain(|export| clusters.insert(export.cluster.clone()));
    let oldest = *ordered.first()?;
    let (ports, port_conflict) = ports::merge(&ordered);
    let (ip_families, family_conflict) = ip_families::intersect(&ordered);
    let conflicts = [
        port_conflict,
        import_type::conflict(&ordered),
        session_affinity::conflict(&ordered),
        session_affinity::timeout_conflict(&ordered),
        metadata::labels_conflict(&ordered),
        metadata::annotations_conflict(&ordered),
        traffic::internal_policy_conflict(&ordered),
        traffic::distribution_conflict(&ordered),
        family_conflict,
    ];
    let reported = if mutant::is(Mutant::FirstConflictOnly) {
        1
    } else {
        conflicts.len()
    };
    Some(Merged {
        oldest: oldest.cluster.clone(),
        clusters,
        import_type: oldest.import_type,
        ports,
        ip_families,
        session_affinity: session_affinity::of(oldest),
        session_affinity_timeout_seconds: oldest.session_affinity_timeout_seconds,
        internal_traffic_policy: oldest.internal_traffic_policy,
        traffic_distribution: oldest.traffic_distribution,
        labels: metadata::labels(&ordered),
        annotations: oldest.annotations.clone(),
        conflicts: conflicts.into_iter().flatten().take(reported).collect(),
    })
}
