use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::wire::{
    generators::identities,
    testkit::{mutated_of_agents, recorded_of_agents},
};

const PREFIX: &str = "cilium/state/identities/v1/id/";
const CLUSTER: &str = "k8s:io.cilium.k8s.policy.cluster=paris;";

fn paris() -> ClusterName {
    "paris".try_into().unwrap()
}

fn decode_text(text: &str) -> Result<Identity, Error> {
    decode(&paris(), "461234", text.as_bytes())
}

#[test]
fn recorded_identities_come_back_byte_for_byte() {
    for (key, value) in recorded_of_agents(PREFIX) {
        let suffix = key.strip_prefix(PREFIX).unwrap();
        let identity = decode(&"c1".try_into().unwrap(), suffix, value.as_bytes()).unwrap();

        let (written, bytes) = encode(&identity);

        assert_eq!(written, key);
        assert_eq!(String::from_utf8(bytes).unwrap(), value);
    }
}

#[rstest]
#[case::normal("k8s:app=cart", "app", "k8s", "cart")]
#[case::no_source("app=cart", "app", "unspec", "cart")]
#[case::no_value("k8s:app", "app", "k8s", "")]
#[case::colons_and_equals("k8s:app=a:b=c", "app", "k8s", "a:b=c")]
#[case::short_reserved("$host", "host", "reserved", "")]
#[case::dotted_reserved("reserved.host", "host", "reserved", "")]
#[case::reserved_without_key("reserved:=host", "host", "reserved", "")]
#[case::later_wins("k8s:app=old;any:app=new", "app", "any", "new")]
fn labels_are_read_as_cilium_reads_them(
    #[case] text: &str,
    #[case] key: &str,
    #[case] source: &str,
    #[case] value: &str,
) {
    let identity = decode_text(&format!("{text};{CLUSTER}")).unwrap();

    let label = &identity.labels[key];
    assert_eq!(
        (label.source.as_str(), label.value.as_str()),
        (source, value)
    );
}

#[rstest]
#[case::two_equal_signs("$=a:app=b")]
#[case::equal_sign_in_key("reserved:==host")]
#[case::no_key("k8s:=b")]
fn a_label_whose_key_cannot_be_written_is_left_out(#[case] text: &str) {
    let identity = decode_text(&format!("{text};{CLUSTER}")).unwrap();

    let keys: Vec<_> = identity.labels.keys().collect();
    assert_eq!(keys, [CLUSTER_LABEL]);
}

#[rstest]
#[case::empty("", "could not find expected label io.cilium.k8s.policy.cluster")]
#[case::no_cluster(
    "k8s:app=cart;",
    "could not find expected label io.cilium.k8s.policy.cluster"
)]
#[case::other_cluster(
    "k8s:io.cilium.k8s.policy.cluster=rome;",
    "unexpected cluster name: got rome, expected paris"
)]
#[case::other_source(
    "container:io.cilium.k8s.policy.cluster=paris;",
    "unexpected source for cluster label: got container, expected k8s"
)]
fn an_identity_of_another_cluster_is_refused(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(decode_text(text).unwrap_err().to_string(), expected);
}

#[rstest]
#[case::words("abc")]
#[case::sign("+1")]
#[case::empty("")]
#[case::too_large("4294967296")]
#[case::path("1/2")]
fn a_key_that_is_no_number_is_refused(#[case] suffix: &str) {
    let error = decode(&paris(), suffix, CLUSTER.as_bytes()).unwrap_err();

    assert_eq!(
        error.to_string(),
        format!("key {suffix:?}: expected a numeric identity of 32 bits")
    );
}

#[test]
fn hostile_sizes_are_refused_by_name() {
    let many: Vec<_> = (0..100_000).map(|n| format!("k8s:l{n}=v;")).collect();

    let error = decode_text(&many.concat()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "labels has 100000 entries, at most 4096 are accepted"
    );
    let error = decode_text(&"x".repeat(10 << 20)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value has 10485760 bytes, at most 1572864 are accepted"
    );
    let error = decode(&paris(), "1", b"k8s:a=\xff;").unwrap_err();
    assert_eq!(error, Error::Encoding);
}

proptest! {
    #[test]
    fn encode_then_decode_gives_the_identity_back((cluster, identity) in identities()) {
        let (key, bytes) = encode(&identity);

        let suffix = key.strip_prefix(PREFIX).unwrap();
        prop_assert_eq!(decode(&cluster, suffix, &bytes), Ok(identity));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&paris(), "461234", &bytes);
    }

    #[test]
    fn no_mutation_makes_the_decoder_panic(bytes in mutated_of_agents(PREFIX)) {
        let _ = decode(&"c1".try_into().unwrap(), "71234", &bytes);
    }
}
