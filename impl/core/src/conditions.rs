//! Conditions: what a ServiceExport and a ServiceImport say about themselves.
//!
//! Every constant reason and message is here; sentences about conflicts come from [`merge`](crate::merge). Types and
//! reasons are those of MCS-API (`pkg/apis/v1beta1`), messages those of Cilium. No clock: transition times are the
//! business of the shell, which keeps the time of a condition whose status did not change.

use std::fmt;

use crate::{
    export::Refusal,
    merge::Conflict,
    mutant::{self, Mutant},
    service::IpFamily,
};

/// Longest message, in characters. `maxLength` of a condition's message in the API of Kubernetes; a longer one would make
/// the API server refuse the whole status.
pub const MESSAGE_MAX: usize = 32768;

/// A condition's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// ServiceExport: whether the export is acceptable at all (`KEP-1645#170`).
    Valid,
    /// ServiceExport: whether other clusters can pull it (`KEP-1645#172`). ServiceImport: whether it can be used.
    Ready,
    /// ServiceExport: whether clusters disagree on the service (`KEP-1645#140`).
    Conflict,
}

impl ConditionType {
    /// The type as MCS-API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "Valid",
            Self::Ready => "Ready",
            Self::Conflict => "Conflict",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows.
    Unknown,
}

impl Status {
    /// The status as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition, without times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: ConditionType,
    /// Its status.
    pub status: Status,
    /// Why, for programs: one reason, or several joined by commas (`KEP-1645#154`).
    pub reason: String,
    /// Why, for people: at most [`MESSAGE_MAX`] characters.
    pub message: String,
}

impl Condition {
    fn new(kind: ConditionType, status: Status, (reason, message): (&str, &str)) -> Self {
        Self {
            kind,
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

type Text = (&'static str, &'static str);

const EXPORT_VALID: Text = ("Valid", "ServiceExport is valid");
const EXPORT_READY: Text = ("Ready", "ServiceExport is ready");
const EXPORT_PENDING: Text = ("Pending", "ServiceExport is not valid");
const EXPORT_NO_CONFLICTS: Text = ("NoConflicts", "ServiceExport has no conflicts");
const EXPORT_NO_SERVICE: Text = ("NoService", "Service doesn't exist");
const EXPORT_INVALID_TYPE: Text = (
    "InvalidServiceType",
    "Service type ExternalName is not supported",
);
const EXPORT_INVALID_LABELS: Text = (
    "InvalidExportedLabels",
    "spec.exportedLabels has a key or value that no label can have; correct it",
);
const EXPORT_INVALID_ANNOTATIONS: Text = (
    "InvalidExportedAnnotations",
    "spec.exportedAnnotations has a key that no annotation can have, or more than 255 KiB; correct it",
);
const EXPORT_NOT_GLOBAL: Text = (
    "NamespaceNotGlobal",
    "Namespace is not global, Service cannot be exported",
);
const IMPORT_NOT_GLOBAL: Text = (
    "NamespaceNotGlobal",
    "Namespace is not global, service cannot be imported",
);
const IMPORT_FAMILY_NOT_SUPPORTED: Text = (
    "IPFamilyNotSupported",
    "The local cluster does not support any of the ServiceImport IPFamilies",
);
const IMPORT_READY: Text = ("Ready", "ServiceImport is ready");
const IMPORT_PENDING: Text = ("Pending", "Waiting for the derived Service to be created");

/// What became of a ServiceExport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportOutcome<'a> {
    /// It is not exported.
    Refused(Refusal),
    /// It is exported; these conflicts came out of the merge, possibly none.
    Merged(&'a [Conflict]),
}

/// The conditions of a ServiceExport: all that it should have. A type that is not among them has to be removed.
///
/// `Ready` is true with conflicts too: the export takes part, if not with every value (`KEP-1645#142`).
/// [`Refusal::NoServiceExport`] has no conditions, for want of an object to bear them.
///
/// ```
/// use tombolo_core::{conditions::{ConditionType, ExportOutcome, Status, export_conditions}, export::Refusal};
/// let conditions = export_conditions(ExportOutcome::Refused(Refusal::NoService));
/// assert_eq!((conditions[0].kind, conditions[0].status), (ConditionType::Valid, Status::False));
/// assert_eq!(conditions[0].reason, "NoService");
/// ```
pub fn export_conditions(outcome: ExportOutcome<'_>) -> Vec<Condition> {
    let refused = |why| {
        vec![
            Condition::new(ConditionType::Valid, Status::False, why),
            Condition::new(ConditionType::Ready, Status::False, EXPORT_PENDING),
        ]
    };
    match outcome {
        ExportOutcome::Refused(Refusal::NoServiceExport) => Vec::new(),
        ExportOutcome::Refused(Refusal::NamespaceNotGlobal) => refused(EXPORT_NOT_GLOBAL),
        ExportOutcome::Refused(Refusal::NoService) => refused(EXPORT_NO_SERVICE),
        ExportOutcome::Refused(Refusal::InvalidServiceType) => refused(EXPORT_INVALID_TYPE),
        ExportOutcome::Refused(Refusal::InvalidExportedLabels) => refused(EXPORT_INVALID_LABELS),
        ExportOutcome::Refused(Refusal::InvalidExportedAnnotations) => {
            refused(EXPORT_INVALID_ANNOTATIONS)
        }
        ExportOutcome::Merged(conflicts) if mutant::is(Mutant::ValidMissing) => vec![
            Condition::new(ConditionType::Ready, Status::True, EXPORT_READY),
            conflict_condition(conflicts),
        ],
        ExportOutcome::Merged(conflicts) => vec![
            Condition::new(ConditionType::Valid, Status::True, EXPORT_VALID),
            Condition::new(ConditionType::Ready, Status::True, EXPORT_READY),
            conflict_condition(conflicts),
        ],
    }
}

/// `Conflict`: every reason, joined by commas (`KEP-1645#154`), and every sentence.
fn conflict_condition(conflicts: &[Conflict]) -> Condition {
    if conflicts.is_empty() {
        return Condition::new(ConditionType::Conflict, Status::False, EXPORT_NO_CONFLICTS);
    }
    let join = |texts: Vec<&str>, separator| texts.join(separator);
    let reasons = conflicts.iter().map(|conflict| conflict.reason.as_str());
    let sentences = conflicts.iter().map(|conflict| conflict.message.as_str());
    Condition {
        kind: ConditionType::Conflict,
        status: Status::True,
        reason: join(reasons.collect(), ","),
        message: within_limit(join(sentences.collect(), " ")),
    }
}

/// The text, cut to [`MESSAGE_MAX`] characters, the last of them an ellipsis if something is missing.
fn within_limit(mut message: String) -> String {
    if message.chars().count() > MESSAGE_MAX {
        let cut = message.char_indices().nth(MESSAGE_MAX - 1);
        message.truncate(cut.map_or(0, |(end, _)| end));
        message.push('…');
    }
    message
}

/// `Ready` of a ServiceImport. The first thing that stands against it is the reason.
///
/// `supported` are the families of [`families::supported`](crate::families::supported); `derived` tells whether the
/// derived Service is known to exist.
///
/// ```
/// use tombolo_core::{conditions::{Status, import_condition}, service::IpFamily};
/// assert_eq!(import_condition(true, &[IpFamily::V4], true).status, Status::True);
/// assert_eq!(import_condition(true, &[IpFamily::V4], false).reason, "Pending");
/// ```
pub fn import_condition(
    namespace_global: bool,
    supported: &[IpFamily],
    derived: bool,
) -> Condition {
    let (status, why) = if !namespace_global {
        (Status::False, IMPORT_NOT_GLOBAL)
    } else if supported.is_empty() {
        (Status::False, IMPORT_FAMILY_NOT_SUPPORTED)
    } else if derived {
        (Status::True, IMPORT_READY)
    } else {
        (Status::False, IMPORT_PENDING)
    };
    Condition::new(ConditionType::Ready, status, why)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::merge::ConflictReason;

    fn conflict(reason: ConflictReason, message: &str) -> Conflict {
        Conflict {
            reason,
            message: message.to_owned(),
        }
    }

    #[rstest]
    #[case::no_service(Refusal::NoService, "NoService")]
    #[case::external_name(Refusal::InvalidServiceType, "InvalidServiceType")]
    #[case::labels(Refusal::InvalidExportedLabels, "InvalidExportedLabels")]
    #[case::annotations(Refusal::InvalidExportedAnnotations, "InvalidExportedAnnotations")]
    #[case::namespace_not_global(Refusal::NamespaceNotGlobal, "NamespaceNotGlobal")]
    fn a_refused_export_is_neither_valid_nor_ready_and_has_no_conflict_condition(
        #[case] refusal: Refusal,
        #[case] reason: &str,
    ) {
        let conditions = export_conditions(ExportOutcome::Refused(refusal));

        let seen: Vec<_> = conditions
            .iter()
            .map(|condition| (condition.kind, condition.status, condition.reason.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (ConditionType::Valid, Status::False, reason),
                (ConditionType::Ready, Status::False, "Pending"),
            ]
        );
    }

    #[test]
    fn without_a_service_export_there_are_no_conditions() {
        let outcome = ExportOutcome::Refused(Refusal::NoServiceExport);

        assert_eq!(export_conditions(outcome), []);
    }

    #[test]
    fn an_export_without_conflicts_says_so() {
        let conditions = export_conditions(ExportOutcome::Merged(&[]));

        assert_eq!(conditions[2].kind, ConditionType::Conflict);
        assert_eq!(conditions[2].status, Status::False);
        assert_eq!(conditions[2].reason, "NoConflicts");
        assert_eq!(conditions[2].message, "ServiceExport has no conflicts");
    }

    #[test]
    fn an_export_with_conflicts_is_valid_and_ready_and_lists_them_all() {
        let conflicts = [
            conflict(ConflictReason::Port, "Ports differ."),
            conflict(ConflictReason::Type, "Types differ."),
        ];

        let conditions = export_conditions(ExportOutcome::Merged(&conflicts));

        assert_eq!(conditions[0].status, Status::True);
        assert_eq!(conditions[1].status, Status::True);
        assert_eq!(conditions[2].status, Status::True);
        assert_eq!(conditions[2].reason, "PortConflict,TypeConflict");
        assert_eq!(conditions[2].message, "Ports differ. Types differ.");
    }

    #[test]
    fn a_message_never_exceeds_what_the_api_accepts() {
        let conflicts = [conflict(ConflictReason::Labels, &"é".repeat(40_000))];

        let conditions = export_conditions(ExportOutcome::Merged(&conflicts));

        assert_eq!(conditions[2].message.chars().count(), MESSAGE_MAX);
        assert!(conditions[2].message.ends_with('…'));
    }

    #[rstest]
    #[case::not_global(false, &[], true, Status::False, "NamespaceNotGlobal")]
    #[case::no_family(true, &[], true, Status::False, "IPFamilyNotSupported")]
    #[case::derived(true, &[IpFamily::V6], true, Status::True, "Ready")]
    #[case::not_yet_derived(true, &[IpFamily::V6], false, Status::False, "Pending")]
    fn the_first_thing_that_stands_against_an_import_is_its_reason(
        #[case] namespace_global: bool,
        #[case] supported: &[IpFamily],
        #[case] derived: bool,
        #[case] status: Status,
        #[case] reason: &str,
    ) {
        let condition = import_condition(namespace_global, supported, derived);

        assert_eq!(condition.kind, ConditionType::Ready);
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (status, reason)
        );
    }
}
