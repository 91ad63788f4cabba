//! The authority that signs: made, or read and checked.

use std::path::Path;

use data_encoding::BASE64;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{Error, pkcs8};
use crate::certificate::{self, Certificate};

/// The authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub(super) certificate: Certificate,
    /// Its key in PEM, when it was made here.
    pub(super) made_key: Option<String>,
}

/// A certificate with its key, PEM.
pub(super) struct Signed {
    /// The certificate.
    pub(super) certificate: String,
    /// The key.
    pub(super) key: String,
}

impl Authority {
    /// Makes an authority with this common name.
    pub(super) fn make(name: &str, params: CertificateParams) -> Result<Self, Error> {
        let sign = |source| Error::Sign {
            name: name.to_owned(),
            source,
        };
        let mut params = named(name, params);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().map_err(sign)?;
        let pem = params.self_signed(&key).map_err(sign)?.pem();
        let made_key = Some(key.serialize_pem());
        let mut read = Certificate::read_all(pem.as_bytes()).expect("invariant: just made");
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate: read.remove(0),
            made_key,
        })
    }

    /// Reads an authority; of several certificates, the one that the key belongs to.
    pub(super) fn read(cert: &Path, key: &Path, now: Timestamp) -> Result<Self, Error> {
        let candidates = read_authorities("--ca-cert", cert)?;
        let key_pem = read("--ca-key", key)?;
        let content = |source| Error::Content {
            flag: "--ca-key",
            file: key.to_owned(),
            expected: "a private key in PEM",
            source,
        };
        let mut found = None;
        for candidate in candidates {
            let chain = std::slice::from_ref(&candidate);
            if certificate::check_key(chain, &key_pem)
                .map_err(content)?
                .is_ok()
            {
                found = Some(candidate);
                break;
            }
        }
        let certificate = found.ok_or_else(|| Error::AuthorityKey {
            cert: cert.to_owned(),
            key: key.to_owned(),
        })?;
        certificate
            .check_time(now)
            .map_err(|fault| Error::AuthorityTime {
                file: cert.to_owned(),
                subject: certificate.subject().to_owned(),
                fault,
            })?;
        Self::with_key(certificate, &key_pem).map_err(|source| Error::AuthorityKind {
            file: key.to_owned(),
            source,
        })
    }

    /// An authority by its certificate and the key that belongs to it.
    pub(super) fn with_key(certificate: Certificate, key_pem: &[u8]) -> Result<Self, rcgen::Error> {
        let pair = pkcs8::key_pair(key_pem)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(certificate.der(), pair)?,
            certificate,
            made_key: None,
        })
    }

    /// Signs a certificate with this common name, with a new key.
    pub(super) fn sign(&self, name: &str, params: CertificateParams) -> Result<Signed, Error> {
        let sign = |source| Error::Sign {
            name: name.to_owned(),
            source,
        };
        let mut params = named(name, params);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(sign)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(sign)?;
        Ok(Signed {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The certificates of a file, all of them authorities'.
pub(super) fn read_authorities(flag: &'static str, file: &Path) -> Result<Vec<Certificate>, Error> {
    let all = Certificate::read_all(&read(flag, file)?).map_err(|source| Error::Content {
        flag,
        file: file.to_owned(),
        expected: "one or more certificates of authorities in PEM",
        source,
    })?;
    if let Some(other) = all.iter().find(|certificate| !certificate.is_authority) {
        return Err(Error::NoAuthority {
            flag,
            file: file.to_owned(),
            subject: other.subject().to_owned(),
        });
    }
    Ok(all)
}

/// Certificates as PEM, one after the other.
pub(in crate::cli) fn pem(certificates: &[Certificate]) -> String {
    let mut pem = String::new();
    for certificate in certificates {
        pem += "-----BEGIN CERTIFICATE-----\n";
        let text = BASE64.encode(certificate.der());
        for line in text.as_bytes().chunks(64) {
            pem += &String::from_utf8_lossy(line);
            pem += "\n";
        }
        pem += "-----END CERTIFICATE-----\n";
    }
    pem
}

fn read(flag: &'static str, file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|source| Error::File {
        flag,
        file: file.to_owned(),
        source,
    })
}

fn named(name: &str, mut params: CertificateParams) -> CertificateParams {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
