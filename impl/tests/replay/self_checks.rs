//! The replay's own rules: each is broken once, and has to be noticed.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use crate::{
    DECISIONS,
    differences::{Difference, Expected, Place, agree, between, decisions, judge, table},
    facts::{Facts, Kind},
    recording::{Tree, Version},
};

const ONE_ROW: &str = "
- row: 7
  kind: ServiceImport
  path: spec.ports[*].name
  ours: b
  at:
    1.20 c1: [x99]
";

/// The trials of the rules, and of `differences.yaml` against `docs/decisions.md` and the project's own recordings.
pub(crate) fn trials(real: &Arc<Vec<Expected>>, recordings: &Path) -> Vec<Trial> {
    let (rows, named, recordings) = (Arc::clone(real), Arc::clone(real), recordings.to_owned());
    vec![
        Trial::test(
            "every_row_of_the_table_is_marked_in_the_decisions_and_the_reverse",
            move || agree(&rows, &decisions(DECISIONS)).map_err(Failed::from),
        ),
        Trial::test("every_place_that_the_table_names_was_recorded", move || {
            recorded(&named, &recordings).map_err(Failed::from)
        }),
        check("a_difference_without_a_row_is_wrong", || {
            let outcome = judge(&place("x98"), &differences(), &one_row()?);
            expect_wrong(outcome.err(), "differs without a row")
        }),
        check("a_row_without_a_difference_is_wrong", || {
            let outcome = judge(&place("x99"), &[], &one_row()?);
            expect_wrong(outcome.err(), "names a difference that is not there")
        }),
        check("a_difference_with_another_value_is_wrong", || {
            let mut differences = differences();
            differences[0].ours = json!("c");
            let outcome = judge(&place("x99"), &differences, &one_row()?);
            expect_wrong(outcome.err(), "differs without a row")
        }),
        check("a_difference_with_its_row_is_right", || {
            let rows = judge(&place("x99"), &differences(), &one_row()?)?;
            if rows.get(&7) == Some(&1) {
                Ok(())
            } else {
                Err(format!("{rows:?}"))
            }
        }),
        check("a_row_that_no_document_has_is_wrong", || {
            let outcome = agree(&one_row()?, &decisions("| 1† | text | why |"));
            expect_wrong(outcome.err(), "there is no row 7")
        }),
        check("a_mark_that_nothing_shows_is_wrong", || {
            let outcome = agree(&one_row()?, &decisions("| 7† | a | b |\n| 8† | a | b |"));
            expect_wrong(outcome.err(), "row 8 of docs/decisions.md is marked")
        }),
        check("a_missing_mark_is_wrong", || {
            let outcome = agree(&one_row()?, &decisions("| 7 | a | b |"));
            expect_wrong(outcome.err(), "row 7 of docs/decisions.md lacks its mark")
        }),
    ]
}

/// Whether each place of the table is among the recordings.
fn recorded(table: &[Expected], recordings: &Path) -> Result<(), String> {
    let mut places = BTreeSet::new();
    for tree in Tree::all(recordings) {
        for scenario in tree.scenarios() {
            let clusters = scenario.clusters().into_iter();
            let version = |cluster: &str| tree.version(cluster).to_string();
            places.extend(clusters.map(|it| (version(&it), it, scenario.name.clone())));
        }
    }
    let owned = |(version, cluster, scenario): (&str, &str, &str)| {
        (version.to_owned(), cluster.to_owned(), scenario.to_owned())
    };
    let named: BTreeSet<_> = table.iter().flat_map(Expected::places).map(owned).collect();
    let missing: Vec<_> = named.difference(&places).collect();
    if missing.is_empty() && !named.is_empty() {
        Ok(())
    } else {
        Err(format!("not recorded: {missing:?}"))
    }
}

fn check(name: &str, run: fn() -> Result<(), String>) -> Trial {
    Trial::test(name, move || run().map_err(Failed::from))
}

fn expect_wrong(found: Option<String>, expected: &str) -> Result<(), String> {
    match found {
        Some(found) if found.contains(expected) => Ok(()),
        found => Err(format!("expected {expected:?}, found {found:?}")),
    }
}

fn one_row() -> Result<Vec<Expected>, String> {
    table(ONE_ROW)
}

fn place(scenario: &str) -> Place {
    Place {
        version: Version::V1_20,
        scenario: scenario.to_owned(),
        cluster: "c1".to_owned(),
        kind: Kind::ServiceImport,
    }
}

/// One difference: the name of the second port.
fn differences() -> Vec<Difference> {
    let import = |name: &str| {
        let import = json!({ "spec": { "ports": [{ "name": "http" }, { "name": name }] } });
        Facts::from([("web".to_owned(), import)])
    };
    between(1, &import("a"), &import("b"))
}
