//! The rule for ports, on small tables. Catalogue: Cilium's own tests of its ServiceImport controller.

use rstest::rstest;

use super::{
    ConflictReason, Merged, merge,
    tests::{only_message, reasons_of},
};
use crate::{
    service::{Protocol, ServicePort},
    testkit::{export_from, tcp, udp},
};

/// Name, protocol and number of each port.
fn ports_of(merged: &Merged) -> Vec<(&str, Protocol, u16)> {
    let ports = merged.ports.iter();
    ports
        .map(|port| (port.name.as_str(), port.protocol, port.port))
        .collect()
}

#[rstest]
#[case::number(
    tcp("http", 81),
    r#"Duplicated port name "http". Using port definition "{{http TCP <nil> 80} c1 1970-01-01 00:00:01 +0000 UTC}" from oldest service export in cluster "c1"."#
)]
#[case::protocol(
    udp("http", 80),
    r#"Duplicated port name "http". Using port definition "{{http TCP <nil> 80} c1 1970-01-01 00:00:01 +0000 UTC}" from oldest service export in cluster "c1"."#
)]
#[case::name(
    tcp("www", 80),
    r#"Conflicting port name on "{{www TCP <nil> 80} c2 1970-01-01 00:00:02 +0000 UTC}". Using the port name "http" from oldest service export in cluster "c1"."#
)]
#[case::app_protocol(
    tcp("http", 80).speaking("kubernetes.io/h2c"),
    r#"Conflicting appProtocol on "{{http TCP kubernetes.io/h2c 80} c2 1970-01-01 00:00:02 +0000 UTC}". Using the appProtocol "" from oldest service export in cluster "c1"."#
)]
fn the_oldest_definition_of_a_port_wins_when_another_differs_in(
    #[case] other: ServicePort,
    #[case] message: &str,
) {
    let exports = [
        export_from("c1")
            .with_ports([tcp("http", 80)])
            .created_at(1),
        export_from("c2").with_ports([other]).created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.ports, [tcp("http", 80)]);
    assert_eq!(reasons_of(&merged), [ConflictReason::Port]);
    assert_eq!(
        only_message(&merged),
        format!("{message} 1/2 clusters disagree.")
    );
}

#[rstest]
#[case::the_oldest_has_less(&[("a", 1)], &[("a", 1), ("b", 2)], &[("a", 1), ("b", 2)], "c1", 1)]
#[case::the_oldest_has_more(&[("a", 1), ("b", 2)], &[("a", 1)], &[("a", 1), ("b", 2)], "c2", 1)]
#[case::nothing_is_shared(&[("a", 1)], &[("b", 2)], &[("a", 1), ("b", 2)], "c1", 2)]
#[case::the_order_differs(&[("a", 1), ("b", 2)], &[("b", 2), ("a", 1)], &[("a", 1), ("b", 2)], "c2", 1)]
fn port_lists_that_differ_are_united_and_reported(
    #[case] oldest: &[(&str, u16)],
    #[case] other: &[(&str, u16)],
    #[case] union: &[(&str, u16)],
    #[case] odd: &str,
    #[case] count: usize,
) {
    let ports = |list: &[(&str, u16)]| -> Vec<ServicePort> {
        list.iter().map(|(name, port)| tcp(name, *port)).collect()
    };
    let exports = [
        export_from("c1").with_ports(ports(oldest)).created_at(1),
        export_from("c2").with_ports(ports(other)).created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.ports, ports(union));
    assert_eq!(reasons_of(&merged), [ConflictReason::Port]);
    assert_eq!(
        only_message(&merged),
        format!(
            "Ports from cluster \"{odd}\" does not match ports of oldest service export in cluster \"c1\". \
             {count}/2 clusters disagree. Using \"a 1/TCP, b 2/TCP\" from all clusters."
        )
    );
}

#[test]
fn one_number_with_two_protocols_is_two_ports() {
    let exports = [
        export_from("c1").with_ports([udp("dns", 53)]).created_at(1),
        export_from("c2")
            .with_ports([tcp("dns-tcp", 53)])
            .created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(
        ports_of(&merged),
        [("dns", Protocol::Udp, 53), ("dns-tcp", Protocol::Tcp, 53)]
    );
    assert_eq!(reasons_of(&merged), [ConflictReason::Port]);
}

#[test]
fn unnamed_ports_share_a_name() {
    let exports = [
        export_from("c1").with_ports([tcp("", 80)]).created_at(1),
        export_from("c2").with_ports([tcp("", 81)]).created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(ports_of(&merged), [("", Protocol::Tcp, 80)]);
    assert_eq!(
        only_message(&merged),
        r#"Duplicated port name "". Using port definition "{{ TCP <nil> 80} c1 1970-01-01 00:00:01 +0000 UTC}" from oldest service export in cluster "c1". 1/2 clusters disagree."#
    );
}

#[test]
fn when_the_oldest_leaves_a_port_that_lost_to_it_comes_back_before_younger_ones() {
    let oldest = export_from("east").with_ports([tcp("http", 80)]);
    let loser = export_from("north")
        .created_at(1)
        .with_ports([tcp("web", 80)]);
    let youngest = export_from("west")
        .created_at(2)
        .with_ports([tcp("web", 8080)]);

    let before = merge(&[oldest, loser.clone(), youngest.clone()]).unwrap();
    let after = merge(&[loser, youngest]).unwrap();

    let ports = [("http", Protocol::Tcp, 80), ("web", Protocol::Tcp, 8080)];
    assert_eq!(ports_of(&before), ports);
    assert_eq!(ports_of(&after), [("web", Protocol::Tcp, 80)]);
    assert_eq!(reasons_of(&after), [ConflictReason::Port]);
}

#[test]
fn a_name_that_lost_its_number_is_free_for_another_number() {
    let exports = [
        export_from("c1")
            .with_ports([tcp("http", 80)])
            .created_at(1),
        export_from("c2")
            .with_ports([tcp("www", 80), tcp("www", 8080)])
            .created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(
        ports_of(&merged),
        [("http", Protocol::Tcp, 80), ("www", Protocol::Tcp, 8080)]
    );
}

#[test]
fn an_empty_application_protocol_equals_an_absent_one() {
    let exports = [
        export_from("c1")
            .with_ports([tcp("http", 80).speaking("")])
            .created_at(1),
        export_from("c2")
            .with_ports([tcp("http", 80)])
            .created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.conflicts, []);
}

#[test]
fn every_port_in_dispute_is_named_once_by_the_oldest_who_disputes_it() {
    let exports = [
        export_from("c1")
            .with_ports([tcp("a", 1), tcp("b", 2)])
            .created_at(1),
        export_from("c2")
            .with_ports([tcp("x", 1), tcp("b", 3)])
            .created_at(2),
        export_from("c3")
            .with_ports([tcp("y", 1), tcp("b", 4)])
            .created_at(3),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(
        only_message(&merged),
        "Conflicting port name on \"{{x TCP <nil> 1} c2 1970-01-01 00:00:02 +0000 UTC}\". Using the port name \"a\" \
         from oldest service export in cluster \"c1\". \
         Duplicated port name \"b\". Using port definition \"{{b TCP <nil> 2} c1 1970-01-01 00:00:01 +0000 UTC}\" \
         from oldest service export in cluster \"c1\". 2/3 clusters disagree."
    );
}

#[test]
fn ports_are_counted_by_cluster_and_not_by_dispute() {
    let ports = [tcp("a", 1), tcp("b", 2)];
    let exports = [
        export_from("c1").with_ports(ports.clone()).created_at(1),
        export_from("c2").with_ports(ports.clone()).created_at(2),
        export_from("c3")
            .with_ports([tcp("a", 3), tcp("b", 4)])
            .created_at(3),
        export_from("c4").with_ports(ports).created_at(4),
    ];

    let merged = merge(&exports).unwrap();

    let message = only_message(&merged);
    assert_eq!(message.matches("Duplicated port name").count(), 2);
    assert_eq!(message.matches("disagree").count(), 1);
    assert!(message.ends_with(". 1/4 clusters disagree."), "{message}");
}

#[test]
fn a_union_without_a_name_or_of_another_protocol_is_spelled_out() {
    let exports = [
        export_from("c1").with_ports([tcp("", 80)]).created_at(1),
        export_from("c2").with_ports([udp("dns", 53)]).created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    let message = only_message(&merged);
    let expected = "2/2 clusters disagree. Using \"80/TCP, dns 53/UDP\" from all clusters.";
    assert!(message.ends_with(expected), "{message}");
}

#[test]
fn a_long_list_of_disputes_ends_with_the_number_of_the_others() {
    let ports = |offset: u16| (1..=20).map(move |n| tcp(&format!("p{n}"), n + offset));
    let exports = [
        export_from("c1").with_ports(ports(0)).created_at(1),
        export_from("c2").with_ports(ports(100)).created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    let expected = " There are 4 more conflicting ports. 1/2 clusters disagree.";
    assert!(only_message(&merged).ends_with(expected));
}

#[test]
fn fractions_of_a_second_are_shown_as_go_shows_them() {
    let mut oldest = export_from("c1").with_ports([tcp("http", 80)]);
    oldest.created_at = "2026-11-29T15:02:12.250Z".parse().unwrap();
    let mut other = export_from("c2").with_ports([tcp("http", 81)]);
    other.created_at = "2026-11-29T15:02:13Z".parse().unwrap();

    let merged = merge(&[oldest, other]).unwrap();

    assert!(only_message(&merged).contains("c1 2026-11-29 15:02:12.25 +0000 UTC}"));
}
