//! Which rule is checked by which case, which bug is shown by which, and why some are not. Tables, from the cases themselves.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use crate::{
    bugs, cases,
    rules::{Entry, Level, RULES, Rule},
};

/// Rules that no case checks, with the reason.
pub const UNCHECKED: &[(Rule, &str)] = &[
    (
        Rule(1),
        "whom clusters trust is not in the API; cases only see who exports, KEP-1645#38",
    ),
    (
        Rule(2),
        "the KEP leaves open how, so there is nothing to look at",
    ),
    (
        Rule(7),
        "frees implementations, binds none; it is why cases look at nothing but the API",
    ),
    (
        Rule(8),
        "about the people who own a namespace, not about software",
    ),
    (
        Rule(160),
        "about the people who install; a run finds the CRDs installed",
    ),
    (
        Rule(161),
        "a run uses the one version that is installed, and cannot exchange it under other cases; every case uses v1beta1",
    ),
];

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal.
    Text,
    /// For a document.
    Markdown,
}

/// How cases ended, by id, as words.
pub type Results = BTreeMap<String, String>;

/// Writes the rules with their cases, then the reported bugs with theirs; with how each case ended, if that is known.
pub fn write(out: &mut impl Write, format: Format, results: &Results) -> io::Result<()> {
    let rules = RULES.iter().map(|entry| rule_row(entry, results));
    write_table(out, format, &["rule", "level", "says", "checked by"], rules)?;
    writeln!(out)?;
    let bugs = bugs::ROWS.iter().map(|row| {
        let cases = row.cases().map(|case| with_result(case.id, results));
        let reason = row.not_shown.map(not_checked);
        [
            row.id.to_owned(),
            row.reports.join(", "),
            row.title.to_owned(),
            cases.chain(reason).collect::<Vec<_>>().join(", "),
        ]
    });
    write_table(out, format, &["bug", "reported", "what", "shown by"], bugs)?;
    writeln!(out)?;
    let checked = RULES.iter().filter(|entry| cited(entry.rule).count() > 0);
    let shown = bugs::ROWS.iter().filter(|row| row.not_shown.is_none());
    writeln!(
        out,
        "{} of {} rules are checked and {} of {} bugs shown, by {} cases.",
        checked.count(),
        RULES.len(),
        shown.count(),
        bugs::ROWS.len(),
        cases::all().count()
    )
}

fn rule_row(entry: &Entry, results: &Results) -> [String; 4] {
    let level = match entry.level {
        Level::Must => "must",
        Level::Should => "should",
    };
    let cases = cited(entry.rule).map(|id| with_result(id, results));
    let reason = reason(entry.rule).map(not_checked);
    [
        entry.rule.to_string(),
        level.to_owned(),
        entry.title.to_owned(),
        cases.chain(reason).collect::<Vec<_>>().join(", "),
    ]
}

fn cited(rule: Rule) -> impl Iterator<Item = &'static str> {
    cases::all()
        .filter(move |case| case.rules.contains(&rule))
        .map(|case| case.id)
}

fn reason(rule: Rule) -> Option<&'static str> {
    let found = UNCHECKED.iter().find(|(unchecked, _)| *unchecked == rule);
    found.map(|(_, reason)| *reason)
}

fn not_checked(reason: &str) -> String {
    format!("(no case: {reason})")
}

fn with_result(id: &str, results: &Results) -> String {
    match results.get(id) {
        Some(result) => format!("{id}: {result}"),
        None => id.to_owned(),
    }
}

fn write_table(
    out: &mut impl Write,
    format: Format,
    head: &[&str; 4],
    rows: impl Iterator<Item = [String; 4]>,
) -> io::Result<()> {
    match format {
        Format::Markdown => {
            writeln!(out, "| {} |", head.join(" | "))?;
            writeln!(out, "|{}", "---|".repeat(head.len()))?;
            for row in rows {
                let cells = row.map(|cell| cell.replace('|', "\\|"));
                writeln!(out, "| {} |", cells.join(" | "))?;
            }
        }
        Format::Text => {
            for [id, kind, what, cases] in rows {
                writeln!(out, "{id} ({kind}): {what}\n    {cases}")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_case_or_a_reason_and_never_both() {
        for entry in RULES {
            let cases: Vec<_> = cited(entry.rule).collect();
            assert_ne!(
                cases.is_empty(),
                reason(entry.rule).is_none(),
                "{} ({}): cases {cases:?}, reason {:?}",
                entry.rule,
                entry.title,
                reason(entry.rule)
            );
        }
    }

    #[test]
    fn every_reason_is_about_a_known_rule() {
        for (rule, reason) in UNCHECKED {
            assert!(crate::rules::lookup(*rule).is_some(), "{rule}");
            assert!(!reason.is_empty(), "{rule}");
        }
    }

    #[test]
    fn every_must_about_exporting_importing_conflicts_status_and_dns_is_in_the_table() {
        let musts = [
            1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15, 17, 19, 21, 30, 31, 33, 34, 38, 39, 40,
            41, 50, 51, 52, 53, 54, 60, 62, 63, 64, 65, 70, 71, 81, 82, 83, 84, 85, 86, 100, 102,
            104, 105, 108, 121, 122, 123, 124, 125, 126, 127, 129, 140, 141, 142, 144, 145, 147,
            149, 150, 151, 152, 153, 155, 160, 161, 162, 170, 171, 172,
        ];

        let found: Vec<_> = RULES
            .iter()
            .filter(|entry| entry.level == Level::Must)
            .map(|entry| entry.rule.0)
            .collect();

        assert_eq!(found, musts);
    }

    #[test]
    fn the_table_shows_cases_reasons_and_results_in_both_formats() {
        let results = Results::from([("importing/last-export".to_owned(), "passed".to_owned())]);

        for (format, row) in [
            (Format::Markdown, "| KEP-1645#34 | must |"),
            (Format::Text, "KEP-1645#34 (must): "),
        ] {
            let mut out = Vec::new();
            write(&mut out, format, &results).expect("a vector takes everything");
            let text = String::from_utf8(out).expect("tables are text");

            assert!(text.contains(row), "{text}");
            assert!(text.contains("importing/last-export: passed"), "{text}");
            assert!(text.contains("(no case: about the people"), "{text}");
            assert!(text.contains("BC-100"), "{text}");
        }
    }
}
