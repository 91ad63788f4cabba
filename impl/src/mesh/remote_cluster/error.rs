//! Why a peer cannot be followed.

use thiserror::Error;
use tombolo_core::{
    names::{ClusterId, ClusterName},
    wire,
};

use crate::kvstore;

/// Why a peer cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Error {
    /// Its store failed.
    #[error(transparent)]
    Store(#[from] kvstore::Error),
    /// Its store went back in time or is another one.
    #[error("{endpoint}: the store was emptied or replaced; reading everything anew")]
    StoreReplaced {
        /// The store.
        endpoint: String,
    },
    /// It has no cluster-config.
    #[error(
        "{key} is missing; check that the peer's mesh role runs, and that the file in the configuration directory has the peer's cluster name"
    )]
    NoConfig {
        /// The key.
        key: String,
    },
    /// Its cluster-config is malformed.
    #[error("{key} cannot be read: {source}; check the version of the peer")]
    BadConfig {
        /// The key.
        key: String,
        /// What is wrong.
        source: wire::Error,
    },
    /// Its id is beyond this mesh's limit.
    #[error(
        "{key}: clusterID {id} is larger than the {max} clusters of this mesh; correct the peer's id or --max-connected-clusters"
    )]
    IdTooLarge {
        /// The key.
        key: String,
        /// Its id.
        id: ClusterId,
        /// The limit.
        max: u32,
    },
    /// The two clusters disagree on the size of the mesh.
    #[error(
        "{key}: mismatched MaxConnectedClusters; local={local}, remote={remote}; give both the same --max-connected-clusters"
    )]
    MaxMismatch {
        /// The key.
        key: String,
        /// Of this cluster.
        local: u32,
        /// Of the peer.
        remote: u32,
    },
    /// It has this cluster's id.
    #[error(
        "{key}: clusterID {id} is assigned to the local cluster; give one of the two another id"
    )]
    IdLocal {
        /// The key.
        key: String,
        /// The id.
        id: ClusterId,
    },
    /// It has another peer's id.
    #[error("{key}: clusterID {id} is already used by {holder}; give one of the two another id")]
    IdTaken {
        /// The key.
        key: String,
        /// The id.
        id: ClusterId,
        /// Who has it.
        holder: ClusterName,
    },
}

impl Error {
    /// Short name for metrics and logs.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Store(error) => error.reason(),
            Self::StoreReplaced { .. } => "StoreReplaced",
            Self::NoConfig { .. } => "NoClusterConfig",
            Self::BadConfig { .. } => "BadClusterConfig",
            Self::IdTooLarge { .. } => "ClusterIdTooLarge",
            Self::MaxMismatch { .. } => "MaxConnectedClustersMismatch",
            Self::IdLocal { .. } => "ClusterIdIsLocal",
            Self::IdTaken { .. } => "ClusterIdTaken",
        }
    }
}
