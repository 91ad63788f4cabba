//! What Cilium 1.20's kvstoremesh was recorded to write, from the same peers.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

use super::*;
use crate::kvstore::testing::{Subject, battery};

/// Copied here and not in the recording: of the peer's keys it left out these, as its `summary.json` tells by the number of keys,
/// and the last was written after it.
const NOT_RECORDED: [&str; 5] = [
    "cilium/cache/serviceexports/v1/hm/r01/Upper",
    "cilium/cache/serviceexports/v1/hmlate/r01/from-hmlate",
    "cilium/cache/serviceexports/v1/hmmode/r01/from-hmmode",
    "cilium/cache/serviceexports/v1/hmnocan/r01/from-hmnocan",
    "cilium/cache/serviceexports/v1/hm/r01/e-lower",
];

/// The peers that Cilium copied. `hmid` has the id of c1 and is refused here: decisions, row 24.
const PEERS: [&str; 6] = ["c1", "hm", "hmlate", "hmmode", "hmnocan", "hmnoexp"];

fn fixture(path: &str) -> Value {
    recording(&format!("cilium-1.20.2/{path}"))
}

fn recording(path: &str) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("core/fixtures");
    serde_json::from_slice(&fs::read(root.join(path)).unwrap()).unwrap()
}

fn bytes(entry: &Value) -> Vec<u8> {
    match entry["value"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => data_encoding::BASE64
            .decode(entry["value_base64"].as_str().unwrap().as_bytes())
            .unwrap(),
    }
}

/// The cluster that a copy is of.
fn peer_of(key: &str) -> String {
    super::super::keys::place(key).unwrap().0.to_string()
}

/// What Cilium's kvstoremesh wrote about peers.
fn recorded() -> BTreeMap<String, Vec<u8>> {
    let entries = fixture("00-kvstoremesh/c2-etcd.json");
    let mut copies = BTreeMap::new();
    for entry in entries.as_array().unwrap() {
        let key = entry["key"].as_str().unwrap();
        assert_eq!(entry["leased"], true, "{key}");
        let copy = super::super::keys::place(key).is_some();
        if copy && PEERS.contains(&peer_of(key).as_str()) {
            copies.insert(key.to_owned(), bytes(entry));
        }
    }
    copies
}

/// c1 as it was recorded: records of two namespaces, cluster-config, canaries. Of a third namespace only the copies were
/// recorded; they stand for the source, which they were found equal to.
async fn fill_c1(store: &MemoryStore, recorded: &BTreeMap<String, Vec<u8>>) {
    let put = async |key: &str, value: Vec<u8>| {
        store.put(key, value, None).await.unwrap();
    };
    for (key, value) in recorded.iter().filter(|(key, _)| key.contains("/c1/r01/")) {
        put(
            &key.replacen("cilium/cache", "cilium/state", 1),
            value.clone(),
        )
        .await;
    }
    for file in [
        "g02-basic/after-2-c1-records.json",
        "m01-basic/after-2-c1-records.json",
        "00-mesh/c1-mesh-keys.json",
    ] {
        for entry in fixture(file).as_array().unwrap() {
            put(entry["key"].as_str().unwrap(), bytes(entry)).await;
        }
    }
}

/// The peers that were written by hand, all in one store, broken records included.
async fn fill_by_hand(store: &MemoryStore) {
    for entry in fixture("r01-reader/puts.json").as_array().unwrap() {
        let key = entry["put"].as_str().unwrap();
        store.put(key, bytes(entry), None).await.unwrap();
    }
}

async fn copies_are_those_that_cilium_made<S: Subject>(subject: S) {
    let recorded = recorded();
    let (c1, by_hand) = (MemoryStore::new("c1"), MemoryStore::new("hand"));
    fill_c1(&c1, &recorded).await;
    fill_by_hand(&by_hand).await;
    let mut here = Here::new(subject.store());
    here.local = LocalCluster {
        name: name("c2"),
        id: 2.try_into().unwrap(),
        max_connected: 255,
    };

    here.start(&PEERS.map(|peer| {
        let store = if peer == "c1" { &c1 } else { &by_hand };
        (peer, store.clone())
    }));
    here.until_ready().await;

    let copies = here.everything().await;
    let mut differences = Vec::new();
    let mut equal = 0;
    for (key, value) in &recorded {
        // The value of a canary is the time at which it was written.
        let is_time = key.starts_with("cilium/synced/");
        match copies.get(key) {
            Some(copy) if is_time || copy.value == *value => equal += 1,
            Some(_) => differences.push(format!("{key}: another value")),
            None => differences.push(format!("{key}: missing")),
        }
    }
    let more: BTreeSet<_> = copies
        .keys()
        .filter(|key| !recorded.contains_key(*key))
        .collect();
    assert_eq!(differences, Vec::<String>::new());
    let expected = NOT_RECORDED.map(str::to_owned);
    assert_eq!(more, expected.iter().collect());
    assert_eq!(equal, recorded.len());
    assert!(copies.values().all(|copy| copy.lease.is_some()));
    // How many there were of the hand-written peer, as the recording's own summary says.
    let summary = &fixture("00-kvstoremesh/summary.json")["cache_keys_per_prefix"];
    for kind in ["serviceexports", "services"] {
        let prefix = format!("cilium/cache/{kind}/v1/hm");
        let later = usize::from(kind == "serviceexports");
        let count = copies
            .keys()
            .filter(|key| key.starts_with(&format!("{prefix}/")))
            .count();
        assert_eq!(
            summary[&prefix].as_u64(),
            Some((count - later) as u64),
            "{prefix}"
        );
    }
}

/// What a key of a lock is made of: its directory, whether the rest is a lease as etcd's client library writes it, its value,
/// and whether it goes with a lease.
fn of_lock(key: &str, value: &[u8], leased: bool) -> (String, bool, Vec<u8>, bool) {
    let (directory, lease) = key.rsplit_once('/').unwrap();
    let digits = lease
        .bytes()
        .all(|byte| b"0123456789abcdef".contains(&byte));
    let is_lease = digits && !lease.starts_with('0');
    (directory.to_owned(), is_lease, value.to_vec(), leased)
}

async fn the_lock_is_the_one_that_cilium_held<S: Subject>(subject: S) {
    let mut here = Here::new(subject.store());
    here.start::<MemoryStore>(&[]);
    here.until_ready().await;

    let line = here.store.list("cilium/kvstoremesh-lock").await.unwrap();
    let ours: Vec<_> = line.entries.values().collect();
    let [ours] = ours[..] else {
        panic!("{ours:?}");
    };
    let (_, own_lease) = ours.key.rsplit_once('/').unwrap();
    assert_eq!(ours.lease.unwrap().to_string(), own_lease);
    let ours = of_lock(&ours.key, &ours.value, ours.lease.is_some());
    for recorded in [
        "cilium-1.20.2/00-kvstoremesh/c2-etcd.json",
        "cilium-mixed-1.20.2-1.19.0-kvstoremesh/00-mesh/c2-mesh-keys.json",
    ] {
        let entries = recording(recorded);
        let is_lock = |entry: &&Value| entry["key"].as_str().unwrap().contains("lock");
        let theirs: Vec<_> = entries.as_array().unwrap().iter().filter(is_lock).collect();
        let [theirs] = theirs[..] else {
            panic!("{recorded}: {theirs:?}");
        };
        let leased = theirs["leased"].as_bool().unwrap();
        let theirs = of_lock(theirs["key"].as_str().unwrap(), &bytes(theirs), leased);
        assert_eq!(ours, theirs, "{recorded}");
    }
}

battery![
    copies_are_those_that_cilium_made,
    the_lock_is_the_one_that_cilium_held,
];
