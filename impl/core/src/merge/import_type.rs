//! Rule: whether the service is headless is decided by the oldest export (`KEP-1645#54`, `KEP-1645#149`).

use super::{Conflict, ConflictReason, disagreement::Field};
use crate::service::ExportSpec;

/// The conflict over the type, if there is one.
pub(super) fn conflict(ordered: &[&ExportSpec]) -> Option<Conflict> {
    Field {
        reason: ConflictReason::Type,
        name: "type",
        differs: |oldest: &ExportSpec, other: &ExportSpec| oldest.import_type != other.import_type,
        value: |oldest: &ExportSpec| oldest.import_type.to_string(),
    }
    .conflict(ordered)
}
