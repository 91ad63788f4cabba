//! Rule: exported labels and annotations are those of the oldest export, whole; keys are never mixed (`KEP-1645#153`).

use std::collections::BTreeMap;

use super::{
    Conflict, ConflictReason,
    disagreement::{Field, go_map},
};
use crate::{
    mutant::{self, Mutant},
    service::ExportSpec,
};

/// The exported labels of the service.
pub(super) fn labels(ordered: &[&ExportSpec]) -> BTreeMap<String, String> {
    let mut exports = ordered.iter();
    let mut labels = exports
        .next()
        .map_or_else(BTreeMap::new, |oldest| oldest.labels.clone());
    if mutant::is(Mutant::LabelsMixed) {
        labels.extend(exports.flat_map(|export| export.labels.clone()));
    }
    labels
}

/// The conflict over exported labels, if there is one.
pub(super) fn labels_conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::Labels,
        name: "labels",
        differs: |oldest: &ExportSpec, other: &ExportSpec| oldest.labels != other.labels,
        value: |oldest: &ExportSpec| go_map(&oldest.labels),
    }
    .conflict(ordered)
}

/// The conflict over exported annotations, if there is one.
pub(super) fn annotations_conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::Annotations,
        name: "annotations",
        differs: |oldest: &ExportSpec, other: &ExportSpec| oldest.annotations != other.annotations,
        value: |oldest: &ExportSpec| go_map(&oldest.annotations),
    }
    .conflict(ordered)
}
