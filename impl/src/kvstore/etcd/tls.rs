//! TLS files of a client, read and checked before they are handed to the transport; and, when it could not connect, a handshake
//! of our own: the transport's messages name neither file nor field, and lose a server's alert as often as not.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use etcd_client::{Identity as Pair, TlsOptions};
use jiff::Timestamp;
use rustls::{
    AlertDescription, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::super::{
    config::{ConfigError, Target, TlsFiles},
    tls_fault::TlsFault,
};
use crate::certificate::{self, Certificate};

/// Longest time for the handshake that finds out why there is no connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Largest PEM file that is read: 1 MiB, a thousand authorities.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// The files, read.
pub(super) struct Loaded {
    ca_file: PathBuf,
    ca_pem: Vec<u8>,
    authorities: Vec<Certificate>,
    identity: Option<Identity>,
}

/// The certificate that this client shows, and its key.
struct Identity {
    file: PathBuf,
    pem: Vec<u8>,
    chain: Vec<Certificate>,
    key_pem: Vec<u8>,
}

/// Reads the files; an error names file and field. Dates are not judged here: the server's clock decides.
pub(super) async fn read(files: &TlsFiles) -> Result<Loaded, ConfigError> {
    let (ca_pem, authorities) = read_certificates(&files.ca, "trusted-ca-file").await?;
    let identity = match &files.client {
        Some((cert, key)) => Some(read_identity(cert, key).await?),
        None => None,
    };
    Ok(Loaded {
        ca_file: files.ca.clone(),
        ca_pem,
        authorities,
        identity,
    })
}

async fn read_identity(cert: &Path, key: &Path) -> Result<Identity, ConfigError> {
    let (pem, chain) = read_certificates(cert, "cert-file").await?;
    let key_pem = read_file(key, "key-file").await?;
    let complain = |problem: String, expected, remedy| ConfigError {
        file: key.to_owned(),
        field: "key-file",
        problem,
        expected,
        remedy,
    };
    let fits = certificate::check_key(&chain, &key_pem).map_err(|unreadable| {
        complain(
            unreadable.to_string(),
            "a private key in PEM",
            "renew the file",
        )
    })?;
    fits.map_err(|_| {
        complain(
            format!("is not the key of {} (cert-file)", cert.display()),
            "the key that was made with the certificate",
            "renew both files together",
        )
    })?;
    Ok(Identity {
        file: cert.to_owned(),
        pem,
        chain,
        key_pem,
    })
}

impl Loaded {
    /// For the transport.
    pub(super) fn options(&self, target: &Target) -> TlsOptions {
        let ca = etcd_client::Certificate::from_pem(&self.ca_pem);
        let mut options = TlsOptions::new().ca_certificate(ca);
        if let Some(Identity { pem, key_pem, .. }) = &self.identity {
            options = options.identity(Pair::from_pem(pem, key_pem));
        }
        match &target.server_name {
            Some(name) => options.domain_name(name),
            None => options,
        }
    }

    /// Why there is no connection to the target, if it is for the certificates.
    pub(super) async fn diagnose(&self, target: &Target, now: Timestamp) -> Option<TlsFault> {
        let failed = timeout(PROBE_TIMEOUT, self.handshake(target)).await;
        let error = failed.ok()??;
        Some(self.fault(&error, now))
    }

    /// Shakes hands as the transport does; the error of TLS, if that is what fails.
    async fn handshake(&self, target: &Target) -> Option<rustls::Error> {
        let config = match self.client_config() {
            Ok(config) => config,
            Err(error) => return Some(error),
        };
        let address = target.url.strip_prefix("https://")?;
        let (host, _) = address.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = target.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).ok()?;
        let tcp = TcpStream::connect(address).await.ok()?;
        let connector = TlsConnector::from(Arc::new(config));
        let outcome = match connector.connect(name, tcp).await {
            // With TLS 1.3 a server says after the handshake that it refuses the client. An etcd that does not begins to
            // speak HTTP/2.
            Ok(mut stream) => stream.read_u8().await.map(drop),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Some(rustls::Error::General(error.to_string()));
            }
            Err(error) => Err(error),
        };
        let error = outcome.err()?;
        error.get_ref()?.downcast_ref::<rustls::Error>().cloned()
    }

    fn client_config(&self) -> Result<ClientConfig, rustls::Error> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            roots.add(authority.der().clone())?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { chain, key_pem, .. }) => {
                let key = PrivateKeyDer::from_pem_slice(key_pem)
                    .map_err(|error| rustls::Error::General(error.to_string()))?;
                let chain = chain.iter().map(|certificate| certificate.der().clone());
                builder.with_client_auth_cert(chain.collect(), key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    /// What a complaint of the TLS library means.
    fn fault(&self, error: &rustls::Error, now: Timestamp) -> TlsFault {
        if let Some(fault) = certificate::fault(error) {
            return TlsFault::Server {
                fault,
                ca: self.ca_file.clone(),
            };
        }
        let rustls::Error::AlertReceived(alert) = error else {
            let problem = if let rustls::Error::General(problem) = error {
                problem.clone()
            } else {
                error.to_string()
            };
            return TlsFault::Other { problem };
        };
        if !is_about_certificate(*alert) {
            return TlsFault::Other {
                problem: format!("the server ends the handshake: {alert:?}"),
            };
        }
        let alert = format!("{alert:?}");
        let Some(Identity { file, chain, .. }) = &self.identity else {
            return TlsFault::NoCertificate { alert };
        };
        let certificate = &chain[0];
        let (file, subject) = (file.clone(), certificate.subject().to_owned());
        match certificate.check_time(now) {
            Err(fault) => TlsFault::Client {
                fault,
                file,
                subject,
            },
            Ok(()) => TlsFault::Refused {
                alert,
                file,
                subject,
                issuer: certificate.issuer.clone(),
            },
        }
    }
}

/// Who calls, in words.
pub(super) fn user(loaded: Option<&Loaded>) -> String {
    match loaded.and_then(|loaded| loaded.identity.as_ref()) {
        None => "a client without certificate".to_owned(),
        Some(Identity { file, chain, .. }) => {
            let user = chain[0].common_name.as_deref().unwrap_or_default();
            format!("user {user:?} (common name in {})", file.display())
        }
    }
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    [
        AlertDescription::BadCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
        AlertDescription::CertificateRequired,
        AlertDescription::UnknownCA,
        AlertDescription::AccessDenied,
    ]
    .contains(&alert)
}

async fn read_certificates(
    file: &Path,
    field: &'static str,
) -> Result<(Vec<u8>, Vec<Certificate>), ConfigError> {
    let pem = read_file(file, field).await?;
    let certificates = Certificate::read_all(&pem).map_err(|unreadable| ConfigError {
        file: file.to_owned(),
        field,
        problem: unreadable.to_string(),
        expected: "one or more certificates in PEM",
        remedy: "renew the file",
    })?;
    Ok((pem, certificates))
}

/// Reads a file, and nothing else: to open a pipe would wait until somebody writes into it.
async fn read_file(file: &Path, field: &'static str) -> Result<Vec<u8>, ConfigError> {
    let complain = |problem: String| ConfigError {
        file: file.to_owned(),
        field,
        problem,
        expected: "a readable PEM file",
        remedy: "check that the Secret with the mesh's certificates is mounted",
    };
    let unreadable = |error: std::io::Error| complain(format!("cannot be read: {error}"));
    let metadata = tokio::fs::metadata(file).await.map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(complain("is no file".to_owned()));
    }
    if metadata.len() > PEM_BYTES_MAX {
        return Err(complain(format!(
            "has {} bytes, more than {PEM_BYTES_MAX}",
            metadata.len()
        )));
    }
    tokio::fs::read(file).await.map_err(unreadable)
}
