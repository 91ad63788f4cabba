//! Clusters under test: names, clients, and where they come from. Reads a kubeconfig, writes nothing.

use std::path::{Path, PathBuf};

use k8s_openapi::{
    api::core::v1::{Namespace, Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, Resource as _, ResourceExt as _,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Serialize;
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};

/// A cluster of the clusterset.
#[derive(Clone)]
pub struct Cluster {
    /// Name for messages; not necessarily the id that the implementation knows it by.
    pub name: String,
    /// Its API server, as a user who may do everything.
    pub client: Client,
    /// A node without kubelet, whose pods the suite may report as running itself. None: cases with backends are not run.
    pub fake_node: Option<String>,
    /// Whether pods run there. If not, cases with pods that run are not run.
    pub runs_pods: bool,
}

/// Why the clusters cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be read.
    #[error("{}: expected a kubeconfig (YAML): {source}. Check the path, or make one with `kubectl config view --raw`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// The kubeconfig has no such context.
    #[error("{}: field contexts: expected a context `{context}`, has: {known}. Say `--contexts` with names of that list", path.display())]
    NoContext {
        /// The file.
        path: PathBuf,
        /// The context.
        context: String,
        /// Those that it has.
        known: String,
    },
    /// A context is there and unusable.
    #[error("{}: context `{context}`: expected a cluster and a user with readable credentials: {source}", path.display())]
    Context {
        /// The file.
        path: PathBuf,
        /// The context.
        context: String,
        /// What is wrong with it.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// A client cannot be made.
    #[error("{}: context `{context}`: expected usable TLS and proxy settings: {source}", path.display())]
    Client {
        /// The file.
        path: PathBuf,
        /// The context.
        context: String,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// Too few clusters.
    #[error(
        "--contexts: expected at least two different contexts, got {given}: multi-cluster services cannot be tested on less"
    )]
    TooFew {
        /// How many there are.
        given: usize,
    },
    /// The API is not served, or the user may not use it.
    #[error(
        "cluster {cluster}: expected {what} to be served and readable: {source}. Is the Multi-Cluster Services API (v1beta1) installed, and may this user read it in all namespaces?"
    )]
    NotServed {
        /// The cluster.
        cluster: String,
        /// What was asked for.
        what: &'static str,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The contexts of a kubeconfig, in that order.
pub async fn from_contexts(path: &Path, contexts: &[String]) -> Result<Vec<Cluster>, Error> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let mut distinct: Vec<_> = contexts.iter().collect();
    distinct.sort();
    distinct.dedup();
    if distinct.len() < 2 || distinct.len() < contexts.len() {
        return Err(Error::TooFew {
            given: distinct.len(),
        });
    }
    let mut clusters = Vec::new();
    for context in contexts {
        clusters.push(from_context(path, &kubeconfig, context).await?);
    }
    Ok(clusters)
}

async fn from_context(
    path: &Path,
    kubeconfig: &Kubeconfig,
    context: &str,
) -> Result<Cluster, Error> {
    let known: Vec<_> = kubeconfig
        .contexts
        .iter()
        .map(|known| known.name.as_str())
        .collect();
    if !known.contains(&context) {
        return Err(Error::NoContext {
            path: path.to_owned(),
            context: context.to_owned(),
            known: known.join(", "),
        });
    }
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
        .await
        .map_err(|source| Error::Context {
            path: path.to_owned(),
            context: context.to_owned(),
            source,
        })?;
    let client = Client::try_from(config).map_err(|source| Error::Client {
        path: path.to_owned(),
        context: context.to_owned(),
        source: Box::new(source),
    })?;
    Ok(Cluster {
        name: context.to_owned(),
        runs_pods: has_ready_node(&client).await,
        client,
        fake_node: None,
    })
}

/// Whether a cluster has a node that is ready. Where nodes cannot be listed there are none that are known of.
pub async fn has_ready_node(client: &Client) -> bool {
    let nodes = Api::<Node>::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map(|list| list.items).unwrap_or_default();
    let conditions = nodes.into_iter().filter_map(|node| node.status?.conditions);
    conditions
        .flatten()
        .any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Fails unless every cluster serves what the cases need, as the upstream suite does before its first spec.
pub async fn check(clusters: &[Cluster]) -> Result<(), Error> {
    let one = ListParams::default().limit(1);
    for Cluster { name, client, .. } in clusters {
        let not_served = |what| {
            move |source| Error::NotServed {
                cluster: name.clone(),
                what,
                source: Box::new(source),
            }
        };
        let exports = Api::<ServiceExport>::all(client.clone());
        exports
            .list(&one)
            .await
            .map_err(not_served("ServiceExport"))?;
        let imports = Api::<ServiceImport>::all(client.clone());
        imports
            .list(&one)
            .await
            .map_err(not_served("ServiceImport"))?;
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces
            .list(&one)
            .await
            .map_err(not_served("Namespace"))?;
    }
    Ok(())
}

/// What a report says about a cluster.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Version of its API server.
    pub kubernetes: String,
    /// Release and revision of its CRDs of the Multi-Cluster Services API, as their labels say.
    pub crds: String,
}

/// Asks clusters for their versions. What cannot be read is said in its place.
pub async fn facts(clusters: &[Cluster]) -> Vec<Facts> {
    let mut facts = Vec::new();
    for Cluster { name, client, .. } in clusters {
        let kubernetes = client.apiserver_version().await;
        let crds = Api::<CustomResourceDefinition>::all(client.clone());
        let name_of_crd = format!(
            "{}.{}",
            ServiceImport::plural(&()),
            ServiceImport::group(&())
        );
        let crd = crds.get(&name_of_crd).await;
        let labels = crd.map(|crd| {
            let label = |key| crd.labels().get(key).cloned().unwrap_or_default();
            format!(
                "{} revision {}",
                label(keys::CRD_RELEASE),
                label(keys::CRD_REVISION)
            )
        });
        facts.push(Facts {
            name: name.clone(),
            kubernetes: kubernetes.map_or_else(unknown, |info| info.git_version),
            crds: labels.unwrap_or_else(unknown),
        });
    }
    facts
}

fn unknown(error: kube::Error) -> String {
    format!("unknown: {error}")
}
