//! A peer over TLS, on a real etcd that asks who calls: everything that can be wrong with certificates and users shows in the
//! peer's status, removes nothing, and is over by itself once it is mended.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        peers::{self, LocalCluster, PeerState, PeerStatus, RemoteState, run_peers},
        remote_cluster::testkit::Writer,
    },
    Options, run,
};
use crate::kvstore::{
    etcd::EtcdStore,
    testing::{budget, eventually},
    testing_pki::{Authority, GOOD, SecureEtcd, replace},
};

/// Longest time from mended files to a peer that is ready: the longest pause between attempts (5 s), an attempt that was
/// under way (7 s), and some for a busy machine.
const RECOVERY_BOUND: Duration = Duration::from_secs(20);

/// The cluster paris, which follows rome with the certificate of `remote-paris`.
struct Mesh {
    rome: SecureEtcd,
    writer: Writer<EtcdStore>,
    paris: TempDir,
    state: RemoteState,
    cancel: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Mesh {
    async fn start() -> Self {
        let rome = SecureEtcd::start("127.0.0.1");
        let cancel = CancellationToken::new();
        fs::write(
            rome.file("users.yaml"),
            "users: [{name: remote-paris, role: remote}]",
        )
        .unwrap();
        let options = Options {
            cluster: "rome".try_into().unwrap(),
            etcd: rome.config("admin-rome"),
            users_file: Some(rome.file("users.yaml")),
            gate: None,
        };
        let (tell, mut ready) = watch::channel(false);
        let users = run(options, tell, cancel.clone());
        let users = tokio::spawn(async { users.await.expect("the admin is known") });
        let waited = tokio::time::timeout(budget(), ready.wait_for(|ready| *ready)).await;
        waited.expect("in time").expect("it runs");
        let mut writer = Writer::new("rome", rome.store("admin-rome"));
        writer.fill(&["cart"]).await;
        let paris = tempfile::tempdir().unwrap();
        let state = RemoteState::new(Arc::new(|_| {}));
        let mut mesh = Self {
            rome,
            writer,
            paris,
            state,
            cancel,
            tasks: vec![users],
        };
        mesh.mend();
        mesh.follow();
        mesh
    }

    fn follow(&mut self) {
        let files = self.paris.path().join("tls");
        let files = files.display();
        let text = format!(
            "endpoints:\n- {}\ntrusted-ca-file: {files}/ca.crt\ncert-file: {files}/common.crt\nkey-file: {files}/common.key\n",
            self.rome.etcd.url()
        );
        fs::create_dir(self.paris.path().join("peers")).unwrap();
        fs::write(self.paris.path().join("peers/rome"), text).unwrap();
        let local = LocalCluster {
            name: "paris".try_into().unwrap(),
            id: 1.try_into().unwrap(),
            max_connected: 255,
        };
        let files = self.paris.path().join("peers");
        let (state, cancel) = (self.state.clone(), self.cancel.clone());
        let options = peers::Options::default();
        let follow = run_peers(files, local, state, options, cancel);
        let follow = tokio::spawn(async { follow.await.expect("the directory is there") });
        self.tasks.push(follow);
    }

    /// Makes every file of the reader good.
    fn mend(&self) {
        fs::create_dir_all(self.paris.path().join("tls")).unwrap();
        self.file("ca.crt", &self.rome.authority.pem);
        self.client(&self.rome.authority, "remote-paris", GOOD);
    }

    fn file(&self, name: &str, text: &str) {
        replace(&self.paris.path().join("tls").join(name), text);
    }

    fn client(&self, authority: &Authority, user: &str, hours: std::ops::Range<i64>) {
        authority.sign(&self.paris.path().join("tls"), "common", user, &[], hours);
    }

    fn server(&self, name: &str, hours: std::ops::Range<i64>) {
        let dir = self.rome.dir.path();
        self.rome
            .authority
            .sign(dir, "server", "etcd", &[name], hours);
    }

    fn status(&self) -> Option<PeerStatus> {
        self.state.peers().into_iter().next()
    }

    fn rows(&self) -> Vec<String> {
        let names = self.state.names();
        names.iter().map(|name| name.name.to_string()).collect()
    }

    async fn until_ready(&self) {
        eventually("rome is ready", async || {
            self.status()
                .is_some_and(|status| status.state == PeerState::Ready)
        })
        .await;
    }

    /// Ends the connection, and waits until the status tells all of these of the next ones.
    async fn until_told(&mut self, parts: &[&str]) {
        self.rome.etcd.restart();
        // An etcd that starts while its files are being replaced may find a certificate and the key of another, and end.
        let address = self.rome.etcd.url().replace("https://", "");
        eventually("etcd listens", async || {
            tokio::net::TcpStream::connect(&address).await.is_ok()
        })
        .await;
        eventually(&format!("{parts:?} is told"), async || {
            let error = self.status().and_then(|status| status.last_error);
            error.is_some_and(|error| parts.iter().all(|part| error.contains(part)))
        })
        .await;
        let status = self.status().unwrap();
        assert_eq!(status.cluster.as_str(), "rome");
        assert_eq!(status.state, PeerState::Suspect, "{status:?}");
        assert_eq!(self.rows(), ["cart"], "nothing is removed");
    }

    async fn recovers(&self, what: &str) {
        let mended = Instant::now();
        self.until_ready().await;
        let took = mended.elapsed();
        println!("{what}: ready {took:?} after the files were mended");
        assert!(took < RECOVERY_BOUND, "{what}: {took:?}");
        assert_eq!(self.status().unwrap().last_error, None);
    }

    async fn stop(self) {
        self.cancel.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_client_certificate_that_is_wrong_is_told_and_recovers_when_it_is_renewed() {
    let mut mesh = Mesh::start().await;
    mesh.until_ready().await;

    mesh.client(&Authority::new(), "remote-paris", GOOD);
    let parts = [
        "/peers/rome: https://",
        "the server refuses the client certificate",
        "/common.crt of remote-paris",
        "add that authority",
    ];
    mesh.until_told(&parts).await;
    mesh.mend();
    mesh.recovers("unknown authority").await;

    mesh.client(&mesh.rome.authority, "remote-paris", -48..-24);
    let parts = [
        "/peers/rome: https://",
        "/common.crt of remote-paris expired at",
        "renew the file",
    ];
    mesh.until_told(&parts).await;
    mesh.mend();
    mesh.recovers("expired").await;

    mesh.client(&mesh.rome.authority, "remote-paris", 24..48);
    let parts = [
        "/peers/rome: https://",
        "/common.crt of remote-paris is not valid before",
        "check the clocks",
    ];
    mesh.until_told(&parts).await;
    mesh.mend();
    mesh.recovers("not yet valid").await;

    mesh.file(
        "common.key",
        &rcgen::KeyPair::generate().unwrap().serialize_pem(),
    );
    mesh.until_told(&[
        "/common.key: key-file: is not the key of",
        "renew both files",
    ])
    .await;
    mesh.mend();
    mesh.recovers("key of another").await;

    fs::remove_file(mesh.paris.path().join("tls/common.crt")).unwrap();
    mesh.until_told(&["/common.crt: cert-file: cannot be read", "is mounted"])
        .await;
    mesh.mend();
    mesh.recovers("missing file").await;

    mesh.writer.export("web", 1).await;
    eventually("what comes later is seen", async || {
        mesh.rows() == ["cart", "web"]
    })
    .await;
    mesh.stop().await;
}

#[tokio::test]
async fn a_server_certificate_that_is_wrong_is_told_and_recovers_when_it_is_renewed() {
    let mut mesh = Mesh::start().await;
    mesh.until_ready().await;

    mesh.file("ca.crt", &Authority::new().pem);
    let parts = [
        "/peers/rome: https://",
        "signed by none of the authorities",
        "/tls/ca.crt (trusted-ca-file)",
    ];
    mesh.until_told(&parts).await;
    mesh.mend();
    mesh.recovers("authority of another").await;

    mesh.server("oslo.mesh.cilium.io", GOOD);
    let parts = [
        "/peers/rome: https://",
        "oslo.mesh.cilium.io",
        "not for 127.0.0.1",
        "cilium-host-aliases",
    ];
    mesh.until_told(&parts).await;
    mesh.server("127.0.0.1", GOOD);
    mesh.recovers("name of another").await;

    mesh.server("127.0.0.1", -48..-24);
    let parts = [
        "/peers/rome: https://",
        "the server's certificate expired at",
        "renew the certificate of that etcd",
    ];
    mesh.until_told(&parts).await;
    mesh.server("127.0.0.1", GOOD);
    mesh.recovers("expired server").await;

    mesh.stop().await;
}

#[tokio::test]
async fn a_user_without_rights_is_told_and_recovers_when_it_gets_them() {
    let mut mesh = Mesh::start().await;
    mesh.until_ready().await;

    mesh.client(&mesh.rome.authority, "remote-oslo", GOOD);
    let parts = [
        "user \"remote-oslo\" (common name in ",
        "/common.crt) is not allowed to",
        "users.yaml",
    ];
    mesh.until_told(&parts).await;
    let users = "users: [{name: remote-paris, role: remote}, {name: remote-oslo, role: remote}]";
    replace(&mesh.rome.file("users.yaml"), users);
    mesh.recovers("a user that is added").await;

    mesh.stop().await;
}
