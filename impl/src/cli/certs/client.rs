//! One client certificate, signed by an authority that is at hand as text: from a Secret, not from files.

use jiff::Timestamp;
use thiserror::Error;

use super::{
    authority::Authority,
    make::{client_params, validity},
};
use crate::certificate::{self, Certificate, Fault, Unreadable};

/// Why an authority signs nothing.
#[derive(Debug, Error)]
pub(in crate::cli) enum CannotSign {
    /// Its certificate or key is something else.
    #[error("ca.crt or ca.key {0}")]
    Unreadable(#[from] Unreadable),
    /// Its key belongs to none of its certificates.
    #[error("ca.key belongs to no certificate of an authority in ca.crt")]
    Mismatch,
    /// It cannot be used now.
    #[error("{subject} {fault}")]
    Time {
        /// Whose certificate it is.
        subject: String,
        /// What is wrong.
        fault: Fault,
    },
    /// The library refuses it.
    #[error("it cannot sign: {0}")]
    Library(String),
}

/// A client's certificate and key.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::cli) struct Client {
    /// PEM.
    pub(in crate::cli) certificate: String,
    /// PEM. Never to be printed.
    pub(in crate::cli) key: String,
    /// Last second of its validity.
    pub(in crate::cli) not_after: Timestamp,
}

/// Signs a certificate for an etcd user, with a new key; it ends with its authority at the latest.
pub(in crate::cli) fn sign_client(
    (ca_crt, ca_key): (&[u8], &[u8]),
    user: &str,
    days: u16,
    now: Timestamp,
) -> Result<Client, CannotSign> {
    let mut found = None;
    for candidate in Certificate::read_all(ca_crt)? {
        let chain = std::slice::from_ref(&candidate);
        if candidate.is_authority && certificate::check_key(chain, ca_key)?.is_ok() {
            found = Some(candidate);
            break;
        }
    }
    let authority = found.ok_or(CannotSign::Mismatch)?;
    authority
        .check_time(now)
        .map_err(|fault| CannotSign::Time {
            subject: authority.subject().to_owned(),
            fault,
        })?;
    let (from, until) = validity(days, now);
    let until = until.min(authority.not_after);
    let library = |error: &dyn std::fmt::Display| CannotSign::Library(error.to_string());
    let authority = Authority::with_key(authority, ca_key).map_err(|error| library(&error))?;
    let signed = authority
        .sign(user, client_params(from, until))
        .map_err(|error| library(&error))?;
    Ok(Client {
        certificate: signed.certificate,
        key: signed.key,
        not_after: until,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::CertificateParams;

    use super::*;

    fn authority() -> (String, String) {
        let made = Authority::make("Tombolo CA of paris", CertificateParams::default()).unwrap();
        let certificate = super::super::authority::pem(std::slice::from_ref(&made.certificate));
        (certificate, made.made_key.unwrap())
    }

    #[test]
    fn what_is_signed_is_for_the_user_and_of_the_authority() {
        let (crt, key) = authority();
        let now = Timestamp::now();

        let client = sign_client((crt.as_bytes(), key.as_bytes()), "remote-rome", 10, now).unwrap();

        let chain = Certificate::read_all(client.certificate.as_bytes()).unwrap();
        assert_eq!(chain[0].common_name.as_deref(), Some("remote-rome"));
        assert_eq!(chain[0].not_after.as_second(), client.not_after.as_second());
        let authorities = Certificate::read_all(crt.as_bytes()).unwrap();
        let usage = certificate::Usage::Client;
        assert_eq!(
            certificate::check_authority(&chain, &authorities, usage),
            Ok(())
        );
        assert_eq!(
            certificate::check_key(&chain, client.key.as_bytes()).unwrap(),
            Ok(())
        );
    }

    #[test]
    fn an_authority_with_the_key_of_another_signs_nothing() {
        let ((crt, _), (_, key)) = (authority(), authority());

        let refused = sign_client((crt.as_bytes(), key.as_bytes()), "a", 1, Timestamp::now());

        assert!(matches!(refused, Err(CannotSign::Mismatch)));
    }
}
