//! TLS files of a client, read and checked before they are handed to the transport, whose own messages name neither file nor
//! field.

use std::path::Path;

use etcd_client::{Certificate, Identity, TlsOptions};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::super::config::{ConfigError, TlsFiles};

/// Reads the files; an error names file and field.
pub(super) async fn read(files: &TlsFiles) -> Result<TlsOptions, ConfigError> {
    let ca = read_certificates(&files.ca, "trusted-ca-file").await?;
    let options = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
    let Some((cert, key)) = &files.client else {
        return Ok(options);
    };
    let certificate = read_certificates(cert, "cert-file").await?;
    let key_pem = read_file(key, "key-file").await?;
    PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| ConfigError {
        file: key.clone(),
        field: "key-file",
        problem: format!("holds no usable key: {error}"),
        expected: "a private key in PEM",
        remedy: "renew the file",
    })?;
    Ok(options.identity(Identity::from_pem(certificate, key_pem)))
}

async fn read_certificates(file: &Path, field: &'static str) -> Result<Vec<u8>, ConfigError> {
    let pem = read_file(file, field).await?;
    let broken = |problem: String| ConfigError {
        file: file.to_owned(),
        field,
        problem,
        expected: "one or more certificates in PEM",
        remedy: "renew the file",
    };
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        certificate.map_err(|error| broken(format!("holds a broken certificate: {error}")))?;
        count += 1;
    }
    if count == 0 {
        return Err(broken("holds no certificate".to_owned()));
    }
    Ok(pem)
}

async fn read_file(file: &Path, field: &'static str) -> Result<Vec<u8>, ConfigError> {
    tokio::fs::read(file).await.map_err(|error| ConfigError {
        file: file.to_owned(),
        field,
        problem: format!("cannot be read: {error}"),
        expected: "a readable PEM file",
        remedy: "check that the Secret with the mesh's certificates is mounted",
    })
}
