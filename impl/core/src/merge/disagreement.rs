//! What the rules for single fields share: counting who differs from the oldest, and the sentence that says so.

use std::{collections::BTreeMap, fmt::Write};

use super::{Conflict, ConflictReason};
use crate::service::ExportSpec;

/// Longest value that a message shows in full, in characters. Labels and annotations may hold up to 256 KiB
/// (Kubernetes), a condition's message 32768 characters.
pub(super) const VALUE_MAX: usize = 4096;

/// A field that one cluster decides and others may disagree with.
pub(super) struct Field<Differs, Value> {
    /// Reason to report.
    pub(super) reason: ConflictReason,
    /// The field's name in messages.
    pub(super) name: &'static str,
    /// Whether the second export differs from the first, which is the oldest.
    pub(super) differs: Differs,
    /// The oldest export's value in messages. Called only when somebody differs.
    pub(super) value: Value,
}

impl<Differs, Value> Field<Differs, Value>
where
    Differs: Fn(&ExportSpec, &ExportSpec) -> bool,
    Value: FnOnce(&ExportSpec) -> String,
{
    /// The conflict over this field among exports that are ordered oldest first, if there is one.
    pub(super) fn conflict(self, ordered: &[&ExportSpec]) -> Option<Conflict> {
        let (oldest, others) = ordered.split_first()?;
        let count = others
            .iter()
            .filter(|other| (self.differs)(oldest, other))
            .count();
        (count > 0).then(|| Conflict {
            reason: self.reason,
            message: format!(
                "Conflicting {}. {} Using \"{}\" from oldest service export in cluster \"{}\".",
                self.name,
                counted(count, ordered.len()),
                shorten((self.value)(oldest)),
                oldest.cluster,
            ),
        })
    }
}

/// The sentence that tells how many clusters say something else than what is used, among all that export.
pub(super) fn counted(disagreeing: usize, exporting: usize) -> String {
    format!("{disagreeing}/{exporting} clusters disagree.")
}

/// The map as Go prints one, which is what users of Cilium know: `map[app:web tier:front]`.
pub(super) fn go_map(map: &BTreeMap<String, String>) -> String {
    let mut text = String::from("map[");
    for (position, (key, value)) in map.iter().enumerate() {
        let separator = if position == 0 { "" } else { " " };
        let _ = write!(text, "{separator}{key}:{value}");
        if text.len() > VALUE_MAX * 4 {
            break;
        }
    }
    text.push(']');
    text
}

/// The text, or its first [`VALUE_MAX`] characters and an ellipsis.
pub(super) fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(VALUE_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}
