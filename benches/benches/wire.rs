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
    wire::{
        cluster_config::{self, Capabilities, ClusterConfig},
        cluster_service,
        endpoint_slice::{self, ClusterEndpointSlice, SliceEndpoint, SlicePort},
        identity::{self, Identity, Label},
        ip::{self, IpIdentity, NamedPort},
        node::{self, Node, NodeAddress, PodNetworks},
        service_export,
    },
};

/// What a reader keeps: the table of the product, which needs nothing but the core.
#[expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the whole product would take minutes to build, and its table is one file"
)]
#[path = "../../impl/src/mesh/tables.rs"]
mod tables;

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

/// A slice of two ports, as Kubernetes makes them: at most 100 endpoints.
fn slice(endpoints: u16) -> ClusterEndpointSlice {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let endpoint = |n: u16| SliceEndpoint {
        addresses: vec![IpAddr::from([
            10,
            20,
            n.to_be_bytes()[0],
            n.to_be_bytes()[1],
        ])],
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        node: Some(format!("worker-{}", n % 10)),
        zone: Some("eu-3a".to_owned()),
        ..SliceEndpoint::default()
    };
    let port = |name: &str, protocol, port| SlicePort {
        name: port_name(name),
        protocol,
        port: Some(port),
        app_protocol: None,
    };
    ClusterEndpointSlice {
        cluster: "paris".try_into().expect("invariant: a label"),
        cluster_id: 7.try_into().expect("invariant: an id"),
        namespace: name().namespace,
        name: "checkout-x".to_owned(),
        labels: BTreeMap::from([
            label("kubernetes.io/service-name", "checkout"),
            label(
                "endpointslice.kubernetes.io/managed-by",
                "endpointslice-controller.k8s.io",
            ),
        ]),
        annotations: BTreeMap::new(),
        family: IpFamily::V4,
        endpoints: (1..=endpoints).map(endpoint).collect(),
        ports: vec![
            port("http", Protocol::Tcp, 8080),
            port("dns", Protocol::Udp, 8053),
        ],
    }
}

fn node() -> Node {
    let labels = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];
    Node {
        cluster: "paris".try_into().expect("invariant: a label"),
        cluster_id: 7.try_into().expect("invariant: an id"),
        name: "worker-1".to_owned(),
        addresses: ["InternalIP", "CiliumInternalIP"]
            .map(|kind| NodeAddress {
                kind: kind.to_owned(),
                ip: Some(IpAddr::from([192, 0, 2, 31])),
            })
            .to_vec(),
        ipv4: PodNetworks {
            primary: "10.20.1.0/24".parse().ok(),
            ..PodNetworks::default()
        },
        ipv6: PodNetworks::default(),
        source: "custom-resource".to_owned(),
        encryption_key: 0,
        labels: labels
            .map(|key| (key.to_owned(), "eu-3a".to_owned()))
            .into(),
        annotations: BTreeMap::new(),
        wireguard_public_key: String::new(),
        boot_id: "0d0c1111-2222-3333-4444-555566667777".to_owned(),
    }
}

fn ip_identity() -> IpIdentity {
    IpIdentity {
        ip: IpAddr::from([10, 20, 1, 17]),
        prefix_length: None,
        host: Some(IpAddr::from([192, 0, 2, 31])),
        identity: 461_234,
        encryption_key: 0,
        metadata: String::new(),
        namespace: "shop".to_owned(),
        pod: "checkout-0".to_owned(),
        service_account: "default".to_owned(),
        named_ports: vec![NamedPort {
            name: port_name("http"),
            port: 8080,
            protocol: Protocol::Tcp,
        }],
    }
}

fn identity() -> Identity {
    let label = |key: &str, value: &str| {
        let source = identity::KUBERNETES.to_owned();
        let value = value.to_owned();
        (key.to_owned(), Label { source, value })
    };
    Identity {
        id: 461_234,
        labels: BTreeMap::from([
            label("app", "checkout"),
            label(identity::CLUSTER_LABEL, "paris"),
            label("io.cilium.k8s.policy.serviceaccount", "default"),
            label("io.kubernetes.pod.namespace", "shop"),
        ]),
    }
}

fn config() -> ClusterConfig {
    ClusterConfig {
        id: 7.try_into().expect("invariant: an id"),
        capabilities: Capabilities {
            synced_canaries: true,
            max_connected_clusters: 255,
            service_exports_enabled: Some(true),
            ..Capabilities::default()
        },
    }
}

/// Writing and reading one record of a kind.
fn both<T>(
    criterion: &mut Criterion,
    kind: &str,
    record: &T,
    encode: impl Fn(&T) -> (String, Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, tombolo_core::wire::Error>,
) {
    let (_, bytes) = encode(record);
    let mut group = criterion.benchmark_group(kind);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("encode", |bencher| {
        bencher.iter(|| encode(black_box(record)));
    });
    group.bench_function("decode", |bencher| {
        bencher.iter(|| decode(black_box(&bytes)).expect("invariant: what was encoded decodes"));
    });
}

fn others(criterion: &mut Criterion) {
    let paris = "paris".try_into().expect("invariant: a label");
    both(
        criterion,
        "wire/slice/100-endpoints",
        &slice(100),
        endpoint_slice::encode,
        |bytes| endpoint_slice::decode(&paris, "shop/checkout-x", bytes, &mut Vec::new()),
    );
    both(criterion, "wire/node", &node(), node::encode, |bytes| {
        node::decode(&paris, "worker-1", bytes)
    });
    both(criterion, "wire/ip", &ip_identity(), ip::encode, |bytes| {
        ip::decode("10.20.1.17", bytes, &mut Vec::new())
    });
    both(
        criterion,
        "wire/identity",
        &identity(),
        identity::encode,
        |bytes| identity::decode(&paris, "461234", bytes),
    );
    both(
        criterion,
        "wire/config",
        &config(),
        |config| cluster_config::encode(&paris, config),
        cluster_config::decode,
    );
}

/// A record of a peer arrives: it is read, and becomes a row in place of one with other backends.
fn ingest(criterion: &mut Criterion) {
    let records = [service(1_000), service(999)].map(|service| cluster_service::encode(&service).1);
    let paris = service(1).cluster;
    let mut table = tables::Table::default();
    let mut group = criterion.benchmark_group("wire/ingest");
    group.throughput(Throughput::Elements(1_000));
    let mut turn = 0;
    group.bench_function("1000-backends", |bencher| {
        bencher.iter(|| {
            turn = 1 - turn;
            let bytes = black_box(&records[turn]);
            let decoded = cluster_service::decode(&paris, "shop/checkout", bytes, &mut Vec::new());
            let service = decoded.expect("invariant: what was encoded decodes");
            let changed = table.set(&paris, &service.name.clone(), service);
            assert!(changed, "the rows differ");
        });
    });
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

criterion_group!(wire, services, exports, others, ingest);
criterion_main!(wire);
