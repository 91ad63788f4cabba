//! The command line and its flags; those of roles are in [`super::role_args`]. Help texts are written there and nowhere else.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser},
};
use jiff::SignedDuration;
use tombolo_core::names::{ClusterName, Namespace, ServiceName};

use super::{
    certs, connect,
    dns::args::Dns,
    explain_conflict::{self, ManifestSource},
    role_args::Role,
    status,
};
use crate::telemetry::logs::Format;

/// Multi-cluster Services for Kubernetes, compatible with Cilium ClusterMesh.
#[derive(Debug, Parser)]
#[command(name = "tombolo", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Level, or directives such as `info,tombolo::mesh=debug`.
    #[arg(long, global = true, default_value = "info", env = "TOMBOLO_LOG")]
    pub log_level: String,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one role of Tombolo until it is told to stop.
    #[command(subcommand)]
    Run(Role),
    /// Print the CustomResourceDefinitions of ServiceExport and ServiceImport as YAML.
    Crds,
    /// Make the certificates of a mesh etcd and its clients, or see what is wrong with some.
    #[command(subcommand, after_long_help = certs::HELP)]
    Certs(certs::Certs),
    /// Have cluster DNS answer names of imported services.
    #[command(subcommand)]
    Dns(Dns),
    /// Explain what the mesh does with a service, and what to change.
    #[command(subcommand)]
    Explain(Explain),
    /// Tell whether this cluster and its peers are up to date with each other, and what to do when they are not.
    #[command(after_long_help = status::HELP)]
    Status(StatusArgs),
    /// Let clusters read what each other exports.
    #[command(after_long_help = connect::HELP)]
    Connect(connect::ConnectArgs),
    /// Undo that.
    #[command(after_long_help = connect::DISCONNECT_HELP)]
    Disconnect(connect::DisconnectArgs),
}

/// Flags of `tombolo status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Health address of a role, such as http://127.0.0.1:9879; may be repeated. Without any, all pods with the label
    /// app.kubernetes.io/name=tombolo are asked through the API server of the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub address: Vec<String>,
    /// Kubeconfig of the cluster; the pod's own account when absent.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_parser = kubeconfig())]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig; its current context when absent.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// How to say it.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// List all peers, also those with which all is well, when there are more than 20.
    #[arg(long)]
    pub all: bool,
    /// Ask again and again until everything is well.
    #[arg(long)]
    pub wait: bool,
    /// How long to ask at most; 15s by default, with --wait 15m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// What can be explained.
#[derive(Debug, Subcommand)]
pub enum Explain {
    /// Why clusters are in conflict over an exported service: who wants what, who wins, since when, what to change.
    #[command(after_long_help = explain_conflict::HELP)]
    Conflict(ConflictArgs),
}

/// Flags of `tombolo explain conflict`.
#[derive(Debug, Clone, Args)]
pub struct ConflictArgs {
    /// Name of the Service, ServiceExport and ServiceImport.
    pub name: ServiceName,
    /// Their namespace.
    #[arg(long, short, default_value = "default")]
    pub namespace: Namespace,
    /// How to say it.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Kubeconfig with a context for each cluster.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_parser = kubeconfig())]
    pub kubeconfig: Option<PathBuf>,
    /// Contexts of all clusters of the mesh. A cluster is called as its ClusterProperty cluster.clusterset.k8s.io says, else as
    /// its context.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,NAME",
        requires = "kubeconfig",
        required_unless_present = "files"
    )]
    pub contexts: Vec<String>,
    /// What the clusters of contexts are called in the mesh, where neither property nor context says it.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTEXT=CLUSTER",
        value_parser = cluster_of_context,
        requires = "contexts"
    )]
    pub names: Vec<(String, ClusterName)>,
    /// Manifests of a cluster: YAML or JSON with its Service, ServiceExport and Namespace, or a directory of such files. Without
    /// CLUSTER= a file belongs to the cluster of its name: paris.yaml to paris. Needs no cluster.
    #[arg(
        long = "file",
        short = 'f',
        value_name = "[CLUSTER=]FILE",
        value_parser = ManifestSource::parse,
        conflicts_with = "contexts"
    )]
    pub files: Vec<ManifestSource>,
    /// Whether namespaces without the annotation clustermesh.cilium.io/global are global.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub default_global_namespace: bool,
}

/// How an answer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Sentences and tables.
    Text,
    /// One JSON object.
    Json,
}

fn cluster_of_context(text: &str) -> Result<(String, ClusterName), String> {
    let (context, cluster) = text.split_once('=').ok_or("expected CONTEXT=CLUSTER")?;
    let cluster = ClusterName::try_from(cluster).map_err(|error| error.to_string())?;
    Ok((context.to_owned(), cluster))
}

/// Parses the name of a kubeconfig. An empty one, as of a variable that was emptied, is none.
pub(super) fn kubeconfig() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Parses `15m`, `90s`, `1h 30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let expected = "expected a duration such as 90s, 15m or 1h";
    let signed: SignedDuration = text
        .parse()
        .map_err(|error| format!("{expected}: {error}"))?;
    Duration::try_from(signed).map_err(|_| format!("{expected}, not a negative one"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
