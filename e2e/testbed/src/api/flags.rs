//! Flags of etcd, kube-apiserver and kube-controller-manager, for a control plane without nodes and for one that has one.

use super::{
    certificates::Certificates,
    network::{Network, Port, Ports},
};

/// Controllers that act on nodes: they would find the fake node dead and remove its pods.
const CONTROLLERS: &str = "*,-node-lifecycle-controller,-taint-eviction-controller,\
                           -pod-garbage-collector-controller,-node-ipam-controller";

/// etcd on `client` and `peer`, a cluster of one member; the same flags make the same cluster id.
///
/// Written data is not forced to the disk: a test machine that loses power has no state to save.
pub(crate) fn etcd(data: &str, ports: &Ports, client: Port, peer: Port) -> Vec<String> {
    let (client, peer) = (ports.url(client), ports.url(peer));
    vec![
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

/// kube-apiserver.
pub(super) fn api_server(
    certificates: &Certificates,
    network: Network,
    ports: &Ports,
) -> Vec<String> {
    let address = ports.address(Port::ApiServer);
    let mut flags = vec![
        format!("--etcd-servers={}", ports.url(Port::EtcdClient)),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--tls-cert-file={}", certificates.file("apiserver.crt")),
        format!(
            "--tls-private-key-file={}",
            certificates.file("apiserver.key")
        ),
        format!("--client-ca-file={}", certificates.file("ca.crt")),
        format!("--cert-dir={}", certificates.file("run")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", certificates.file("sa.pub")),
        format!(
            "--service-account-signing-key-file={}",
            certificates.file("sa.key")
        ),
        format!("--service-cluster-ip-range={}", network.services()),
    ];
    flags.extend(match ports {
        // Fake pods need no account, and must not have to wait until a new namespace has one.
        Ports::Loopback(_) | Ports::Beside(..) => vec![
            "--endpoint-reconciler-type=none".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ],
        Ports::Node(ip) => vec![
            format!("--advertise-address={ip}"),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-certificate-authority={}",
                certificates.file("ca.crt")
            ),
            format!(
                "--kubelet-client-certificate={}",
                certificates.file("admin.crt")
            ),
            format!("--kubelet-client-key={}", certificates.file("admin.key")),
        ],
    });
    flags
}

/// kube-controller-manager. Without credentials per controller and with a high request rate it does its first work
/// after 0.4 s instead of 5 s; it then needs the administrator's kubeconfig.
pub(super) fn controller_manager(
    certificates: &Certificates,
    network: Network,
    ports: &Ports,
    kubeconfig: &str,
) -> Vec<String> {
    let mut flags = vec![
        format!("--kubeconfig={kubeconfig}"),
        format!(
            "--service-account-private-key-file={}",
            certificates.file("sa.key")
        ),
        format!("--root-ca-file={}", certificates.file("ca.crt")),
        format!("--cert-dir={}", certificates.file("run")),
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=false".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--service-cluster-ip-range={}", network.services()),
        format!("--cluster-cidr={}", network.pods()),
        "--allocate-node-cidrs=true".to_owned(),
        "--node-cidr-mask-size-ipv4=24".to_owned(),
        "--node-cidr-mask-size-ipv6=112".to_owned(),
    ];
    if let Ports::Loopback(_) = ports {
        flags.push(format!("--controllers={CONTROLLERS}"));
    }
    flags
}
