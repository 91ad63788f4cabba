//! What holds for every set of exports, however odd.

use std::collections::BTreeSet;

use jiff::Timestamp;
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::{select, subsequence},
};

use super::*;
use crate::{
    conditions::{ConditionType, ExportOutcome, MESSAGE_MAX, export_conditions},
    families::from_annotation,
    service::Protocol,
    testkit::export_from,
};

const CLUSTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn port() -> impl Strategy<Value = ServicePort> {
    (
        select(&["", "http", "https", "dns"][..]),
        select(Protocol::ALL),
        option::of(select(&["", "http", "kubernetes.io/h2c"][..])),
        select(&[53, 80, 443, 8080][..]),
    )
        .prop_map(|(name, protocol, app_protocol, port)| ServicePort {
            name: name.try_into().unwrap(),
            protocol,
            app_protocol: app_protocol.map(str::to_owned),
            port,
        })
}

fn metadata() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[ab]", "[12é]", 0..3)
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    let seconds = Timestamp::MIN.as_second()..=Timestamp::MAX.as_second();
    prop_oneof![0i64..3, seconds].prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn export(cluster: &'static str) -> impl Strategy<Value = ExportSpec> {
    let affinity = (
        select(SessionAffinity::ALL),
        option::of(select(&[600, -1, i32::MIN][..])),
    );
    (
        any_time(),
        vec(port(), 0..5),
        (metadata(), metadata()),
        select(ImportType::ALL),
        affinity,
        vec(select(IpFamily::ALL), 0..3),
        option::of(select(InternalTrafficPolicy::ALL)),
        option::of(select(TrafficDistribution::ALL)),
    )
        .prop_map(
            move |(
                created_at,
                ports,
                metadata,
                import_type,
                affinity,
                families,
                policy,
                distribution,
            )| {
                ExportSpec {
                    created_at,
                    ports,
                    labels: metadata.0,
                    annotations: metadata.1,
                    import_type,
                    session_affinity: affinity.0,
                    session_affinity_timeout_seconds: affinity.1,
                    ip_families: families,
                    internal_traffic_policy: policy,
                    traffic_distribution: distribution,
                    ..export_from(cluster)
                }
            },
        )
}

/// Exports of at least one cluster, each of another, in a random order.
pub(crate) fn exports() -> impl Strategy<Value = Vec<ExportSpec>> {
    subsequence(&CLUSTERS[..], 1..=CLUSTERS.len())
        .prop_flat_map(|clusters| clusters.into_iter().map(export).collect::<Vec<_>>())
        .prop_shuffle()
}

/// Two orders of the same exports.
fn shuffled() -> impl Strategy<Value = (Vec<ExportSpec>, Vec<ExportSpec>)> {
    exports().prop_flat_map(|exports| (Just(exports.clone()), Just(exports).prop_shuffle()))
}

/// Exports that agree, but for the time and the order of families.
fn agreeing() -> impl Strategy<Value = Vec<ExportSpec>> {
    export("a")
        .prop_filter("a list of ports that is in itself a conflict", |export| {
            merge(std::slice::from_ref(export))
                .unwrap()
                .conflicts
                .is_empty()
        })
        .prop_flat_map(|export| {
            let clusters = subsequence(&CLUSTERS[..], 1..=CLUSTERS.len());
            (Just(export), clusters, vec(any_time(), CLUSTERS.len()))
        })
        .prop_map(|(export, clusters, times)| {
            let of_cluster = |(cluster, created_at): (&str, Timestamp)| ExportSpec {
                cluster: cluster.try_into().unwrap(),
                created_at,
                ..export.clone()
            };
            clusters.into_iter().zip(times).map(of_cluster).collect()
        })
}

/// IPv4, with or without IPv6 before or after it; or nothing, as from an exporter that does not tell.
fn with_ipv4() -> impl Strategy<Value = Vec<IpFamily>> {
    let lists = ["", "IPv4", "IPv4,IPv6", "IPv6,IPv4"];
    select(lists.map(|list| from_annotation(list).unwrap()).to_vec())
}

proptest! {
    #[test]
    fn the_order_of_arrival_never_matters((one, other) in shuffled()) {
        prop_assert_eq!(merge(&one), merge(&other));
    }

    #[test]
    fn the_same_exports_twice_change_nothing(exports in exports()) {
        let twice = [exports.clone(), exports.clone()].concat();

        prop_assert_eq!(merge(&twice), merge(&exports));
    }

    #[test]
    fn the_result_merged_again_is_the_result(exports in exports()) {
        let merged = merge(&exports).unwrap();
        let again = ExportSpec {
            cluster: merged.oldest.clone(),
            created_at: Timestamp::UNIX_EPOCH,
            labels: merged.labels.clone(),
            annotations: merged.annotations.clone(),
            ports: merged.ports.clone(),
            import_type: merged.import_type,
            session_affinity: merged.session_affinity,
            session_affinity_timeout_seconds: merged.session_affinity_timeout_seconds,
            ip_families: merged.ip_families.clone().unwrap_or_default(),
            internal_traffic_policy: merged.internal_traffic_policy,
            traffic_distribution: merged.traffic_distribution,
            ..export_from("a")
        };

        let result = merge(&[again]).unwrap();

        let clusters = BTreeSet::from([merged.oldest.clone()]);
        prop_assert_eq!(result, Merged { clusters, conflicts: Vec::new(), ..merged });
    }

    #[test]
    fn taking_an_export_out_and_adding_it_again_restores_the_result(exports in exports(), index: prop::sample::Index) {
        let before = merge(&exports);
        let mut changing = exports;

        let taken = changing.remove(index.index(changing.len()));
        let without = merge(&changing);
        prop_assert!(without.is_none_or(|merged| !merged.clusters.contains(&taken.cluster)));
        changing.push(taken);

        prop_assert_eq!(merge(&changing), before);
    }

    #[test]
    fn a_younger_export_never_changes_what_there_was(exports in exports(), mut younger in export("zebra")) {
        younger.created_at = exports.iter().map(|export| export.created_at).max().unwrap();
        let before = merge(&exports).unwrap();

        let after = merge(&[exports, vec![younger]].concat()).unwrap();

        prop_assert_eq!(&after.ports[..before.ports.len()], &before.ports[..]);
        let families = |merged: &Merged| merged.ip_families.clone().unwrap_or_default();
        let kept = families(&before);
        prop_assert!(kept.is_empty() || families(&after).iter().all(|family| kept.contains(family)));
        prop_assert_eq!(
            Merged {
                clusters: before.clusters.clone(),
                ports: before.ports.clone(),
                ip_families: before.ip_families.clone(),
                conflicts: before.conflicts.clone(),
                ..after
            },
            before
        );
    }

    #[test]
    fn a_younger_export_never_ends_a_conflict(exports in exports(), mut younger in export("zebra")) {
        younger.created_at = exports.iter().map(|export| export.created_at).max().unwrap();
        let reasons = |exports: &[ExportSpec]| -> BTreeSet<_> {
            let conflicts = merge(exports).unwrap().conflicts;
            conflicts.into_iter().map(|conflict| conflict.reason).collect()
        };

        let before = reasons(&exports);
        let after = reasons(&[exports, vec![younger]].concat());

        prop_assert!(before.is_subset(&after), "{before:?} is not within {after:?}");
    }

    #[test]
    fn a_younger_cluster_that_disagrees_changes_nothing_but_the_conflicts(exports in exports(), other in export("a"), index: prop::sample::Index) {
        let before = merge(&exports).unwrap();
        let mut changed = exports;
        let index = index.index(changed.len());
        prop_assume!(changed[index].cluster != before.oldest);

        // Everything that one value is chosen of; ports and families are united and intersected.
        changed[index] = ExportSpec {
            cluster: changed[index].cluster.clone(),
            created_at: changed[index].created_at,
            ports: changed[index].ports.clone(),
            ip_families: changed[index].ip_families.clone(),
            ..other
        };
        let after = merge(&changed).unwrap();

        prop_assert_eq!(Merged { conflicts: before.conflicts.clone(), ..after }, before);
    }

    #[test]
    fn when_the_oldest_leaves_the_next_oldest_decides(exports in exports()) {
        let oldest = merge(&exports).unwrap().oldest;
        let mut left = exports;
        left.retain(|export| export.cluster != oldest);
        let next = left.iter().min_by_key(|export| (export.created_at, export.cluster.clone()));

        let after = merge(&left);

        prop_assert_eq!(after.is_some(), next.is_some(), "there is an import as long as one cluster exports");
        if let (Some(after), Some(next)) = (after, next) {
            let one_value = |export: &ExportSpec| {
                let merged = merge(std::slice::from_ref(export)).unwrap();
                Merged { clusters: after.clusters.clone(), ports: after.ports.clone(), ip_families: after.ip_families.clone(), conflicts: after.conflicts.clone(), ..merged }
            };
            prop_assert_eq!(&one_value(next), &after);
        }
    }

    #[test]
    fn an_oldest_that_its_successor_agrees_with_leaves_unnoticed(exports in exports()) {
        let before = merge(&exports).unwrap();
        let oldest = exports.iter().find(|export| export.cluster == before.oldest).unwrap();
        let heir = ExportSpec { cluster: "heir".try_into().unwrap(), ..oldest.clone() };
        let mut left = exports.clone();
        left.retain(|export| export.cluster != before.oldest);
        left.retain(|export| (export.created_at, &export.cluster) > (heir.created_at, &heir.cluster));
        left.push(heir);

        let with_oldest = merge(&[left.clone(), vec![oldest.clone()]].concat()).unwrap();
        let after = merge(&left).unwrap();

        let reasons = |merged: &Merged| merged.conflicts.iter().map(|c| c.reason).collect::<Vec<_>>();
        prop_assert_eq!(with_oldest.oldest.as_str(), before.oldest.as_str());
        prop_assert_eq!(after.oldest.as_str(), "heir");
        prop_assert_eq!(reasons(&after), reasons(&with_oldest));
        prop_assert_eq!(
            Merged { oldest: after.oldest.clone(), clusters: after.clusters.clone(), conflicts: after.conflicts.clone(), ..with_oldest },
            after
        );
    }

    #[test]
    fn a_conflict_ends_with_the_oldest_when_the_others_agree(exports in agreeing(), mut oldest in export("0")) {
        oldest.created_at = exports.iter().map(|export| export.created_at).min().unwrap();
        let with_oldest = merge(&[exports.clone(), vec![oldest]].concat()).unwrap();

        let after = merge(&exports).unwrap();

        prop_assert_eq!(with_oldest.oldest.as_str(), "0");
        prop_assert_eq!(after.conflicts, []);
        prop_assert_eq!(after.ports, exports[0].ports.clone());
    }

    #[test]
    fn clusters_that_agree_never_conflict(exports in agreeing()) {
        let merged = merge(&exports).unwrap();

        prop_assert_eq!(merged.conflicts, []);
        prop_assert_eq!(merged.clusters.len(), exports.len());
        prop_assert_eq!(merged.ports, exports[0].ports.clone());
    }

    #[test]
    fn families_with_one_in_common_never_conflict(mut exports in agreeing(), families in vec(with_ipv4(), CLUSTERS.len())) {
        for (export, families) in exports.iter_mut().zip(families) {
            export.ip_families = families;
        }

        let merged = merge(&exports).unwrap();

        prop_assert_eq!(merged.conflicts, []);
        prop_assert!(merged.ip_families.is_none_or(|families| families.contains(&IpFamily::V4)));
    }

    #[test]
    fn who_agrees_with_the_oldest_never_adds_a_reason(exports in exports()) {
        let reasons = |merged: &Merged| merged.conflicts.iter().map(|c| c.reason).collect::<Vec<_>>();
        let before = merge(&exports).unwrap();
        let oldest = exports.iter().find(|export| export.cluster == before.oldest).unwrap();
        let created_at = exports.iter().map(|export| export.created_at).max().unwrap();
        let same = ExportSpec { cluster: "zebra".try_into().unwrap(), created_at, ..oldest.clone() };

        let after = merge(&[exports, vec![same]].concat()).unwrap();

        prop_assert_eq!(reasons(&after), reasons(&before));
    }

    #[test]
    fn no_port_name_and_no_port_number_occurs_twice(exports in exports()) {
        let merged = merge(&exports).unwrap();

        let names: BTreeSet<_> = merged.ports.iter().map(|port| &port.name).collect();
        let numbers: BTreeSet<_> = merged.ports.iter().map(|port| (port.protocol, port.port)).collect();
        prop_assert_eq!(names.len(), merged.ports.len());
        prop_assert_eq!(numbers.len(), merged.ports.len());
    }

    #[test]
    fn every_port_comes_from_an_export(exports in exports()) {
        let merged = merge(&exports).unwrap();

        for port in &merged.ports {
            prop_assert!(exports.iter().any(|export| export.ports.contains(port)));
        }
    }

    #[test]
    fn every_family_is_that_of_the_oldest_who_tells_and_occurs_once(exports in exports()) {
        let merged = merge(&exports).unwrap();

        let telling = exports.iter().filter(|export| !export.ip_families.is_empty());
        let oldest = telling.min_by_key(|export| (export.created_at, export.cluster.clone()));
        prop_assert_eq!(merged.ip_families.is_some(), oldest.is_some());
        let families = merged.ip_families.unwrap_or_default();
        let unique: BTreeSet<_> = families.iter().collect();
        prop_assert_eq!(unique.len(), families.len());
        prop_assert!(families.iter().all(|family| oldest.unwrap().ip_families.contains(family)));
        prop_assert!(oldest.is_none() || !families.is_empty());
    }

    #[test]
    fn conflicts_are_in_order_and_fit_into_a_condition(exports in exports()) {
        let conflicts = merge(&exports).unwrap().conflicts;

        let conditions = export_conditions(ExportOutcome::Merged(&conflicts));

        prop_assert!(conflicts.is_sorted_by(|one, next| one.reason < next.reason));
        let conflict = &conditions[2];
        prop_assert_eq!(conflict.kind, ConditionType::Conflict);
        prop_assert!(conflict.message.chars().count() <= MESSAGE_MAX);
        prop_assert!(!conflict.reason.is_empty() && conflict.reason.len() <= 1024);
    }
}
