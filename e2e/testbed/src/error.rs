//! Why a testbed could not do what a test asked.

use std::{io, path::PathBuf};

use crate::{
    api::{CertificateError, MAX_CLUSTERS, PortError},
    assets::{MissingAssets, MissingNodeAssets},
    component::ComponentError,
    kind::{KindError, MissingKind},
    local::LocalError,
    peers::PeerError,
    provider::ProviderError,
    roles::RoleError,
};

/// Any failure of the testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Binaries are missing.
    #[error(transparent)]
    Assets(#[from] MissingAssets),
    /// What nodes need is missing.
    #[error(transparent)]
    NodeAssets(#[from] MissingNodeAssets),
    /// Clusters with nodes could not be made, or a command on them could not be run.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// What kind clusters need is missing.
    #[error(transparent)]
    KindTools(#[from] MissingKind),
    /// Kind clusters could not be made, or something could not be done to one.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// The chosen provider cannot do it.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// More clusters than there are address ranges.
    #[error("{asked} clusters were asked for, and 1 to {MAX_CLUSTERS} are possible")]
    Count {
        /// How many.
        asked: usize,
    },
    /// No free ports.
    #[error(transparent)]
    Ports(#[from] PortError),
    /// Certificates could not be made.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// A process failed.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// A role of Tombolo could not be run.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The directory of peers could not be changed.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A file of the run could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The watchdog or the directory of the run could not be made.
    #[error("cannot start a run (needs sh and a temporary directory): {0}")]
    Run(#[source] io::Error),
    /// The API server refused something.
    #[error("{cluster}: {action}: {source}")]
    Api {
        /// Name of the cluster.
        cluster: String,
        /// What was asked of it.
        action: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
}
