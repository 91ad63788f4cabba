//! Networks of clusters: what is known of them, and whether they overlap. Pure.

use ipnet::IpNet;
use k8s_openapi::api::{core::v1::Node, networking::v1::ServiceCIDR};
use serde::Deserialize;

use super::facts::Networks;

/// What kubeadm notes of a cluster, in the ConfigMap `kube-system/kubeadm-config`.
#[derive(Debug, Default, Deserialize)]
struct Kubeadm {
    #[serde(default)]
    networking: Networking,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Networking {
    #[serde(default)]
    pod_subnet: String,
    #[serde(default)]
    service_subnet: String,
}

/// The networks, by whatever says something of them.
pub(super) fn read(
    nodes: &[Node],
    service_cidrs: &[ServiceCIDR],
    kubeadm: Option<&str>,
) -> Networks {
    let kubeadm: Kubeadm = kubeadm
        .and_then(|text| serde_saphyr::from_str(text).ok())
        .unwrap_or_default();
    let of_nodes = nodes.iter().filter_map(|node| node.spec.as_ref());
    let of_nodes = of_nodes.flat_map(|spec| {
        let several = spec.pod_cidrs.iter().flatten();
        several.chain(spec.pod_cidr.iter())
    });
    let services = service_cidrs.iter().filter_map(|it| it.spec.as_ref());
    let services = services.flat_map(|spec| spec.cidrs.iter().flatten());
    let listed = |text: String| {
        let nets = text.split(',').filter_map(|net| net.trim().parse().ok());
        nets.collect::<Vec<IpNet>>()
    };
    let parsed = |net: &String| net.parse().ok();
    let mut pods: Vec<IpNet> = of_nodes.filter_map(parsed).collect();
    pods.extend(listed(kubeadm.networking.pod_subnet));
    let mut services: Vec<IpNet> = services.filter_map(parsed).collect();
    services.extend(listed(kubeadm.networking.service_subnet));
    Networks {
        pods: IpNet::aggregate(&pods),
        services: IpNet::aggregate(&services),
    }
}

/// The first two networks that have an address in common.
pub(super) fn overlap(a: &[IpNet], b: &[IpNet]) -> Option<(IpNet, IpNet)> {
    a.iter().find_map(|a| {
        let meets = |b: &&IpNet| a.contains(*b) || b.contains(a);
        b.iter().find(meets).map(|b| (*a, *b))
    })
}

/// Networks as text; `unknown` for none.
pub(super) fn list(nets: &[IpNet]) -> String {
    if nets.is_empty() {
        return "unknown".to_owned();
    }
    let nets: Vec<_> = nets.iter().map(ToString::to_string).collect();
    nets.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn networks_come_from_nodes_service_cidrs_and_kubeadm() {
        let node: Node = serde_saphyr::from_str(
            "spec: {podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24, 'fd00:1::/64']}",
        )
        .unwrap();
        let other: Node = serde_saphyr::from_str("spec: {podCIDR: 10.1.1.0/24}").unwrap();
        let cidr: ServiceCIDR =
            serde_saphyr::from_str("metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16]}")
                .unwrap();
        let kubeadm = "networking: {podSubnet: '10.1.0.0/16,fd00:1::/48', serviceSubnet: ''}";

        let read_all = read(&[node.clone(), other.clone()], &[cidr], Some(kubeadm));
        let without = read(&[node, other], &[], Some("nonsense: ["));

        assert_eq!(read_all.pods, nets(&["10.1.0.0/16", "fd00:1::/48"]));
        assert_eq!(read_all.services, nets(&["10.96.0.0/16"]));
        assert_eq!(without.pods, nets(&["10.1.0.0/23", "fd00:1::/64"]));
        assert_eq!(list(&without.services), "unknown");
    }

    #[test]
    fn a_network_inside_of_another_overlaps_and_unknown_ones_do_not() {
        let a = nets(&["10.0.0.0/8", "fd00::/64"]);

        assert_eq!(
            overlap(&a, &nets(&["192.0.2.0/24", "10.1.0.0/16"])),
            Some((a[0], "10.1.0.0/16".parse().unwrap()))
        );
        assert_eq!(
            overlap(&nets(&["fd00:0:0:0:1::/80"]), &a).map(|it| it.1),
            Some(a[1])
        );
        assert_eq!(overlap(&a, &nets(&["11.0.0.0/8"])), None);
        assert_eq!(overlap(&a, &[]), None);
    }
}
