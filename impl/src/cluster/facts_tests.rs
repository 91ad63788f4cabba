use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn service_with(spec: Value) -> Result<ServiceFacts, Error> {
    let metadata = json!({"namespace": "shop", "name": "cart"});
    service(&parsed(json!({"metadata": metadata, "spec": spec})))
}

fn slice_with(address: &str, ports: Value) -> Result<SliceFacts, Error> {
    endpoint_slice(&parsed(json!({
        "metadata": {"namespace": "shop", "name": "cart-x"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": ports,
    })))
}

#[test]
fn constants_of_api_and_core_agree() {
    assert_eq!(keys::GLOBAL, export::GLOBAL);
    assert_eq!(keys::GLOBAL_ALIAS, export::GLOBAL_ALIAS);
    assert_eq!(keys::SHARED, export::SHARED);
    assert_eq!(keys::SHARED_ALIAS, export::SHARED_ALIAS);
    assert_eq!(keys::HEADLESS, export::HEADLESS);
    assert_eq!(keys::MANAGED_BY_MESH, export::MANAGED_BY_MESH);
}

#[test]
fn a_service_is_read_with_all_its_addresses_and_ports() {
    let facts = service_with(json!({
        "clusterIP": "10.0.0.1",
        "clusterIPs": ["10.0.0.1", "fd00::1"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "name": "dns", "appProtocol": ""}],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
    }))
    .unwrap();

    assert_eq!(facts.cluster_ips.len(), 2);
    assert_eq!(facts.ip_families, [IpFamily::V4, IpFamily::V6]);
    assert_eq!(facts.ports[0].protocol, Protocol::Tcp);
    assert!(facts.ports[0].name.is_unnamed());
    assert_eq!(facts.ports[1].app_protocol, None);
    assert_eq!(facts.session_affinity, SessionAffinity::ClientIp);
    assert_eq!(facts.session_affinity_timeout_seconds, Some(600));
    assert!(!facts.headless);
}

#[rstest]
#[case::headless(json!({"clusterIP": "None", "clusterIPs": ["None"]}), true, 0)]
#[case::headless_in_small_letters(json!({"clusterIP": "none"}), true, 0)]
#[case::not_assigned(json!({"clusterIP": ""}), false, 0)]
#[case::without_list(json!({"clusterIP": "10.0.0.1"}), false, 1)]
fn cluster_ips_say_whether_a_service_is_headless(
    #[case] spec: Value,
    #[case] headless: bool,
    #[case] addresses: usize,
) {
    let facts = service_with(spec).unwrap();

    assert_eq!(facts.headless, headless);
    assert_eq!(facts.cluster_ips.len(), addresses);
}

#[rstest]
#[case::distribution(json!({"trafficDistribution": "PreferMoon"}), "spec.trafficDistribution is \"PreferMoon\"")]
#[case::policy(json!({"internalTrafficPolicy": "Some"}), "spec.internalTrafficPolicy is \"Some\"")]
#[case::address(json!({"clusterIPs": ["nope"]}), "spec.clusterIPs is \"nope\"")]
#[case::protocol(json!({"ports": [{"port": 80, "protocol": "QUIC"}]}), "spec.ports.protocol is \"QUIC\"")]
#[case::port(json!({"ports": [{"port": 0}]}), "spec.ports.port is \"0\"")]
fn the_error_names_object_and_field(#[case] spec: Value, #[case] expected: &str) {
    let error = service_with(spec).unwrap_err().to_string();

    assert!(error.starts_with("Service shop/cart: "), "{error}");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_slice_is_read_with_conditions_hints_and_names() {
    let slice = parsed(json!({
        "metadata": {"labels": {keys::MANAGED_BY: "me"}},
        "addressType": "IPv6",
        "endpoints": [{
            "addresses": ["fd00::1"],
            "conditions": {"ready": false, "terminating": true},
            "hostname": "db-0",
            "zone": "a",
            "hints": {"forZones": [{"name": "b"}]},
        }],
        "ports": [{"name": null, "port": null}],
    }));

    let facts = endpoint_slice(&slice).unwrap();

    assert_eq!(facts.managed_by.as_deref(), Some("me"));
    let endpoint = &facts.endpoints[0];
    let conditions = (endpoint.ready, endpoint.serving, endpoint.terminating);
    assert_eq!(conditions, (Some(false), None, Some(true)));
    assert_eq!(endpoint.hostname.as_deref(), Some("db-0"));
    assert_eq!(endpoint.for_zones, ["b"]);
    assert_eq!(facts.ports[0].port, None);
}

#[test]
fn a_slice_of_names_has_no_endpoints_and_a_bad_one_names_its_field() {
    let names: EndpointSlice = parsed(json!({
        "metadata": {},
        "addressType": "FQDN",
        "endpoints": [{"addresses": ["example.com"]}],
    }));

    assert!(endpoint_slice(&names).unwrap().endpoints.is_empty());
    let bad = slice_with("10.0.0.256", json!([])).unwrap_err();
    assert_eq!(bad.reason(), "UnknownValue");
    let bad = slice_with("10.0.0.1", json!([{"port": 70000}])).unwrap_err();
    assert!(bad.to_string().contains("ports.port is \"70000\""), "{bad}");
}

#[test]
fn an_export_without_creation_time_is_refused() {
    let mut export = ServiceExport::new("cart", tombolo_api::v1beta1::ServiceExportSpec::default());
    export.metadata.namespace = Some("shop".to_owned());

    let error = service_export(&export).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("ServiceExport shop/cart: metadata.creationTimestamp")
    );
}

#[test]
fn a_namespace_that_does_not_exist_is_not_global() {
    let annotated: Namespace =
        parsed(json!({"metadata": {"annotations": {keys::NAMESPACE_GLOBAL: "false"}}}));

    assert!(!namespace_is_global(None, true));
    assert!(namespace_is_global(Some(&Namespace::default()), true));
    assert!(!namespace_is_global(Some(&annotated), true));
}
