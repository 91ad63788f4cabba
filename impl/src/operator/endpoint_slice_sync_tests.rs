use std::net::Ipv4Addr;

use tombolo_core::{names::ClusterId, service::Protocol};

use super::*;
use crate::operator::testkit::{cluster, named, object};

fn service() -> Service {
    object(
        "
metadata: {name: web, namespace: shop, uid: web-1, labels: {team: pay}}
spec: {type: ClusterIP, clusterIP: 10.96.0.7, ipFamilies: [IPv4]}
",
    )
}

fn http(port: u16) -> BTreeMap<PortName, L4Port> {
    let l4 = L4Port {
        protocol: Protocol::Tcp,
        port,
    };
    [("http".try_into().unwrap(), l4)].into()
}

fn peer(name: &str, backends: impl IntoIterator<Item = (IpAddr, u16)>) -> ClusterService {
    let backends = backends
        .into_iter()
        .map(|(address, port)| (address, http(port)));
    ClusterService {
        cluster: cluster(name),
        cluster_id: ClusterId::try_from(1).unwrap(),
        name: named("shop", "web"),
        frontends: BTreeMap::new(),
        backends: backends.collect(),
        hostnames: BTreeMap::new(),
        zones: BTreeMap::new(),
        labels: BTreeMap::new(),
        selector: BTreeMap::new(),
        shared: true,
    }
}

/// The addresses 10.0.0.0 and so on.
fn backends(numbers: impl IntoIterator<Item = u32>) -> Vec<(IpAddr, u16)> {
    let address = |number| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
    numbers
        .into_iter()
        .map(|number| (address(number), 8080))
        .collect()
}

fn addresses(slice: &EndpointSlice) -> Vec<String> {
    let endpoints = slice.endpoints.iter().flatten();
    endpoints
        .flat_map(|endpoint| endpoint.addresses.clone())
        .collect()
}

fn actual(built: &BTreeMap<String, EndpointSlice>) -> Vec<Arc<EndpointSlice>> {
    built.values().cloned().map(Arc::new).collect()
}

#[test]
fn the_cluster_of_a_slice_is_known_also_when_its_label_was_changed() {
    let built = build(&service(), &[peer("east", backends([1]))], &[]);
    let mut slice = built.into_values().next().unwrap();
    assert_eq!(sources(&slice), [cluster("east")].into());

    let labels = slice.metadata.labels.as_mut().unwrap();
    labels.insert(keys::SOURCE_CLUSTER.to_owned(), "other".to_owned());
    assert!(sources(&slice).contains(&cluster("east")));
    slice.metadata.labels = None;
    assert_eq!(sources(&slice), [cluster("east")].into());
}

#[test]
fn each_slice_has_the_endpoints_of_one_cluster() {
    let remote = [peer("east", backends([1, 2])), peer("west", backends([3]))];

    let built = build(&service(), &remote, &[]);

    let of = |name: &str| {
        let mut slices = built.values();
        let is = |slice: &&EndpointSlice| slice.labels()[keys::SOURCE_CLUSTER] == name;
        slices.find(is).map(addresses)
    };
    assert_eq!(built.len(), 2);
    assert_eq!(of("east").unwrap(), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(of("west").unwrap(), ["10.0.0.3"]);
}

#[test]
fn backends_with_different_ports_go_to_different_slices() {
    let mut both = backends([1, 2, 3]);
    both[1].1 = 9090;

    let built = build(&service(), &[peer("east", both)], &[]);

    let of = |port: i32| {
        let mut slices = built.values();
        let is = |slice: &&EndpointSlice| slice.ports.as_ref().unwrap()[0].port == Some(port);
        slices.find(is).map(addresses)
    };
    assert_eq!(of(8080).unwrap(), ["10.0.0.1", "10.0.0.3"]);
    assert_eq!(of(9090).unwrap(), ["10.0.0.2"]);
}

#[test]
fn families_that_the_service_does_not_have_are_left_out() {
    let six = "fd00::1".parse().unwrap();
    let remote = [peer("east", backends([1]).into_iter().chain([(six, 8080)]))];
    let mut dual = service();
    dual.annotations_mut().insert(
        keys::SUPPORTED_IP_FAMILIES.to_owned(),
        "IPv6,IPv4".to_owned(),
    );

    assert_eq!(build(&service(), &remote, &[]).len(), 1);
    assert_eq!(build(&dual, &remote, &[]).len(), 2);
}

#[test]
fn a_peer_without_backends_has_no_slice() {
    assert!(build(&service(), &[peer("east", [])], &[]).is_empty());
}

#[test]
fn no_slice_has_more_than_a_hundred_endpoints() {
    let built = build(&service(), &[peer("east", backends(0..250))], &[]);

    let mut sizes: Vec<_> = built.values().map(|slice| addresses(slice).len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [50, 100, 100]);
}

#[test]
fn endpoints_stay_in_their_slice_when_others_come_and_go() {
    let before = build(&service(), &[peer("east", backends(0..250))], &[]);

    // One of the first slice goes, and one comes whose address orders before all others.
    let changed = backends((0..250).filter(|number| *number != 7));
    let coming = ("9.9.9.9".parse().unwrap(), 8080);
    let changed = changed.into_iter().chain([coming]);
    let after = build(&service(), &[peer("east", changed)], &actual(&before));

    let differing = before
        .iter()
        .filter(|(name, slice)| after.get(*name) != Some(slice));
    assert_eq!(differing.count(), 1);
    assert_eq!(before.len(), after.len());
}

#[test]
fn building_again_from_what_was_built_changes_nothing() {
    let remote = [peer("east", backends(0..150)), peer("west", backends(0..3))];
    let built = build(&service(), &remote, &[]);

    assert_eq!(build(&service(), &remote, &actual(&built)), built);
}

#[test]
fn names_of_services_and_clusters_that_read_alike_do_not_collide() {
    let renamed = |name: &str| {
        let mut service = service();
        service.metadata.name = Some(name.to_owned());
        service
    };

    let a = build(&renamed("a-b"), &[peer("c", backends([1]))], &[]);
    let b = build(&renamed("a"), &[peer("b-c", backends([1]))], &[]);

    assert_ne!(a.keys().next(), b.keys().next());
}

#[test]
fn labels_of_the_service_come_along_and_cannot_claim_another_manager() {
    let mut service = service();
    service
        .labels_mut()
        .insert(keys::MANAGED_BY.to_owned(), "somebody".to_owned());

    let built = build(&service, &[peer("east", backends([1]))], &[]);

    let labels = built.values().next().unwrap().labels();
    assert_eq!(labels["team"], "pay");
    assert_eq!(labels[keys::MANAGED_BY], keys::MANAGED_BY_MESH);
    assert_eq!(labels[keys::KUBERNETES_SERVICE_NAME], "web");
    assert_eq!(labels.get(keys::HEADLESS), None);
}
