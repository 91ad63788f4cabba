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
    let files = kubeconfig.map(listed).unwrap_or_default();
    from_files_listened_to(&files, context, heard).await
}

/// As [`client`], from several kubeconfigs. A context counts as the first file that has it says; a cluster or user that this file
/// lacks may be in another one. Of several, those that do not exist are passed over.
pub async fn from_files(files: &[PathBuf], context: Option<&str>) -> Result<Client, Error> {
    from_files_listened_to(files, context, &Heard::default()).await
}

/// The files that a value of `KUBECONFIG` names: one, or several with colons in between, of which empty ones are none.
fn listed(value: &Path) -> Vec<PathBuf> {
    if value.exists() {
        return vec![value.to_owned()];
    }
    let files = std::env::split_paths(value);
    files.filter(|it| !it.as_os_str().is_empty()).collect()
}

async fn from_files_listened_to(
    files: &[PathBuf],
    context: Option<&str>,
    heard: &Heard,
) -> Result<Client, Error> {
    let mut config = if files.is_empty() {
        Config::incluster().map_err(|source| Error::NotInCluster { source })?
    } else {
        of_files(files, context).await?
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

/// What an API server said, without the answer's inner parts; what else went wrong as kube says it.
pub fn said(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    error.to_string()
}

/// Whether the API server does not know what it was asked for.
pub fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

async fn of_files(files: &[PathBuf], context: Option<&str>) -> Result<Config, Error> {
    let failed = |file: &Path, source: KubeconfigError| {
        let next = next_step(&source);
        Error::Kubeconfig {
            file: file.to_owned(),
            source,
            next,
        }
    };
    let there: Vec<_> = files.iter().filter(|it| it.exists()).collect();
    // When none exists, the error of the first says so.
    let there = if there.is_empty() {
        vec![&files[0]]
    } else {
        there
    };
    let mut read = Vec::new();
    for file in there {
        read.push((
            file,
            Kubeconfig::read_from(file).map_err(|source| failed(file, source))?,
        ));
    }
    let has = |it: &Kubeconfig| {
        let mut names = it.contexts.iter().map(|it| it.name.as_str());
        context.is_some_and(|context| names.any(|name| name == context))
    };
    read.sort_by_key(|(_, kubeconfig)| !has(kubeconfig));
    let first = read[0].0;
    let mut merged = Kubeconfig::default();
    for (file, kubeconfig) in read {
        merged = merged
            .merge(kubeconfig)
            .map_err(|source| failed(file, source))?;
    }
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(merged, &options)
        .await
        .map_err(|source| failed(first, source))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig with a cluster, a user and a context of one name, as far as it is to have them.
    fn kubeconfig(names: &[&str], clusters: &[(&str, &str)]) -> String {
        let contexts = names.iter().map(|name| {
            format!("- {{name: {name}, context: {{cluster: kubernetes, user: admin}}}}\n")
        });
        let contexts: String = contexts.collect();
        let clusters = clusters.iter().map(|(name, host)| {
            format!("- {{name: {name}, cluster: {{server: 'https://{host}'}}}}\n")
        });
        let clusters: String = clusters.collect();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n{contexts}clusters:\n{clusters}users:\n- {{name: admin, user: {{token: t}}}}\n"
        )
    }

    async fn server(files: &[PathBuf], context: &str) -> String {
        let config = of_files(files, Some(context)).await;
        config.map_or_else(|error| error.to_string(), |it| it.cluster_url.to_string())
    }

    #[tokio::test]
    async fn of_several_files_the_one_with_the_context_counts_and_others_complete_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let a = file("a", kubeconfig(&["a"], &[("kubernetes", "a.example.org")]));
        let b = file("b", kubeconfig(&["b"], &[("kubernetes", "b.example.org")]));
        let contexts = file("contexts", kubeconfig(&["c"], &[]));
        let absent = directory.path().join("absent");
        let files = [absent.clone(), a.clone(), b];

        assert_eq!(server(&files, "a").await, "https://a.example.org/");
        assert_eq!(server(&files, "b").await, "https://b.example.org/");
        let split = [contexts.clone(), a];
        assert_eq!(server(&split, "c").await, "https://a.example.org/");
        let alone = server(&[contexts], "c").await;
        assert!(alone.contains("failed to load the cluster"), "{alone}");
        let none = server(std::slice::from_ref(&absent), "a").await;
        assert!(none.contains("check the path"), "{none}");
    }

    #[test]
    fn a_variable_lists_files_with_colons_and_empty_ones_are_none() {
        let all = |value: &str| listed(Path::new(value));

        assert_eq!(all(""), Vec::<PathBuf>::new());
        assert_eq!(all("/absent/a:"), [PathBuf::from("/absent/a")]);
        assert_eq!(all("/absent/a::/absent/b").len(), 2);
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("a:b");
        std::fs::write(&odd, "").unwrap();
        assert_eq!(listed(&odd), [odd]);
    }

    #[test]
    fn an_api_server_is_quoted_without_the_inside_of_its_answer() {
        let status = kube::core::Status::failure("field is immutable", "Invalid").with_code(422);

        assert_eq!(
            said(&kube::Error::Api(Box::new(status))),
            "field is immutable"
        );
    }
}
