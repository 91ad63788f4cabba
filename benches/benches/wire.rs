//! How long it takes to write and read the records of the mesh. See the README of this folder for what the numbers mean.

use std::{collections::BTreeMap, hint::black_box, net::IpAddr};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use jiff::Timestamp;
use tombolo_core::{
    names::{NamespacedName, PortName},
    service::{
        BackendZone, ClusterService, ExportSpec, ImportType, InternalTrafficPolicy, IpFamily,
        L4Port, Protocol, ServicePort, SessionAffinity,
    },
    wire::{cluster_service, service_export},
};

const BACKENDS: [u16; 3] = [1, 100, 1_000];

fn port_name(name: &str) -> PortName {
    name.try_into().expect("invariant: a label")
}

fn name() -> NamespacedName {
    NamespacedName::parse("shop", "checkout").expect("invariant: two labels")
}

/// A service with two ports whose backends all have a zone.
fn service(backends: u16) -> ClusterService {
    let ports = |offset: u16| {
        let port = |protocol, port| L4Port { protocol, port };
        BTreeMap::from([
            (port_name("http"), port(Protocol::Tcp, 80 + offset)),
            (port_name("dns"), port(Protocol::Udp, 53 + offset)),
        ])
    };
    let address = |n: u16| IpAddr::from([10, 20, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
    let zone = BackendZone {
        zone: "eu-3a".to_owned(),
        for_zones: vec!["eu-3a".to_owned()],
    };
    ClusterService {
        cluster: "paris".try_into().expect("invariant: a label"),
        cluster_id: 7.try_into().expect("invariant: an id"),
        name: name(),
        frontends: BTreeMap::from([(address(0), ports(0))]),
        backends: (1..=backends).map(|n| (address(n), ports(8000))).collect(),
        hostnames: BTreeMap::new(),
        zones: (1..=backends).map(|n| (address(n), zone.clone())).collect(),
        labels: BTreeMap::from([("app".to_owned(), "checkout".to_owned())]),
        selector: BTreeMap::from([("app".to_owned(), "checkout".to_owned())]),
        shared: true,
    }
}

fn export() -> ExportSpec {
    ExportSpec {
        cluster: "paris".try_into().expect("invariant: a label"),
        name: name(),
        created_at: Timestamp::from_second(1_700_000_000).expect("invariant: a time of 2023"),
        labels: BTreeMap::from([("team".to_owned(), "pay".to_owned())]),
        annotations: BTreeMap::from([("note".to_owned(), "<hello> & more".to_owned())]),
        ports: vec![ServicePort {
            name: port_name("http"),
            protocol: Protocol::Tcp,
            app_protocol: None,
            port: 80,
        }],
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4, IpFamily::V6],
        internal_traffic_policy: Some(InternalTrafficPolicy::Cluster),
        traffic_distribution: None,
    }
}

fn services(criterion: &mut Criterion) {
    for backends in BACKENDS {
        let service = service(backends);
        let (_, bytes) = cluster_service::encode(&service);
        let id = |step| BenchmarkId::new(step, format!("{backends}-backends"));
        let mut group = criterion.benchmark_group("wire/service");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(id("encode"), |bencher| {
            bencher.iter(|| cluster_service::encode(black_box(&service)));
        });
        group.bench_function(id("decode"), |bencher| {
            bencher.iter(|| {
                let bytes = black_box(&bytes);
                cluster_service::decode(&service.cluster, "shop/checkout", bytes, &mut Vec::new())
                    .expect("invariant: what was encoded decodes")
            });
        });
    }
}

fn exports(criterion: &mut Criterion) {
    let export = export();
    let (_, bytes) = service_export::encode(&export);
    let mut group = criterion.benchmark_group("wire/export");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("encode", |bencher| {
        bencher.iter(|| service_export::encode(black_box(&export)));
    });
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            service_export::decode(&export.cluster, "shop/checkout", black_box(&bytes))
                .expect("invariant: what was encoded decodes")
        });
    });
}

criterion_group!(wire, services, exports);
criterion_main!(wire);
