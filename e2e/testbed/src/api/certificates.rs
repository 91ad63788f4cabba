//! Certificates of one control plane: a CA of its own, the server's pair, an administrator, the ServiceAccount key.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

/// How long the certificates are valid, to both sides of now: no run is longer, and clocks differ.
const VALIDITY: Duration = Duration::days(7);

/// Why the certificates could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Signing failed.
    #[error("cannot make certificate {name}: {source}")]
    Make {
        /// Which one.
        name: &'static str,
        /// What the library said.
        #[source]
        source: rcgen::Error,
    },
    /// Writing failed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// File.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Files in one directory, and what clients need in memory.
#[derive(Debug)]
pub(super) struct Certificates {
    directory: PathBuf,
    pub(super) ca: String,
    pub(super) admin_certificate: String,
    pub(super) admin_key: String,
}

impl Certificates {
    /// Makes the set and writes it to `directory`. `service_ips` are the first IPs of the service ranges: the API
    /// server is reached by them from inside a cluster.
    pub(super) fn make(directory: &Path, service_ips: &[IpAddr]) -> Result<Self, CertificateError> {
        let (ca, ca_pem) = make_ca().map_err(in_step("ca"))?;
        let (server, server_key) = sign(&ca, &server(service_ips)).map_err(in_step("apiserver"))?;
        let (admin, admin_key) = sign(&ca, &admin()).map_err(in_step("admin"))?;
        let accounts = KeyPair::generate().map_err(in_step("sa"))?;
        let made = Self {
            directory: directory.to_owned(),
            ca: ca_pem,
            admin_certificate: admin,
            admin_key,
        };
        let files = [
            ("ca.crt", made.ca.as_str()),
            ("apiserver.crt", &server),
            ("apiserver.key", &server_key),
            ("sa.key", &accounts.serialize_pem()),
            ("sa.pub", &accounts.public_key_pem()),
        ];
        for (name, content) in files {
            let path = directory.join(name);
            fs::write(&path, content).map_err(|source| CertificateError::Write { path, source })?;
        }
        Ok(made)
    }

    /// Path of one of the files, as an argument of a program.
    pub(super) fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

fn in_step(name: &'static str) -> impl Fn(rcgen::Error) -> CertificateError {
    move |source| CertificateError::Make { name, source }
}

fn make_ca() -> Result<(Issuer<'static, KeyPair>, String), rcgen::Error> {
    let mut params = subject("tombolo-testbed-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

fn server(service_ips: &[IpAddr]) -> CertificateParams {
    let mut params = subject("kube-apiserver", None);
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
    ];
    let names = names
        .iter()
        .filter_map(|name| Some(SanType::DnsName((*name).try_into().ok()?)));
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let ips = service_ips
        .iter()
        .chain([&loopback])
        .map(|ip| SanType::IpAddress(*ip));
    params.subject_alt_names = names.chain(ips).collect();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn admin() -> CertificateParams {
    let mut params = subject("testbed-admin", Some("system:masters"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn subject(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - VALIDITY;
    params.not_after = now + VALIDITY;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    params
}

fn sign(
    ca: &Issuer<'static, KeyPair>,
    params: &CertificateParams,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
