//! For tests: a real etcd on loopback that can be killed, restarted and emptied, and waiting on conditions.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use tempfile::TempDir;
use tombolo_testbed::{Assets, ClaimedPorts};

pub(crate) use super::testing_subject::{Subject, brief_ttl, budget, eventually};
use super::{KvStore as _, config::EtcdConfig, etcd::EtcdStore, memory::MemoryStore};

/// Tests of behaviours that are functions over [`Subject`]: each runs on the store in memory and on a real etcd.
macro_rules! battery {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(<$crate::kvstore::testing::Memory as $crate::kvstore::testing::Subject>::start().await).await;
            })+
        }
        mod etcd {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(<$crate::kvstore::testing::Etcd as $crate::kvstore::testing::Subject>::start().await).await;
            })+
        }
        mod etcd_behind_a_slow_network {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(<$crate::kvstore::testing_proxy::SlowEtcd as $crate::kvstore::testing::Subject>::start().await).await;
            })+
        }
    };
}

pub(crate) use battery;

/// A store in memory, to be broken.
pub(crate) struct Memory(MemoryStore);

impl Subject for Memory {
    type Store = MemoryStore;

    async fn start() -> Self {
        Self(MemoryStore::new("memory"))
    }

    fn store(&self) -> MemoryStore {
        self.0.clone()
    }

    async fn compact(&self) {
        self.0.compact();
    }

    async fn stop(&mut self) {
        self.0.set_reachable(false);
    }

    async fn resume(&mut self) {
        self.0.set_reachable(true);
    }

    async fn wipe(&mut self) {
        self.0.wipe(false);
        self.0.set_reachable(true);
    }
}

/// A real etcd, to be broken.
pub(crate) struct Etcd {
    dir: TempDir,
    ports: ClaimedPorts,
    scheme: &'static str,
    name: &'static str,
    arguments: Vec<OsString>,
    child: Option<Child>,
}

impl Etcd {
    /// Starts an etcd; `tls` are its arguments for TLS, in which case readiness is the caller's business.
    pub(crate) fn launch(tls: Vec<OsString>) -> Self {
        let scheme = if tls.is_empty() { "http" } else { "https" };
        Self::new(scheme, "a", tls)
    }

    /// Starts an etcd with more arguments; readiness is the caller's business.
    pub(crate) fn launch_with(arguments: &[&str]) -> Self {
        Self::new("http", "a", arguments.iter().map(Into::into).collect())
    }

    /// Starts an etcd that is another cluster, with another id; readiness is the caller's business.
    pub(crate) fn launch_as(name: &'static str) -> Self {
        Self::new("http", name, Vec::new())
    }

    fn new(scheme: &'static str, name: &'static str, arguments: Vec<OsString>) -> Self {
        let mut etcd = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            ports: ClaimedPorts::claim().expect("free ports"),
            scheme,
            name,
            arguments,
            child: None,
        };
        etcd.spawn();
        etcd
    }

    /// URL for clients.
    pub(crate) fn url(&self) -> String {
        let [client, _] = self.ports.addresses();
        format!("{}://{client}", self.scheme)
    }

    /// Kills it and starts it again with its data and the same arguments.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.spawn();
    }

    /// Kills it and starts it again without its data.
    pub(crate) fn restart_empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path().join("data")).expect("the data is there");
        self.spawn();
    }

    fn spawn(&mut self) {
        let client = self.url();
        let [_, peer] = self.ports.addresses();
        let peer = format!("http://{peer}");
        let log = std::fs::File::create(self.dir.path().join("log")).expect("a log file");
        let mut command = Command::new(binary());
        command
            .arg("--data-dir")
            .arg(self.dir.path().join("data"))
            .args(["--name", self.name, "--log-level", "warn"])
            .arg("--unsafe-no-fsync")
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("{}={peer}", self.name)])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(command.spawn().expect("etcd starts"));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _status = child.wait();
        }
    }

    async fn ready(&self) {
        eventually("etcd answers", async || {
            self.store().get("probe").await.is_ok()
        })
        .await;
    }
}

impl Subject for Etcd {
    type Store = EtcdStore;

    async fn start() -> Self {
        let etcd = Self::launch(Vec::new());
        etcd.ready().await;
        etcd
    }

    fn store(&self) -> EtcdStore {
        EtcdStore::new(EtcdConfig::from_urls(&[self.url()]).expect("a good URL"))
    }

    async fn compact(&self) {
        let revision = self
            .store()
            .get("probe")
            .await
            .expect("etcd answers")
            .revision;
        let mut client = etcd_client::Client::connect([self.url()], None)
            .await
            .expect("etcd answers");
        client.compact(revision, None).await.expect("etcd compacts");
    }

    async fn stop(&mut self) {
        self.kill();
    }

    async fn resume(&mut self) {
        self.spawn();
        self.ready().await;
    }

    async fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path().join("data")).expect("the data is there");
        self.resume().await;
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The etcd of `make assets`, or a panic that says how to get it. Looked for once: its version is asked for.
fn binary() -> &'static Path {
    static ETCD: OnceLock<PathBuf> = OnceLock::new();
    ETCD.get_or_init(|| match Assets::find() {
        Ok(assets) => assets.etcd,
        Err(missing) => panic!("{missing}"),
    })
}
