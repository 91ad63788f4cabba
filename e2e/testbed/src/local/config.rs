//! Configuration files of what runs on a node.

use std::net::IpAddr;

use serde_json::{Value, json};

/// Image of the container that holds a pod's namespaces.
pub(super) const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10";

/// How kube-proxy programs Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyMode {
    Nftables,
    Iptables,
}

impl ProxyMode {
    /// Clusters take turns, so that two of them show both.
    pub(super) fn of_cluster(id: u32) -> Self {
        if id % 2 == 1 {
            Self::Nftables
        } else {
            Self::Iptables
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        }
    }
}

/// containerd, in TOML. `data` keeps images and containers; whatever else containerd would make on the machine goes there
/// too. Negative OOM scores are left out: root of a container may not set them.
pub(super) fn containerd(data: &str, cni_plugins: &str, cni_configuration: &str) -> String {
    format!(
        r#"version = 2
root = "{data}/root"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{data}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_plugins}"
conf_dir = "{cni_configuration}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#
    )
}

/// Network of pods: a bridge that gives addresses of both families. Source addresses are kept, so that other clusters see
/// those of the pods.
pub(super) fn cni(data: &str, ranges: &[String; 2]) -> Value {
    let [v4, v6] = ranges;
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": data,
                "ranges": [[{ "subnet": v4 }], [{ "subnet": v6 }]],
                "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
            },
        }, {
            "type": "portmap",
            "capabilities": { "portMappings": true },
        }],
    })
}

/// What kubelet is told of its surroundings.
#[derive(Debug)]
pub(super) struct Kubelet<'a> {
    pub(super) address: IpAddr,
    pub(super) cgroup_root: String,
    pub(super) ca: String,
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) dns: &'a str,
    pub(super) resolv_conf: String,
}

/// kubelet.
pub(super) fn kubelet(node: &Kubelet<'_>) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup_root,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "address": node.address,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": false },
            "x509": { "clientCAFile": node.ca },
        },
        "authorization": { "mode": "AlwaysAllow" },
        "tlsCertFile": node.certificate,
        "tlsPrivateKeyFile": node.key,
        "clusterDNS": [node.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": node.resolv_conf,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "failSwapOn": false,
        "readOnlyPort": 0,
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        // What is written shows at once; the defaults wait for up to a minute.
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
    })
}

/// kube-proxy. The sysctls of connection tracking cannot be written in a network namespace, so none are asked for.
pub(super) fn kube_proxy(mode: ProxyMode, node: &str, kubeconfig: &str, pods: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode.as_str(),
        "hostnameOverride": node,
        "clusterCIDR": pods,
        "clientConnection": { "kubeconfig": kubeconfig },
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
}
