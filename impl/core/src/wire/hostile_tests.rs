//! What a peer may try with any kind of JSON record, and the limit that the error names.

use rstest::rstest;

use super::{Error, cluster_config, cluster_service, ip, node, service_export};
use crate::names::ClusterName;

fn paris() -> ClusterName {
    "paris".try_into().unwrap()
}

fn config(bytes: &[u8]) -> Result<(), Error> {
    cluster_config::decode(bytes).map(drop)
}

fn service(bytes: &[u8]) -> Result<(), Error> {
    cluster_service::decode(&paris(), "shop/cart", bytes, &mut Vec::new()).map(drop)
}

fn export(bytes: &[u8]) -> Result<(), Error> {
    service_export::decode(&paris(), "shop/cart", bytes).map(drop)
}

fn address(bytes: &[u8]) -> Result<(), Error> {
    ip::decode("10.0.0.1", bytes, &mut Vec::new()).map(drop)
}

fn host(bytes: &[u8]) -> Result<(), Error> {
    node::decode(&paris(), "w1", bytes).map(drop)
}

type Decode = fn(&[u8]) -> Result<(), Error>;

#[rstest]
fn size_and_depth_are_bounded_for_every_kind(
    #[values(config, service, export, address, host)] decode: Decode,
) {
    let large = vec![b' '; 10 << 20];
    let deep = [r#"{"a":"#.repeat(100_000), "}".repeat(100_000)].concat();

    let refusals = [&large, deep.as_bytes()].map(|bytes| decode(bytes).unwrap_err().to_string());

    assert_eq!(
        refusals,
        [
            "the value has 10485760 bytes, at most 1572864 are accepted",
            "the value is nested deeper than 127 levels"
        ]
    );
}

#[rstest]
#[case::service(
    service,
    r#"{"cluster":"paris","namespace":"shop","name":"cart","clusterID":7,"backends":{"10.0.0.1":{"#,
    r#""":{}"#,
    "}}}",
    "backends"
)]
#[case::export(export, r#"{"ports":["#, "{}", "]}", "ports")]
#[case::address(
    address,
    r#"{"IP":"10.0.0.1","NamedPorts":["#,
    "{}",
    "]}",
    "NamedPorts"
)]
fn a_hundred_thousand_ports_are_refused(
    #[case] decode: Decode,
    #[case] start: &str,
    #[case] port: &str,
    #[case] end: &str,
    #[case] field: &str,
) {
    let value = [start, &vec![port; 100_000].join(","), end].concat();

    assert_eq!(
        decode(value.as_bytes()).unwrap_err().to_string(),
        format!("{field} has 100000 entries, at most 4096 are accepted")
    );
}

#[test]
fn what_an_error_repeats_of_a_record_cannot_end_a_line() {
    let record =
        r#"{"cluster":"paris","namespace":"shop","name":"cart\n\u001b[2Jx","type":"\u0000"}"#;
    let key = "shop/cart\n2026 INFO all is well\u{7f}";

    let errors = [
        service_export::decode(&paris(), key, record.as_bytes()).map(drop),
        cluster_service::decode(
            &paris(),
            key,
            br#"{"cluster":"paris","namespace":"shop","name":"cart","clusterID":2}"#,
            &mut Vec::new(),
        )
        .map(drop),
        cluster_service::decode(
            &paris(),
            "shop/cart",
            br#"{"cluster":"a\u000ab","namespace":"shop","name":"cart","clusterID":2}"#,
            &mut Vec::new(),
        )
        .map(drop),
    ];

    for error in errors {
        let text = error.unwrap_err().to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}
