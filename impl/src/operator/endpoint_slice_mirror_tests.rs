use super::*;
use crate::operator::testkit::{cluster, object};

fn service(name: &str, ports: &str) -> Service {
    object(&format!(
        "{{metadata: {{name: {name}, namespace: shop, uid: '{name}-1'}}, spec: {{ipFamilies: [IPv4], ports: {ports}}}}}"
    ))
}

fn local(name: &str, edit: impl FnOnce(&mut EndpointSlice)) -> Arc<EndpointSlice> {
    let mut slice: EndpointSlice = object(&format!(
        "
metadata:
  name: {name}
  namespace: shop
  labels: {{kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
addressType: IPv4
endpoints:
- {{addresses: [10.0.0.1], conditions: {{ready: true}}}}
- {{addresses: [10.0.0.2], conditions: {{ready: false}}}}
ports: [{{name: http, protocol: TCP, port: 8080}}]
"
    ));
    edit(&mut slice);
    Arc::new(slice)
}

const HTTP: &str = "[{name: http, protocol: TCP, port: 80}]";

/// Mirrors slices of `shop/web` to `shop/derived-x`.
fn mirrored(
    own: &str,
    derived: &str,
    local: &[Arc<EndpointSlice>],
) -> BTreeMap<String, EndpointSlice> {
    build(&Observed {
        cluster: &cluster("east"),
        service: &service("web", own),
        derived: &service("derived-x", derived),
        local,
    })
}

fn names(mirrored: &BTreeMap<String, EndpointSlice>) -> Vec<&str> {
    mirrored.keys().map(String::as_str).collect()
}

#[test]
fn endpoints_that_are_not_ready_are_mirrored_too() {
    let mirrored = mirrored(HTTP, HTTP, &[local("web-abcde", |_| {})]);

    let endpoints = mirrored["derived-x-abcde"].endpoints.as_ref().unwrap();
    assert_eq!(endpoints.len(), 2);
}

#[test]
fn a_port_that_lost_a_conflict_is_not_mirrored() {
    let derived = "[{name: http, protocol: TCP, port: 8000}]";
    let both = "[{name: http, protocol: TCP, port: 80}, {name: admin, protocol: TCP, port: 90}]";

    let lost = mirrored(HTTP, derived, &[local("web-abcde", |_| {})]);
    let kept = mirrored(
        both,
        HTTP,
        &[local("web-abcde", |slice| {
            let ports = slice.ports.as_mut().unwrap();
            ports.push(EndpointPort {
                name: Some("admin".to_owned()),
                ..ports[0].clone()
            });
        })],
    );

    assert!(lost.is_empty());
    assert_eq!(kept["derived-x-abcde"].ports.as_ref().unwrap().len(), 1);
}

#[test]
fn a_slice_without_ports_is_mirrored_if_it_names_endpoints() {
    let without_ports = local("web-abcde", |slice| slice.ports = None);
    let empty = local("web-fghij", |slice| {
        slice.ports = None;
        slice.endpoints = None;
    });

    let mirrored = mirrored("[]", "[]", &[without_ports, empty]);

    assert_eq!(names(&mirrored), ["derived-x-abcde"]);
}

#[test]
fn a_port_of_another_protocol_is_not_mirrored() {
    let udp = "[{name: http, protocol: UDP, port: 80}]";

    assert!(mirrored(HTTP, udp, &[local("web-abcde", |_| {})]).is_empty());
}

#[test]
fn slices_of_mesh_controllers_of_other_services_and_families_are_not_mirrored() {
    let label = |key: &'static str, value: &'static str| {
        local("web-a", move |slice| {
            slice.labels_mut().insert(key.to_owned(), value.to_owned());
        })
    };
    let slices = [
        label(keys::MANAGED_BY, keys::MANAGED_BY_MESH),
        label(keys::MANAGED_BY, keys::MANAGED_BY_MIRROR),
        label(keys::KUBERNETES_SERVICE_NAME, "other"),
        local("web-b", |slice| slice.address_type = "IPv6".to_owned()),
        local("web-c", |slice| slice.address_type = "FQDN".to_owned()),
    ];

    assert!(mirrored(HTTP, HTTP, &slices).is_empty());
}

#[test]
fn names_keep_what_the_local_slice_has_beyond_its_service() {
    let long = format!("other-{}", "y".repeat(50));
    let cases = [
        ("web-abcde", "derived-x-abcde".to_owned()),
        ("web", "derived-x".to_owned()),
        ("custom", "derived-x-custom".to_owned()),
        (long.as_str(), format!("derived-x-{}", "y".repeat(40))),
    ];

    for (name, expected) in cases {
        assert_eq!(
            names(&mirrored(HTTP, HTTP, &[local(name, |_| {})])),
            [expected]
        );
    }
}

#[test]
fn two_slices_that_would_get_one_name_both_survive() {
    let (a, b) = (
        format!("a{}", "y".repeat(40)),
        format!("b{}", "y".repeat(40)),
    );

    let mirrored = mirrored(HTTP, HTTP, &[local(&a, |_| {}), local(&b, |_| {})]);

    assert_eq!(mirrored.len(), 2);
}

#[test]
fn a_local_name_that_is_no_label_value_is_linked_by_annotation() {
    let name = "y".repeat(64);

    let mirrored = mirrored(HTTP, HTTP, &[local(&name, |_| {})]);

    let slice = mirrored.values().next().unwrap();
    assert_eq!(slice.labels().get(keys::LOCAL_SLICE), None);
    assert_eq!(slice.annotations()[keys::LOCAL_SLICE], name);
}
