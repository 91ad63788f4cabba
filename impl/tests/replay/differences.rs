//! Differences between what Cilium made and what Tombolo makes, and the decisions that they follow.
//!
//! `differences.yaml` names every difference and the row of `docs/decisions.md` that it follows. Nothing else may differ, and
//! all that is named has to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    facts::{Facts, Kind},
    recording::Version,
};

/// One difference. Absent values are null.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// After which step of the scenario.
    pub(crate) step: u32,
    /// The object.
    pub(crate) object: String,
    /// The field; `exists` for the object as a whole.
    pub(crate) path: String,
    /// Cilium's value.
    pub(crate) cilium: Value,
    /// Tombolo's value.
    pub(crate) ours: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {}, {} {}\n    cilium {}\n    ours   {}",
            self.step, self.object, self.path, self.cilium, self.ours
        )
    }
}

/// All differences between two sets of objects.
pub(crate) fn between(step: u32, cilium: &Facts, ours: &Facts) -> Vec<Difference> {
    let names: BTreeSet<_> = cilium.keys().chain(ours.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        match (cilium.get(name), ours.get(name)) {
            (Some(cilium), Some(ours)) => {
                let mut fields = Vec::new();
                compare(String::new(), cilium, ours, &mut fields);
                differences.extend(fields.into_iter().map(|(path, cilium, ours)| Difference {
                    step,
                    object: name.clone(),
                    path,
                    cilium: cilium.clone(),
                    ours: ours.clone(),
                }));
            }
            (cilium, ours) => differences.push(Difference {
                step,
                object: name.clone(),
                path: "exists".to_owned(),
                cilium: cilium.is_some().into(),
                ours: ours.is_some().into(),
            }),
        }
    }
    differences
}

/// Path and both values of every field that differs.
type Fields<'a> = Vec<(String, &'a Value, &'a Value)>;

fn compare<'a>(path: String, cilium: &'a Value, ours: &'a Value, found: &mut Fields<'a>) {
    match (cilium, ours) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for name in names {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                compare(path, &cilium[name], &ours[name], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (cilium, ours)) in one.iter().zip(other).enumerate() {
                compare(format!("{path}[{index}]"), cilium, ours, found);
            }
        }
        _ if cilium != ours => found.push((path, cilium, ours)),
        _ => {}
    }
}

/// Where a comparison was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) version: Version,
    pub(crate) scenario: String,
    pub(crate) cluster: String,
    pub(crate) kind: Kind,
}

/// A difference that follows a decision. It has to show at each version, scenario and cluster that it names.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// Number of the row in `docs/decisions.md`.
    pub(crate) row: u32,
    kind: String,
    /// The field; `[*]` stands for every index, `exists` for the object as a whole.
    path: String,
    /// Tombolo's value; null when it has none.
    ours: Value,
    /// Scenarios by versions and clusters, as in `1.19 1.20 c1 c2`.
    at: BTreeMap<String, Vec<String>>,
}

impl Expected {
    fn is_at(&self, place: &Place) -> bool {
        let version = place.version.to_string();
        let is_in = |among: &str, scenarios: &Vec<String>| {
            among.split(' ').any(|word| word == version)
                && among.split(' ').any(|word| word == place.cluster)
                && scenarios.contains(&place.scenario)
        };
        self.kind == place.kind.as_str() && self.at.iter().any(|(among, all)| is_in(among, all))
    }

    /// Every version, cluster and scenario where the difference has to show.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.at.iter().flat_map(|(among, scenarios)| {
            let words = || among.split(' ');
            let versions = words().filter(|word| word.starts_with(|it: char| it.is_ascii_digit()));
            versions.flat_map(move |version| {
                let clusters = words().filter(|word| word.starts_with('c'));
                clusters.flat_map(move |cluster| {
                    let scenarios = scenarios.iter();
                    scenarios.map(move |scenario| (version, cluster, scenario.as_str()))
                })
            })
        })
    }

    fn covers(&self, difference: &Difference) -> bool {
        self.path == any_index(&difference.path) && is_like(&self.ours, &difference.ours)
    }
}

/// Whether a value is the expected one. One `*` in an expected text stands for anything, as for a time; `*` alone for any
/// value that is there.
fn is_like(expected: &Value, value: &Value) -> bool {
    if expected == "*" {
        return !value.is_null();
    }
    let parts = expected.as_str().and_then(|text| text.split_once('*'));
    match (parts, value.as_str()) {
        (Some((start, end)), Some(value)) => {
            value.len() >= start.len() + end.len()
                && value.starts_with(start)
                && value.ends_with(end)
        }
        _ => expected == value,
    }
}

/// A path with every index replaced by `[*]`.
fn any_index(path: &str) -> String {
    let mut parts = path.split('[');
    let mut any = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((_, rest)) => any.extend(["[*]", rest]),
            None => any.extend(["[", part]),
        }
    }
    any
}

/// The table of expected differences.
pub(crate) fn table(yaml: &str) -> Result<Vec<Expected>, String> {
    serde_saphyr::from_str(yaml).map_err(|error| format!("differences.yaml: {error}"))
}

/// What the differences at one place amount to: how many follow each row, or what is wrong.
pub(crate) fn judge(
    place: &Place,
    differences: &[Difference],
    table: &[Expected],
) -> Result<BTreeMap<u32, usize>, String> {
    let mut rows = BTreeMap::new();
    let mut wrong = Vec::new();
    let here: Vec<_> = table.iter().filter(|row| row.is_at(place)).collect();
    for difference in differences {
        match here.iter().find(|row| row.covers(difference)) {
            Some(row) => *rows.entry(row.row).or_default() += 1,
            None => wrong.push(format!(
                "differs without a row of decisions.md: {difference}"
            )),
        }
    }
    for row in here {
        if !differences.iter().any(|difference| row.covers(difference)) {
            wrong.push(format!(
                "row {} names a difference that is not there: {} becomes {}",
                row.row, row.path, row.ours
            ));
        }
    }
    if wrong.is_empty() {
        Ok(rows)
    } else {
        wrong.dedup();
        Err(wrong.join("\n  "))
    }
}

/// The rows of `docs/decisions.md`, and whether each is marked (`†`) as one that the replay shows.
pub(crate) fn decisions(document: &str) -> BTreeMap<u32, bool> {
    let cells = document.lines().filter_map(|line| {
        let cell = line.strip_prefix('|')?.split('|').next()?.trim();
        let number = cell.trim_end_matches('†');
        Some((number.parse().ok()?, number.len() < cell.len()))
    });
    cells.collect()
}

/// Holds the table and `docs/decisions.md` to each other.
pub(crate) fn agree(table: &[Expected], decisions: &BTreeMap<u32, bool>) -> Result<(), String> {
    let used: BTreeSet<_> = table.iter().map(|row| row.row).collect();
    let mut wrong = Vec::new();
    for row in &used {
        match decisions.get(row) {
            None => wrong.push(format!("there is no row {row} in docs/decisions.md")),
            Some(false) => wrong.push(format!("row {row} of docs/decisions.md lacks its mark, †")),
            Some(true) => {}
        }
    }
    for (row, marked) in decisions {
        if *marked && !used.contains(row) {
            wrong.push(format!(
                "row {row} of docs/decisions.md is marked †, and nothing shows it"
            ));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}
