//! What went wrong with `tombolo dns`.

use thiserror::Error;

use crate::cluster::client::said;

/// Why DNS is not configured.
#[derive(Debug, Error)]
pub enum Error {
    /// Something could not be read.
    #[error(
        "cannot read {what}: {}; check the context, and that its user may do this",
        said(source)
    )]
    Read {
        /// What.
        what: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// CoreDNS is not where it was looked for.
    #[error(
        "no Deployment {namespace}/{name}; name that of CoreDNS with --coredns-namespace and --coredns-deployment-name; clusters with another DNS server, as some clouds have, cannot be configured"
    )]
    NoDeployment {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// The Corefile is not where it was looked for.
    #[error(
        "no ConfigMap {namespace}/{name}; name the one with the Corefile with --coredns-configmap-name"
    )]
    NoConfigMap {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// Something could not be written.
    #[error(
        "cannot {what}: {}; check that the user of this context may do this, then run this again: what is done stays done",
        said(source)
    )]
    Write {
        /// What.
        what: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// Somebody else changed the object at the same time.
    #[error(
        "ConfigMap {object}: was changed by somebody else at the same time; nothing of theirs was overwritten; run this again"
    )]
    Concurrent {
        /// Namespace and name.
        object: String,
    },
    /// The new rights are not seen yet.
    #[error(
        "{account} may still not list and watch serviceimports, although ClusterRole and ClusterRoleBinding tombolo-coredns say so; the Corefile was not changed; look for an authorizer besides RBAC"
    )]
    NoRights {
        /// The account.
        account: String,
    },
}

/// Something is not as it has to be.
#[derive(Debug, Error)]
pub enum NotDone {
    /// Something has to be mended first.
    #[error("refused: {0}; nothing was changed")]
    Blocked(String),
    /// `--check` found something.
    #[error("not configured: {0}; run `tombolo dns configure` without --check")]
    Missing(String),
    /// The objects are written, the answers are not as they should be.
    #[error(
        "not proven: {0}; look at the pods and logs of CoreDNS, then run this again with --check"
    )]
    Unproven(String),
}
