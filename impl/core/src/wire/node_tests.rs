use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::wire::{
    generators::nodes,
    testkit::{mutated_of_agents, recorded_of_agents},
};

const PREFIX: &str = "cilium/state/nodes/v1/c1/";
const SMALLEST: &str = r#"{"Name":"w1","Cluster":"paris","ClusterID":7,"IPv4AllocCIDR":{"IP":"10.20.1.0","Mask":"////AA=="}}"#;

fn paris() -> ClusterName {
    "paris".try_into().unwrap()
}

/// The smallest node with one piece of its text replaced.
fn with(from: &str, to: &str) -> Result<Node, Error> {
    assert!(SMALLEST.contains(from));
    decode(&paris(), "w1", SMALLEST.replace(from, to).as_bytes())
}

#[test]
fn recorded_nodes_come_back_byte_for_byte() {
    for (key, value) in recorded_of_agents(PREFIX) {
        let suffix = key.strip_prefix(PREFIX).unwrap();
        let node = decode(&"c1".try_into().unwrap(), suffix, value.as_bytes()).unwrap();

        let (written, bytes) = encode(&node);

        assert_eq!(written, key);
        assert_eq!(String::from_utf8(bytes).unwrap(), value);
    }
}

#[test]
fn what_is_not_there_is_null() {
    let (_, bytes) = encode(&with("w1", "w1").unwrap());

    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        r#"{"Name":"w1","Cluster":"paris","IPAddresses":null,"IPv4AllocCIDR":{"IP":"10.20.1.0","Mask":"////AA=="},"IPv4SecondaryAllocCIDRs":null,"IPv6AllocCIDR":null,"IPv6SecondaryAllocCIDRs":null,"IPv4HealthIP":"","IPv6HealthIP":"","IPv4IngressIP":"","IPv6IngressIP":"","ClusterID":7,"Source":"","EncryptionKey":0,"Labels":null,"Annotations":null,"WireguardPubKey":"","BootID":""}"#
    );
}

#[rstest]
#[case::text(r#"{"IP":"10.20.1.0","Mask":"////AA=="}"#, r#""10.20.1.0/24""#)]
#[case::other_case(r#""IP""#, r#""ip""#)]
#[case::later_members(r#""ClusterID":7"#, r#""ClusterID":7,"NodeIdentity":3,"Future":{}"#)]
#[case::null_members(
    r#""ClusterID":7"#,
    r#""ClusterID":7,"IPAddresses":null,"Labels":null"#
)]
fn what_other_versions_write_is_read(#[case] from: &str, #[case] to: &str) {
    let node = with(from, to).unwrap();

    let network = node.ipv4.primary.map(|network| network.to_string());
    assert_eq!(network.as_deref(), Some("10.20.1.0/24"));
    assert_eq!(node.addresses, []);
}

#[test]
fn an_ipv4_address_that_is_written_as_ipv6_is_one_of_ipv4() {
    let addresses = r#""ClusterID":7,"IPAddresses":[{"Type":"InternalIP","IP":"::ffff:192.0.2.1"},{"Type":"X","IP":""}]"#;

    let node = with(r#""ClusterID":7"#, addresses).unwrap();

    let ips: Vec<_> = node.addresses.iter().map(|address| address.ip).collect();
    assert_eq!(ips, [Some(IpAddr::from([192, 0, 2, 1])), None]);
}

#[rstest]
#[case::no_cluster(r#""Cluster":"paris","#, "", "cluster is unset")]
#[case::no_name(r#""Name":"w1","#, "", "name is unset")]
#[case::cluster("paris", "rome", "unexpected cluster name: got rome, expected paris")]
#[case::name("w1", "w2", "name does not match key: got w2, expected w1")]
#[case::no_id(r#""ClusterID":7,"#, "", "ClusterID 0 is reserved")]
#[case::address("10.20.1.0", "10.20.1", "invalid IP address: 10.20.1")]
#[case::mask(
    "////AA==",
    "////",
    r#"IPv4AllocCIDR "////": expected the bytes of a mask, in base64"#
)]
#[case::network(
    r#"{"IP":"10.20.1.0","Mask":"////AA=="}"#,
    r#""10.20.1.0/33""#,
    r#"IPv4AllocCIDR "10.20.1.0/33": expected an address, '/' and the length of its prefix"#
)]
#[case::number(
    r#""ClusterID":7"#,
    r#""ClusterID":7,"EncryptionKey":256"#,
    "EncryptionKey: expected a number from 0 to 255"
)]
fn a_node_that_lies_is_refused(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    assert_eq!(with(from, to).unwrap_err().to_string(), expected);
}

#[rstest]
#[case::addresses(r#""IPAddresses":[{}"#, ",{}", "]", "IPAddresses")]
#[case::networks(
    r#""IPv6SecondaryAllocCIDRs":[null"#,
    ",null",
    "]",
    "IPv6SecondaryAllocCIDRs"
)]
fn hostile_counts_are_refused_by_name(
    #[case] start: &str,
    #[case] more: &str,
    #[case] end: &str,
    #[case] field: &str,
) {
    let list = format!(r#"{start}{}{end},"ClusterID":7"#, more.repeat(99_999));

    let error = with(r#""ClusterID":7"#, &list).unwrap_err();

    assert_eq!(
        error.to_string(),
        format!("{field} has 100000 entries, at most 4096 are accepted")
    );
}

proptest! {
    #[test]
    fn encode_then_decode_gives_the_node_back(node in nodes()) {
        let (key, bytes) = encode(&node);

        let prefix = crate::wire::key::nodes_prefix(&node.cluster, false);
        let suffix = key.strip_prefix(&prefix).unwrap();
        prop_assert_eq!(decode(&node.cluster, suffix, &bytes), Ok(node));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&paris(), "w1", &bytes);
    }

    #[test]
    fn no_mutation_makes_the_decoder_panic(bytes in mutated_of_agents(PREFIX)) {
        let _ = decode(&"c1".try_into().unwrap(), "w1", &bytes);
    }
}
