//! A client for the API server, from a kubeconfig file or from inside a pod, with errors that say what to mend.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Api, Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::heard::Heard;

/// How long a connection attempt to the API server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the API server may be silent on a connection on which it owes something. Longer than [`WATCH_TIMEOUT_SECONDS`]: a
/// watch without events says nothing for so long.
const READ_TIMEOUT: Duration = Duration::from_secs(35);

/// After how long the API server is asked to end a watch; it is then watched on from where it was. A connection that swallows
/// what is sent cannot be told from one without events, and lasts no longer than this.
pub const WATCH_TIMEOUT_SECONDS: u32 = 25;

/// A client that could not be made.
#[derive(Debug, Error)]
pub enum Error {
    /// The kubeconfig file is missing, unreadable, not YAML, or lacks something.
    #[error("kubeconfig {}: {source}; expected a readable kubeconfig whose contexts, clusters and users exist; {next}", file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
        /// What to do.
        next: &'static str,
    },
    /// No file was named and the process does not run in a pod.
    #[error("no kubeconfig was named and this is not a pod: {source}; pass --kubeconfig FILE")]
    NotInCluster {
        /// Why the pod's own configuration could not be read.
        #[source]
        source: kube::config::InClusterError,
    },
    /// The configuration is readable but no client can be made from it.
    #[error(
        "cannot make a client for {server}: {source}; check server, certificate-authority and the user's credentials"
    )]
    Client {
        /// Address of the API server.
        server: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

/// Makes a client from a kubeconfig file and one of its contexts, or from the pod's own account when no file is named.
pub async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, Error> {
    listened_to(kubeconfig, context, &Heard::default()).await
}

/// As [`client`], with somebody who listens.
pub async fn listened_to(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    heard: &Heard,
) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        Some(file) => from_file(file, context).await?,
        None => Config::incluster().map_err(|source| Error::NotInCluster { source })?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // A connection that was idle does not owe an answer for that time.
    config.reset_reader_on_write = true;
    let server = config.cluster_url.to_string();
    match ClientBuilder::try_from(config) {
        Ok(client) => Ok(client.with_layer(heard).build()),
        Err(source) => Err(Error::Client { server, source }),
    }
}

/// How to watch with a client of [`client`].
pub fn watching() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS)
}

/// An object, or none: there is no such object, or its kind is not served. For the latter an API server answers with a page of
/// text, which says nothing but 404.
pub async fn get_if_served<K>(api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match api.get_opt(name).await {
        Err(error) if is_not_served(&error) => Ok(None),
        answer => answer,
    }
}

/// Whether the API server does not know what it was asked for.
pub fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

async fn from_file(file: &Path, context: Option<&str>) -> Result<Config, Error> {
    let failed = |source: KubeconfigError| {
        let next = next_step(&source);
        Error::Kubeconfig {
            file: file.to_owned(),
            source,
            next,
        }
    };
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = Kubeconfig::read_from(file).map_err(failed)?;
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(failed)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is kube's, and the advice is the same for the rest"
)]
fn next_step(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::CurrentContextNotSet => "set `current-context` or pass --context NAME",
        KubeconfigError::LoadContext(_) => {
            "pass the name of a context that is in the file with --context NAME"
        }
        KubeconfigError::ReadConfig(..) => "check the path and its permissions",
        _ => "mend the file, or write it anew with the tool that made it",
    }
}
