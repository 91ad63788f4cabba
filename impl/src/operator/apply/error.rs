//! Writes that did not happen, told apart by what to do next.

use kube::core::Status;
use thiserror::Error;

use super::controller::Verb;
use crate::operator::leadership::Lapsed;

/// Cause in a refusal of the API server: the namespace is being deleted. Kubernetes.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// A write that did not happen.
#[derive(Debug, Error)]
pub enum Error {
    /// The object is not, or no longer, what the controller saw. It will see better next time.
    #[error(
        "cannot {} {object}: it changed meanwhile: {source}; it is looked at again", verb.as_str()
    )]
    Stale {
        /// What was tried.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The namespace is being deleted: nothing can be made there any more, and nothing needs to be.
    #[error("cannot {} {object}: its namespace is being deleted", verb.as_str())]
    NamespaceTerminating {
        /// What was tried.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
    },
    /// What the write would rest on is itself about to be written.
    #[error("{object} waits until its ServiceImport is as it should be; it is looked at again")]
    Unsettled {
        /// Kind, namespace and name.
        object: String,
    },
    /// This replica has no right to write, or lost it meanwhile. Not for this replica to try again: who leads looks at every name.
    #[error("did not {} {object}: {source}", verb.as_str())]
    NotLeading {
        /// What was to be done.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
        /// Why there is no right.
        #[source]
        source: Lapsed,
    },
    /// The API server could not be asked, or it refused.
    #[error(
        "cannot {} {object}: {source}; check that the API server is reachable, the operator's rights, and the object", verb.as_str()
    )]
    Refused {
        /// What was tried.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    /// Short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "Stale",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::Unsettled { .. } => "Unsettled",
            Self::NotLeading { source, .. } => source.reason(),
            Self::Refused { .. } => "Refused",
        }
    }

    /// What the API server said, if it was asked and refuses the object as it is or for what it is not allowed to be.
    pub fn refusal(&self) -> Option<&str> {
        let Self::Refused { source, .. } = self else {
            return None;
        };
        let kube::Error::Api(status) = &**source else {
            return None;
        };
        (400..500)
            .contains(&status.code)
            .then_some(status.message.as_str())
    }
}

/// What an answer of the API server means for a write.
pub(super) fn classify(verb: Verb, object: String, error: kube::Error) -> Error {
    if let kube::Error::Api(status) = &error {
        if is_namespace_terminating(status) {
            return Error::NamespaceTerminating { verb, object };
        }
        if status.is_conflict() || status.is_not_found() {
            let source = Box::new(error);
            return Error::Stale {
                verb,
                object,
                source,
            };
        }
    }
    let source = Box::new(error);
    Error::Refused {
        verb,
        object,
        source,
    }
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden()
        && causes
            .into_iter()
            .any(|cause| cause.reason == NAMESPACE_TERMINATING)
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn refusal(code: u16, reason: &str, cause: Option<&str>) -> kube::Error {
        let causes = cause.map(|cause| StatusCause {
            reason: cause.to_owned(),
            message: String::new(),
            field: String::new(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.into_iter().collect(),
            retry_after_seconds: 0,
        };
        let status = Status::failure("no", reason)
            .with_code(code)
            .with_details(details);
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn refusals_are_told_apart_by_what_to_do_next() {
        let cases = [
            (
                refusal(403, "Forbidden", Some("NamespaceTerminating")),
                "NamespaceTerminating",
            ),
            (refusal(403, "Forbidden", None), "Refused"),
            (refusal(409, "Conflict", None), "Stale"),
            (refusal(404, "NotFound", None), "Stale"),
            (refusal(422, "Invalid", None), "Refused"),
        ];

        for (error, expected) in cases {
            let error = classify(Verb::Apply, "Service shop/web".to_owned(), error);
            assert_eq!(error.reason(), expected);
            assert!(error.to_string().contains("Service shop/web"), "{error}");
            let said = (expected == "Refused").then_some("no");
            assert_eq!(error.refusal(), said);
        }
    }
}
