//! What kind is told of a cluster: `kind/cluster.yaml` with this cluster's addresses and mounts.

use std::path::Path;

use crate::api::Network;

const TEMPLATE: &str = include_str!("../../../../kind/cluster.yaml");

/// The only node of the template, where mounts go.
const NODE: &str = "- role: control-plane\n";

/// Where containerd of a node keeps images.
const CONTAINERD: &str = "/var/lib/containerd";

/// The configuration of a cluster; `containerd` is a directory that its node takes for that of its containerd.
pub(super) fn cluster(network: Network, containerd: Option<&Path>) -> String {
    let mount = containerd.map(|it| {
        let mount = serde_json::json!([{ "hostPath": it, "containerPath": CONTAINERD }]);
        format!("{NODE}  extraMounts: {mount}\n")
    });
    let text = TEMPLATE
        .replace("POD_SUBNETS", &quoted(&network.pods()))
        .replace("SERVICE_SUBNETS", &quoted(&network.services()));
    match mount {
        Some(mount) => text.replace(NODE, &mount),
        None => text,
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn clusters_share_no_address_and_mounts_are_of_the_node() {
        let [a, b] = [0, 1].map(|index| Network::new(index).unwrap());

        let a = parse(&cluster(a, Some(Path::new("/tmp/run \"1\"/a"))));
        let b = parse(&cluster(b, None));

        assert_eq!(a["networking"]["podSubnet"], "10.128.0.0/16,fd00:128::/104");
        assert_eq!(
            b["networking"]["serviceSubnet"],
            "10.97.0.0/16,fd00:97::/112"
        );
        let mount = &a["nodes"][0]["extraMounts"][0];
        assert_eq!(mount["hostPath"], "/tmp/run \"1\"/a");
        assert_eq!(mount["containerPath"], "/var/lib/containerd");
        assert_eq!(b["nodes"][0].as_object().unwrap().len(), 1);
    }

    /// kubeadm refuses a range of pods that is smaller than what a node gets of it.
    #[test]
    fn nodes_get_parts_of_the_range_of_pods() {
        let a = parse(&cluster(Network::new(0).unwrap(), None));

        let patches = a["kubeadmConfigPatches"].as_array().unwrap();
        let patch = patches.iter().map(|it| parse(it.as_str().unwrap()));
        let patch = patch
            .into_iter()
            .find(|it| it["kind"] == "ClusterConfiguration")
            .unwrap();
        let arguments = patch["controllerManager"]["extraArgs"].as_array().unwrap();

        let mask = arguments
            .iter()
            .find(|it| it["name"] == "node-cidr-mask-size-ipv6")
            .unwrap();
        assert_eq!(mask["value"], "112");
    }

    fn parse(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap()
    }
}
