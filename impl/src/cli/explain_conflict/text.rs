//! The answer as text: the verdict first, then who says what, the condition, what to change. Pure.

use jiff::Timestamp;

use super::report::{ChangeRow, ConflictRow, Recorded, Report, Said, Told};
use crate::cli::render::{printable, table};

/// The whole answer; ends with a line break.
pub(super) fn render(report: &Report) -> String {
    let mut sections = vec![report.verdict.clone()];
    sections.extend(report.conflicts.iter().map(conflict));
    if report.conflicts.is_empty() && report.exports.len() > 1 {
        sections.push(agreement(report));
    }
    if let Some(told) = report
        .condition
        .as_ref()
        .filter(|_| !report.conflicts.is_empty())
    {
        let title = "The condition of every exporting cluster's ServiceExport:";
        sections.push(format!("{title}\n{}", condition(told)));
    }
    let changes = report.conflicts.iter().flat_map(|row| &row.changes);
    let changes: Vec<_> = changes.map(change).collect();
    if !changes.is_empty() {
        let title = "What to change, so that all agree with the winner:";
        sections.push(section(title, changes));
    }
    sections.extend(refused(report));
    sections.extend(recorded(&report.recorded));
    if !report.not_exporting.is_empty() {
        let clusters = report.not_exporting.join(", ");
        sections.push(format!("No ServiceExport in: {clusters}"));
    }
    let unread = report.unread.iter();
    let unread: Vec<_> = unread
        .map(|it| format!("  {}: {}", printable(&it.cluster), printable(&it.error)))
        .collect();
    if !unread.is_empty() {
        sections.push(section("Not read:", unread));
    }
    if !report.notes.is_empty() {
        let notes = report
            .notes
            .iter()
            .map(|note| format!("  {}", printable(note)));
        sections.push(section("Notes:", notes.collect()));
    }
    sections.join("\n\n") + "\n"
}

fn section(title: &str, lines: Vec<String>) -> String {
    format!("{title}\n{}", lines.join("\n"))
}

fn conflict(row: &ConflictRow) -> String {
    let cells = |value: &Said| {
        vec![
            value.cluster.clone(),
            time(value.since),
            value.value.clone(),
            standing(value).to_owned(),
        ]
    };
    let rows: Vec<_> = row.values.iter().map(cells).collect();
    let table = table(&["CLUSTER", "EXPORTED SINCE", "VALUE", ""], &rows);
    let title = format!("{}: {} of {}s", row.reason, row.field, row.object);
    let used = printable(&row.used);
    format!("{title}\n{table}\n The ServiceImport has: {used}")
}

fn agreement(report: &Report) -> String {
    let rows: Vec<_> = report
        .exports
        .iter()
        .map(|export| vec![export.cluster.clone(), time(export.since)])
        .collect();
    table(&["CLUSTER", "EXPORTED SINCE"], &rows)
}

fn time(since: Option<Timestamp>) -> String {
    since.map_or_else(|| "unknown".to_owned(), |since| since.to_string())
}

fn standing(value: &Said) -> &'static str {
    match (value.wins, value.agrees) {
        (true, true) => "wins",
        (true, false) => "oldest, but differs",
        (false, true) => "agrees",
        (false, false) => "disagrees",
    }
}

fn condition(told: &Told) -> String {
    format!(
        "  {}: {}\n  reason: {}\n  message: {}",
        printable(&told.kind),
        printable(&told.status),
        printable(&told.reason),
        printable(&told.message)
    )
}

fn change(row: &ChangeRow) -> String {
    let place = row
        .file
        .as_ref()
        .map_or_else(String::new, |file| format!(" ({file})"));
    let mut text = format!(
        "  {}: {}{place}: set {} to {}",
        row.cluster,
        row.object,
        row.field,
        printable(&row.to)
    );
    for command in &row.commands {
        text.push_str("\n    ");
        text.push_str(&printable(command));
    }
    text
}

fn refused(report: &Report) -> Option<String> {
    let lines: Vec<_> = report
        .refused
        .iter()
        .map(|row| {
            format!(
                "  {}: {}: {}; {}",
                row.cluster, row.reason, row.message, row.next
            )
        })
        .collect();
    let title = "Refused exports, which take no part:";
    (!lines.is_empty()).then(|| section(title, lines))
}

fn recorded(rows: &[Recorded]) -> Option<String> {
    let lines: Vec<_> = rows
        .iter()
        .map(|row| match (&row.condition, row.matches) {
            (Some(_), true) => format!("  {}: as explained here", row.cluster),
            (Some(told), false) => format!(
                "  {}: something else; is its operator running, and does it see these clusters?\n{}",
                row.cluster,
                indented(&condition(told))
            ),
            (None, _) => format!("  {}: nothing yet; is its operator running?", row.cluster),
        })
        .collect();
    let title = "What the ServiceExports' status says at present:";
    (!lines.is_empty()).then(|| section(title, lines))
}

fn indented(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
