use std::io::Write as _;

use proptest::prelude::*;
use prost::Message as _;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::wire::{
    MAX_VALUE_BYTES,
    generators::slices,
    testkit::{mutated_bytes, recorded_slices},
};

type Raw = message::Slice;

fn paris() -> ClusterName {
    "paris".try_into().unwrap()
}

fn smallest() -> message::Slice {
    message::Slice {
        cluster: Some("paris".to_owned()),
        cluster_id: Some(7),
        namespace: Some("shop".to_owned()),
        name: Some("cart-x".to_owned()),
        address_type: Some("IPv4".to_owned()),
        endpoints: vec![message::Endpoint {
            addresses: vec!["10.20.1.17".to_owned()],
            ..message::Endpoint::default()
        }],
        ports: vec![message::Port {
            name: Some("http".to_owned()),
            number: Some(8080),
            ..message::Port::default()
        }],
        ..message::Slice::default()
    }
}

/// A slice that differs from the smallest one, and what was dropped.
fn with(
    change: impl FnOnce(&mut message::Slice),
) -> (Result<ClusterEndpointSlice, Error>, Vec<Error>) {
    let mut slice = smallest();
    change(&mut slice);
    let bytes = frame::pack(&slice.encode_to_vec());
    let mut dropped = Vec::new();
    let decoded = decode(&paris(), "shop/cart-x", &bytes, &mut dropped);
    (decoded, dropped)
}

fn refusal(bytes: &[u8]) -> Error {
    decode(&paris(), "shop/cart-x", bytes, &mut Vec::new()).unwrap_err()
}

/// A frame of many zeros, written without knowing how many will come.
fn zeros(size: usize) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    let block = vec![0; 1 << 20];
    for _ in 0..size / block.len() {
        encoder.write_all(&block).unwrap();
    }
    encoder.finish().unwrap()
}

/// The slice in the form of the recordings, which another program decoded.
fn as_recorded(slice: &ClusterEndpointSlice) -> Value {
    let endpoints: Vec<_> = slice.endpoints.iter().map(endpoint_as_recorded).collect();
    let ports: Vec<_> = slice
        .ports
        .iter()
        .map(|port| {
            let mut value =
                json!({ "name": port.name.as_str(), "protocol": port.protocol.as_str() });
            set(&mut value, "port", port.port);
            set(&mut value, "appProtocol", port.app_protocol.clone());
            value
        })
        .collect();
    let mut value = json!({
        "cluster": slice.cluster, "clusterID": slice.cluster_id, "namespace": slice.namespace,
        "name": slice.name, "addressType": slice.family.as_str(),
    });
    let some = |map: &BTreeMap<String, String>| (!map.is_empty()).then(|| json!(map));
    set(&mut value, "labels", some(&slice.labels));
    set(&mut value, "annotations", some(&slice.annotations));
    set(
        &mut value,
        "endpoints",
        (!endpoints.is_empty()).then_some(endpoints),
    );
    set(&mut value, "ports", (!ports.is_empty()).then_some(ports));
    value
}

fn endpoint_as_recorded(endpoint: &SliceEndpoint) -> Value {
    let mut conditions = json!({});
    set(&mut conditions, "ready", endpoint.ready);
    set(&mut conditions, "serving", endpoint.serving);
    set(&mut conditions, "terminating", endpoint.terminating);
    let mut value = json!({ "addresses": endpoint.addresses, "conditions": conditions });
    set(&mut value, "hostname", endpoint.hostname.clone());
    set(&mut value, "nodeName", endpoint.node.clone());
    set(&mut value, "zone", endpoint.zone.clone());
    let hints = endpoint.for_zones.as_ref().map(|zones| {
        let zones: Vec<_> = zones.iter().map(|name| json!({ "name": name })).collect();
        json!({ "forZones": zones })
    });
    set(&mut value, "hints", hints);
    value
}

fn set(object: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object[name] = value.into();
    }
}

#[test]
fn recorded_slices_are_read_as_recorded_and_their_messages_come_back_byte_for_byte() {
    for (cluster, suffix, bytes, recorded) in recorded_slices() {
        let mut dropped = Vec::new();
        let slice = decode(&cluster, &suffix, &bytes, &mut dropped).unwrap();

        let (key, written) = encode(&slice);

        assert_eq!(dropped, [], "{suffix}");
        assert_eq!(as_recorded(&slice), recorded["message"], "{suffix}");
        assert_eq!(
            frame::unpack(&written).unwrap(),
            frame::unpack(&bytes).unwrap(),
            "{suffix}"
        );
        assert_eq!(
            key,
            format!("cilium/state/endpointslices/v1/{cluster}/{suffix}")
        );
    }
}

#[test]
fn what_is_absent_stays_absent_and_names_of_ports_are_always_written() {
    let (slice, dropped) = with(|_| {});

    let slice = slice.unwrap();
    let endpoint = &slice.endpoints[0];
    assert_eq!(dropped, []);
    assert_eq!(
        (endpoint.ready, endpoint.serving, endpoint.terminating),
        (None, None, None)
    );
    assert_eq!(slice.ports[0].protocol, Protocol::Tcp);
    let message = message::decode(&encode_message(&slice)).unwrap();
    assert_eq!(
        message.endpoints[0].conditions,
        Some(message::Conditions::default())
    );
    assert_eq!(message.ports[0].protocol.as_deref(), Some("TCP"));
}

#[test]
fn members_of_later_versions_are_skipped() {
    let mut bytes = smallest().encode_to_vec();
    // Field 100: a text; field 101: a number; field 102: a group with a number in it.
    bytes.extend(b"\xa2\x06\x03new\xa8\x06\x07\xb3\x06\x08\x01\xb4\x06");

    let slice = decode(
        &paris(),
        "shop/cart-x",
        &frame::pack(&bytes),
        &mut Vec::new(),
    );

    assert_eq!(slice, with(|_| {}).0);
}

#[rstest]
#[case::cluster(|it: &mut Raw| it.cluster = None, "cluster is unset")]
#[case::namespace(|it: &mut Raw| it.namespace = Some(String::new()), "namespace is unset")]
#[case::name(|it: &mut Raw| it.name = None, "name is unset")]
#[case::family(|it: &mut Raw| it.address_type = Some("FQDN".to_owned()), "address type is invalid")]
#[case::no_family(|it: &mut Raw| it.address_type = None, "address type is invalid")]
#[case::other_family(
    |it: &mut Raw| it.endpoints[0].addresses.push("fd00::1".to_owned()),
    "invalid IPv4 endpoint address: fd00::1"
)]
#[case::v4_in_v6(
    |it: &mut Raw| it.address_type = Some("IPv6".to_owned()),
    "invalid IPv6 endpoint address: 10.20.1.17"
)]
#[case::no_address(
    |it: &mut Raw| it.endpoints[0].addresses[0] = "nope".to_owned(),
    "invalid IPv4 endpoint address: nope"
)]
#[case::address_before_cluster(
    |it: &mut Raw| { it.cluster = Some("rome".to_owned()); it.endpoints[0].addresses[0].clear(); },
    "invalid IPv4 endpoint address: "
)]
#[case::other_cluster(
    |it: &mut Raw| it.cluster = Some("rome".to_owned()),
    "unexpected cluster name: got rome, expected paris"
)]
#[case::key(
    |it: &mut Raw| it.name = Some("cart-y".to_owned()),
    "namespaced name does not match key: got shop/cart-y, expected shop/cart-x"
)]
#[case::no_id(|it: &mut Raw| it.cluster_id = None, "ClusterID 0 is reserved")]
#[case::id_too_large(
    |it: &mut Raw| it.cluster_id = Some(512),
    "cluster id \"512\" is not valid: expected a number from 1 to 511"
)]
fn a_slice_that_lies_is_refused(#[case] change: fn(&mut message::Slice), #[case] expected: &str) {
    assert_eq!(with(change).0.unwrap_err().to_string(), expected);
}

#[rstest]
#[case::loopback(|it: &mut Raw| it.endpoints[0].addresses[0] = "127.0.0.1".to_owned(), 0, 1)]
#[case::hostname(|it: &mut Raw| it.endpoints[0].hostname = Some("Bad_Host".to_owned()), 1, 1)]
#[case::node(|it: &mut Raw| it.endpoints[0].node_name = Some("a b".to_owned()), 1, 1)]
#[case::zone(|it: &mut Raw| it.endpoints[0].zone = Some("a b".to_owned()), 1, 1)]
#[case::hint(
    |it: &mut Raw| it.endpoints[0].hints = Some(message::Hints { for_zones: vec![message::ForZone::default()] }),
    1,
    1
)]
#[case::port_number(|it: &mut Raw| it.ports[0].number = Some(65_536), 1, 0)]
#[case::port_zero(|it: &mut Raw| it.ports[0].number = Some(0), 1, 0)]
#[case::port_name(|it: &mut Raw| it.ports[0].name = Some("Http!".to_owned()), 1, 0)]
#[case::protocol(|it: &mut Raw| it.ports[0].protocol = Some("FOO".to_owned()), 1, 0)]
#[case::app_protocol(|it: &mut Raw| it.ports[0].app_protocol = Some("a b".to_owned()), 1, 0)]
fn a_part_that_the_api_server_would_refuse_is_dropped_and_named(
    #[case] change: fn(&mut message::Slice),
    #[case] endpoints: usize,
    #[case] ports: usize,
) {
    let (slice, dropped) = with(change);

    let slice = slice.unwrap();
    assert_eq!(slice.endpoints.len(), endpoints);
    assert_eq!(slice.ports.len(), ports);
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    for endpoint in slice.endpoints {
        assert_eq!(
            (endpoint.hostname, endpoint.node, endpoint.zone),
            (None, None, None)
        );
        assert_eq!(endpoint.for_zones.unwrap_or_default(), [""; 0]);
    }
}

#[rstest]
#[case::text(b"{\"cluster\":\"paris\"}".to_vec())]
#[case::cut_off(zeros(1 << 20)[..20].to_vec())]
#[case::trailing([zeros(0), b"rest".to_vec()].concat())]
#[case::a_frame_of_another_kind(b"\x50\x2a\x4d\x18\xff\xff\xff\xff".to_vec())]
fn what_is_no_frame_is_refused(#[case] bytes: Vec<u8>) {
    assert_eq!(refusal(&bytes).reason(), "InvalidFrame");
}

#[test]
fn an_empty_value_is_a_slice_without_cluster() {
    assert_eq!(refusal(b"").to_string(), "cluster is unset");
}

#[test]
fn a_changed_byte_does_not_pass_the_checksum() {
    let mut bytes = frame::pack(&smallest().encode_to_vec());
    let last = bytes.len() - 1;
    bytes[last] ^= 1;

    assert!(refusal(&bytes).to_string().contains("checksum"));
}

#[test]
fn a_bomb_is_refused_by_name() {
    let bomb = zeros(MAX_MESSAGE_BYTES + (1 << 20));
    let two = [zeros(MAX_MESSAGE_BYTES), zeros(1 << 20)].concat();

    assert!(bomb.len() < 10_000);
    for bytes in [bomb, two] {
        assert_eq!(
            refusal(&bytes).to_string(),
            "the value unpacks to more than 16777216 bytes"
        );
    }
}

#[test]
fn a_frame_that_asks_for_a_large_window_is_refused() {
    // A header without size; exponents of the window: 21 more than 10, that is 2 GiB, and 15 more, 32 MiB.
    for exponent in [21, 15] {
        let bytes = [
            0x28,
            0xb5,
            0x2f,
            0xfd,
            0x00,
            exponent << 3,
            0x01,
            0x00,
            0x00,
        ];

        let error = refusal(&bytes).to_string();
        assert!(error.contains("window of at most 16 MiB"), "{error}");
        assert!(error.contains("too much memory"), "{error}");
    }
}

#[test]
fn a_large_record_is_refused_by_name() {
    let large = vec![0; 10 << 20];

    assert_eq!(
        refusal(&large).to_string(),
        format!("the value has 10485760 bytes, at most {MAX_VALUE_BYTES} are accepted")
    );
}

#[rstest]
#[case::labels(5, "labels", 4096)]
#[case::annotations(6, "annotations", 4096)]
#[case::endpoints(8, "endpoints", 32_768)]
#[case::ports(9, "ports", 4096)]
fn hostile_counts_are_refused_before_anything_is_built(
    #[case] tag: u8,
    #[case] field: &str,
    #[case] max: usize,
) {
    let many = [tag << 3 | 2, 0].repeat(100_000);

    assert_eq!(
        refusal(&frame::pack(&many)).to_string(),
        format!("{field} has 100000 entries, at most {max} are accepted")
    );
}

#[rstest]
#[case::addresses(&[0x0a, 0], "endpoints.addresses")]
#[case::zones(&[0x42, 2, 0x0a, 0], "endpoints.hints.forZones")]
fn hostile_counts_within_endpoints_are_refused(#[case] item: &[u8], #[case] field: &str) {
    let items = item.repeat(100_000);
    let mut message = vec![0x42];
    prost::encoding::encode_varint(items.len() as u64, &mut message);
    message.extend(items);

    assert_eq!(
        refusal(&frame::pack(&message)).to_string(),
        format!("{field} has 100000 entries, at most 32768 are accepted")
    );
}

#[test]
fn deep_nesting_is_refused() {
    let groups = [0x7b].repeat(100_000);

    let error = refusal(&frame::pack(&groups));
    assert_eq!(error.reason(), "InvalidMessage");
    assert!(error.to_string().contains("recursion limit"), "{error}");
}

proptest! {
    #[test]
    fn encode_then_decode_gives_the_slice_back(slice in slices()) {
        let (key, bytes) = encode(&slice);

        let prefix = crate::wire::key::endpoint_slices_prefix(&slice.cluster, false);
        let suffix = key.strip_prefix(&prefix).unwrap();
        let mut dropped = Vec::new();
        prop_assert_eq!(decode(&slice.cluster, suffix, &bytes, &mut dropped), Ok(slice));
        prop_assert_eq!(dropped, vec![]);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&paris(), "shop/cart-x", &bytes, &mut Vec::new());
        let _ = decode(&paris(), "shop/cart-x", &frame::pack(&bytes), &mut Vec::new());
    }

    #[test]
    fn no_mutation_makes_the_decoder_panic((frame, message) in mutated_slices()) {
        let c1 = "c1".try_into().unwrap();
        let _ = decode(&c1, "g02-basic/web-mznqs", &frame, &mut Vec::new());
        let _ = decode(&c1, "g02-basic/web-mznqs", &frame::pack(&message), &mut Vec::new());
    }
}

/// A recorded frame, and the message of one, each with some bytes changed.
fn mutated_slices() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let frames: Vec<_> = recorded_slices()
        .into_iter()
        .map(|(_, _, it, _)| it)
        .collect();
    let messages = frames.iter().map(|it| frame::unpack(it).unwrap()).collect();
    (mutated_bytes(frames), mutated_bytes(messages))
}
