//! Flags of `tombolo certs`.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use tombolo_core::names::ClusterName;

/// What can be done with certificates.
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// Make the certificates of one cluster: an authority, unless one is given, the server of its mesh etcd, and the clients.
    Make(MakeArgs),
    /// Say whom the certificates of a directory are for, how long they hold, and what is wrong with them.
    Show(ShowArgs),
    /// Write the authorities of several files into one: during a change of authority, or for a mesh with several.
    Bundle(BundleArgs),
}

/// Flags of `tombolo certs make`.
#[derive(Debug, Clone, Args)]
pub struct MakeArgs {
    /// Where the files go; made when it does not exist.
    pub dir: PathBuf,
    /// Name of the cluster whose mesh etcd it is.
    #[arg(long)]
    pub cluster_name: ClusterName,
    /// Make a client certificate remote-NAME for this peer too: needed where peers do not share the authority.
    #[arg(long = "peer", value_delimiter = ',', value_name = "NAME")]
    pub peers: Vec<ClusterName>,
    /// Certificate of the authority that signs; without it a new authority is made. May be a bundle that contains it.
    #[arg(long, value_name = "FILE", requires = "ca_key")]
    pub ca_cert: Option<PathBuf>,
    /// Key of that authority.
    #[arg(long, value_name = "FILE", requires = "ca_cert")]
    pub ca_key: Option<PathBuf>,
    /// Authorities of other clusters, to be trusted beside the own one.
    #[arg(long = "trust", value_delimiter = ',', value_name = "FILE")]
    pub trusted: Vec<PathBuf>,
    /// Further host name or IP address by which clients reach the server.
    #[arg(long = "san", value_delimiter = ',', value_name = "NAME|IP", value_parser = San::parse)]
    pub sans: Vec<San>,
    /// Namespace of the server's Service, and of the Secrets.
    #[arg(long, short, default_value = "kube-system")]
    pub namespace: tombolo_core::names::Namespace,
    /// As whom this cluster shows itself to peers, in the Secrets: Cilium's clustermesh.apiserver.tls.authMode.
    #[arg(long, value_enum, default_value_t = AuthMode::Migration)]
    pub auth_mode: AuthMode,
    /// How long they hold, in days. 1095 as Cilium's.
    #[arg(long, default_value_t = 1095, value_parser = clap::value_parser!(u16).range(1..=36500))]
    pub validity_days: u16,
    /// Replace files that exist.
    #[arg(long)]
    pub force: bool,
    /// What is printed, once the files are written.
    #[arg(long, short, value_enum, default_value_t = MakeOutput::Files)]
    pub output: MakeOutput,
}

/// What `make` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MakeOutput {
    /// The names of the files and whom they are for.
    Files,
    /// Kubernetes Secrets as YAML, with Cilium's names. Contains keys; not for a terminal.
    Secrets,
}

/// Which client certificate a cluster shows to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthMode {
    /// `remote`, as all clusters.
    Legacy,
    /// `remote`, while users `remote-NAME` exist already.
    Migration,
    /// `remote-NAME`, of the authority that all share.
    Cluster,
}

/// Flags of `tombolo certs show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// A directory with NAME.crt and NAME.key, such as `make` writes, or a mounted Secret.
    pub dir: PathBuf,
}

/// Flags of `tombolo certs bundle`.
#[derive(Debug, Clone, Args)]
pub struct BundleArgs {
    /// Files with certificates of authorities, PEM.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where they go.
    #[arg(long, value_name = "FILE")]
    pub into: PathBuf,
    /// Replace the file when it exists.
    #[arg(long)]
    pub force: bool,
}

/// A name or address that a server is reached by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum San {
    /// A host name; the first label may be `*`.
    Name(String),
    /// An IP address.
    Ip(IpAddr),
}

impl San {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let label = |label: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            (1..=63).contains(&label.len())
                && label.chars().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let rest = text.strip_prefix("*.").unwrap_or(text);
        if text.len() <= 253 && rest.split('.').all(label) {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err("expected an IP address or a host name in lower case, such as paris.mesh.example or *.mesh.example".to_owned())
        }
    }
}
