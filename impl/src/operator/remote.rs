//! What the operator needs to know of its peers.
//!
//! A seam: the operator never sees stores, watches or connections.

use std::collections::BTreeSet;

use tokio::sync::watch;
use tombolo_core::{
    names::{ClusterName, NamespacedName},
    service::{ClusterService, ExportSpec},
};

use crate::mesh::peers::{RecordKind, RemoteState};

/// What peers say, as of now. Reading is cheap and never waits.
pub trait Remote: Send + Sync + 'static {
    /// The exports of a service, at most one from each peer.
    fn exports(&self, name: &NamespacedName) -> Vec<ExportSpec>;

    /// The global services of a name, at most one from each peer.
    fn services(&self, name: &NamespacedName) -> Vec<ClusterService>;

    /// Every name that a peer exports or has a global service of.
    fn names(&self) -> BTreeSet<NamespacedName>;

    /// Whether the silence of a cluster about a name means something: it was read completely once, or is no peer, and what it
    /// says of the name was taken.
    fn may_remove(&self, cluster: &ClusterName, kind: RecordKind, name: &NamespacedName) -> bool;

    /// Whether the silence of every peer about a name means something.
    fn all_telling(&self, kind: RecordKind, name: &NamespacedName) -> bool;

    /// Changes whenever the answers of the two above may have, for many names; a change for one name is told as one of its rows.
    fn changes(&self) -> watch::Receiver<u64>;
}

impl Remote for RemoteState {
    fn exports(&self, name: &NamespacedName) -> Vec<ExportSpec> {
        self.exports(name)
    }

    fn services(&self, name: &NamespacedName) -> Vec<ClusterService> {
        self.services(name)
    }

    fn names(&self) -> BTreeSet<NamespacedName> {
        self.names()
    }

    fn may_remove(&self, cluster: &ClusterName, kind: RecordKind, name: &NamespacedName) -> bool {
        self.may_remove(cluster, kind, name)
    }

    fn all_telling(&self, kind: RecordKind, name: &NamespacedName) -> bool {
        self.all_telling(kind, name)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes()
    }
}
