//! IP families: which ones of an import this cluster can serve, and its virtual IPs in that order.
//!
//! The merge says what the clusters have in common; this says what of it is left here. It must never add a family.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    mutant::{self, Mutant},
    service::IpFamily,
};

/// The families of an import that a cluster can serve, in the import's order.
///
/// `merged` is [`Merged::ip_families`](crate::merge::Merged::ip_families), `enabled` what this cluster has. When no
/// exporter tells its families (Cilium up to 1.18), they are those that are enabled, IPv4 first. Empty: the import
/// cannot be served here (`KEP-1645#37`).
///
/// ```
/// use std::collections::BTreeSet;
/// use tombolo_core::{families::supported, service::IpFamily::{V4, V6}};
/// assert_eq!(supported(Some(&[V6, V4]), &BTreeSet::from([V4])), [V4]);
/// assert_eq!(supported(None, &BTreeSet::from([V6, V4])), [V4, V6]);
/// ```
pub fn supported(merged: Option<&[IpFamily]>, enabled: &BTreeSet<IpFamily>) -> Vec<IpFamily> {
    match merged {
        None => enabled.iter().copied().collect(),
        Some(families) => {
            let here = families.iter().filter(|family| enabled.contains(family));
            here.copied().collect()
        }
    }
}

/// The families as the annotation `clustermesh.cilium.io/supported-ip-families` holds them: `IPv4,IPv6`, or nothing.
pub fn to_annotation(families: &[IpFamily]) -> String {
    let texts: Vec<_> = families.iter().map(|family| family.as_str()).collect();
    texts.join(",")
}

/// The families in the annotation `clustermesh.cilium.io/supported-ip-families`; none when it names an unknown one.
pub fn from_annotation(text: &str) -> Option<Vec<IpFamily>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(IpFamily::parse).collect()
}

/// The virtual IPs of an import, out of the cluster IPs of its derived Service: the first of each supported family, in
/// their order (`KEP-1645#20`, `KEP-1645#64`).
///
/// Without a list of families (no annotation, or one that cannot be read) all cluster IPs are used as they come.
///
/// ```
/// use tombolo_core::{families::import_ips, service::IpFamily::{V4, V6}};
/// let ips = ["10.96.0.7".parse().unwrap(), "fd00:96::7".parse().unwrap()];
/// assert_eq!(import_ips(&ips, Some(&[V6, V4])), [ips[1], ips[0]]);
/// ```
pub fn import_ips(cluster_ips: &[IpAddr], supported: Option<&[IpFamily]>) -> Vec<IpAddr> {
    let first_of = |family: &IpFamily| {
        let mut ips = cluster_ips.iter();
        ips.find(|ip| IpFamily::of(**ip) == *family).copied()
    };
    match supported {
        None => cluster_ips.to_vec(),
        Some(families) if mutant::is(Mutant::IpsUnordered) => {
            families.iter().rev().filter_map(first_of).collect()
        }
        Some(families) => families.iter().filter_map(first_of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use IpFamily::{V4, V6};

    #[rstest]
    #[case::all_of_a_dual_stack_import(Some(&[V6, V4][..]), &[V4, V6], &[V6, V4])]
    #[case::the_one_that_is_enabled(Some(&[V4, V6][..]), &[V6], &[V6])]
    #[case::none_when_the_only_one_is_off(Some(&[V6][..]), &[V4], &[])]
    #[case::those_of_the_cluster_when_no_exporter_tells(None, &[V6, V4], &[V4, V6])]
    #[case::the_only_one_of_the_cluster_when_no_exporter_tells(None, &[V6], &[V6])]
    fn a_cluster_serves(
        #[case] merged: Option<&[IpFamily]>,
        #[case] enabled: &[IpFamily],
        #[case] expected: &[IpFamily],
    ) {
        let enabled = enabled.iter().copied().collect();

        assert_eq!(supported(merged, &enabled), expected);
    }

    #[rstest]
    #[case::in_the_order_of_the_families(&["10.96.0.7", "fd00::7"], Some(&[V6, V4][..]), &["fd00::7", "10.96.0.7"])]
    #[case::of_supported_families_only(&["10.96.0.7", "fd00::7"], Some(&[V4][..]), &["10.96.0.7"])]
    #[case::that_exist(&["10.96.0.7"], Some(&[V6, V4][..]), &["10.96.0.7"])]
    #[case::first_of_each_family(&["10.96.0.7", "10.96.0.8"], Some(&[V4][..]), &["10.96.0.7"])]
    #[case::as_they_come_without_a_list(&["fd00::7", "10.96.0.7"], None, &["fd00::7", "10.96.0.7"])]
    #[case::none_when_no_family_is_supported(&["10.96.0.7"], Some(&[][..]), &[])]
    fn an_import_gets_the_ips(
        #[case] cluster_ips: &[&str],
        #[case] supported: Option<&[IpFamily]>,
        #[case] expected: &[&str],
    ) {
        let parse = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };

        assert_eq!(import_ips(&parse(cluster_ips), supported), parse(expected));
    }

    #[test]
    fn the_annotation_can_be_written_and_read_back() {
        for families in [&[][..], &[V4], &[V6, V4]] {
            assert_eq!(
                from_annotation(&to_annotation(families)).as_deref(),
                Some(families)
            );
        }
        assert_eq!(to_annotation(&[V4, V6]), "IPv4,IPv6");
    }

    #[test]
    fn an_annotation_with_an_unknown_family_is_no_list() {
        assert_eq!(from_annotation("IPv4,IPv9"), None);
        assert_eq!(from_annotation("IPv4,"), None);
    }
}
