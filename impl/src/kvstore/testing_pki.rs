//! For tests: certificates that are good, or broken on purpose, and an etcd that asks its clients for them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use tempfile::TempDir;
use time::OffsetDateTime;

use super::{
    KvStore,
    config::{EtcdConfig, Target, TlsFiles},
    etcd::EtcdStore,
    testing::{Etcd, eventually},
};

/// An authority that signs servers and clients.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub(crate) pem: String,
}

/// From when until when a certificate holds, from now, in hours.
pub(crate) type Hours = std::ops::Range<i64>;

/// The usual validity.
pub(crate) const GOOD: Hours = -1..24;

impl Authority {
    /// A new authority with a key of its own. Many have one name, as authorities that were replaced do.
    pub(crate) fn new() -> Self {
        let mut params = named("mesh authority", &[], GOOD);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Writes `FILE.crt` and `FILE.key` for this common name and these host names.
    pub(crate) fn sign(&self, dir: &Path, file: &str, user: &str, hosts: &[&str], hours: Hours) {
        let mut params = named(user, hosts, hours);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        replace(&dir.join(format!("{file}.crt")), &pem);
        replace(&dir.join(format!("{file}.key")), &key.serialize_pem());
    }
}

fn named(name: &str, hosts: &[&str], hours: Hours) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now + time::Duration::hours(hours.start);
    params.not_after = now + time::Duration::hours(hours.end);
    params
}

/// Writes a file by renaming, as a mounted Secret changes.
pub(crate) fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// An etcd that takes only clients of its authority, and a directory with its certificates and those of clients.
pub(crate) struct SecureEtcd {
    /// `ca.crt`, `server.crt`, `server.key`.
    pub(crate) dir: TempDir,
    /// The process.
    pub(crate) etcd: Etcd,
    /// Who signed.
    pub(crate) authority: Authority,
}

impl SecureEtcd {
    /// Starts one whose certificate is for this name.
    pub(crate) fn start(server_name: &str) -> Self {
        Self::start_with(server_name, true)
    }

    /// The same; `ask` is whether clients have to show a certificate.
    pub(crate) fn start_with(server_name: &str, ask: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        fs::write(dir.path().join("ca.crt"), &authority.pem).unwrap();
        fs::write(dir.path().join("clients.crt"), &authority.pem).unwrap();
        authority.sign(dir.path(), "server", "etcd", &[server_name], GOOD);
        let file = |name: &str| dir.path().join(name).into_os_string();
        let mut arguments = vec![
            "--cert-file".into(),
            file("server.crt"),
            "--key-file".into(),
            file("server.key"),
        ];
        if ask {
            arguments.push("--client-cert-auth".into());
            arguments.push("--trusted-ca-file".into());
            arguments.push(file("clients.crt"));
        }
        Self {
            etcd: Etcd::launch(arguments),
            dir,
            authority,
        }
    }

    /// A path in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How this user reaches it; makes the certificate at the first time.
    pub(crate) fn config(&self, user: &str) -> EtcdConfig {
        if !self.file(&format!("{user}.crt")).exists() {
            self.authority.sign(self.dir.path(), user, user, &[], GOOD);
        }
        let client = ["crt", "key"].map(|end| self.file(&format!("{user}.{end}")));
        let [cert, key] = client;
        EtcdConfig {
            file: self.file("rome"),
            targets: vec![Target {
                url: self.etcd.url(),
                server_name: None,
            }],
            tls: Some(TlsFiles {
                ca: self.file("ca.crt"),
                client: Some((cert, key)),
            }),
        }
    }

    /// A store of this user.
    pub(crate) fn store(&self, user: &str) -> EtcdStore {
        EtcdStore::new(self.config(user))
    }

    /// The library's own client of this user, for what a store does not do.
    pub(crate) async fn raw(&self, user: &str) -> etcd_client::Client {
        let config = self.config(user);
        let files = config.tls.unwrap();
        let (cert, key) = files.client.unwrap();
        let read = |file: &Path| fs::read(file).unwrap();
        let tls = etcd_client::TlsOptions::new()
            .ca_certificate(etcd_client::Certificate::from_pem(read(&files.ca)))
            .identity(etcd_client::Identity::from_pem(read(&cert), read(&key)));
        let options = etcd_client::ConnectOptions::new()
            .with_tls(tls)
            .with_timeout(Duration::from_secs(10));
        etcd_client::Client::connect([self.etcd.url()], Some(options))
            .await
            .unwrap()
    }

    /// Waits until a call of this store succeeds.
    pub(crate) async fn until_connected(store: &EtcdStore) {
        eventually("a connection over TLS", async || {
            store.get("a").await.is_ok()
        })
        .await;
    }
}
