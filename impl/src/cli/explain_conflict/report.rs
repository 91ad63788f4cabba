//! The answer to "why are they in conflict": a model of text and numbers, ready to be shown as text or as JSON. Pure.
//!
//! What is decided comes from `tombolo_core`; here it is put in words. What could not be read is part of the answer.

use jiff::Timestamp;
use serde::Serialize;
use tombolo_core::{
    conditions::{Condition, ConditionType, ExportOutcome, export_conditions},
    explain::{Dispute, Explanation, explain},
    export::{ExportVerdict, Refusal},
    names::{ClusterName, NamespacedName},
    service::ExportSpec,
};

use super::{
    advice::{self, Place},
    values,
};

/// What was found about one name.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathered {
    /// The clusters that were read.
    pub(super) members: Vec<Member>,
    /// The clusters that were not.
    pub(super) unread: Vec<Unread>,
    /// What else a reader should know.
    pub(super) notes: Vec<String>,
}

/// One cluster's part.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// The cluster.
    pub(super) cluster: ClusterName,
    /// Where its objects are.
    pub(super) place: Place,
    /// What becomes of its export.
    pub(super) verdict: ExportVerdict,
    /// Whether the creation time of its ServiceExport is known.
    pub(super) since_known: bool,
    /// The conditions in the status of its ServiceExport, where there is a status to read.
    pub(super) recorded: Option<Vec<Told>>,
}

/// A cluster that was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Unread {
    /// Its name, or its context.
    pub(super) cluster: String,
    /// Why, and what to do.
    pub(super) error: String,
}

/// A condition as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Told {
    /// Its type.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// `True`, `False` or `Unknown`.
    pub(super) status: String,
    /// Its reason.
    pub(super) reason: String,
    /// Its message.
    pub(super) message: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) verdict: String,
    pub(super) complete: bool,
    pub(super) exports: Vec<Export>,
    pub(super) conflicts: Vec<ConflictRow>,
    pub(super) condition: Option<Told>,
    pub(super) recorded: Vec<Recorded>,
    pub(super) refused: Vec<Refused>,
    pub(super) not_exporting: Vec<String>,
    pub(super) unread: Vec<Unread>,
    pub(super) notes: Vec<String>,
}

/// An export that takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Export {
    pub(super) cluster: String,
    pub(super) since: Option<Timestamp>,
    pub(super) wins: bool,
}

/// One conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ConflictRow {
    pub(super) reason: &'static str,
    pub(super) object: &'static str,
    pub(super) field: &'static str,
    pub(super) message: String,
    pub(super) used: String,
    pub(super) values: Vec<Said>,
    pub(super) changes: Vec<ChangeRow>,
}

/// What one cluster says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Said {
    pub(super) cluster: String,
    pub(super) value: String,
    pub(super) since: Option<Timestamp>,
    pub(super) wins: bool,
    pub(super) agrees: bool,
}

/// What one cluster has to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ChangeRow {
    pub(super) cluster: String,
    pub(super) object: String,
    pub(super) field: &'static str,
    pub(super) to: String,
    pub(super) file: Option<String>,
    pub(super) commands: Vec<String>,
}

/// What the status of a cluster's ServiceExport says, beside what it should say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Recorded {
    pub(super) cluster: String,
    pub(super) matches: bool,
    pub(super) condition: Option<Told>,
}

/// An export that takes no part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Refused {
    pub(super) cluster: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) next: String,
}

impl From<Condition> for Told {
    fn from(condition: Condition) -> Self {
        Self {
            kind: condition.kind.to_string(),
            status: condition.status.to_string(),
            reason: condition.reason,
            message: condition.message,
        }
    }
}

/// Puts what was found in words.
pub(super) fn build(name: &NamespacedName, gathered: Gathered) -> Report {
    let Gathered {
        members,
        unread,
        notes,
    } = gathered;
    let exported = |member: &Member| match &member.verdict {
        ExportVerdict::Exported(export) => Some((**export).clone()),
        ExportVerdict::Refused(_) => None,
    };
    let exports: Vec<_> = members.iter().filter_map(exported).collect();
    let explained = explain(&exports);
    let condition = explained
        .as_ref()
        .and_then(|it| deciding(ExportOutcome::Merged(&it.merged.conflicts)));
    let refused: Vec<_> = members.iter().filter_map(|it| refused(it, name)).collect();
    let verdict = verdict(name, explained.as_ref(), refused.len(), &unread);
    Report {
        namespace: name.namespace.to_string(),
        name: name.name.to_string(),
        verdict,
        complete: unread.is_empty(),
        exports: explained.iter().flat_map(|it| rows(it, &members)).collect(),
        conflicts: explained
            .iter()
            .flat_map(|it| conflict_rows(it, name, &members))
            .collect(),
        recorded: members
            .iter()
            .filter_map(|member| recorded(member, condition.as_ref()))
            .collect(),
        condition,
        refused,
        not_exporting: members
            .iter()
            .filter(|it| matches!(it.verdict, ExportVerdict::Refused(Refusal::NoServiceExport)))
            .map(|it| it.cluster.to_string())
            .collect(),
        unread,
        notes,
    }
}

/// The condition that says the matter: `Conflict` of an export that takes part, `Valid` of one that does not.
fn deciding(outcome: ExportOutcome<'_>) -> Option<Told> {
    let mut conditions = export_conditions(outcome);
    let conflict = |condition: &Condition| condition.kind == ConditionType::Conflict;
    let index = conditions.iter().position(conflict).unwrap_or(0);
    (index < conditions.len()).then(|| conditions.swap_remove(index).into())
}

fn since(member: Option<&Member>, export: &ExportSpec) -> Option<Timestamp> {
    member
        .is_some_and(|it| it.since_known)
        .then_some(export.created_at)
}

fn member_of<'a>(members: &'a [Member], cluster: &ClusterName) -> Option<&'a Member> {
    members.iter().find(|member| member.cluster == *cluster)
}

fn rows(explained: &Explanation, members: &[Member]) -> Vec<Export> {
    let row = |export: &ExportSpec| Export {
        cluster: export.cluster.to_string(),
        since: since(member_of(members, &export.cluster), export),
        wins: export.cluster == explained.merged.oldest,
    };
    explained.exports.iter().map(row).collect()
}

fn conflict_rows(
    explained: &Explanation,
    name: &NamespacedName,
    members: &[Member],
) -> Vec<ConflictRow> {
    let row = |dispute| conflict_row(name, dispute, explained, members);
    explained.disputes.iter().map(row).collect()
}

fn conflict_row(
    name: &NamespacedName,
    dispute: &Dispute,
    explained: &Explanation,
    members: &[Member],
) -> ConflictRow {
    let reason = dispute.conflict.reason;
    let (object, field) = values::field_of(reason);
    let value = |export: &ExportSpec| Said {
        cluster: export.cluster.to_string(),
        value: values::value_of(reason, export),
        since: since(member_of(members, &export.cluster), export),
        wins: export.cluster == explained.merged.oldest,
        agrees: !dispute.changes.contains_key(&export.cluster),
    };
    let change = |export: &ExportSpec| {
        let change = dispute.changes.get(&export.cluster)?;
        let place = &member_of(members, &export.cluster)?.place;
        Some(ChangeRow {
            cluster: export.cluster.to_string(),
            object: format!("{object} {name}"),
            field,
            to: advice::wanted(change),
            file: place.file_of(object).map(str::to_owned),
            commands: advice::commands(name, change, export, place),
        })
    };
    ConflictRow {
        reason: reason.as_str(),
        object,
        field,
        message: dispute.conflict.message.clone(),
        used: values::used(reason, &explained.merged),
        values: explained.exports.iter().map(value).collect(),
        changes: explained.exports.iter().filter_map(change).collect(),
    }
}

fn refused(member: &Member, name: &NamespacedName) -> Option<Refused> {
    let ExportVerdict::Refused(refusal) = member.verdict else {
        return None;
    };
    let told = deciding(ExportOutcome::Refused(refusal))?;
    Some(Refused {
        cluster: member.cluster.to_string(),
        reason: told.reason,
        message: told.message,
        next: advice::remedy(refusal, name),
    })
}

fn recorded(member: &Member, condition: Option<&Told>) -> Option<Recorded> {
    let recorded = member.recorded.as_ref()?;
    let expected = match member.verdict {
        ExportVerdict::Exported(_) => condition.cloned(),
        ExportVerdict::Refused(refusal) => deciding(ExportOutcome::Refused(refusal)),
    }?;
    let found = recorded.iter().find(|told| told.kind == expected.kind);
    Some(Recorded {
        cluster: member.cluster.to_string(),
        matches: found == Some(&expected),
        condition: found.cloned(),
    })
}

/// One sentence that says it all.
fn verdict(
    name: &NamespacedName,
    explained: Option<&Explanation>,
    refused: usize,
    unread: &[Unread],
) -> String {
    let known = match explained {
        None => "no cluster exports it".to_owned(),
        Some(explained) => of_explained(explained),
    };
    let conflict = explained.is_some_and(|it| !it.disputes.is_empty());
    let refused = match refused {
        0 => String::new(),
        1 => "; 1 export is refused".to_owned(),
        many => format!("; {many} exports are refused"),
    };
    if unread.is_empty() {
        let verdict = if conflict { "" } else { "no conflict: " };
        return format!("{name}: {verdict}{known}{refused}.");
    }
    let missing: Vec<_> = unread.iter().map(|it| it.cluster.as_str()).collect();
    let (was, without) = match missing.len() {
        1 => ("was", "it"),
        _ => ("were", "them"),
    };
    format!(
        "{name}: incomplete, since {} {was} not read. Without {without}: {known}{refused}.",
        in_words(&missing)
    )
}

fn of_explained(explained: &Explanation) -> String {
    let clusters: Vec<_> = explained
        .exports
        .iter()
        .map(|it| it.cluster.as_str())
        .collect();
    let winner = explained.merged.oldest.as_str();
    if explained.disputes.is_empty() {
        return match clusters.as_slice() {
            [one] => format!("only \"{one}\" exports it"),
            all => format!("{} export it and agree", in_words(all)),
        };
    }
    let reasons: Vec<_> = explained
        .disputes
        .iter()
        .map(|it| it.conflict.reason.as_str())
        .collect();
    let conflicts = match reasons.len() {
        1 => "1 conflict".to_owned(),
        many => format!("{many} conflicts"),
    };
    let tie = explained
        .exports
        .get(1)
        .is_some_and(|second| second.created_at == explained.exports[0].created_at);
    let why = if tie {
        "of the oldest ServiceExports, its cluster's name comes first"
    } else {
        "its ServiceExport is the oldest"
    };
    let reasons = reasons.join(", ");
    match clusters.len() {
        1 => format!("{conflicts} ({reasons}) within the export of \"{winner}\""),
        many => format!(
            "{conflicts} ({reasons}) among {many} exporting clusters; \"{winner}\" wins: {why}"
        ),
    }
}

/// `"a", "b" and "c"`.
fn in_words(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
