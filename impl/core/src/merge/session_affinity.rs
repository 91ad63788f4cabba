//! Rule: session affinity and its time-out are those of the oldest export (`KEP-1645#150`).

use super::{Conflict, ConflictReason, disagreement::Field};
use crate::{
    mutant::{self, Mutant},
    service::{ExportSpec, SessionAffinity},
};

/// The affinity of the service.
pub(super) fn of(oldest: &ExportSpec) -> SessionAffinity {
    if mutant::is(Mutant::AffinityLost) {
        return SessionAffinity::None;
    }
    oldest.session_affinity
}

/// The conflict over the affinity, if there is one.
pub(super) fn conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::SessionAffinity,
        name: "sessionAffinity",
        differs: |oldest: &ExportSpec, other: &ExportSpec| {
            oldest.session_affinity != other.session_affinity
        },
        value: |oldest: &ExportSpec| oldest.session_affinity.to_string(),
    }
    .conflict(ordered)
}

/// The conflict over the time-out, if there is one. Absent and stated differ; empty text stands for absent.
///
/// Only clusters with the affinity of the oldest export are asked. The others have no comparable time-out, and
/// [`conflict`] already names them: one cause, one reason.
pub(super) fn timeout_conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::SessionAffinityConfig,
        name: "sessionAffinityConfig.clientIP",
        differs: |oldest: &ExportSpec, other: &ExportSpec| {
            oldest.session_affinity == other.session_affinity
                && oldest.session_affinity_timeout_seconds != other.session_affinity_timeout_seconds
        },
        value: |oldest: &ExportSpec| {
            oldest
                .session_affinity_timeout_seconds
                .map_or_else(String::new, |seconds| seconds.to_string())
        },
    }
    .conflict(ordered)
}
