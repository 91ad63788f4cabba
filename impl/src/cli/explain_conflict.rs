//! `tombolo explain conflict`: why clusters are in conflict over an exported service, and what would end it.
//!
//! Applies the rules that the product applies, `evaluate` and `merge` of `tombolo_core`, to what clusters or files have; has
//! none of its own. Reads only. What could not be read is said, and makes the exit code 1: a part is not the whole.

mod advice;
mod document;
mod live;
mod manifests;
mod port_patch;
mod report;
mod text;
mod values;

use std::io::{self, Write};

use anyhow::{Context, Result};
use thiserror::Error;
use tombolo_core::{
    identity,
    names::{ClusterName, InvalidName, NamespacedName},
};

use super::{
    args::{ConflictArgs, Output},
    render,
};

pub use self::{document::Error as ManifestError, manifests::ManifestSource};

/// What `--help` says beyond the flags.
pub(super) const HELP: &str = "\
Examples:
  tombolo explain conflict web -n shop --kubeconfig ~/.kube/config --contexts paris,rome
  tombolo explain conflict web -n shop -f paris.yaml -f rome.yaml
  tombolo explain conflict web -n shop -f paris=clusters/paris/ -f rome=clusters/rome/

Exit codes:
  0  explained, whether there is a conflict or not
  1  incomplete: some cluster was not read
  2  bad input: a flag, a file, a kubeconfig

JSON (-o json), one object; members are added, never renamed or removed:
  namespace, name  of the service
  verdict          the answer in one sentence
  complete         false when a cluster was not read
  exports          [{cluster, since, wins}], oldest first; since is RFC 3339, null when not stated
  conflicts        [{reason, object, field, message, used, values, changes}], empty when all agree
    values         [{cluster, value, since, wins, agrees}], in the order of exports
    changes        [{cluster, object, field, to, file, commands}]; file is null for clusters, commands empty for files
  condition        {type, status, reason, message} that every exporting cluster's ServiceExport gets; null without exports
  recorded         [{cluster, matches, condition}], what the status says at present; only for clusters
  refused          [{cluster, reason, message, next}], exports that take no part
  notExporting     [cluster] that have no ServiceExport
  unread           [{cluster, error}]
  notes            [text]";

/// What the user has to say differently.
#[derive(Debug, Error)]
pub enum Error {
    /// `--names` is about a context that was not given.
    #[error(
        "--names: context {context} is not in --contexts; expected CONTEXT=CLUSTER for one of those; correct it"
    )]
    NoSuchContext {
        /// The context.
        context: String,
    },
    /// A context's name is no cluster name, and nothing else names the cluster.
    #[error("--contexts {context}: neither ClusterProperty {} nor --names says what the cluster is called, and as a name {source}; add --names {context}=CLUSTER", identity::CLUSTER.property)]
    Unnamed {
        /// The context.
        context: String,
        /// The rule.
        #[source]
        source: InvalidName,
    },
    /// `--names` contradicts the cluster.
    #[error("--names: context {context} is called {stated:?}, but there ClusterProperty {}: spec.value is {property:?} ({}); leave the context out of --names", identity::CLUSTER.property, identity::CLUSTER.rule)]
    Renamed {
        /// The context.
        context: String,
        /// What the property says.
        property: String,
        /// What the flag says.
        stated: String,
    },
    /// The cluster's own name cannot be used.
    #[error("context {context}: {source}")]
    Identity {
        /// The context.
        context: String,
        /// The rule.
        #[source]
        source: identity::Error,
    },
    /// Two contexts are one cluster, or two clusters have one name.
    #[error(
        "--contexts: {contexts} are both cluster {cluster}, and a mesh has each name once; give each cluster one context, or tell them apart with --names"
    )]
    SameName {
        /// The contexts.
        contexts: String,
        /// The name.
        cluster: ClusterName,
    },
}

/// Some cluster was not read.
#[derive(Debug, Error)]
#[error(
    "incomplete: not every cluster was read, so there may be other conflicts and another winner; see \"Not read\", mend that and ask again"
)]
struct Incomplete;

/// Reads, explains, prints.
pub(super) fn run(args: &ConflictArgs) -> Result<()> {
    let name = NamespacedName {
        namespace: args.namespace.clone(),
        name: args.name.clone(),
    };
    let gathered = if args.files.is_empty() {
        ask_clusters(args, &name)?
    } else {
        manifests::gather(&name, &args.files, args.default_global_namespace)?
    };
    let report = report::build(&name, gathered);
    let answer = match args.output {
        Output::Text => text::render(&report),
        Output::Json => render::json(&report).context("the answer cannot be written as JSON")?,
    };
    io::stdout()
        .write_all(answer.as_bytes())
        .context("cannot write to standard output")?;
    if report.complete {
        Ok(())
    } else {
        Err(Incomplete.into())
    }
}

fn ask_clusters(args: &ConflictArgs, name: &NamespacedName) -> Result<report::Gathered> {
    // A second installation fails, and that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let clusters = live::Clusters {
        kubeconfig: args.kubeconfig.as_deref(),
        contexts: &args.contexts,
        names: &args.names,
        default_global: args.default_global_namespace,
    };
    runtime.block_on(live::gather(name, &clusters))
}
