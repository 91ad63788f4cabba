//! Why clusters could not be connected or disconnected.

use thiserror::Error;

use super::{invitation::InvitationError, refusal::Refusal, session::NotSynced};
use crate::cli::render::printable;

/// What went wrong.
#[derive(Debug, Error)]
pub(in crate::cli) enum ConnectError {
    /// The namespace has no installation.
    #[error(
        "context {context}: namespace {namespace} has no Deployment with the labels app.kubernetes.io/name=tombolo and app.kubernetes.io/component=mesh or operator; install the chart there (helm install), or name its namespace: --namespace {context}=NAME"
    )]
    NotInstalled {
        /// The context.
        context: String,
        /// The namespace.
        namespace: String,
    },
    /// An installation does not say who the cluster is.
    #[error(
        "context {context}: {object}: args: {flag}: missing or not valid; expected what the chart writes; upgrade the release"
    )]
    BadInstallation {
        /// The context.
        context: String,
        /// The object.
        object: String,
        /// The flag.
        flag: &'static str,
    },
    /// An API server refused.
    #[error("context {context}: cannot {what}: {problem}; {next}")]
    Api {
        /// The context.
        context: String,
        /// What was tried.
        what: String,
        /// What it said.
        problem: String,
        /// What to do.
        next: &'static str,
    },
    /// An API server did not answer.
    #[error(
        "context {context}: no answer within {seconds} s; check that its API server is reachable from here"
    )]
    Late {
        /// The context.
        context: String,
        /// How long it had.
        seconds: u64,
    },
    /// The list of users cannot be edited.
    #[error(
        "context {context}: ConfigMap clustermesh-remote-users: users.yaml {problem}; expected users: [{{name: remote-PEER, role: remote}}]; correct it"
    )]
    Users {
        /// The context.
        context: String,
        /// What is wrong.
        problem: String,
    },
    /// The clusters do not go together.
    #[error("nothing was written:{}", list(.0))]
    Refused(Vec<Refusal>),
    /// An invitation cannot be used.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// What the rest depends on is not there yet.
    #[error("not finished: {0}; run the command again when it is there, or pass --endpoint")]
    Unfinished(String),
    /// The flags do not go together.
    #[error("{0}")]
    Flags(String),
}

impl ConnectError {
    /// What an API server said, and what to do about it.
    pub(super) fn api(context: &str, what: impl Into<String>, source: kube::Error) -> Self {
        let next = next_step(&source);
        Self::Api {
            context: context.to_owned(),
            what: what.into(),
            problem: printable(&crate::cli::message(&source.into())),
            next,
        }
    }

    /// The exit code: 2 when the user has to say or change something first.
    pub(in crate::cli) fn exit_code(&self) -> u8 {
        match self {
            Self::Api { .. } | Self::Late { .. } => 1,
            Self::NotInstalled { .. }
            | Self::BadInstallation { .. }
            | Self::Users { .. }
            | Self::Refused(_)
            | Self::Invitation(_)
            | Self::Flags(_) => 2,
            Self::Unfinished(_) => NotSynced::EXIT_CODE,
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is kube's, and the advice is the same for the rest"
)]
fn next_step(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            "have this right given to your user (docs/guide/connect.md has the Role), and run the command again"
        }
        kube::Error::Api(status) if status.code == 401 => "renew the credentials of the context",
        kube::Error::Api(status) if status.code == 409 => {
            "somebody else has written it at the same time, or owns it: look at its managedFields, and run the command again"
        }
        kube::Error::Api(_) => "mend what it complains about, and run the command again",
        _ => "check that its API server is reachable from here, and run the command again",
    }
}

fn list(refusals: &[Refusal]) -> String {
    let lines = refusals.iter().map(|it| format!("\n- {it}"));
    lines.collect()
}
