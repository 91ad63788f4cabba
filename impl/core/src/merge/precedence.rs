//! Rule: the oldest export wins, by creation time of the ServiceExport (`KEP-1645#141`).
//!
//! KEP-1645 leaves open what happens to equally old ones; as in Cilium, the lesser cluster name counts as older.

use crate::{
    mutant::{self, Mutant},
    service::ExportSpec,
};

/// The exports, oldest first. Stable for exports that are equal in both time and cluster.
pub(crate) fn oldest_first(exports: &[ExportSpec]) -> Vec<&ExportSpec> {
    let mut ordered: Vec<_> = exports.iter().collect();
    ordered.sort_by(|a, b| {
        let tie = if mutant::is(Mutant::TiesReversed) {
            b.cluster.cmp(&a.cluster)
        } else {
            a.cluster.cmp(&b.cluster)
        };
        a.created_at.cmp(&b.created_at).then(tie)
    });
    if mutant::is(Mutant::NewestWins) {
        ordered.reverse();
    }
    ordered
}
