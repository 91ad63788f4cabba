//! The words for a peer: the kinds of its records, its state, its status.

use std::fmt;

use tombolo_core::{
    names::{ClusterId, ClusterName, NamespacedName},
    wire::cluster_config::ClusterConfig,
};

/// This cluster, as far as its peers matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalCluster {
    /// Its name; a peer of this name is ignored.
    pub name: ClusterName,
    /// Its id; a peer with this id is refused.
    pub id: ClusterId,
    /// Largest id in the mesh: 255 or 511 (Cilium's `maxConnectedClusters`).
    pub max_connected: u32,
}

/// A kind of record that peers leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// Exports of the MCS-API: `serviceexports` records.
    Exports,
    /// Global services with backends: `services` records.
    Services,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Exports, Self::Services];

    /// Short name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exports => "exports",
            Self::Services => "services",
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A service whose rows changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dirty {
    /// Which rows.
    pub kind: RecordKind,
    /// Of which service.
    pub name: NamespacedName,
}

/// How far a peer can be trusted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// Never synced, and not connected.
    Connecting,
    /// Never synced; connected and reading.
    Listing,
    /// Everything it says was read, and changes are followed.
    Ready,
    /// It was synced, but its connection, its canary, its cluster-config or a capability is gone: rows are kept and used, and
    /// nothing is removed.
    Suspect,
}

impl PeerState {
    /// Short name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::Listing => "Listing",
            Self::Ready => "Ready",
            Self::Suspect => "Suspect",
        }
    }
}

/// A configured peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its name.
    pub cluster: ClusterName,
    /// How far it can be trusted.
    pub state: PeerState,
    /// Whether it was synced once since this process began, so that what it lacks is known to be lacking.
    pub synced: bool,
    /// What it says of itself, once accepted.
    pub config: Option<ClusterConfig>,
    /// What went wrong last, until it is ready again.
    pub last_error: Option<String>,
    /// Revision of its store up to which it was followed.
    pub revision: i64,
}
