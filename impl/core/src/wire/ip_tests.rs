use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::wire::{
    MAX_VALUE_BYTES,
    generators::ip_identities,
    testkit::{mutated_of_agents, recorded_of_agents},
};

const PREFIX: &str = "cilium/state/ip/v1/default/";
const SMALLEST: &str = r#"{"IP":"10.20.1.17","Mask":null,"HostIP":"192.0.2.31","ID":461234}"#;

/// The smallest entry with one piece of its text replaced.
fn with(from: &str, to: &str) -> Result<IpIdentity, Error> {
    assert!(SMALLEST.contains(from));
    let text = SMALLEST.replace(from, to);
    decode("10.20.1.17", text.as_bytes(), &mut Vec::new())
}

#[test]
fn recorded_entries_come_back_byte_for_byte() {
    for (key, value) in recorded_of_agents(PREFIX) {
        let suffix = key.strip_prefix(PREFIX).unwrap();
        let mut dropped = Vec::new();
        let entry = decode(suffix, value.as_bytes(), &mut dropped).unwrap();

        let (written, bytes) = encode(&entry);

        assert_eq!(dropped, []);
        assert_eq!(written, key);
        assert_eq!(String::from_utf8(bytes).unwrap(), value);
    }
}

#[rstest]
#[case::missing_members(r#""Mask":null,"HostIP":"192.0.2.31","#, "")]
#[case::null_members(
    r#""Mask":null"#,
    r#""NamedPorts":null,"K8sNamespace":null,"Key":null"#
)]
#[case::later_members(r#""Mask":null"#, r#""K8sPodUID":"0d0c","Future":{"x":[1]}"#)]
#[case::other_case(r#""IP""#, r#""ip""#)]
#[case::mapped("10.20.1.17", "::ffff:10.20.1.17")]
fn what_other_versions_write_is_read(#[case] from: &str, #[case] to: &str) {
    let entry = with(from, to).unwrap();

    assert_eq!(entry.ip, IpAddr::from([10, 20, 1, 17]));
    assert_eq!(entry.identity, 461_234);
    assert_eq!(entry.prefix_length, None);
}

#[rstest]
#[case::other_address(
    r#""10.20.1.17""#,
    r#""10.20.1.18""#,
    "IP address does not match key: expected 10.20.1.17, got 10.20.1.18"
)]
#[case::no_address(
    r#""IP":"10.20.1.17","#,
    "",
    "IP address does not match key: expected 10.20.1.17, got <nil>"
)]
#[case::network(
    r#""Mask":null"#,
    r#""Mask":"////AA==""#,
    "IP address does not match key: expected 10.20.1.17, got 10.20.1.17/24"
)]
#[case::bad_address(r#""10.20.1.17""#, r#""10.20.1""#, "invalid IP address: 10.20.1")]
#[case::zone(
    r#""192.0.2.31""#,
    r#""fe80::1%eth0""#,
    "invalid IP address: fe80::1%eth0"
)]
#[case::mask_with_gaps(
    r#""Mask":null"#,
    r#""Mask":"/wD/AA==""#,
    r#"Mask "/wD/AA==": expected the bytes of a mask, in base64"#
)]
#[case::identity_too_large("461234", "4294967296", "ID: expected a number from 0 to 4294967295")]
#[case::negative_identity("461234", "-1", "ID: expected a number from 0 to 4294967295")]
#[case::key_too_large(
    r#""Mask":null"#,
    r#""Key":256"#,
    "Key: expected a number from 0 to 255"
)]
#[case::port_too_large(
    r#""Mask":null"#,
    r#""NamedPorts":[{"Name":"a","Port":65536}]"#,
    "Port: expected a number from 0 to 65535"
)]
fn an_entry_that_lies_is_refused(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    assert_eq!(with(from, to).unwrap_err().to_string(), expected);
}

#[test]
fn a_network_has_its_length_in_its_key() {
    let value = br#"{"IP":"10.20.0.0","Mask":"//8AAA==","ID":2}"#;

    let entry = decode("10.20.0.0/16", value, &mut Vec::new()).unwrap();

    assert_eq!(entry.prefix_length, Some(16));
    assert_eq!(encode(&entry).0, "cilium/state/ip/v1/default/10.20.0.0/16");
}

#[rstest]
#[case::no_name(r#"{"Name":"","Port":1,"Protocol":"TCP"}"#)]
#[case::bad_name(r#"{"Name":"A b","Port":1,"Protocol":"TCP"}"#)]
#[case::port_zero(r#"{"Name":"a","Port":0,"Protocol":"TCP"}"#)]
#[case::protocol(r#"{"Name":"a","Port":1,"Protocol":"FOO"}"#)]
fn a_named_port_without_use_is_dropped_and_named(#[case] port: &str) {
    let ports = format!(r#""NamedPorts":[{port},{{"Name":"ok","Port":1,"Protocol":"TCP"}}]"#);
    let text = SMALLEST.replace(r#""Mask":null"#, &ports);
    let mut dropped = Vec::new();

    let entry = decode("10.20.1.17", text.as_bytes(), &mut dropped).unwrap();

    assert_eq!(entry.named_ports.len(), 1);
    assert_eq!(dropped.len(), 1);
}

#[test]
fn hostile_sizes_are_refused_by_name() {
    let ports = vec![r#"{"Name":"a","Port":1}"#; 50_000].join(",");
    let error = with(r#""Mask":null"#, &format!(r#""NamedPorts":[{ports}]"#)).unwrap_err();

    assert_eq!(
        error.to_string(),
        "NamedPorts has 50000 entries, at most 4096 are accepted"
    );
    let large = vec![b' '; MAX_VALUE_BYTES + 1];
    let error = decode("10.20.1.17", &large, &mut Vec::new()).unwrap_err();
    assert_eq!(error.reason(), "TooLarge");
}

proptest! {
    #[test]
    fn encode_then_decode_gives_the_entry_back(entry in ip_identities()) {
        let (key, bytes) = encode(&entry);

        let suffix = key.strip_prefix(PREFIX).unwrap();
        let mut dropped = Vec::new();
        prop_assert_eq!(decode(suffix, &bytes, &mut dropped), Ok(entry));
        prop_assert_eq!(dropped, vec![]);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode("10.10.1.17", &bytes, &mut Vec::new());
    }

    #[test]
    fn no_mutation_makes_the_decoder_panic(bytes in mutated_of_agents(PREFIX)) {
        let _ = decode("10.10.1.17", &bytes, &mut Vec::new());
    }
}
