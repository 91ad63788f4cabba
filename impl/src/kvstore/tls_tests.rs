//! TLS against a real etcd, with the client file that Cilium writes.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::{
    KvStore,
    config::EtcdConfig,
    etcd::EtcdStore,
    testing::{Etcd, eventually},
};

/// An authority that signs servers and clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Writes `NAME.crt` and `NAME.key` for these host names.
    fn sign(&self, dir: &Path, name: &str, hosts: &[&str]) {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        fs::write(dir.join(format!("{name}.crt")), pem).unwrap();
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// An etcd that takes only clients of its authority, and a directory with its certificates and a client's.
struct Fixture {
    dir: TempDir,
    etcd: Etcd,
    authority: Authority,
}

impl Fixture {
    fn start(server_name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        fs::write(dir.path().join("ca.crt"), &authority.pem).unwrap();
        authority.sign(dir.path(), "server", &[server_name]);
        authority.sign(dir.path(), "client", &[]);
        let file = |name: &str| dir.path().join(name).into_os_string();
        let arguments = vec![
            "--client-cert-auth".into(),
            "--trusted-ca-file".into(),
            file("ca.crt"),
            "--cert-file".into(),
            file("server.crt"),
            "--key-file".into(),
            file("server.key"),
        ];
        Self {
            etcd: Etcd::launch(arguments),
            dir,
            authority,
        }
    }

    /// A client with the file that Cilium would write for these endpoints.
    fn store(&self, endpoint: &str, more: &str) -> EtcdStore {
        let dir = self.dir.path().display();
        let text = format!(
            "endpoints:\n- {endpoint}\ntrusted-ca-file: {dir}/ca.crt\nkey-file: {dir}/client.key\ncert-file: {dir}/client.crt\n{more}"
        );
        let file = self.dir.path().join("rome");
        fs::write(&file, text).unwrap();
        EtcdStore::new(EtcdConfig::read(&file).unwrap())
    }

    async fn until_connected(store: &EtcdStore) {
        eventually("a connection over TLS", async || {
            store.get("a").await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn certificates_are_read_at_each_connect() {
    let fixture = Fixture::start("127.0.0.1");
    let dir = fixture.dir.path();
    let store = fixture.store(&fixture.etcd.url(), "");
    Fixture::until_connected(&store).await;
    let other = fixture.store(&fixture.etcd.url(), "");
    Authority::new().sign(dir, "client", &[]);

    let refused = other.get("a").await.unwrap_err();
    fixture.authority.sign(dir, "client", &[]);

    assert_eq!(refused.reason(), "Unreachable", "{refused}");
    assert!(
        refused.to_string().starts_with(&fixture.etcd.url()),
        "{refused}"
    );
    Fixture::until_connected(&other).await;
}

#[tokio::test]
async fn a_missing_or_broken_file_is_named_with_its_field() {
    let fixture = Fixture::start("127.0.0.1");
    let dir = fixture.dir.path();
    let store = fixture.store(&fixture.etcd.url(), "");
    let told = async || store.get("a").await.unwrap_err().to_string();

    fs::write(dir.join("client.key"), "no key").unwrap();
    let key = told().await;
    fs::write(
        dir.join("client.crt"),
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let cert = told().await;
    fs::remove_file(dir.join("ca.crt")).unwrap();
    let ca = told().await;

    assert!(
        key.contains("/client.key: key-file: holds no usable key"),
        "{key}"
    );
    assert!(
        cert.contains("/client.crt: cert-file: holds a broken certificate"),
        "{cert}"
    );
    assert!(
        ca.contains("/ca.crt: trusted-ca-file: cannot be read"),
        "{ca}"
    );
}

#[tokio::test]
async fn a_host_alias_is_connected_by_ip_and_checked_by_name() {
    let fixture = Fixture::start("rome.mesh.cilium.io");
    let endpoint = fixture
        .etcd
        .url()
        .replace("127.0.0.1", "rome.mesh.cilium.io");
    let alias = "cilium-host-aliases:\n- hostname: rome.mesh.cilium.io\n  ips: [127.0.0.1]\n";

    Fixture::until_connected(&fixture.store(&endpoint, alias)).await;
    let by_ip = fixture.store(&fixture.etcd.url(), "").get("a").await;

    assert_eq!(by_ip.unwrap_err().reason(), "Unreachable");
}
