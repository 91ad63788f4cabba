//! Recorded records of Cilium, whole and damaged, for the tests of this module.

use std::{collections::BTreeMap, fs, path::PathBuf};

use data_encoding::BASE64;
use proptest::{collection, prelude::*, sample};
use serde_json::Value;

use crate::names::ClusterName;

pub(super) fn fixtures() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/fixtures/cilium-1.20.2"
    ))
}

/// A scenario with a record that no reader accepts: Cilium gives an ExternalName Service a frontend without address.
const UNREADABLE: &str = "g09-externalname";

/// Key suffix and value of every recorded record whose key contains `kind`, with its cluster.
pub(super) fn recorded(kind: &str) -> Vec<(ClusterName, String, String)> {
    let text = |record: &Value| record["value"].as_str().unwrap().to_owned();
    recorded_as(kind, text)
}

/// Cluster, key suffix and bytes of every recorded slice, and what another program read in them.
pub(super) fn recorded_slices() -> Vec<(ClusterName, String, Vec<u8>, Value)> {
    let records = recorded_as("endpointslices", Value::clone).into_iter();
    records
        .map(|(cluster, suffix, mut record)| {
            let text = record["value_base64"].as_str().unwrap();
            let bytes = BASE64.decode(text.as_bytes()).unwrap();
            (cluster, suffix, bytes, record["decoded"].take())
        })
        .collect()
}

fn recorded_as<T>(kind: &str, read: impl Fn(&Value) -> T) -> Vec<(ClusterName, String, T)> {
    let prefix = format!("cilium/state/{kind}/v1/");
    let mut found = Vec::new();
    for scenario in fs::read_dir(fixtures()).unwrap() {
        let scenario = scenario.unwrap().path();
        if scenario.ends_with(UNREADABLE) {
            continue;
        }
        for file in fs::read_dir(scenario).unwrap() {
            let path = file.unwrap().path();
            if !path.to_string_lossy().ends_with("-records.json") {
                continue;
            }
            let records: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            for record in records.as_array().unwrap() {
                let key = record["key"].as_str().unwrap();
                let Some(rest) = key.strip_prefix(&prefix) else {
                    continue;
                };
                let (cluster, suffix) = rest.split_once('/').unwrap();
                found.push((cluster.try_into().unwrap(), suffix.to_owned(), read(record)));
            }
        }
    }
    assert!(!found.is_empty(), "no recorded {kind}");
    found
}

/// Key and value of the recorded records of agents whose key begins with `prefix`.
pub(super) fn recorded_of_agents(prefix: &str) -> Vec<(String, String)> {
    let file = fixtures().join("a01-agent-records/after-1-c1-records.json");
    let records: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found: Vec<_> = records
        .as_array()
        .unwrap()
        .iter()
        .map(|record| (text(&record["key"]), text(&record["value"])))
        .filter(|(key, _)| key.starts_with(prefix))
        .collect();
    assert!(!found.is_empty(), "no recorded {prefix}");
    found
}

/// What a hand-written peer put, and what Cilium's operator said of it: key after the prefix, value, refusal if any.
pub(super) fn tried_on_cilium(kind: &str) -> Vec<(String, String, Option<String>)> {
    let folder = fixtures().join("r01-reader");
    let puts = fs::read(folder.join("puts.json")).unwrap();
    let puts: Value = serde_json::from_slice(&puts).unwrap();
    let log = fs::read_to_string(folder.join("operator-log-lines.txt")).unwrap();
    let prefix = format!("cilium/state/{kind}/v1/hm/");
    let mut last = BTreeMap::new();
    for put in puts.as_array().unwrap() {
        if let Some(suffix) = put["put"].as_str().unwrap().strip_prefix(&prefix) {
            last.insert(suffix.to_owned(), put["value"].as_str().unwrap().to_owned());
        }
    }
    last.into_iter()
        .map(|(suffix, value)| {
            let refusal = log
                .lines()
                .find_map(|line| line.split_once(&format!("key={suffix} error=")))
                .map(|(_, error)| serde_json::from_str(error).unwrap());
            (suffix, value, refusal)
        })
        .collect()
}

/// A record in which some bytes were replaced, removed or doubled.
pub(super) fn mutated(kind: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let values = recorded(kind).into_iter();
    mutations(values.map(|(_, _, value)| value).collect())
}

/// A record of an agent in which some bytes were replaced, removed or doubled.
pub(super) fn mutated_of_agents(prefix: &str) -> impl Strategy<Value = Vec<u8>> {
    let values = recorded_of_agents(prefix).into_iter();
    mutations(values.map(|(_, value)| value).collect())
}

fn mutations(values: Vec<String>) -> impl Strategy<Value = Vec<u8>> {
    mutated_bytes(values.into_iter().map(String::into_bytes).collect())
}

/// One of the values, in which some bytes were replaced, removed or doubled.
pub(super) fn mutated_bytes(values: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<sample::Index>(), 0..4_u8, any::<u8>());
    (sample::select(values), collection::vec(edit, 1..6)).prop_map(|(mut bytes, edits)| {
        for (index, what, byte) in edits {
            let at = index.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes[at] = b"0\"{}[],:-\\"[usize::from(byte) % 10],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        bytes
    })
}
