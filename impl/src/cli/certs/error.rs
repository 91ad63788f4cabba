//! What the user has to say differently.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::certificate::{Fault, Unreadable};

/// Bad input to `tombolo certs`.
#[derive(Debug, Error)]
pub enum Error {
    /// A file that was named cannot be read.
    #[error("{flag} {}: cannot be read: {source}; expected a PEM file; check the path and its permissions", file.display())]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that was named holds something else.
    #[error("{flag} {}: {source}; expected {expected}; name another file", file.display())]
    Content {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// What is expected in it.
        expected: &'static str,
        /// What is wrong.
        source: Unreadable,
    },
    /// A certificate that should be an authority's is none.
    #[error("{flag} {}: {subject}: basicConstraints: not an authority (CA:TRUE); a certificate of it signs nothing; name the certificate of the authority", file.display())]
    NoAuthority {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// Whose certificate it is.
        subject: String,
    },
    /// The key belongs to no certificate of the authority's file.
    #[error("--ca-key {}: does not belong to a certificate in --ca-cert {}; name the key that was made with it", key.display(), cert.display())]
    AuthorityKey {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The authority's certificate cannot be used now.
    #[error("--ca-cert {}: {subject} {fault}; what it signs is refused everywhere; make a new authority: leave --ca-cert and --ca-key out", file.display())]
    AuthorityTime {
        /// The file.
        file: PathBuf,
        /// Whose certificate it is.
        subject: String,
        /// What is wrong.
        fault: Fault,
    },
    /// The library refuses the authority's key.
    #[error("--ca-key {}: cannot sign: {source}; expected a key of ECDSA P-256 or P-384, Ed25519 or RSA, without a password", file.display())]
    AuthorityKind {
        /// The file.
        file: PathBuf,
        /// What the library said.
        source: rcgen::Error,
    },
    /// Signing failed.
    #[error("{name}: cannot be made: {source}; check --san and the authority")]
    Sign {
        /// The certificate.
        name: String,
        /// What the library said.
        source: rcgen::Error,
    },
    /// A file would be overwritten.
    #[error("{}: exists; nothing was written; choose another directory, or --force to replace it", file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// The path has no file name.
    #[error("--into {}: is no file; name one", path.display())]
    NoFileName {
        /// The path.
        path: PathBuf,
    },
    /// Keys would be shown.
    #[error(
        "--output secrets: standard output is a terminal, and Secrets contain keys; nothing was written; pipe it into kubectl apply -f -, or into a file"
    )]
    Terminal,
    /// The directory to be shown cannot be read.
    #[error("{}: cannot be read: {source}; expected a directory with NAME.crt and NAME.key; check the path", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing to be shown.
    #[error("{}: holds no file NAME.crt; expected a directory such as `tombolo certs make` writes; check the path", dir.display())]
    NothingToShow {
        /// The directory.
        dir: PathBuf,
    },
}
