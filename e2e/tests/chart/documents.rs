use std::{collections::BTreeSet, fs};

use serde_json::Value;
use tombolo_e2e::chart::helm::chart;

fn read(path: &str) -> String {
    let path = chart().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every value that is not a map with values, as `a.b.c`.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(members) if !members.is_empty() => {
            for (name, member) in members {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                leaves(member, &path, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_value_is_in_the_guide() {
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).expect("values are YAML");
    let mut all = BTreeSet::new();
    leaves(&values, "", &mut all);
    let guide = read("../docs/guide/install.md");
    let (_, table) = guide
        .split_once("## Values")
        .expect("the guide has the table");
    let rows: BTreeSet<_> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| {
            line.split('|')
                .nth(1)
                .unwrap_or_default()
                .split('`')
                .skip(1)
                .step_by(2)
        })
        .map(str::to_owned)
        .collect();

    // A row may tell of all members at once: `operator.podDisruptionBudget`.
    let told = |path: &String| {
        rows.iter()
            .any(|row| path == row || path.starts_with(&format!("{row}.")))
    };
    let missing: Vec<_> = all.iter().filter(|path| !told(path)).collect();
    assert!(
        missing.is_empty(),
        "docs/guide/install.md has no row for {missing:#?}"
    );
    let exists = |row: &&String| {
        all.iter()
            .any(|path| path == *row || path.starts_with(&format!("{row}.")))
    };
    let stray: Vec<_> = rows.iter().filter(|row| !exists(row)).collect();
    assert!(
        stray.is_empty(),
        "docs/guide/install.md has rows for no values: {stray:#?}"
    );
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("Chart.yaml is YAML");
    for member in ["version", "appVersion"] {
        assert_eq!(chart[member], env!("CARGO_PKG_VERSION"), "{member}");
    }
}
