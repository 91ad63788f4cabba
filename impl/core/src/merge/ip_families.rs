//! Rule: the service has the IP families that every cluster has, so that each family reaches all backends (`KEP-1645#21`).
//!
//! A cluster that shares none of them is passed over, and a conflict says so: an empty list would stop all traffic.

use super::{Conflict, ConflictReason, disagreement::counted};
use crate::{
    families::to_annotation,
    service::{ExportSpec, IpFamily},
};

/// The common families in the order of the oldest export, and the conflict over them, if there is one.
///
/// Exports that tell no family do not count; without any that does, there is no list.
pub(super) fn intersect(ordered: &[&ExportSpec]) -> (Option<Vec<IpFamily>>, Option<Conflict>) {
    let mut telling = ordered
        .iter()
        .filter(|export| !export.ip_families.is_empty());
    let Some(first) = telling.next() else {
        return (None, None);
    };
    let mut common = without_repeats(&first.ip_families);
    let mut odd = Vec::new();
    for export in telling {
        let shared = |family: &IpFamily| export.ip_families.contains(family);
        if common.iter().any(shared) {
            common.retain(shared);
        } else {
            odd.push(&export.cluster);
        }
    }
    let conflict = odd.first().map(|cluster| Conflict {
        reason: ConflictReason::IpFamily,
        message: format!(
            "IPFamilies conflict. Cluster '{cluster}' has no IPFamilies in common. {} Using \"{}\" from oldest service export in cluster \"{}\".",
            counted(odd.len(), ordered.len()),
            to_annotation(&common),
            first.cluster,
        ),
    });
    (Some(common), conflict)
}

/// A list of families never repeats one (`KEP-1645#19`).
fn without_repeats(families: &[IpFamily]) -> Vec<IpFamily> {
    let mut unique = Vec::with_capacity(families.len());
    for family in families {
        if !unique.contains(family) {
            unique.push(*family);
        }
    }
    unique
}
