use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::wire::{
    generators::services,
    testkit::{mutated, recorded, tried_on_cilium},
};

const SMALLEST: &str = r#"{"cluster":"hm","namespace":"r01","name":"a","backends":{"10.9.0.1":{"http":{"Protocol":"TCP","Port":8080}}},"shared":true,"clusterID":9}"#;

fn peer() -> ClusterName {
    "hm".try_into().unwrap()
}

/// The smallest service with one piece of its text replaced, and what was dropped.
fn with(from: &str, to: &str) -> (Result<ClusterService, Error>, Vec<Error>) {
    assert!(SMALLEST.contains(from));
    let text = SMALLEST.replace(from, to);
    let mut dropped = Vec::new();
    let service = decode(&peer(), "r01/a", text.as_bytes(), &mut dropped);
    (service, dropped)
}

#[test]
fn recorded_services_come_back_byte_for_byte() {
    for (cluster, suffix, value) in recorded("services") {
        let mut dropped = Vec::new();
        let service = decode(&cluster, &suffix, value.as_bytes(), &mut dropped).unwrap();

        let (key, bytes) = encode(&service);

        assert_eq!(dropped, []);
        assert_eq!(String::from_utf8(bytes).unwrap(), value);
        assert_eq!(key, format!("cilium/state/services/v1/{cluster}/{suffix}"));
    }
}

#[test]
fn what_cilium_refuses_is_refused_with_its_words() {
    for (suffix, value, refusal) in tried_on_cilium("services") {
        let result = decode(&peer(), &suffix, value.as_bytes(), &mut Vec::new());

        let worded = refusal.as_deref().is_some_and(|text| {
            !text.contains("unexpected character") && !text.starts_with("json:")
        });
        match result {
            Ok(_) => assert_eq!(refusal, None, "{suffix}"),
            Err(error) if worded => assert_eq!(Some(error.to_string()), refusal, "{suffix}"),
            // An address that is none among the backends: not in the log of that run, but refused by the same check.
            Err(error) if suffix == "r01/s-hostname" => assert_eq!(error.reason(), "WrongType"),
            Err(_) => assert!(refusal.is_some(), "{suffix}"),
        }
    }
}

#[test]
fn addresses_are_sorted_as_text() {
    let service = r#""10.0.0.9":{},"10.0.0.10":{},"10.9.0.1""#;
    let (service, _) = with(r#""10.9.0.1""#, service);

    let (_, bytes) = encode(&service.unwrap());

    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.contains(r#""backends":{"10.0.0.10":{},"10.0.0.9":{},"10.9.0.1":{"#),
        "{text}"
    );
}

#[rstest]
#[case::protocol("TCP", "FOO", 0)]
#[case::port_zero("8080", "0", 0)]
#[case::port_name("http", "Http!", 0)]
#[case::loopback("10.9.0.1", "127.0.0.1", 0)]
#[case::metadata_service("10.9.0.1", "169.254.169.254", 0)]
#[case::hostname(r#""shared""#, r#""hostnames":{"10.9.0.1":"Bad_Host"},"shared""#, 1)]
#[case::zone(r#""shared""#, r#""zones":{"10.9.0.1":{"zone":"a b"}},"shared""#, 1)]
#[case::hint(
    r#""shared""#,
    r#""zones":{"10.9.0.1":{"zone":"a","forZones":[{"name":""}]}},"shared""#,
    1
)]
fn a_part_that_would_block_the_slice_is_dropped_and_named(
    #[case] from: &str,
    #[case] to: &str,
    #[case] backends: usize,
) {
    let (service, dropped) = with(from, to);

    let service = service.unwrap();
    assert_eq!(service.backends.len(), backends);
    assert!(service.hostnames.is_empty());
    assert_eq!(dropped.len(), 1, "{dropped:?}");
}

#[test]
fn a_bad_port_leaves_the_good_one() {
    let ports = r#""bad":{"Protocol":"FOO","Port":1},"http""#;
    let (service, dropped) = with(r#""http""#, ports);

    let backends = service.unwrap().backends;
    assert_eq!(backends.values().map(BTreeMap::len).sum::<usize>(), 1);
    assert_eq!(dropped.len(), 1);
}

#[rstest]
#[case::missing(r#""clusterID":9"#, r#""x":1"#, "ClusterID 0 is reserved")]
#[case::too_large(
    r#""clusterID":9"#,
    r#""clusterID":512"#,
    "cluster id \"512\" is not valid: expected a number from 1 to 511"
)]
#[case::port_too_large("8080", "70000", "Port: expected a number from 0 to 65535")]
#[case::no_object(
    r#"{"10.9.0.1""#,
    r#"{"x":1,"10.9.0.1""#,
    r#"ParseAddr("x"): unable to parse IP"#
)]
#[case::key(
    r#""name":"a""#,
    r#""name":"b""#,
    "namespaced name does not match key: got r01/b, expected r01/a"
)]
fn a_record_that_lies_is_refused(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    let (service, _) = with(from, to);

    assert_eq!(service.unwrap_err().to_string(), expected);
}

#[test]
fn the_id_must_be_the_one_that_the_cluster_announced() {
    let (service, _) = with("a", "a");
    let service = service.unwrap();

    assert_eq!(check_cluster_id(&service, 9.try_into().unwrap()), Ok(()));
    let error = check_cluster_id(&service, 10.try_into().unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unexpected cluster ID: got 9, expected 10"
    );
}

#[test]
fn too_many_backends_are_refused() {
    let many: Vec<_> = (0..=MAX_ADDRESSES)
        .map(|index| format!("\"10.0.{}.{}\":{{}},", index / 256, index % 256))
        .collect();
    let many = many.concat();

    let (service, _) = with(r#""10.9.0.1""#, &format!(r#"{many}"10.9.0.1""#));

    assert_eq!(service.unwrap_err().reason(), "TooMany");
}

proptest! {
    #[test]
    fn encode_then_decode_gives_the_service_back(service in services()) {
        let (key, bytes) = encode(&service);

        let prefix = crate::wire::key::services_prefix(&service.cluster, false);
        let suffix = key.strip_prefix(&prefix).unwrap();
        let mut dropped = Vec::new();
        prop_assert_eq!(decode(&service.cluster, suffix, &bytes, &mut dropped), Ok(service));
        prop_assert_eq!(dropped, vec![]);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&peer(), "r01/a", &bytes, &mut Vec::new());
    }

    #[test]
    fn no_mutation_makes_the_decoder_panic(bytes in mutated("services")) {
        let _ = decode(&"c1".try_into().unwrap(), "g02-basic/web", &bytes, &mut Vec::new());
    }
}
