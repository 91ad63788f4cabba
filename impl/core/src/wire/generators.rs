//! Domain values that a decoder must give back unchanged, for the tests of this module.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use jiff::Timestamp;
use proptest::{collection, option, prelude::*, sample};

use crate::{
    names::{ClusterId, ClusterName, NamespacedName, PortName},
    service::{
        BackendZone, ClusterService, ExportSpec, ImportType, InternalTrafficPolicy, IpFamily,
        L4Port, Protocol, ServicePort, SessionAffinity, TrafficDistribution,
    },
    wire::{
        endpoint_slice::{ClusterEndpointSlice, SliceEndpoint, SlicePort},
        identity::{self, Identity},
        ip::{IpIdentity, NamedPort},
        node::{Node, NodeAddress, PodNetworks},
    },
};

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

/// Texts with everything that JSON has to escape.
fn any_text() -> &'static str {
    "\\PC{0,12}|[<>&\\x00-\\x1f\u{2028}\u{2029}\"\\\\]{0,4}"
}

/// Identities that a decoder must give back unchanged.
pub(super) fn identities() -> impl Strategy<Value = (ClusterName, Identity)> {
    let label = ("k8s|unspec|container|cidr", "[a-zA-Z0-9._/:=-]{0,12}");
    let labels = collection::btree_map("[a-z]{1,3}(\\.io/[a-z]{1,4})?", label, 0..6);
    (clusters(), any::<u32>(), labels).prop_map(|(cluster, id, labels)| {
        let label = |(source, value)| identity::Label { source, value };
        let mut labels: BTreeMap<_, _> = labels
            .into_iter()
            .map(|(key, value)| (key, label(value)))
            .collect();
        let own = label((identity::KUBERNETES.to_owned(), cluster.to_string()));
        labels.insert(identity::CLUSTER_LABEL.to_owned(), own);
        (cluster, Identity { id, labels })
    })
}

fn named_ports() -> impl Strategy<Value = Vec<NamedPort>> {
    let protocol = sample::select(Protocol::ALL);
    let port = (port_names(), 1..=u16::MAX, protocol);
    let port = port.prop_map(|(name, port, protocol)| NamedPort {
        name,
        port,
        protocol,
    });
    collection::vec(port, 0..4)
}

/// Identities of addresses that a decoder must give back unchanged.
pub(super) fn ip_identities() -> impl Strategy<Value = IpIdentity> {
    (
        (
            addresses(),
            option::of(any::<u8>()),
            option::of(addresses()),
        ),
        (any::<u32>(), any::<u8>()),
        (any_text(), any_text(), any_text(), any_text()),
        named_ports(),
    )
        .prop_map(
            |((ip, prefix, host), (identity, encryption_key), texts, named_ports)| IpIdentity {
                ip,
                prefix_length: prefix.map(|it| it % if ip.is_ipv4() { 33 } else { 129 }),
                host,
                identity,
                encryption_key,
                metadata: texts.0,
                namespace: texts.1,
                pod: texts.2,
                service_account: texts.3,
                named_ports,
            },
        )
}

fn networks() -> impl Strategy<Value = PodNetworks> {
    let network = (addresses(), 0..=32_u8);
    let network = network.prop_map(|(ip, length)| IpNet::new(ip, length).unwrap());
    let network = network.boxed();
    (
        option::of(network.clone()),
        collection::vec(network, 0..3),
        option::of(addresses()),
        option::of(addresses()),
    )
        .prop_map(|(primary, secondary, health, ingress)| PodNetworks {
            primary,
            secondary,
            health,
            ingress,
        })
}

/// Nodes that a decoder must give back unchanged.
pub(super) fn nodes() -> impl Strategy<Value = Node> {
    let address = ("[A-Za-z]{0,12}", option::of(addresses()));
    let address = address.prop_map(|(kind, ip)| NodeAddress { kind, ip });
    (
        (clusters(), 1..=511_u32, "[a-z]([a-z0-9.-]{0,20}[a-z0-9])?"),
        collection::vec(address, 0..4),
        (networks(), networks()),
        (any_text(), any_text(), any_text(), any::<u8>()),
        (
            texts("\\PC{0,8}", "\\PC{0,8}"),
            texts("\\PC{0,8}", any_text()),
        ),
    )
        .prop_map(
            |((cluster, id, name), addresses, (ipv4, ipv6), texts, (labels, annotations))| Node {
                cluster,
                cluster_id: ClusterId::try_from(id).unwrap(),
                name,
                addresses,
                ipv4,
                ipv6,
                source: texts.0,
                encryption_key: texts.3,
                labels,
                annotations,
                wireguard_public_key: texts.1,
                boot_id: texts.2,
            },
        )
}

fn slice_endpoints(family: IpFamily) -> impl Strategy<Value = SliceEndpoint> {
    let address = any::<[u8; 3]>().prop_map(move |[a, b, c]| match family {
        IpFamily::V4 => IpAddr::from([10, a, b, c]),
        IpFamily::V6 => IpAddr::from([0xfd00, a.into(), b.into(), c.into(), 0, 0, 0, 1]),
    });
    let condition = || option::of(any::<bool>());
    let name = || option::of("[a-z]{1,8}");
    (
        collection::vec(address, 1..3),
        (condition(), condition(), condition()),
        (name(), name(), name()),
        option::of(collection::vec("[a-z]{1,8}", 0..3)),
    )
        .prop_map(|(addresses, conditions, names, for_zones)| SliceEndpoint {
            addresses,
            ready: conditions.0,
            serving: conditions.1,
            terminating: conditions.2,
            hostname: names.0,
            node: names.1,
            zone: names.2,
            for_zones,
        })
}

fn slice_ports() -> impl Strategy<Value = Vec<SlicePort>> {
    let app = option::of("[a-z]{1,5}(\\.io/[a-z0-9]{1,4})?");
    let protocol = sample::select(Protocol::ALL);
    let name = prop_oneof![4 => port_names(), 1 => Just(PortName::default())];
    let port = (name, protocol, option::of(1..=u16::MAX), app);
    let port = port.prop_map(|(name, protocol, port, app_protocol)| SlicePort {
        name,
        protocol,
        port,
        app_protocol,
    });
    collection::vec(port, 0..4)
}

/// Slices that a decoder must give back unchanged.
pub(super) fn slices() -> impl Strategy<Value = ClusterEndpointSlice> {
    let family = sample::select(IpFamily::ALL);
    let endpoints = family.prop_flat_map(|family| {
        let endpoints = collection::vec(slice_endpoints(family), 0..8);
        (Just(family), endpoints)
    });
    (
        (clusters(), 1..=511_u32, names()),
        (
            texts("\\PC{0,8}", "\\PC{0,8}"),
            texts("\\PC{0,8}", any_text()),
        ),
        endpoints,
        slice_ports(),
    )
        .prop_map(
            |((cluster, id, name), (labels, annotations), (family, endpoints), ports)| {
                ClusterEndpointSlice {
                    cluster,
                    cluster_id: ClusterId::try_from(id).unwrap(),
                    namespace: name.namespace,
                    name: name.name.as_str().to_owned(),
                    labels,
                    annotations,
                    family,
                    endpoints,
                    ports,
                }
            },
        )
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
