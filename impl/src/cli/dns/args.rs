//! Flags of `tombolo dns`. Help texts are written here and nowhere else.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{
    corefile::{Zone, Zones},
    version::Version,
};
use crate::cli::args::{duration, kubeconfig};

/// What can be done about cluster DNS.
#[derive(Debug, Subcommand)]
pub enum Dns {
    /// Have CoreDNS answer names of imported services: its Corefile, its rights, and the cache on nodes if there is one.
    #[command(after_long_help = super::HELP)]
    Configure(ConfigureArgs),
}

/// Flags of `tombolo dns configure`.
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// Kubeconfig of the cluster; the pod's own account when absent.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_parser = kubeconfig())]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig; its current context when absent.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Change nothing; say what is missing, and end with exit code 1 when something is.
    #[arg(long, conflicts_with_all = ["dry_run", "undo"])]
    pub check: bool,
    /// Change nothing; show what would be changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Take back what was configured.
    #[arg(long)]
    pub undo: bool,
    /// Look at objects only; do not ask the pods of CoreDNS whether they answer.
    #[arg(long)]
    pub objects_only: bool,
    /// How long to wait for the pods of CoreDNS to answer.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "4m")]
    pub timeout: Duration,
    /// Namespace of CoreDNS.
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub coredns_namespace: String,
    /// Deployment of CoreDNS.
    #[arg(long, value_name = "NAME", default_value = "coredns")]
    pub coredns_deployment_name: String,
    /// ConfigMap with the Corefile.
    #[arg(long, value_name = "NAME", default_value = "coredns")]
    pub coredns_configmap_name: String,
    /// Account of CoreDNS; by default the one that the Deployment names.
    #[arg(long, value_name = "NAME")]
    pub coredns_service_account_name: Option<String>,
    /// Version of CoreDNS, such as 1.12.2, where the tag of its image does not tell.
    #[arg(long, value_name = "VERSION")]
    pub coredns_version: Option<Version>,
    /// Zone of the cluster.
    #[arg(
        long,
        value_name = "ZONE",
        default_value = "cluster.local",
        alias = "coredns-cluster-domain"
    )]
    pub cluster_domain: Zone,
    /// Zone of the ClusterSet.
    #[arg(
        long,
        value_name = "ZONE",
        default_value = "clusterset.local",
        alias = "coredns-clusterset-domain"
    )]
    pub clusterset_domain: Zone,
}

impl ConfigureArgs {
    /// Both zones.
    pub fn zones(&self) -> Zones {
        Zones {
            cluster: self.cluster_domain.clone(),
            clusterset: self.clusterset_domain.clone(),
        }
    }
}
