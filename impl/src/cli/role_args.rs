//! The roles and their flags.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use tombolo_core::names::{ClusterId, ClusterName, Namespace};

use super::{
    args::{duration, kubeconfig},
    peer_args::PeerArgs,
};
use crate::operator::apply::{Pace, Rate};

/// The roles.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Publish this cluster's exports and global services into its etcd, and copy there what peers publish if asked to.
    Mesh(MeshArgs),
    /// Import what the peers publish: ServiceImports, derived Services, EndpointSlices, conditions.
    Operator(OperatorArgs),
}

/// What every role needs to know of its own cluster.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster; the pod's own account when absent.
    #[arg(long, env = "KUBECONFIG", value_parser = kubeconfig())]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig; its current context when absent.
    #[arg(long, requires = "kubeconfig")]
    pub context: Option<String>,
    /// Name of this cluster, unique in the mesh: an RFC 1123 label of at most 32 characters. May be left out when the
    /// cluster has the ClusterProperty cluster.clusterset.k8s.io (About API), and has to equal it otherwise.
    #[arg(long)]
    pub cluster_name: Option<ClusterName>,
    /// Name of the ClusterSet; has to equal the ClusterProperty clusterset.k8s.io where there is one.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub clusterset_name: Option<String>,
    /// Id of this cluster, unique in the mesh: 1 to 255, or to 511 with --max-connected-clusters 511.
    #[arg(long)]
    pub cluster_id: ClusterId,
    /// Size of the mesh's id space, 255 or 511, equal in all clusters.
    #[arg(long, default_value_t = 255, value_parser = max_connected_clusters)]
    pub max_connected_clusters: u32,
    /// Whether namespaces without the annotation clustermesh.cilium.io/global are global.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub default_global_namespace: bool,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "127.0.0.1:9879")]
    pub health_address: SocketAddr,
}

/// Flags of `tombolo run mesh`.
#[derive(Debug, Clone, Args)]
pub struct MeshArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Endpoints of this cluster's mesh etcd, comma-separated URLs.
    #[arg(
        long,
        value_delimiter = ',',
        required_unless_present = "etcd_config",
        conflicts_with = "etcd_config"
    )]
    pub etcd_endpoints: Vec<String>,
    /// File with endpoints and TLS files of this cluster's mesh etcd, in Cilium's format.
    #[arg(long)]
    pub etcd_config: Option<PathBuf>,
    /// Lifetime of the leases under which records are written, for instance `15m`; from 25s to 24h.
    #[arg(long, default_value = "15m", value_parser = lease_ttl)]
    pub lease_ttl: Duration,
    /// Make Cilium's users and roles in this cluster's mesh etcd and let it ask who calls, so that peers only read. Needs
    /// --etcd-config with the certificate of admin-NAME, and an etcd that runs with --client-cert-auth.
    #[arg(long, requires = "etcd_config")]
    pub etcd_access_control: bool,
    /// Make the etcd users of single peers that the file lists, and delete those that it no longer lists. Includes
    /// --etcd-access-control.
    #[arg(long, requires = "etcd_config")]
    pub cluster_users_enabled: bool,
    /// File with the etcd users of peers, in Cilium's format; it is followed.
    #[arg(long, default_value = "/var/lib/cilium/etcd-config/users.yaml")]
    pub cluster_users_config_path: PathBuf,
    /// Copies of peers.
    #[command(flatten)]
    pub reflector: ReflectorArgs,
    /// The peers that are copied.
    #[command(flatten)]
    pub peers: PeerArgs,
}

/// Flags of the part of `tombolo run mesh` that copies what peers publish, named as those of Cilium's kvstoremesh.
#[derive(Debug, Clone, Args)]
pub struct ReflectorArgs {
    /// Directory with one file per peer, named as the peer, in Cilium's format: what these peers publish is copied into this
    /// cluster's mesh etcd, under cilium/cache. Without it the role only publishes.
    #[arg(long)]
    pub clustermesh_config: Option<PathBuf>,
    /// How long after the start a peer that cannot be reached is waited for before the copies are offered, for instance `15s`.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub per_cluster_ready_timeout: Duration,
    /// How long after the start any peer is waited for before the copies are offered.
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub global_ready_timeout: Duration,
    /// Keep the copy of a peer that was taken out of the directory. Else it is deleted after 3 minutes.
    #[arg(
        long,
        default_value_t = false,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub disable_drain_on_disconnection: bool,
}

/// Flags of `tombolo run operator`.
#[derive(Debug, Clone, Args)]
pub struct OperatorArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Directory with one file per peer, named as the peer, in Cilium's format.
    #[arg(long)]
    pub clustermesh_config: PathBuf,
    /// The peers.
    #[command(flatten)]
    pub peers: PeerArgs,
    /// Install and upgrade the CRDs at the start; they are never downgraded.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub install_crds: bool,
    /// Which of several replicas writes.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Writes to the API server per second, at most.
    #[arg(long, default_value = "200")]
    pub kube_api_qps: NonZeroU32,
    /// Writes to the API server that may be made at once after a while without any.
    #[arg(long, default_value = "1000")]
    pub kube_api_burst: NonZeroU32,
}

impl OperatorArgs {
    /// How fast the operator may write.
    pub fn pace(&self) -> Pace {
        Pace::limited(Rate {
            per_second: self.kube_api_qps,
            burst: self.kube_api_burst,
        })
    }
}

/// Flags of the election among replicas of the operator. They have to be the same for all.
#[derive(Debug, Clone, Args)]
pub struct ElectionArgs {
    /// Whether replicas elect one that writes, by a Lease. Without it there must be only one replica.
    #[arg(long, alias = "leader-elect", default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_election: bool,
    /// How long the other replicas wait for a renewal before they take over from a leader that died.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,
    /// How long the leader goes on writing without a renewal; shorter than the lease duration.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,
    /// Time between renewals, and between two looks of another replica.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
    /// Namespace of the Lease; that of the pod, or of the kubeconfig's context, when absent.
    #[arg(long)]
    pub leader_election_namespace: Option<Namespace>,
}

/// Parses a lease's lifetime and holds it to the range of Cilium's `--kvstore-lease-ttl`.
fn lease_ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    let range = Duration::from_secs(25)..=Duration::from_hours(24);
    if range.contains(&ttl) {
        Ok(ttl)
    } else {
        Err("expected 25s to 24h".to_owned())
    }
}

fn max_connected_clusters(text: &str) -> Result<u32, String> {
    match text {
        "255" => Ok(255),
        "511" => Ok(511),
        _ => Err("expected 255 or 511".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn parse(flags: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(flags.split_whitespace())
    }

    #[test]
    fn the_flags_of_kvstoremesh_are_those_of_cilium() {
        let mesh = "tombolo run mesh --cluster-name a --cluster-id 1 --etcd-endpoints http://x";
        let flags = |more: &str| {
            let command = parse(&format!("{mesh} {more}")).unwrap().command;
            let Command::Run(Role::Mesh(args)) = command else {
                panic!("{command:?}");
            };
            args.reflector
        };

        let (none, all) = (
            flags(""),
            flags(
                "--clustermesh-config /var/lib/cilium/clustermesh --per-cluster-ready-timeout 1s \
                 --global-ready-timeout 2m --disable-drain-on-disconnection",
            ),
        );

        assert_eq!(none.clustermesh_config, None);
        let times = (none.per_cluster_ready_timeout, none.global_ready_timeout);
        assert_eq!(times, (Duration::from_secs(15), Duration::from_mins(10)));
        assert!(!none.disable_drain_on_disconnection && all.disable_drain_on_disconnection);
        let times = (all.per_cluster_ready_timeout, all.global_ready_timeout);
        assert_eq!(times, (Duration::from_secs(1), Duration::from_mins(2)));
    }

    #[test]
    fn bad_flags_say_what_was_expected() {
        let mesh = "tombolo run mesh --cluster-name a --cluster-id 1 --etcd-endpoints http://x";
        let cases = [
            (
                "tombolo run mesh --cluster-name A --cluster-id 1",
                "expected 1 to 32 of a-z",
            ),
            (
                "tombolo run mesh --cluster-name a --cluster-id 0",
                "expected a number from 1 to 511",
            ),
            (&format!("{mesh} --lease-ttl 3s"), "expected 25s to 24h"),
            (
                &format!("{mesh} --per-cluster-ready-timeout soon"),
                "expected a duration such as",
            ),
            (
                &format!("{mesh} --disable-drain-on-disconnection=perhaps"),
                "true, false",
            ),
            (
                &format!("{mesh} --lease-ttl soon"),
                "expected a duration such as",
            ),
            (
                &format!("{mesh} --max-connected-clusters 300"),
                "expected 255 or 511",
            ),
            (
                "tombolo run mesh --cluster-name a --cluster-id 1",
                "--etcd-endpoints",
            ),
            (
                "tombolo run operator --cluster-name a --cluster-id 1",
                "--clustermesh-config",
            ),
        ];

        for (flags, expected) in cases {
            let error = parse(flags).expect_err(flags);
            assert!(error.to_string().contains(expected), "{flags}: {error}");
            assert_eq!(error.exit_code(), 2, "{flags}");
        }
    }
}
