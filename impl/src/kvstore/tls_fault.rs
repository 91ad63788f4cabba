//! Why one side of a connection does not accept the other's certificate, and what to do.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::certificate::Fault;

/// Who refuses whom.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsFault {
    /// The server's certificate is not accepted here.
    #[error("the server's certificate {fault}; {}", server_cure(fault, ca))]
    Server {
        /// What is wrong with it.
        fault: Fault,
        /// The file with the authorities that are trusted here.
        ca: PathBuf,
    },
    /// The server does not accept this client's certificate, and this client sees why.
    #[error("the client certificate {} of {subject} {fault}; {}", file.display(), client_cure(fault))]
    Client {
        /// What is wrong with it.
        fault: Fault,
        /// The file with the certificate.
        file: PathBuf,
        /// Whose it is.
        subject: String,
    },
    /// The server does not accept this client's certificate.
    #[error("the server refuses the client certificate {} of {subject}, signed by {issuer}: {alert}; add that authority to those that the server trusts, or use a certificate that one of its authorities signed", file.display())]
    Refused {
        /// What the server says.
        alert: String,
        /// The file with the certificate.
        file: PathBuf,
        /// Whose it is.
        subject: String,
        /// Who signed it.
        issuer: String,
    },
    /// The server wants a certificate, and there is none.
    #[error("the server asks for a client certificate: {alert}; name one: cert-file and key-file")]
    NoCertificate {
        /// What the server says.
        alert: String,
    },
    /// Something else.
    #[error(
        "{problem}; check that the endpoint is an etcd with TLS, and that nothing in between closes connections"
    )]
    Other {
        /// What the TLS library says.
        problem: String,
    },
}

fn server_cure(fault: &Fault, ca: &Path) -> String {
    match fault {
        Fault::UnknownAuthority => format!(
            "add the authority that signed it to {} (trusted-ca-file)",
            ca.display()
        ),
        Fault::Expired { .. } => "renew the certificate of that etcd".to_owned(),
        Fault::NotYetValid { .. } => "check the clocks of both machines".to_owned(),
        Fault::WrongName { .. } => {
            "use one of its names as endpoint (cilium-host-aliases gives a name an IP), or make it anew with that name"
                .to_owned()
        }
        Fault::KeyMismatch | Fault::Unusable(_) => "make it anew".to_owned(),
    }
}

fn client_cure(fault: &Fault) -> &'static str {
    match fault {
        Fault::NotYetValid { .. } => "check the clocks of both machines",
        Fault::Expired { .. }
        | Fault::UnknownAuthority
        | Fault::WrongName { .. }
        | Fault::KeyMismatch
        | Fault::Unusable(_) => "renew the file; it is read at the next attempt",
    }
}
