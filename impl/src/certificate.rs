//! X.509 certificates as far as the mesh needs them: whom they are for, how long they hold, who signed them, whose key they have.
//!
//! Reads and judges what it is given; touches no file and no clock. Chains and names are judged by the library that judges
//! them in a handshake, so that both agree. A private key never leaves this module, also not in an error.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use rustls::{
    CertificateError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::WebPkiClientVerifier,
    sign::CertifiedKey,
};
use thiserror::Error;
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    prelude::{FromDer, X509Certificate},
};

/// Why a text is no certificate or key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// There is no certificate in it.
    #[error("holds no certificate")]
    NoCertificate,
    /// One of its certificates is broken.
    #[error("holds a broken certificate: {0}")]
    BadCertificate(String),
    /// There is no key in it that could be used.
    #[error("holds no usable key: {0}")]
    NoKey(String),
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// Its time has not come.
    #[error("is not valid before {from}")]
    NotYetValid {
        /// When it comes.
        from: Timestamp,
    },
    /// Its time is over.
    #[error("expired at {since}")]
    Expired {
        /// Since when.
        since: Timestamp,
    },
    /// No authority that is trusted signed it.
    #[error("is signed by none of the authorities that are trusted")]
    UnknownAuthority,
    /// It is for somebody else.
    #[error("is for {}, not for {expected}", list(names))]
    WrongName {
        /// Who was expected.
        expected: String,
        /// Whom it is for.
        names: Vec<String>,
    },
    /// The key beside it is another's.
    #[error("does not belong to the key")]
    KeyMismatch,
    /// Something else.
    #[error("cannot be used: {0}")]
    Unusable(String),
}

/// What a certificate is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// A server shows it.
    Server,
    /// A client shows it.
    Client,
}

/// A certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// Common name of the subject; for etcd, a client's user.
    pub common_name: Option<String>,
    /// Common name of the issuer, or the whole name without one.
    pub issuer: String,
    /// Host names and IP addresses that it is for.
    pub names: Vec<String>,
    /// First second of its validity.
    pub not_before: Timestamp,
    /// Last second of its validity.
    pub not_after: Timestamp,
    /// Whether it may sign others.
    pub is_authority: bool,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("common_name", &self.common_name)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads all certificates of a PEM text, in its order; at least one.
    pub fn read_all(pem: &[u8]) -> Result<Vec<Self>, Unreadable> {
        let mut certificates = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem) {
            let der = der.map_err(|error| Unreadable::BadCertificate(pem_problem(&error)))?;
            certificates.push(Self::parse(der)?);
        }
        if certificates.is_empty() {
            return Err(Unreadable::NoCertificate);
        }
        Ok(certificates)
    }

    /// Its bytes.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// What to call it: its common name, else the first name that it is for.
    pub fn subject(&self) -> &str {
        self.common_name
            .as_deref()
            .or_else(|| self.names.first().map(String::as_str))
            .unwrap_or("(no name)")
    }

    /// What is wrong with its validity at this time.
    pub fn check_time(&self, now: Timestamp) -> Result<(), Fault> {
        if now < self.not_before {
            let from = self.not_before;
            return Err(Fault::NotYetValid { from });
        }
        if now > self.not_after {
            let since = self.not_after;
            return Err(Fault::Expired { since });
        }
        Ok(())
    }

    fn parse(der: CertificateDer<'static>) -> Result<Self, Unreadable> {
        let broken = |why: &dyn fmt::Display| Unreadable::BadCertificate(why.to_string());
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| broken(&error))?;
        let common_name = |name: &x509_parser::prelude::X509Name<'_>| {
            let first = name.iter_common_name().next()?;
            first.as_str().ok().map(ToOwned::to_owned)
        };
        let time = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|error| broken(&error))
        };
        let names = parsed.extensions().iter().filter_map(|extension| {
            let parsed = extension.parsed_extension();
            if let ParsedExtension::SubjectAlternativeName(names) = parsed {
                Some(&names.general_names)
            } else {
                None
            }
        });
        Ok(Self {
            common_name: common_name(parsed.subject()),
            issuer: common_name(parsed.issuer()).unwrap_or_else(|| parsed.issuer().to_string()),
            names: names.flatten().filter_map(text).collect(),
            not_before: time(parsed.validity().not_before)?,
            not_after: time(parsed.validity().not_after)?,
            is_authority: parsed.is_ca(),
            der: der.clone(),
        })
    }
}

/// Whether the key belongs to the first certificate of the chain.
pub fn check_key(chain: &[Certificate], key_pem: &[u8]) -> Result<Result<(), Fault>, Unreadable> {
    let no_key = |why: &dyn fmt::Display| Unreadable::NoKey(why.to_string());
    let key = PrivateKeyDer::from_pem_slice(key_pem);
    let key = key.map_err(|error| Unreadable::NoKey(pem_problem(&error)))?;
    let provider = provider();
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|error| no_key(&error))?;
    let der = chain.iter().map(|certificate| certificate.der.clone());
    Ok(match CertifiedKey::new(der.collect(), key).keys_match() {
        Ok(()) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Fault::KeyMismatch),
        Err(error) => Err(Fault::Unusable(error.to_string())),
    })
}

/// Whether one of the authorities signed the chain for this usage, whatever the time.
pub fn check_authority(
    chain: &[Certificate],
    authorities: &[Certificate],
    usage: Usage,
) -> Result<(), Fault> {
    let Some((first, rest)) = chain.split_first() else {
        return Err(Fault::Unusable("there is none".to_owned()));
    };
    let unusable = |error: &dyn fmt::Display| Fault::Unusable(error.to_string());
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.der.clone())
            .map_err(|error| unusable(&error))?;
    }
    let rest: Vec<_> = rest.iter().map(|more| more.der.clone()).collect();
    let seconds = u64::try_from(first.not_before.as_second()).unwrap_or_default();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let outcome = match usage {
        Usage::Client => {
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider().into())
                .build()
                .map_err(|error| unusable(&error))?
                .verify_client_cert(&first.der, &rest, time)
                .map(drop)
        }
        Usage::Server => {
            let name = first.names.first().map(|name| name.replace('*', "any"));
            let name = name.and_then(|name| ServerName::try_from(name).ok());
            let name = name.ok_or_else(|| unusable(&"it is for no host name and no IP address"))?;
            WebPkiServerVerifier::builder_with_provider(roots.into(), provider().into())
                .build()
                .map_err(|error| unusable(&error))?
                .verify_server_cert(&first.der, &rest, &name, &[], time)
                .map(drop)
        }
    };
    match outcome.map_err(|error| fault(&error)) {
        // The time of an authority is told of the authority.
        Ok(()) | Err(Some(Fault::Expired { .. } | Fault::NotYetValid { .. })) => Ok(()),
        Err(Some(fault)) => Err(fault),
        Err(None) => Err(Fault::UnknownAuthority),
    }
}

/// What the TLS library found wrong with the other side's certificate; nothing, if its error is about something else.
pub(crate) fn fault(error: &rustls::Error) -> Option<Fault> {
    let rustls::Error::InvalidCertificate(error) = error else {
        return None;
    };
    let at = |time: &UnixTime| {
        let second = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
    };
    let known = if let CertificateError::ExpiredContext { not_after, .. } = error {
        Fault::Expired {
            since: at(not_after),
        }
    } else if let CertificateError::NotValidYetContext { not_before, .. } = error {
        Fault::NotYetValid {
            from: at(not_before),
        }
    } else if let CertificateError::NotValidForNameContext {
        expected,
        presented,
    } = error
    {
        Fault::WrongName {
            expected: expected.to_str().into_owned(),
            names: presented.clone(),
        }
    } else if matches!(
        error,
        CertificateError::UnknownIssuer | CertificateError::BadSignature
    ) {
        Fault::UnknownAuthority
    } else {
        Fault::Unusable(error.to_string())
    };
    Some(known)
}

/// What is wrong with a PEM text. The library shows markers as lists of bytes.
fn pem_problem(error: &pem::Error) -> String {
    if let pem::Error::MissingSectionEnd { end_marker } = error {
        let marker = String::from_utf8_lossy(end_marker);
        return format!("its last line, END {marker}, is missing; it may be half written");
    }
    error.to_string()
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    if let GeneralName::DNSName(name) = name {
        return Some((*name).to_owned());
    }
    let GeneralName::IPAddress(bytes) = name else {
        return None;
    };
    if let Ok(v4) = <[u8; 4]>::try_from(*bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    let v6 = <[u8; 16]>::try_from(*bytes).ok()?;
    Some(std::net::Ipv6Addr::from(v6).to_string())
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "nobody".to_owned()
    } else {
        names.join(", ")
    }
}
