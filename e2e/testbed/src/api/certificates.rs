//! Certificates of one control plane: a CA of its own, the server's pair, an administrator, the ServiceAccount key, and
//! what is signed by that CA afterwards, for the components of a node.

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
pub(crate) struct Certificates {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) ca: String,
    pub(super) admin: Pair,
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Certificates {
    /// Makes the set and writes it to `directory`. `server_ips` are the addresses by which the API server is reached,
    /// besides 127.0.0.1.
    pub(super) fn make(directory: &Path, server_ips: &[IpAddr]) -> Result<Self, CertificateError> {
        let (issuer, ca) = make_ca().map_err(in_step("ca"))?;
        let server = sign(&issuer, &server(server_ips)).map_err(in_step("apiserver"))?;
        let admin = subject("testbed-admin", Some("system:masters"));
        let admin = sign(&issuer, &client(admin)).map_err(in_step("admin"))?;
        let accounts = KeyPair::generate().map_err(in_step("sa"))?;
        let made = Self {
            directory: directory.to_owned(),
            issuer,
            ca,
            admin,
        };
        made.write("ca.crt", &made.ca)?;
        made.write_pair("apiserver", &server)?;
        made.write_pair("admin", &made.admin)?;
        made.write("sa.key", &accounts.serialize_pem())?;
        made.write("sa.pub", &accounts.public_key_pem())?;
        Ok(made)
    }

    /// A client's pair.
    pub(crate) fn client(&self, common_name: &str) -> Result<Pair, CertificateError> {
        sign(&self.issuer, &client(subject(common_name, None))).map_err(in_step("client"))
    }

    /// The pair of a kubelet, as a client and as a server, also written as `kubelet.crt` and `kubelet.key`.
    pub(crate) fn kubelet(&self, node: &str, ips: &[IpAddr]) -> Result<Pair, CertificateError> {
        let mut params = client(subject(
            &format!("system:node:{node}"),
            Some("system:nodes"),
        ));
        let names = ips.iter().map(|ip| SanType::IpAddress(*ip));
        params.subject_alt_names = names.collect();
        let usages = &mut params.extended_key_usages;
        usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let pair = sign(&self.issuer, &params).map_err(in_step("kubelet"))?;
        self.write_pair("kubelet", &pair)?;
        Ok(pair)
    }

    fn write_pair(&self, name: &str, pair: &Pair) -> Result<(), CertificateError> {
        self.write(&format!("{name}.crt"), &pair.certificate)?;
        self.write(&format!("{name}.key"), &pair.key)
    }

    fn write(&self, name: &str, content: &str) -> Result<(), CertificateError> {
        let path = self.directory.join(name);
        fs::write(&path, content).map_err(|source| CertificateError::Write { path, source })
    }

    /// Path of one of the files, as an argument of a program.
    pub(crate) fn file(&self, name: &str) -> String {
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

fn server(ips: &[IpAddr]) -> CertificateParams {
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
    let ips = ips
        .iter()
        .chain([&loopback])
        .map(|ip| SanType::IpAddress(*ip));
    params.subject_alt_names = names.chain(ips).collect();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client(mut params: CertificateParams) -> CertificateParams {
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

fn sign(ca: &Issuer<'static, KeyPair>, params: &CertificateParams) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca)?.pem();
    let key = key.serialize_pem();
    Ok(Pair { certificate, key })
}
