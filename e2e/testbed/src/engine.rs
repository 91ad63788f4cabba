//! The Docker engine of tests: the one that runs on this machine, or the private one that `tools/engine` starts.
//!
//! A private engine has a network namespace of its own, which `TOMBOLO_ENGINE_NET` names; what its containers publish is
//! reached there and nowhere else. No engine is ever started here.

use std::{
    env,
    fs::File,
    io,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, ExitCode, Output},
    sync::Arc,
    time::Duration,
};

use crate::{Forwarder, LocalError, command::Invocation, dialer::Dialer};

/// Environment variable with the file of the network namespace of a private engine; empty or not set for others.
const NETWORK: &str = "TOMBOLO_ENGINE_NET";

/// Longest that an engine may take to say that it is there.
const LOOK: Duration = Duration::from_secs(10);

/// A Docker engine that answers.
#[derive(Clone, Debug)]
pub struct Engine {
    docker: PathBuf,
    namespace: Option<(PathBuf, Arc<File>)>,
}

/// Why there is no Docker engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no Docker engine: {why}; start Docker, or run this by `tools/engine run`, which as root starts an engine of its own"
)]
pub struct MissingEngine {
    why: String,
}

#[cfg(all(test, feature = "containers"))]
impl MissingEngine {
    pub(crate) fn new(why: &str) -> Self {
        Self {
            why: why.to_owned(),
        }
    }
}

impl Engine {
    /// The engine that `DOCKER_HOST` and the user's settings name, when it answers.
    pub async fn find() -> Result<Self, MissingEngine> {
        let network = env::var_os(NETWORK).unwrap_or_default();
        Self::find_with("docker".into(), network.into()).await
    }

    async fn find_with(docker: PathBuf, network: PathBuf) -> Result<Self, MissingEngine> {
        let question = ["info", "--format", "{{.ServerVersion}}"];
        let asked = Invocation::new(&[], &docker, &question).within(LOOK);
        asked.succeed().await.map_err(|error| MissingEngine {
            why: error.to_string(),
        })?;
        let namespace = if network.as_os_str().is_empty() {
            None
        } else {
            let file = File::open(&network).map_err(|error| MissingEngine {
                why: format!("{NETWORK}={}: {error}", network.display()),
            })?;
            Some((network, Arc::new(file)))
        };
        Ok(Self { docker, namespace })
    }

    /// For test programs that need an engine: the exit code to end with where there is none, after saying why. In CI (`CI` is
    /// set) that is a failure; elsewhere `tools/test` lists it as not run.
    pub fn exit_without(what: &str) -> Option<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let found = runtime.map_or_else(
            |error| {
                Err(MissingEngine {
                    why: error.to_string(),
                })
            },
            |runtime| runtime.block_on(Self::find()),
        );
        Some(exit_code(&format!("{what}: {}", found.err()?)))
    }

    /// Whether it is the one of `tools/engine`, which reaches no registry.
    pub fn is_private(&self) -> bool {
        self.namespace.is_some()
    }

    /// An address of this process that leads to one that a container publishes.
    pub async fn forwarder(&self, published: SocketAddr) -> io::Result<Forwarder> {
        Forwarder::start_from(self.dialer(), published).await
    }

    /// Connections that start where published ports are reached.
    pub(crate) fn dialer(&self) -> Dialer {
        match &self.namespace {
            Some((_, file)) => Dialer::Inside(Arc::clone(file)),
            None => Dialer::Here,
        }
    }

    /// Command that goes where published ports are reached, and becomes what follows.
    pub(crate) fn enter(&self) -> Vec<String> {
        match &self.namespace {
            Some((path, _)) => vec!["nsenter".to_owned(), format!("--net={}", path.display())],
            None => Vec::new(),
        }
    }

    /// `docker` with arguments.
    pub(crate) fn docker(&self, arguments: &[&str]) -> Invocation {
        Invocation::new(&[], &self.docker, arguments)
    }

    /// The same, to its end, for callers that are not async.
    pub(crate) fn docker_now(&self, arguments: &[&str]) -> io::Result<Output> {
        Command::new(&self.docker).args(arguments).output()
    }

    /// What `docker` writes, without the last line end.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> Result<String, LocalError> {
        let output = self.docker(arguments).succeed().await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Says why something is not run here, and the exit code for that: failure in CI.
pub(crate) fn exit_code(why: &str) -> ExitCode {
    if in_ci() {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    println!("not run: {why}");
    ExitCode::SUCCESS
}

/// Whether `CI` is set: what is missing is a failure then.
pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_engine_is_one_message_that_says_how_to_get_one() {
        let missing = Engine::find_with("/does/not/exist".into(), PathBuf::new()).await;

        let message = missing.unwrap_err().to_string();
        for part in ["/does/not/exist info", "start Docker", "`tools/engine run`"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }

    #[tokio::test]
    async fn a_namespace_that_is_gone_is_named() {
        let missing = Engine::find_with("true".into(), "/does/not/exist".into()).await;

        let message = missing.unwrap_err().to_string();
        assert!(
            message.contains("TOMBOLO_ENGINE_NET=/does/not/exist"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn only_an_engine_with_a_namespace_is_entered() {
        let own = Engine::find_with("true".into(), "/proc/self/ns/net".into())
            .await
            .unwrap();
        let users = Engine::find_with("true".into(), PathBuf::new())
            .await
            .unwrap();

        assert!(own.is_private() && !users.is_private());
        assert_eq!(own.enter(), ["nsenter", "--net=/proc/self/ns/net"]);
        assert!(users.enter().is_empty());
    }
}
