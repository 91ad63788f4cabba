//! An etcd by itself, for benches: in a container where there is a Docker engine, else a process of this machine.
//!
//! Which of them it is must be told with every figure, and is decided before anything is measured: in CI an engine that is
//! missing is an error, so that figures of one kind never take the place of the other's unseen.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    Assets, Engine, Error, MissingEngine, PortError, ProcessError, WaitError,
    api::{Port, Ports, etcd_flags},
    containers::{ContainerError, EtcdContainer},
    dialer::Dialer,
    engine::in_ci,
    eventually,
    probe::Probe,
    process::{Process, Program},
    run::Run,
};

/// Longest wait for an etcd that was started, on a busy machine.
const READY_BUDGET: Duration = Duration::from_secs(30);

/// What an etcd runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fixture {
    /// A container that testcontainers starts.
    Container,
    /// A process, because there is no engine.
    Process(MissingEngine),
}

impl fmt::Display for Fixture {
    /// As in ids of benches: `container` or `process`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Process(_) => "process",
        })
    }
}

impl Fixture {
    /// The one that this machine can have. In CI (`CI` is set) a missing engine is an error.
    pub async fn find() -> Result<Self, MissingEngine> {
        Self::choose(Engine::find().await.err(), in_ci())
    }

    fn choose(missing: Option<MissingEngine>, in_ci: bool) -> Result<Self, MissingEngine> {
        match missing {
            None => Ok(Self::Container),
            Some(missing) if in_ci => Err(missing),
            Some(missing) => Ok(Self::Process(missing)),
        }
    }

    /// Starts an etcd without data and waits until it takes requests.
    pub async fn start(&self) -> Result<LoneEtcd, LoneEtcdError> {
        Ok(LoneEtcd(match self {
            Self::Container => Running::Container(Box::new(EtcdContainer::start().await?)),
            Self::Process(_) => Running::Process(Box::new(EtcdProcess::start().await?)),
        }))
    }
}

/// Why there is no etcd.
#[derive(Debug, thiserror::Error)]
pub enum LoneEtcdError {
    /// Not in a container.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Its binary, its directory or its log is missing.
    #[error(transparent)]
    Testbed(#[from] Error),
    /// No free ports.
    #[error(transparent)]
    Ports(#[from] PortError),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] ProcessError),
    /// It does not answer.
    #[error(transparent)]
    NotReady(#[from] WaitError),
}

/// A real etcd. Dropping it, inside of a runtime, ends it and removes its data.
#[derive(Debug)]
pub struct LoneEtcd(Running);

#[derive(Debug)]
enum Running {
    Container(Box<EtcdContainer>),
    Process(Box<EtcdProcess>),
}

impl LoneEtcd {
    /// URL for clients.
    pub fn url(&self) -> String {
        match &self.0 {
            Running::Container(container) => container.url(),
            Running::Process(process) => format!("http://{}", process.address()),
        }
    }
}

/// The etcd of `make assets` on loopback. Whatever way this program ends, it ends too.
#[derive(Debug)]
struct EtcdProcess {
    // The process ends before its ports are free: fields drop in this order.
    process: Process,
    ports: Ports,
}

impl EtcdProcess {
    async fn start() -> Result<Self, LoneEtcdError> {
        let etcd = Assets::find().map_err(Error::from)?.etcd;
        let run = Arc::new(Run::start().map_err(Error::Run)?);
        let ports = Ports::claim()?;
        let data = run.directory().join("data").display().to_string();
        let program = Program {
            name: "etcd".to_owned(),
            enter: Vec::new(),
            path: etcd,
            args: etcd_flags(&data, &ports, Port::MeshEtcdClient, Port::MeshEtcdPeer),
            environment: Vec::new(),
            log: run.directory().join("etcd.log"),
        };
        let mut started = Self {
            process: Process::new(program, run),
            ports,
        };
        started.process.start()?;
        let probe = Probe::http(Dialer::Here, started.address(), "/health", "true");
        eventually(READY_BUDGET, "an etcd that answers", async || {
            probe.look().await
        })
        .await?;
        Ok(started)
    }

    fn address(&self) -> SocketAddr {
        self.ports.address(Port::MeshEtcdClient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_engine_is_told_and_an_error_in_ci() {
        let missing = MissingEngine::new("there is none");

        let laptop = Fixture::choose(Some(missing.clone()), false).unwrap();
        let ci = Fixture::choose(Some(missing.clone()), true);

        assert_eq!(laptop, Fixture::Process(missing.clone()));
        assert_eq!(laptop.to_string(), "process");
        assert_eq!(ci, Err(missing));
    }

    #[tokio::test]
    async fn an_engine_is_used_everywhere() {
        for in_ci in [false, true] {
            let fixture = Fixture::choose(None, in_ci).unwrap();

            assert_eq!(fixture, Fixture::Container);
            assert_eq!(fixture.to_string(), "container");
        }
    }

    #[tokio::test]
    async fn a_process_answers_and_ends_when_it_is_dropped() {
        let fixture = Fixture::Process(MissingEngine::new("not asked for"));

        let etcd = fixture.start().await.unwrap();
        let address = etcd.url().replace("http://", "").parse().unwrap();
        let answers = Probe::http(Dialer::Here, address, "/health", "true");
        answers.look().await.unwrap();
        drop(etcd);

        let gone = answers.look().await;
        assert!(gone.is_err(), "{address} still answers");
    }
}
