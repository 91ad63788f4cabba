//! The rules one by one, on small tables. Catalogue: Cilium's own tests of its ServiceImport controller.

use rstest::rstest;

use super::*;
use crate::testkit::{export_from, tcp};

pub(super) fn reasons_of(merged: &Merged) -> Vec<ConflictReason> {
    let conflicts = merged.conflicts.iter();
    conflicts.map(|conflict| conflict.reason).collect()
}

/// Message of the only conflict.
#[track_caller]
pub(super) fn only_message(merged: &Merged) -> &str {
    assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
    &merged.conflicts[0].message
}

fn two_ports(cluster: &str) -> ExportSpec {
    export_from(cluster)
        .with_ports([tcp("http", 80), tcp("admin", 81)])
        .with_label("sync", "true")
        .with_annotation("sync", "true")
}

/// A change to an export, as a row of a table.
type Edit = fn(ExportSpec) -> ExportSpec;

#[test]
fn nothing_comes_of_no_exports() {
    assert_eq!(merge(&[]), None);
}

#[test]
fn a_single_export_is_taken_as_it_is() {
    let export = two_ports("east")
        .with_client_ip_affinity(600)
        .with_distribution(TrafficDistribution::PreferSameZone);

    let merged = merge(std::slice::from_ref(&export)).unwrap();

    assert_eq!(merged.oldest, export.cluster);
    assert_eq!(merged.ports, export.ports);
    assert_eq!(merged.import_type, export.import_type);
    assert_eq!(merged.ip_families, Some(export.ip_families));
    assert_eq!(merged.session_affinity, export.session_affinity);
    assert_eq!(merged.session_affinity_timeout_seconds, Some(600));
    assert_eq!(
        merged.internal_traffic_policy,
        export.internal_traffic_policy
    );
    assert_eq!(merged.traffic_distribution, export.traffic_distribution);
    assert_eq!(merged.labels, export.labels);
    assert_eq!(merged.annotations, export.annotations);
    assert_eq!(merged.conflicts, []);
}

#[test]
fn clusters_that_agree_have_no_conflict() {
    let exports = [
        two_ports("west").created_at(2),
        two_ports("east").created_at(1),
    ];

    let merged = merge(&exports).unwrap();

    let clusters: Vec<_> = merged.clusters.iter().map(ClusterName::as_str).collect();
    assert_eq!(clusters, ["east", "west"]);
    assert_eq!(merged.oldest.as_str(), "east");
    assert_eq!(merged.conflicts, []);
}

#[test]
fn of_equally_old_exports_the_lesser_cluster_name_wins() {
    let exports = [
        export_from("west").headless().created_at(5),
        export_from("east").created_at(5),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.oldest.as_str(), "east");
    assert_eq!(merged.import_type, ImportType::ClusterSetIp);
}

#[test]
fn of_two_exports_of_one_cluster_the_older_counts() {
    let exports = [
        export_from("east").headless().created_at(2),
        export_from("east").created_at(1),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.import_type, ImportType::ClusterSetIp);
    assert_eq!(merged.clusters.len(), 1);
    assert_eq!(merged.conflicts, []);
}

#[test]
fn when_the_oldest_leaves_the_next_one_decides_and_the_conflict_ends() {
    let east = export_from("east").created_at(1);
    let west = export_from("west").headless().created_at(2);
    let before = merge(&[east, west.clone()]).unwrap();

    let after = merge(&[west]).unwrap();

    assert_eq!(reasons_of(&before), [ConflictReason::Type]);
    assert_eq!(after.import_type, ImportType::Headless);
    assert_eq!(after.conflicts, []);
}

#[rstest]
#[case::type_(|e: ExportSpec| e.headless(), ConflictReason::Type, "type", "ClusterSetIP", "Headless")]
#[case::session_affinity(
    |e: ExportSpec| e.with_client_ip_affinity(None), ConflictReason::SessionAffinity, "sessionAffinity", "None", "ClientIP"
)]
#[case::annotations(
    |e: ExportSpec| e.with_annotation("a", "2"), ConflictReason::Annotations, "annotations", "map[sync:true]", "map[a:2 sync:true]"
)]
#[case::labels(|e: ExportSpec| e.with_label("a", "2"), ConflictReason::Labels, "labels", "map[sync:true]", "map[a:2 sync:true]")]
#[case::internal_traffic_policy(
    |e: ExportSpec| e.with_internal_policy(InternalTrafficPolicy::Local),
    ConflictReason::InternalTrafficPolicy, "internalTrafficPolicy", "Cluster", "Local"
)]
#[case::traffic_distribution(
    |e: ExportSpec| e.with_distribution(TrafficDistribution::PreferClose),
    ConflictReason::TrafficDistribution, "trafficDistribution", "", "PreferClose"
)]
fn the_oldest_export_wins_a_conflict_over(
    #[case] edit: Edit,
    #[case] reason: ConflictReason,
    #[case] field: &str,
    #[case] plain: &str,
    #[case] edited: &str,
) {
    let sentence = |value: &str| {
        format!(
            "Conflicting {field}. 1/2 clusters disagree. Using \"{value}\" from oldest service export in cluster \"east\"."
        )
    };
    let other_is_edited = [two_ports("east"), edit(two_ports("west")).created_at(2)];
    let oldest_is_edited = [edit(two_ports("east")), two_ports("west").created_at(2)];

    let plain_wins = merge(&other_is_edited).unwrap();
    let edited_wins = merge(&oldest_is_edited).unwrap();

    assert_eq!(reasons_of(&plain_wins), [reason]);
    assert_eq!(only_message(&plain_wins), sentence(plain));
    assert_eq!(reasons_of(&edited_wins), [reason]);
    assert_eq!(only_message(&edited_wins), sentence(edited));
}

#[rstest]
#[case::two_values(Some(600), Some(700), "600")]
#[case::a_value_against_none(Some(10800), None, "10800")]
#[case::none_against_a_value(None, Some(600), "")]
fn affinity_timeouts_conflict_in_digits(
    #[case] oldest: Option<i32>,
    #[case] other: Option<i32>,
    #[case] shown: &str,
) {
    let exports = [
        export_from("east").with_client_ip_affinity(oldest),
        export_from("west")
            .with_client_ip_affinity(other)
            .created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(reasons_of(&merged), [ConflictReason::SessionAffinityConfig]);
    assert_eq!(merged.session_affinity_timeout_seconds, oldest);
    assert_eq!(
        only_message(&merged),
        format!(
            "Conflicting sessionAffinityConfig.clientIP. 1/2 clusters disagree. Using \"{shown}\" from oldest service export in cluster \"east\"."
        )
    );
}

#[test]
fn a_cluster_without_affinity_is_no_conflict_over_the_timeout() {
    let exports = [
        export_from("east").with_client_ip_affinity(600),
        export_from("west").created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(reasons_of(&merged), [ConflictReason::SessionAffinity]);
}

#[test]
fn an_absent_internal_traffic_policy_equals_cluster() {
    let exports = [
        export_from("east").with_internal_policy(None),
        export_from("west").created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.internal_traffic_policy, None);
    assert_eq!(merged.conflicts, []);
}

#[test]
fn every_conflict_is_reported_in_a_fixed_order_with_its_own_count() {
    let exports = [
        export_from("c1").created_at(1),
        export_from("c2").with_label("a", "2").created_at(2),
        export_from("c3")
            .with_label("a", "3")
            .headless()
            .created_at(3),
    ];

    let merged = merge(&exports).unwrap();

    let messages: Vec<_> = merged
        .conflicts
        .iter()
        .map(|c| c.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "Conflicting type. 1/3 clusters disagree. Using \"ClusterSetIP\" from oldest service export in cluster \"c1\".",
            "Conflicting labels. 2/3 clusters disagree. Using \"map[]\" from oldest service export in cluster \"c1\".",
        ]
    );
}

#[test]
fn reasons_are_reported_in_the_order_of_their_declaration() {
    assert!(ConflictReason::ALL.is_sorted());
    let everything = export_from("west")
        .with_ports([tcp("http", 80)])
        .headless()
        .with_client_ip_affinity(600)
        .with_label("a", "1")
        .with_annotation("a", "1")
        .with_internal_policy(InternalTrafficPolicy::Local)
        .with_distribution(TrafficDistribution::PreferClose)
        .with_families(&[IpFamily::V6])
        .created_at(2);
    let other_timeout = export_from("north")
        .with_client_ip_affinity(None)
        .created_at(3);
    let timeout_only = [
        export_from("east").with_client_ip_affinity(600),
        other_timeout,
    ];

    let merged = merge(&[export_from("east"), everything]).unwrap();
    let timeout = merge(&timeout_only).unwrap();

    let mut seen = reasons_of(&merged);
    assert!(seen.is_sorted());
    seen.extend(reasons_of(&timeout));
    seen.sort_unstable();
    assert_eq!(seen, ConflictReason::ALL);
}

#[test]
fn a_huge_value_is_shortened_in_the_message() {
    let exports = [
        export_from("east").with_annotation("a", &"x".repeat(200_000)),
        export_from("west").created_at(2),
    ];

    let merged = merge(&exports).unwrap();

    let message = only_message(&merged);
    assert!(message.len() < 5000, "{} bytes", message.len());
    assert!(message.ends_with("…\" from oldest service export in cluster \"east\"."));
}

#[rstest]
#[case::the_oldest_order_when_all_have_both(&["IPv4,IPv6", "IPv6,IPv4"], Some("IPv4,IPv6"), None)]
#[case::unknown_when_no_cluster_tells(&["", ""], None, None)]
#[case::what_is_left_in_common(&["IPv4,IPv6", "", "IPv4"], Some("IPv4"), None)]
#[case::the_single_family_of_the_oldest(&["IPv6", "IPv4,IPv6"], Some("IPv6"), None)]
#[case::the_oldest_in_a_conflict(&["IPv4", "IPv6"], Some("IPv4"), Some(("c2", "1/2")))]
#[case::what_was_common_before_a_conflict(&["IPv4,IPv6", "IPv4", "IPv6"], Some("IPv4"), Some(("c3", "1/3")))]
#[case::the_first_odd_cluster_in_a_conflict_of_two(&["IPv6", "IPv4", "", "IPv4"], Some("IPv6"), Some(("c2", "2/4")))]
#[case::the_oldest_that_tells_in_a_conflict(&["", "IPv6", "IPv4"], Some("IPv6"), Some(("c3", "1/3")))]
#[case::each_family_once(&["IPv4,IPv4,IPv6"], Some("IPv4,IPv6"), None)]
fn the_ip_families_are(
    #[case] families: &[&str],
    #[case] expected: Option<&str>,
    #[case] odd: Option<(&str, &str)>,
) {
    let parse = |text: &str| crate::families::from_annotation(text).unwrap();
    let exports: Vec<_> = (1..)
        .zip(families)
        .map(|(n, text)| {
            let export = export_from(&format!("c{n}")).created_at(n);
            export.with_families(&parse(text))
        })
        .collect();

    let merged = merge(&exports).unwrap();

    assert_eq!(merged.ip_families, expected.map(parse));
    let messages: Vec<_> = merged.conflicts.iter().map(|c| c.message.clone()).collect();
    let first = exports.iter().find(|export| !export.ip_families.is_empty());
    let expected: Vec<_> = odd
        .iter()
        .map(|(odd, count)| {
            format!(
                "IPFamilies conflict. Cluster '{odd}' has no IPFamilies in common. {count} clusters disagree. \
                 Using \"{}\" from oldest service export in cluster \"{}\".",
                expected.unwrap_or_default(),
                first.unwrap().cluster
            )
        })
        .collect();
    assert_eq!(messages, expected);
}
