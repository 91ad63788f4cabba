//! What is said of a plan: a line for each finding, and the Corefiles that change as differences. Pure.

use similar::TextDiff;

use super::plan::{Change, Level, Plan};
use crate::cli::render::printable;

/// The findings, one a line.
pub(super) fn findings(plan: &Plan) -> String {
    let line = |level: Level, subject: &str, text: &str| {
        let level = match level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Missing => "to do",
            Level::Blocked => "REFUSED",
        };
        format!("{level:<8} {subject:<14} {}\n", printable(text))
    };
    let lines = plan.findings.iter();
    lines
        .map(|it| line(it.level, it.subject, &it.text))
        .collect()
}

/// The Corefiles that are to be written, as unified differences.
pub(super) fn differences(plan: &Plan) -> String {
    let changes = plan.corefile.iter().chain(&plan.node_local);
    changes.map(difference).collect()
}

fn difference(change: &Change) -> String {
    let object = format!("{}/{}", change.namespace, change.name);
    let diff = TextDiff::from_lines(&change.from, &change.to);
    let mut unified = diff.unified_diff();
    let text = unified
        .header(&object, &format!("{object} (new)"))
        .to_string();
    let lines: Vec<_> = text
        .split_inclusive('\n')
        .map(|line| {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |it| (it, "\n"));
            // Tabs are as safe as blanks.
            let safe: Vec<_> = line.split('\t').map(printable).collect();
            safe.join("\t") + end
        })
        .collect();
    lines.concat()
}
