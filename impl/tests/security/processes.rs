//! Processes of a mesh with TLS: an etcd that asks for certificates, and roles.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tombolo_testbed::{Assets, ClaimedPorts, Cluster, eventually};

use crate::program::tombolo;

/// How long a condition may take on a busy machine.
pub(crate) const BUDGET: Duration = Duration::from_mins(1);

/// A process with its log; ends with the value.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let child = command.spawn().context("the program starts")?;
        Ok(Self { child, log })
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// The mesh etcd of a cluster, as its administrator would start it.
pub(crate) struct MeshEtcd {
    dir: TempDir,
    client: String,
    peer: String,
    _ports: ClaimedPorts,
}

impl MeshEtcd {
    /// One with a directory and ports of its own.
    pub(crate) fn new() -> Result<Self> {
        let ports = ClaimedPorts::claim()?;
        let [client, peer] = ports.addresses();
        Ok(Self {
            dir: tempfile::tempdir()?,
            client: format!("https://{client}"),
            peer: format!("http://{peer}"),
            _ports: ports,
        })
    }

    /// Starts it with these certificates, on the data that there is.
    pub(crate) fn start(&self, certs: &Path) -> Result<Process> {
        let data = self.dir.path().join("data");
        let mut command = Command::new(Assets::find()?.etcd);
        command.arg("--data-dir").arg(data).args([
            "--name=a",
            "--log-level=warn",
            "--unsafe-no-fsync",
            "--client-cert-auth",
            &format!("--listen-client-urls={}", self.client),
            &format!("--advertise-client-urls={}", self.client),
            &format!("--listen-peer-urls={}", self.peer),
            &format!("--initial-advertise-peer-urls={}", self.peer),
            &format!("--initial-cluster=a={}", self.peer),
            &format!("--cert-file={}", certs.join("server.crt").display()),
            &format!("--key-file={}", certs.join("server.key").display()),
            &format!("--trusted-ca-file={}", certs.join("ca.crt").display()),
        ]);
        Process::start(&mut command, self.dir.path().join("log"))
    }

    /// A client file as Cilium has it, for this user.
    pub(crate) fn client_file(&self, file: &Path, ca: &Path, pair: &Path) -> Result<()> {
        let (ca, pair) = (ca.display(), pair.display());
        let text = format!(
            "endpoints:\n- {}\ntrusted-ca-file: {ca}\ncert-file: {pair}.crt\nkey-file: {pair}.key\n",
            self.client
        );
        Ok(fs::write(file, text)?)
    }
}

/// A role of a cluster; ends with the value.
pub(crate) struct RoleProcess {
    pub(crate) process: Process,
    ports: ClaimedPorts,
}

impl RoleProcess {
    /// Where it tells its health.
    pub(crate) fn health(&self) -> SocketAddr {
        let [health, _] = self.ports.addresses();
        health
    }
}

/// Starts a role of a cluster; its log is in the directory.
pub(crate) fn role(
    role: &str,
    cluster: &Cluster,
    dir: &Path,
    more: &[String],
) -> Result<RoleProcess> {
    let ports = ClaimedPorts::claim()?;
    let [health, _] = ports.addresses();
    let mut command = tombolo();
    command
        .args(["run", role, "--cluster-name", cluster.name()])
        .args(["--cluster-id", &cluster.id().to_string()])
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig()?)
        .arg(format!("--health-address={health}"))
        .args(more);
    let log = dir.join(format!("{role}-{}.log", cluster.name()));
    let process = Process::start(&mut command, log)?;
    Ok(RoleProcess { process, ports })
}

/// Waits until a line of the log has all these parts.
pub(crate) async fn until_logged(process: &Process, parts: &[&str]) -> Result<()> {
    eventually(BUDGET, &format!("a line with {parts:?}"), async || {
        let log = process.log();
        let told = log
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        told.then_some(()).ok_or(log)
    })
    .await?;
    Ok(())
}
