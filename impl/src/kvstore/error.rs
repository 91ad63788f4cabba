//! Errors of a store: which endpoint, which step, what to check next.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

use super::{LeaseId, config::ConfigError, tls_fault::TlsFault};

/// The call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Making a connection.
    Connect,
    /// Reading a key.
    Get,
    /// Reading a page of a prefix.
    List,
    /// Watching.
    Watch,
    /// Writing a key.
    Put,
    /// Deleting a key.
    Delete,
    /// Making a lease.
    Grant,
    /// Prolonging a lease.
    KeepAlive,
    /// Asking for a lease.
    LeaseStatus,
    /// Ending a lease.
    Revoke,
    /// Reading or changing users and roles.
    Access,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Grant => "grant lease",
            Self::KeepAlive => "keep lease alive",
            Self::LeaseStatus => "read lease",
            Self::Revoke => "revoke lease",
            Self::Access => "users and roles",
        })
    }
}

/// Why a call to a store failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// A file that the connection needs is missing or broken.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No connection, or it broke.
    #[error(
        "{endpoint}: {step}: no connection: {detail}; check that etcd runs there and that its port is open"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
        /// What the transport says.
        detail: String,
    },
    /// No answer in time.
    #[error(
        "{endpoint}: {step}: no answer within {after:?}; check etcd's load and whether it has a leader"
    )]
    TimedOut {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
        /// How long it was waited for.
        after: Duration,
    },
    /// One side does not accept the other's certificate.
    #[error("{}{endpoint}: TLS: {fault}", of_file(file))]
    Tls {
        /// The client file, named as the peer; empty for URLs of the command line.
        file: PathBuf,
        /// The endpoint.
        endpoint: String,
        /// Who refuses whom, and why.
        fault: Box<TlsFault>,
    },
    /// The client's certificate does not allow the call.
    #[error(
        "{endpoint}: {step}: {user} is not allowed to: {detail}; check that etcd has a user of that name, with the role that Cilium gives it (users.yaml of that cluster for users of peers), or use another certificate"
    )]
    Denied {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
        /// Who called: the certificate's common name, and its file.
        user: String,
        /// What etcd says.
        detail: String,
    },
    /// The revision is no longer kept: list anew.
    #[error("{endpoint}: {step}: the revision asked for is compacted; a new list is needed")]
    Compacted {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
    },
    /// The store has not reached a revision that was seen before: it was emptied or replaced.
    #[error(
        "{endpoint}: {step}: the store is at revision {got}, before {expected} which was seen earlier: it was emptied or replaced; a new list is needed"
    )]
    StoreBehind {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
        /// Revision that was seen.
        expected: i64,
        /// Revision that the store is at.
        got: i64,
    },
    /// Another etcd cluster answers at the endpoint.
    #[error(
        "{endpoint}: {step}: another etcd cluster answers: expected id {expected:x}, got {got:x}; a new list is needed"
    )]
    StoreChanged {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
        /// Id of the cluster that answered before.
        expected: u64,
        /// Id of the cluster that answers now.
        got: u64,
    },
    /// The lease is gone, and with it every key that was attached to it.
    #[error("{endpoint}: lease {lease} is gone; its keys have to be written again")]
    LeaseNotFound {
        /// The endpoint.
        endpoint: String,
        /// The lease.
        lease: LeaseId,
    },
    /// The lock that allows to write is gone: another process may have it now. Nothing was written.
    #[error(
        "{endpoint}: lock {lock} is lost, another process may write; this one must not write any more and has to begin anew"
    )]
    LockLost {
        /// The endpoint.
        endpoint: String,
        /// Key of the lock.
        lock: String,
    },
    /// The answer is larger than what is taken into memory.
    #[error(
        "{endpoint}: {step}: the answer is larger than any that is taken into memory; remove large records from that etcd, and lower its --max-request-bytes"
    )]
    AnswerTooLarge {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
    },
    /// The store refused the call for another reason.
    #[error("{endpoint}: {step}: refused: {detail}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The call.
        step: Step,
        /// What the store says.
        detail: String,
    },
}

/// The client file at the beginning of a message.
fn of_file(file: &Path) -> String {
    if file.as_os_str().is_empty() {
        String::new()
    } else {
        format!("{}: ", file.display())
    }
}

impl Error {
    /// Short name for metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Config(_) => "ConfigInvalid",
            Self::Unreachable { .. } => "Unreachable",
            Self::TimedOut { .. } => "TimedOut",
            Self::Tls { .. } => "TlsRefused",
            Self::Denied { .. } => "Denied",
            Self::Compacted { .. } => "Compacted",
            Self::StoreBehind { .. } => "StoreBehind",
            Self::StoreChanged { .. } => "StoreChanged",
            Self::LeaseNotFound { .. } => "LeaseNotFound",
            Self::LockLost { .. } => "LockLost",
            Self::AnswerTooLarge { .. } => "AnswerTooLarge",
            Self::Refused { .. } => "Refused",
        }
    }
}
