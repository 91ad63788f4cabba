use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::wire::{
    generators::exports,
    testkit::{mutated, recorded, tried_on_cilium},
};

const SMALLEST: &str = r#"{"cluster":"hm","name":"a","namespace":"r01","exportCreationTimestamp":"2026-11-29T10:00:00Z","ports":[{"name":"http","protocol":"TCP","port":80}],"type":"ClusterSetIP","sessionAffinity":"None"}"#;

fn peer() -> ClusterName {
    "hm".try_into().unwrap()
}

fn decode_text(text: &str) -> Result<ExportSpec, Error> {
    decode(&peer(), "r01/a", text.as_bytes())
}

/// The smallest export with one piece of its text replaced.
fn with(from: &str, to: &str) -> Result<ExportSpec, Error> {
    assert!(SMALLEST.contains(from));
    decode_text(&SMALLEST.replace(from, to))
}

#[test]
fn recorded_exports_come_back_byte_for_byte() {
    for (cluster, suffix, value) in recorded("serviceexports") {
        let spec = decode(&cluster, &suffix, value.as_bytes()).unwrap();

        let (key, bytes) = encode(&spec);

        assert_eq!(String::from_utf8(bytes).unwrap(), value);
        assert_eq!(
            key,
            format!("cilium/state/serviceexports/v1/{cluster}/{suffix}")
        );
    }
}

#[test]
fn what_cilium_refuses_is_refused_with_its_words() {
    // What Cilium's operator takes in and then fails on, for ever.
    let breaks_the_importer = [
        ("r01/Upper", "InvalidName"),
        ("r01/e-badlabel", "BreaksRule"),
        ("r01/e-badfamily", "BreaksRule"),
        ("r01/e-missingports", "BreaksRule"),
        ("r01/e-nullports", "BreaksRule"),
        ("r01/e-port0", "BreaksRule"),
    ];

    for (suffix, value, refusal) in tried_on_cilium("serviceexports") {
        let result = decode(&peer(), &suffix, value.as_bytes());
        let breaks = breaks_the_importer.iter().find(|(key, _)| *key == suffix);

        match (result, refusal, breaks) {
            (Err(error), Some(text), None) if error.reason() == "InvalidJson" => {
                assert_eq!(text, "unexpected end of JSON input", "{suffix}");
            }
            (Err(error), Some(text), None) => assert_eq!(error.to_string(), text, "{suffix}"),
            (Err(error), None, Some((_, reason))) => {
                assert_eq!(error.reason(), *reason, "{suffix}");
            }
            (Ok(_), None, None) => {}
            (result, refusal, _) => panic!("{suffix}: {result:?}, Cilium says {refusal:?}"),
        }
    }
}

#[rstest]
#[case::lower_wins(r#""labels":{"a":"new"},"Labels":{"a":"old","c":"old"}"#, &[("a", "new")])]
#[case::order_does_not_matter(r#""Labels":{"a":"old"},"labels":{"a":"new"}"#, &[("a", "new")])]
#[case::legacy_alone(r#""Labels":{"a":"1"}"#, &[("a", "1")])]
#[case::legacy_when_lower_is_empty(r#""labels":{},"Labels":{"a":"1"}"#, &[("a", "1")])]
#[case::upper_case(r#""LABELS":{"a":"1"}"#, &[("a", "1")])]
#[case::null(r#""labels":null"#, &[])]
#[case::empty_list(r#""labels":[]"#, &[])]
fn labels_are_read_in_every_spelling(#[case] members: &str, #[case] expected: &[(&str, &str)]) {
    let spec = with(r#""type""#, &format!(r#"{members},"type""#)).unwrap();

    let labels: Vec<_> = spec
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(labels, expected);
}

#[test]
fn what_cilium_up_to_1_18_writes_is_read() {
    let text = r#"{"cluster":"hm","name":"a","namespace":"r01","Annotations":null,"Labels":{"a":"2"},"exportCreationTimestamp":"2026-11-29T15:34:18Z","ports":[{"name":"http","protocol":"TCP","port":80}],"type":"Headless","sessionAffinity":"None"}"#;

    let spec = decode_text(text).unwrap();

    assert_eq!(spec.labels.len(), 1);
    assert_eq!(spec.import_type, ImportType::Headless);
    assert_eq!(spec.ip_families, []);
    assert_eq!(spec.internal_traffic_policy, None);
}

#[rstest]
#[case::fraction("2026-11-29T10:00:00.123456Z", "2026-11-29T10:00:00.123456Z")]
#[case::offset("2026-11-29T12:00:00+02:00", "2026-11-29T10:00:00Z")]
fn times_may_have_fractions_and_offsets(#[case] text: &str, #[case] expected: &str) {
    let spec = with("2026-11-29T10:00:00Z", text).unwrap();

    assert_eq!(spec.created_at, expected.parse().unwrap());
}

#[rstest]
#[case::zero_time(
    "2026-11-29T10:00:00Z",
    "0001-01-01T00:00:00Z",
    "exportCreationTimestamp is unset"
)]
#[case::no_time(
    "2026-11-29T10:00:00Z",
    "yesterday",
    "exportCreationTimestamp: expected an RFC 3339 time"
)]
#[case::bad_protocol("TCP", "tcp", r#"ports.protocol "tcp": expected TCP, UDP or SCTP"#)]
#[case::bad_port_name(r#""name":"http""#, r#""name":"Http""#, r#"port name "Http" is not valid: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"#)]
#[case::port_too_large(
    "80",
    "65536",
    r#"ports.port "65536": expected a port from 1 to 65535"#
)]
#[case::port_is_text("80", r#""80""#, "port: expected a whole number")]
#[case::unnamed_among_named(
    r#"{"name":"http""#,
    r#"{"port":81},{"name":"http""#,
    r#"ports.name "": with several ports, every port needs a name"#
)]
#[case::timeout_too_long(
    r#""None""#,
    r#""ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":86401}}"#,
    r#"timeoutSeconds "86401": expected 1 to 86400 seconds"#
)]
#[case::app_protocol(
    r#""port":80"#,
    r#""port":80,"appProtocol":"a b""#,
    "expected a qualified name"
)]
fn the_error_names_field_and_rule(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    let error = with(from, to).unwrap_err().to_string();

    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_headless_service_needs_no_port_and_two_unnamed_ports_are_left_to_the_merge() {
    let headless = SMALLEST.replace("ClusterSetIP", "Headless");
    let headless = headless.replace(r#"{"name":"http","protocol":"TCP","port":80}"#, "");

    assert_eq!(decode_text(&headless).unwrap().ports, []);
    let unnamed = with(r#"{"name":"http""#, r#"{"port":81},{"name":"""#).unwrap();
    assert_eq!(unnamed.ports.len(), 2);
}

#[test]
fn families_without_meaning_are_left_out_while_one_remains() {
    let spec = with(
        r#""type""#,
        r#""ipFamilies":["IPv9","IPv6","IPv6","IPv4"],"type""#,
    )
    .unwrap();

    assert_eq!(spec.ip_families, [IpFamily::V6, IpFamily::V4]);
}

#[test]
fn texts_of_a_peer_are_cut_in_messages() {
    let error = with("ClusterSetIP", &"x".repeat(10_000)).unwrap_err();

    assert!(error.to_string().len() < 200);
}

proptest! {
    #[test]
    fn encode_then_decode_gives_the_export_back(spec in exports()) {
        let (key, bytes) = encode(&spec);

        let prefix = crate::wire::key::service_exports_prefix(&spec.cluster, false);
        let suffix = key.strip_prefix(&prefix).unwrap();
        prop_assert_eq!(decode(&spec.cluster, suffix, &bytes), Ok(spec));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&peer(), "r01/a", &bytes);
    }

    #[test]
    fn no_mutation_makes_the_decoder_panic(bytes in mutated("serviceexports")) {
        let _ = decode(&"c1".try_into().unwrap(), "m01-basic/web", &bytes);
    }
}
