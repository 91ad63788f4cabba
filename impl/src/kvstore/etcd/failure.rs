//! The client library's errors as ours.

use std::error::Error as _;

use super::super::{Error, LeaseId, Step};

/// Whether the next call should connect anew.
pub(super) fn breaks_connection(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. }
        | Error::TimedOut { .. }
        | Error::Tls { .. }
        | Error::StoreChanged { .. }
        | Error::StoreBehind { .. } => true,
        Error::Config(_)
        | Error::Denied { .. }
        | Error::Compacted { .. }
        | Error::LeaseNotFound { .. }
        | Error::LockLost { .. }
        | Error::AnswerTooLarge { .. }
        | Error::Refused { .. } => false,
    }
}

/// gRPC's status codes, by number.
mod code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const INTERNAL: i32 = 13;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// The library's error as one of ours.
///
/// `user` is who calls, in words.
pub(super) fn classify(
    endpoint: &str,
    user: &str,
    step: Step,
    error: &etcd_client::Error,
) -> Error {
    let endpoint = endpoint.to_owned();
    let detail = detail_of(error);
    let etcd_client::Error::GRpcStatus(status) = error else {
        return Error::Unreachable {
            endpoint,
            step,
            detail,
        };
    };
    match status.code() as i32 {
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => Error::Denied {
            endpoint,
            step,
            user: user.to_owned(),
            detail,
        },
        // etcd's own words about users, which it gives no code of their own.
        code::UNKNOWN if detail.starts_with("auth: ") => Error::Denied {
            endpoint,
            step,
            user: user.to_owned(),
            detail,
        },
        // Access control is on, and the client showed no certificate.
        code::INVALID_ARGUMENT if detail.contains("user name is empty") => Error::Denied {
            endpoint,
            step,
            user: user.to_owned(),
            detail,
        },
        code::OUT_OF_RANGE if detail.contains("compacted") => Error::Compacted { endpoint, step },
        code::OUT_OF_RANGE if detail.contains("future revision") => Error::StoreBehind {
            endpoint,
            step,
            expected: 0,
            got: 0,
        },
        // The client library's own words: it did not take the answer.
        code::OUT_OF_RANGE if detail.contains("message length too large") => {
            Error::AnswerTooLarge { endpoint, step }
        }
        code::NOT_FOUND if detail.contains("lease") => Error::LeaseNotFound {
            endpoint,
            lease: LeaseId(0),
        },
        code::CANCELLED
        | code::UNKNOWN
        | code::DEADLINE_EXCEEDED
        | code::INTERNAL
        | code::UNAVAILABLE => Error::Unreachable {
            endpoint,
            step,
            detail,
        },
        _ => Error::Refused {
            endpoint,
            step,
            detail,
        },
    }
}

/// Puts the lease into an error that could not know it.
pub(super) fn for_lease(error: Error, lease: Option<LeaseId>) -> Error {
    match (error, lease) {
        (Error::LeaseNotFound { endpoint, .. }, Some(lease)) => {
            Error::LeaseNotFound { endpoint, lease }
        }
        (error, _) => error,
    }
}

/// Puts the revision that was asked for into an error that could not know it.
pub(super) fn for_revision(error: Error, revision: i64) -> Error {
    let Error::StoreBehind {
        endpoint,
        step,
        got,
        ..
    } = error
    else {
        return error;
    };
    Error::StoreBehind {
        endpoint,
        step,
        expected: revision,
        got,
    }
}

/// An error with its causes; the transport says the useful part last.
fn detail_of(error: &etcd_client::Error) -> String {
    let status = if let etcd_client::Error::GRpcStatus(status) = error {
        Some((status.message().to_owned(), status.source()))
    } else {
        None
    };
    let transport = if let etcd_client::Error::TransportError(error) = error {
        Some((error.to_string(), error.source()))
    } else {
        None
    };
    let (mut text, mut source) = status
        .or(transport)
        .unwrap_or_else(|| (error.to_string(), None));
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
