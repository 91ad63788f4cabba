//! How long it takes to merge the exports of one name. See the README of this folder for what the numbers mean.

use std::{collections::BTreeMap, hint::black_box};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use jiff::Timestamp;
use tombolo_core::{
    merge::merge,
    names::NamespacedName,
    service::{
        ExportSpec, ImportType, InternalTrafficPolicy, IpFamily, Protocol, ServicePort,
        SessionAffinity,
    },
};

const CLUSTERS: [u16; 3] = [2, 16, 255];
const PORTS: [u16; 2] = [1, 8];

/// Exports of `clusters` clusters with `ports` ports each; every second cluster numbers its ports from `disagreement`.
fn exports(clusters: u16, ports: u16, disagreement: u16) -> Vec<ExportSpec> {
    let port = |offset: u16, n: u16| ServicePort {
        name: format!("port-{n}")
            .as_str()
            .try_into()
            .expect("invariant: a label"),
        protocol: Protocol::Tcp,
        app_protocol: None,
        port: 8000 + offset + n,
    };
    let export = |n: u16| ExportSpec {
        cluster: format!("cluster-{n}")
            .as_str()
            .try_into()
            .expect("invariant: a label"),
        name: NamespacedName::parse("shop", "checkout").expect("invariant: two labels"),
        created_at: Timestamp::from_second(1_700_000_000 + i64::from(n))
            .expect("invariant: a time of 2023"),
        labels: BTreeMap::from([("team".to_owned(), "pay".to_owned())]),
        annotations: BTreeMap::new(),
        ports: (0..ports)
            .map(|p| port(disagreement * (n % 2), p))
            .collect(),
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4, IpFamily::V6],
        internal_traffic_policy: Some(InternalTrafficPolicy::Cluster),
        traffic_distribution: None,
    };
    (0..clusters).map(export).collect()
}

fn benches(criterion: &mut Criterion) {
    for (name, disagreement) in [("merge/agree", 0), ("merge/conflict", 100)] {
        let mut group = criterion.benchmark_group(name);
        for (clusters, ports) in CLUSTERS.into_iter().flat_map(|c| PORTS.map(|p| (c, p))) {
            let exports = exports(clusters, ports, disagreement);
            let id = BenchmarkId::new(format!("{clusters}-clusters"), format!("{ports}-ports"));
            group.throughput(Throughput::Elements(clusters.into()));
            group.bench_with_input(id, &exports, |bencher, exports| {
                bencher.iter(|| merge(black_box(exports)));
            });
        }
        group.finish();
    }
}

criterion_group!(merges, benches);
criterion_main!(merges);
