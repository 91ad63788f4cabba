use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::{
    merge::properties::exports,
    service::{IpFamily::V4, IpFamily::V6},
    testkit::{export_from, tcp, udp},
};

/// The clusters that would have to change something, with the change, per conflict.
fn changes(exports: &[ExportSpec]) -> Vec<(&'static str, Vec<(String, Change)>)> {
    let explained = explain(exports).unwrap();
    let disputes = explained.disputes.into_iter().map(|dispute| {
        let changes = dispute.changes.into_iter();
        let changes = changes.map(|(cluster, change)| (cluster.to_string(), change));
        (dispute.conflict.reason.as_str(), changes.collect())
    });
    disputes.collect()
}

/// The one conflict and the one cluster that would have to change.
fn only_change(exports: &[ExportSpec]) -> (&'static str, String, Change) {
    let mut disputes = changes(exports);
    assert_eq!(disputes.len(), 1, "{disputes:?}");
    let (reason, mut clusters) = disputes.remove(0);
    assert_eq!(clusters.len(), 1, "{clusters:?}");
    let (cluster, change) = clusters.remove(0);
    (reason, cluster, change)
}

fn follow(exports: &[ExportSpec]) -> Vec<ExportSpec> {
    let explained = explain(exports).unwrap();
    let mut followed = explained.exports;
    for dispute in &explained.disputes {
        for export in &mut followed {
            if let Some(change) = dispute.changes.get(&export.cluster) {
                change.apply(export);
            }
        }
    }
    followed
}

#[test]
fn without_exports_there_is_nothing_to_explain() {
    assert_eq!(explain(&[]), None);
}

#[test]
fn clusters_that_agree_have_nothing_to_change() {
    let explained = explain(&[export_from("rome"), export_from("paris").created_at(1)]).unwrap();

    assert_eq!(explained.disputes, []);
    assert_eq!(explained.merged.oldest.as_str(), "rome");
}

#[test]
fn exports_come_winner_first_whatever_their_order() {
    let exports = ["rome", "milan", "paris"]
        .map(|cluster| export_from(cluster).created_at(i64::from(cluster != "paris")));

    let explained = explain(&exports).unwrap();

    let order: Vec<_> = explained
        .exports
        .iter()
        .map(|it| it.cluster.as_str())
        .collect();
    assert_eq!(order, ["paris", "milan", "rome"]);
}

#[test]
fn a_younger_port_has_to_become_the_older_one() {
    let older = export_from("paris").with_ports([tcp("http", 80)]);
    let younger = export_from("rome")
        .created_at(1)
        .with_ports([tcp("http", 81)]);

    let change = only_change(&[younger, older]);

    let wanted = Change::Ports(vec![tcp("http", 80)]);
    assert_eq!(change, ("PortConflict", "rome".to_owned(), wanted));
}

#[test]
fn the_winner_too_has_to_change_when_it_lacks_a_port_of_the_union() {
    let older = export_from("paris").with_ports([tcp("http", 80)]);
    let younger = export_from("rome")
        .created_at(1)
        .with_ports([tcp("http", 80), udp("dns", 53)]);

    let (reason, cluster, change) = only_change(&[older, younger]);

    assert_eq!((reason, cluster.as_str()), ("PortConflict", "paris"));
    assert_eq!(change, Change::Ports(vec![tcp("http", 80), udp("dns", 53)]));
}

#[rstest]
#[case::headless(export_from("rome").headless(), "TypeConflict", Change::Type(ImportType::ClusterSetIp))]
#[case::affinity(
    export_from("rome").with_client_ip_affinity(600),
    "SessionAffinityConflict",
    Change::SessionAffinity(SessionAffinity::None, None)
)]
#[case::labels(export_from("rome").with_label("a", "b"), "LabelsConflict", Change::Labels(BTreeMap::new()))]
#[case::annotations(
    export_from("rome").with_annotation("a", "b"),
    "AnnotationsConflict",
    Change::Annotations(BTreeMap::new())
)]
#[case::policy(
    export_from("rome").with_internal_policy(InternalTrafficPolicy::Local),
    "InternalTrafficPolicyConflict",
    Change::InternalTrafficPolicy(InternalTrafficPolicy::Cluster)
)]
#[case::distribution(
    export_from("rome").with_distribution(TrafficDistribution::PreferClose),
    "TrafficDistributionConflict",
    Change::TrafficDistribution(None)
)]
#[case::families(export_from("rome").with_families(&[V6]), "IPFamilyConflict", Change::IpFamilies(vec![V4]))]
fn the_younger_export_has_to_say_what_the_oldest_says(
    #[case] younger: ExportSpec,
    #[case] reason: &'static str,
    #[case] wanted: Change,
) {
    let change = only_change(&[export_from("paris"), younger.created_at(1)]);

    assert_eq!(change, (reason, "rome".to_owned(), wanted));
}

#[test]
fn a_time_out_is_named_only_where_the_affinity_is_the_same() {
    let exports = [
        export_from("paris").with_client_ip_affinity(600),
        export_from("rome")
            .created_at(1)
            .with_client_ip_affinity(700),
        export_from("milan").created_at(2),
    ];

    let disputes = changes(&exports);

    let affinity = Change::SessionAffinity(SessionAffinity::ClientIp, Some(600));
    let timeout = Change::SessionAffinityTimeout(Some(600));
    assert_eq!(
        disputes,
        [
            (
                "SessionAffinityConflict",
                vec![("milan".to_owned(), affinity)]
            ),
            (
                "SessionAffinityConfigConflict",
                vec![("rome".to_owned(), timeout)]
            ),
        ]
    );
}

#[test]
fn the_clusters_that_have_to_change_are_as_many_as_the_message_counts() {
    let exports = [
        export_from("a"),
        export_from("b").created_at(1).headless(),
        export_from("c").created_at(2),
        export_from("d").created_at(3).headless(),
    ];

    let explained = explain(&exports).unwrap();

    let dispute = &explained.disputes[0];
    assert!(dispute.conflict.message.contains("2/4 clusters disagree"));
    assert_eq!(dispute.changes.len(), 2);
}

proptest! {
    #[test]
    fn what_is_explained_is_what_is_merged(exports in exports()) {
        let explained = explain(&exports).unwrap();
        let merged = merge(&exports).unwrap();

        let conflicts: Vec<_> = explained.disputes.iter().map(|it| it.conflict.clone()).collect();
        prop_assert_eq!(conflicts, merged.conflicts.clone());
        prop_assert_eq!(explained.merged, merged);
    }

    #[test]
    fn every_conflict_has_a_cluster_that_would_have_to_change(exports in exports()) {
        for dispute in explain(&exports).unwrap().disputes {
            prop_assert!(!dispute.changes.is_empty(), "{:?}", dispute);
        }
    }

    #[test]
    fn every_conflict_counts_once_the_clusters_that_would_have_to_change(exports in exports()) {
        let explained = explain(&exports).unwrap();
        for dispute in explained.disputes {
            let count = format!("{}/{} clusters disagree.", dispute.changes.len(), explained.exports.len());
            prop_assert_eq!(dispute.conflict.message.matches(&count).count(), 1, "{:?}", dispute);
            prop_assert_eq!(dispute.conflict.message.matches("disagree").count(), 1, "{:?}", dispute);
        }
    }

    #[test]
    fn clusters_that_follow_the_advice_agree(exports in exports()) {
        let merged = merge(&follow(&exports)).unwrap();

        prop_assert_eq!(merged.conflicts, []);
    }

    #[test]
    fn following_the_advice_does_not_change_what_traffic_sees(exports in exports()) {
        let before = merge(&exports).unwrap();
        let after = merge(&follow(&exports)).unwrap();

        prop_assert_eq!(before.ports, after.ports);
        prop_assert_eq!(before.import_type, after.import_type);
        prop_assert_eq!(before.session_affinity, after.session_affinity);
        prop_assert_eq!(before.ip_families, after.ip_families);
    }
}
