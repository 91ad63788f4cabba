//! Why clusters are in conflict over a service: who wants what, whose value is used, and what would end it.
//!
//! Has no rules of its own: what is used is what [`merge`] says, and whether a cluster disagrees with that is asked of
//! [`merge`] too. Words and commands are the business of the shell.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    merge::{Conflict, ConflictReason, Merged, merge, oldest_first},
    names::ClusterName,
    service::{
        ExportSpec, ImportType, InternalTrafficPolicy, IpFamily, ServicePort, SessionAffinity,
        TrafficDistribution,
    },
};

/// What the clusters export under one name, and where they disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The exports, the winner first: one of each cluster.
    pub exports: Vec<ExportSpec>,
    /// What comes out of them.
    pub merged: Merged,
    /// One entry for each conflict, in the order in which they are reported.
    pub disputes: Vec<Dispute>,
}

/// One conflict, and what would end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// The conflict as it is reported.
    pub conflict: Conflict,
    /// The clusters whose value is not the one that is used, and what each of them would have to say instead. With ports,
    /// the winner can be among them: it may lack a port that another cluster adds.
    pub changes: BTreeMap<ClusterName, Change>,
}

/// A change to what a cluster exports. After all changes of an [`Explanation`] the clusters agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The Service's ports become these, in this order.
    Ports(Vec<ServicePort>),
    /// The Service becomes headless, or ceases to be.
    Type(ImportType),
    /// The Service's session affinity becomes this, with this time-out in seconds.
    SessionAffinity(SessionAffinity, Option<i32>),
    /// The time-out of the Service's session affinity becomes this, in seconds.
    SessionAffinityTimeout(Option<i32>),
    /// The ServiceExport's labels become these.
    Labels(BTreeMap<String, String>),
    /// The ServiceExport's annotations become these.
    Annotations(BTreeMap<String, String>),
    /// The Service's internal traffic policy becomes this.
    InternalTrafficPolicy(InternalTrafficPolicy),
    /// The Service's traffic distribution becomes this, or goes.
    TrafficDistribution(Option<TrafficDistribution>),
    /// The Service gets at least one of these IP families.
    IpFamilies(Vec<IpFamily>),
}

impl Change {
    /// The export as it is after the change.
    pub fn apply(&self, export: &mut ExportSpec) {
        match self {
            Self::Ports(ports) => export.ports.clone_from(ports),
            Self::Type(import_type) => export.import_type = *import_type,
            Self::SessionAffinity(affinity, timeout) => {
                export.session_affinity = *affinity;
                export.session_affinity_timeout_seconds = *timeout;
            }
            Self::SessionAffinityTimeout(timeout) => {
                export.session_affinity_timeout_seconds = *timeout;
            }
            Self::Labels(labels) => export.labels.clone_from(labels),
            Self::Annotations(annotations) => export.annotations.clone_from(annotations),
            Self::InternalTrafficPolicy(policy) => export.internal_traffic_policy = Some(*policy),
            Self::TrafficDistribution(distribution) => export.traffic_distribution = *distribution,
            Self::IpFamilies(families) => export.ip_families.extend(families),
        }
    }

    /// The change that makes an export agree with a merge on what the conflict is about.
    fn towards(merged: &Merged, reason: ConflictReason) -> Self {
        match reason {
            ConflictReason::Port => Self::Ports(merged.ports.clone()),
            ConflictReason::Type => Self::Type(merged.import_type),
            ConflictReason::SessionAffinity => Self::SessionAffinity(
                merged.session_affinity,
                merged.session_affinity_timeout_seconds,
            ),
            ConflictReason::SessionAffinityConfig => {
                Self::SessionAffinityTimeout(merged.session_affinity_timeout_seconds)
            }
            ConflictReason::Labels => Self::Labels(merged.labels.clone()),
            ConflictReason::Annotations => Self::Annotations(merged.annotations.clone()),
            ConflictReason::InternalTrafficPolicy => Self::InternalTrafficPolicy(
                merged
                    .internal_traffic_policy
                    .unwrap_or(InternalTrafficPolicy::Cluster),
            ),
            ConflictReason::TrafficDistribution => {
                Self::TrafficDistribution(merged.traffic_distribution)
            }
            ConflictReason::IpFamily => {
                Self::IpFamilies(merged.ip_families.clone().unwrap_or_default())
            }
        }
    }
}

/// Explains the exports of one name, in any order. None when there are none. What [`merge`] asks of them is asked here.
pub fn explain(exports: &[ExportSpec]) -> Option<Explanation> {
    let merged = merge(exports)?;
    let mut seen = BTreeSet::new();
    let mut ordered: Vec<_> = oldest_first(exports).into_iter().cloned().collect();
    ordered.retain(|export| seen.insert(export.cluster.clone()));
    let used = export_of(&merged, ordered.first()?);
    let disagreements: Vec<_> = ordered
        .iter()
        .map(|export| (&export.cluster, disagreements(&used, export)))
        .collect();
    let dispute = |conflict: &Conflict| Dispute {
        conflict: conflict.clone(),
        changes: disagreements
            .iter()
            .filter(|(_, reasons)| reasons.contains(&conflict.reason))
            .map(|(cluster, _)| {
                (
                    (*cluster).clone(),
                    Change::towards(&merged, conflict.reason),
                )
            })
            .collect(),
    };
    let disputes = merged.conflicts.iter().map(dispute).collect();
    Some(Explanation {
        exports: ordered,
        merged,
        disputes,
    })
}

/// An export that says exactly what came out of a merge.
fn export_of(merged: &Merged, oldest: &ExportSpec) -> ExportSpec {
    ExportSpec {
        cluster: oldest.cluster.clone(),
        name: oldest.name.clone(),
        created_at: oldest.created_at,
        labels: merged.labels.clone(),
        annotations: merged.annotations.clone(),
        ports: merged.ports.clone(),
        import_type: merged.import_type,
        session_affinity: merged.session_affinity,
        session_affinity_timeout_seconds: merged.session_affinity_timeout_seconds,
        ip_families: merged.ip_families.clone().unwrap_or_default(),
        internal_traffic_policy: merged.internal_traffic_policy,
        traffic_distribution: merged.traffic_distribution,
    }
}

/// What would be in conflict if there were only what is used and one export, as if they were of two clusters.
fn disagreements(used: &ExportSpec, export: &ExportSpec) -> BTreeSet<ConflictReason> {
    let from = |cluster: &str, export: &ExportSpec| ExportSpec {
        cluster: ClusterName::try_from(cluster).expect("invariant: a letter is a cluster name"),
        created_at: used.created_at,
        ..export.clone()
    };
    let merged = merge(&[from("a", used), from("b", export)]);
    let conflicts = merged.into_iter().flat_map(|merged| merged.conflicts);
    conflicts.map(|conflict| conflict.reason).collect()
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
