//! Recorded records of Cilium and generators of domain values, for the tests of this module.

use std::{collections::BTreeMap, fs, net::IpAddr, path::PathBuf};

use jiff::Timestamp;
use proptest::{collection, option, prelude::*, sample};

use crate::{
    names::{ClusterId, ClusterName, NamespacedName, PortName},
    service::{
        BackendZone, ClusterService, ExportSpec, ImportType, InternalTrafficPolicy, IpFamily,
        L4Port, Protocol, ServicePort, SessionAffinity, TrafficDistribution,
    },
};

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
            let records: serde_json::Value =
                serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            for record in records.as_array().unwrap() {
                let key = record["key"].as_str().unwrap();
                let Some(rest) = key.strip_prefix(&format!("cilium/state/{kind}/v1/")) else {
                    continue;
                };
                let (cluster, suffix) = rest.split_once('/').unwrap();
                let value = record["value"].as_str().unwrap().to_owned();
                found.push((cluster.try_into().unwrap(), suffix.to_owned(), value));
            }
        }
    }
    assert!(!found.is_empty(), "no recorded {kind}");
    found
}

/// What a hand-written peer put, and what Cilium's operator said of it: key after the prefix, value, refusal if any.
pub(super) fn tried_on_cilium(kind: &str) -> Vec<(String, String, Option<String>)> {
    let folder = fixtures().join("r01-reader");
    let puts = fs::read(folder.join("puts.json")).unwrap();
    let puts: serde_json::Value = serde_json::from_slice(&puts).unwrap();
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

fn texts(
    keys: &'static str,
    values: &'static str,
) -> impl Strategy<Value = BTreeMap<String, String>> {
    collection::btree_map(keys, values, 0..4)
}

fn names() -> impl Strategy<Value = NamespacedName> {
    (
        "[a-z]([a-z0-9-]{0,8}[a-z0-9])?",
        "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
    )
        .prop_map(|(namespace, name)| NamespacedName::parse(&namespace, &name).unwrap())
}

fn clusters() -> impl Strategy<Value = ClusterName> {
    "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?".prop_map(|name| ClusterName::try_from(name).unwrap())
}

fn port_names() -> impl Strategy<Value = PortName> {
    "[a-z]([a-z0-9-]{0,8}[a-z])?".prop_map(|name| PortName::try_from(name).unwrap())
}

fn service_ports() -> impl Strategy<Value = Vec<ServicePort>> {
    let protocol = sample::select(Protocol::ALL);
    let app = option::of("[a-z]{1,5}(\\.io/[a-z0-9]{1,4})?");
    let port = (port_names(), protocol, app, 1..=u16::MAX);
    collection::vec(port, 1..5).prop_map(|ports| {
        ports
            .into_iter()
            .map(|(name, protocol, app_protocol, port)| ServicePort {
                name,
                protocol,
                app_protocol,
                port,
            })
            .collect()
    })
}

/// Exports that a decoder must give back unchanged.
pub(super) fn exports() -> impl Strategy<Value = ExportSpec> {
    let families = sample::subsequence(IpFamily::ALL, 0..=2).prop_shuffle();
    (
        (clusters(), names(), 0..4_000_000_000_i64),
        (
            texts("[a-z]{1,4}(\\.io/[A-Z0-9]{1,3})?", "[a-zA-Z0-9]{0,5}"),
            texts(
                "[a-z]{1,4}",
                "\\PC{0,20}|[<>&\\x00-\\x1f\u{2028}\u{2029}\"\\\\]{0,6}",
            ),
        ),
        service_ports(),
        sample::select(ImportType::ALL),
        (sample::select(SessionAffinity::ALL), option::of(1..=86_400)),
        families,
        option::of(sample::select(InternalTrafficPolicy::ALL)),
        option::of(sample::select(TrafficDistribution::ALL)),
    )
        .prop_map(
            |(
                (cluster, name, seconds),
                (labels, annotations),
                ports,
                import_type,
                (session_affinity, session_affinity_timeout_seconds),
                ip_families,
                internal_traffic_policy,
                traffic_distribution,
            )| ExportSpec {
                cluster,
                name,
                created_at: Timestamp::from_second(seconds).unwrap(),
                labels,
                annotations,
                ports,
                import_type,
                session_affinity,
                session_affinity_timeout_seconds,
                ip_families,
                internal_traffic_policy,
                traffic_distribution,
            },
        )
}

fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        any::<[u16; 7]>()
            .prop_map(|[a, b, c, d, e, f, g]| IpAddr::from([0xfd00, a, b, c, d, e, f, g])),
    ]
}

fn ports() -> impl Strategy<Value = BTreeMap<PortName, L4Port>> {
    let name = prop_oneof![4 => port_names(), 1 => Just(PortName::default())];
    let port = (sample::select(Protocol::ALL), 1..=u16::MAX)
        .prop_map(|(protocol, port)| L4Port { protocol, port });
    collection::btree_map(name, port, 0..4)
}

fn zones() -> impl Strategy<Value = BackendZone> {
    ("[a-z0-9]{1,6}", collection::vec("[a-z0-9]{1,6}", 0..3))
        .prop_map(|(zone, for_zones)| BackendZone { zone, for_zones })
}

/// Services that a decoder must give back unchanged.
pub(super) fn services() -> impl Strategy<Value = ClusterService> {
    let backend = (ports(), option::of("[a-z0-9]{1,8}"), option::of(zones()));
    (
        (clusters(), 1..=511_u32, names(), any::<bool>()),
        collection::btree_map(addresses(), ports(), 0..3),
        collection::btree_map(addresses(), backend, 0..12),
        (
            texts("\\PC{0,8}", "\\PC{0,8}"),
            texts("[a-z]{1,4}", "[a-z]{0,5}"),
        ),
    )
        .prop_map(
            |((cluster, id, name, shared), frontends, backends, (labels, selector))| {
                let hostname = |(&ip, (_, hostname, _)): (&IpAddr, &(_, Option<String>, _))| {
                    Some((ip, hostname.clone()?))
                };
                let zone = |(&ip, (_, _, zone)): (&IpAddr, &(_, _, Option<BackendZone>))| {
                    Some((ip, zone.clone()?))
                };
                ClusterService {
                    cluster,
                    cluster_id: ClusterId::try_from(id).unwrap(),
                    name,
                    frontends,
                    hostnames: backends.iter().filter_map(hostname).collect(),
                    zones: backends.iter().filter_map(zone).collect(),
                    backends: backends
                        .into_iter()
                        .map(|(ip, (ports, ..))| (ip, ports))
                        .collect(),
                    labels,
                    selector,
                    shared,
                }
            },
        )
}

/// A record in which some bytes were replaced, removed or doubled.
pub(super) fn mutated(kind: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let values: Vec<_> = recorded(kind)
        .into_iter()
        .map(|(_, _, value)| value)
        .collect();
    let edit = (any::<sample::Index>(), 0..4_u8, any::<u8>());
    (sample::select(values), collection::vec(edit, 1..6)).prop_map(|(value, edits)| {
        let mut bytes = value.into_bytes();
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
