//! The words for a peer: who follows, the kinds of rows, its status.

use std::fmt;

pub use tombolo_core::peer_status::{PeerState, PeerStatus};
use tombolo_core::{
    names::{ClusterId, ClusterName, NamespacedName},
    wire::key::Resource,
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

/// A kind of row that the operator works with.
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

    /// The stored kind that the rows are made of.
    pub fn resource(self) -> Resource {
        match self {
            Self::Exports => Resource::ServiceExports,
            Self::Services => Resource::Services,
        }
    }

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
    /// Whether something is gone: a row, or a backend. It should be acted upon first.
    pub lost: bool,
}
