//! Rule: internal traffic policy and traffic distribution are those of the oldest export (`KEP-1645#151`, `KEP-1645#152`).

use super::{Conflict, ConflictReason, disagreement::Field};
use crate::service::{ExportSpec, InternalTrafficPolicy};

/// The conflict over the internal traffic policy, if there is one. Absent equals Cluster, the default of Kubernetes.
pub(super) fn internal_policy_conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::InternalTrafficPolicy,
        name: "internalTrafficPolicy",
        differs: |oldest: &ExportSpec, other: &ExportSpec| {
            effective_policy(oldest) != effective_policy(other)
        },
        value: |oldest: &ExportSpec| effective_policy(oldest).to_string(),
    }
    .conflict(ordered)
}

/// The conflict over the traffic distribution, if there is one. Empty text stands for absent.
pub(super) fn distribution_conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::TrafficDistribution,
        name: "trafficDistribution",
        differs: |oldest: &ExportSpec, other: &ExportSpec| {
            oldest.traffic_distribution != other.traffic_distribution
        },
        value: |oldest: &ExportSpec| {
            oldest
                .traffic_distribution
                .map_or_else(String::new, |distribution| distribution.to_string())
        },
    }
    .conflict(ordered)
}

fn effective_policy(export: &ExportSpec) -> InternalTrafficPolicy {
    export
        .internal_traffic_policy
        .unwrap_or(InternalTrafficPolicy::Cluster)
}
