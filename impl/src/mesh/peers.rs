//! What is known of all peers: their rows, and how far each can be trusted.
//!
//! Readers get copies; names that changed are reported to one sink, after the lock was released. Rows leave only by
//! evidence. That a peer has no row means something only when [`RemoteState::may_remove`] says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::sync::watch;
use tombolo_core::{
    evidence::{Complete, Evidence},
    names::{ClusterName, NamespacedName},
    service::{ClusterService, ExportSpec},
};

pub use super::peer::{Dirty, LocalCluster, PeerState, PeerStatus, RecordKind};
pub use super::peering::run_peers;
use super::tables::Table;

/// Called with each service whose rows changed; must not block.
pub type Sink = Arc<dyn Fn(Dirty) + Send + Sync>;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Row {
    /// Of an export.
    Export(Box<ExportSpec>),
    /// Of a global service.
    Service(Box<ClusterService>),
}

/// A change of one row of a peer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// The peer says this.
    Set(NamespacedName, Row),
    /// The peer no longer says anything, provably.
    Remove(RecordKind, NamespacedName, Evidence),
}

/// What is known of all peers. Clones are the same state.
#[derive(Clone)]
pub struct RemoteState {
    shared: Arc<Shared>,
}

struct Shared {
    tables: RwLock<Tables>,
    peers: RwLock<Peers>,
    sink: Sink,
    changed: watch::Sender<u64>,
    refused: Family<Vec<(&'static str, String)>, Counter>,
}

#[derive(Debug, Default)]
struct Tables {
    exports: Table<ExportSpec>,
    services: Table<ClusterService>,
}

#[derive(Debug, Default)]
struct Peers {
    loaded: bool,
    by_name: BTreeMap<ClusterName, PeerStatus>,
}

impl fmt::Debug for RemoteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteState")
            .field("peers", &self.peers())
            .finish_non_exhaustive()
    }
}

impl RemoteState {
    /// Without peers, and without knowing yet that there are none. Names that change go to the sink.
    pub fn new(sink: Sink) -> Self {
        Self {
            shared: Arc::new(Shared {
                tables: RwLock::default(),
                peers: RwLock::default(),
                sink,
                changed: watch::Sender::new(0),
                refused: Family::default(),
            }),
        }
    }

    /// What peers export under this name, by cluster.
    pub fn exports(&self, name: &NamespacedName) -> Vec<ExportSpec> {
        self.read(|tables| {
            tables
                .exports
                .rows(name)
                .map(|(_, row)| row.clone())
                .collect()
        })
    }

    /// The global services of peers under this name, by cluster.
    pub fn services(&self, name: &NamespacedName) -> Vec<ClusterService> {
        self.read(|tables| {
            tables
                .services
                .rows(name)
                .map(|(_, row)| row.clone())
                .collect()
        })
    }

    /// Every name that a peer has a row for.
    pub fn names(&self) -> BTreeSet<NamespacedName> {
        self.read(|tables| {
            let exports = tables.exports.names();
            exports.chain(tables.services.names()).cloned().collect()
        })
    }

    /// The configured peers, by name.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.with_peers(|peers| peers.by_name.values().cloned().collect())
    }

    /// Whether it means anything that this cluster has no row: it is no configured peer, or was synced once.
    ///
    /// False for every cluster until the configuration was read. Objects made from rows of a cluster for which this is false must
    /// not be removed for want of rows.
    pub fn may_remove(&self, cluster: &ClusterName) -> bool {
        self.with_peers(|peers| {
            peers.loaded && peers.by_name.get(cluster).is_none_or(|peer| peer.synced)
        })
    }

    /// Whether a peer was synced once.
    pub(crate) fn is_synced(&self, cluster: &ClusterName) -> bool {
        self.with_peers(|peers| peers.by_name.get(cluster).is_some_and(|peer| peer.synced))
    }

    /// A peer's state.
    pub(crate) fn state_of(&self, cluster: &ClusterName) -> Option<PeerState> {
        self.with_peers(|peers| peers.by_name.get(cluster).map(|peer| peer.state))
    }

    /// Whether the configuration was read and every peer in it was synced once.
    pub fn all_synced(&self) -> bool {
        self.with_peers(|peers| peers.loaded && peers.by_name.values().all(|peer| peer.synced))
    }

    /// Waits until [`Self::all_synced`], or until the time is over (Cilium's `--clustermesh-sync-timeout`: 1 min); true when all
    /// were synced.
    pub async fn all_synced_or(&self, time_out: Duration) -> bool {
        let mut changes = self.changes();
        let synced = async {
            while !self.all_synced() {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _in_time = tokio::time::timeout(time_out, synced).await;
        self.all_synced()
    }

    /// Changes whenever a peer comes, goes, or changes its state; rows, errors and revisions do not count: readers look at
    /// everything anew. When a peer became synced, what was held
    /// back for it can be looked at again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Adds the counters to a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "tombolo_mesh_records_refused",
            "Records of a peer that were skipped because they are malformed or lie about their origin",
            self.shared.refused.clone(),
        );
    }

    /// How many records of a peer were refused since this process began.
    pub fn records_refused(&self, cluster: &ClusterName, kind: RecordKind) -> u64 {
        self.refused(cluster, kind).get()
    }

    /// Counts a refused record.
    pub(crate) fn count_refused(&self, cluster: &ClusterName, kind: RecordKind) {
        self.refused(cluster, kind).inc();
    }

    /// The configuration was read: these are the peers. Their status stays when they were there before.
    pub(crate) fn configure(&self, names: &BTreeSet<ClusterName>) {
        self.update_peers(|peers| {
            peers.loaded = true;
            peers.by_name.retain(|name, _| names.contains(name));
            for name in names {
                let status = || PeerStatus {
                    cluster: name.clone(),
                    state: PeerState::Connecting,
                    synced: false,
                    config: None,
                    last_error: None,
                    revision: 0,
                };
                peers.by_name.entry(name.clone()).or_insert_with(status);
            }
        });
    }

    /// Changes the status of a configured peer.
    pub(crate) fn update_peer(&self, cluster: &ClusterName, update: impl FnOnce(&mut PeerStatus)) {
        self.update_peers(|peers| {
            if let Some(status) = peers.by_name.get_mut(cluster) {
                update(status);
            }
        });
    }

    /// Notes how far a peer was followed. Tells nobody: this happens with every event.
    pub(crate) fn followed(&self, cluster: &ClusterName, revision: i64) {
        let mut peers = self
            .shared
            .peers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = peers.by_name.get_mut(cluster) {
            status.revision = revision;
        }
    }

    /// Applies changes of one peer, then reports the names.
    pub(crate) fn apply(&self, cluster: &ClusterName, changes: Vec<Change>) {
        let mut dirty = BTreeSet::new();
        self.write(|tables| {
            for change in changes {
                if let Some(changed) = tables.apply(cluster, change) {
                    dirty.insert(changed);
                }
            }
        });
        self.report(dirty);
    }

    /// Removes the rows that a complete list did not contain, then reports their names; returns how many there were.
    pub(crate) fn retain_listed(
        &self,
        cluster: &ClusterName,
        kind: RecordKind,
        present: &BTreeSet<NamespacedName>,
        complete: Complete,
    ) -> usize {
        let removed = self.write(|tables| match kind {
            RecordKind::Exports => tables.exports.retain_listed(cluster, present, complete),
            RecordKind::Services => tables.services.retain_listed(cluster, present, complete),
        });
        let count = removed.len();
        self.report(
            removed
                .into_iter()
                .map(|name| Dirty { kind, name })
                .collect(),
        );
        count
    }

    /// Removes everything of a peer, then reports the names.
    pub(crate) fn drain(&self, cluster: &ClusterName, evidence: Evidence) {
        let (exports, services) = self.write(|tables| {
            (
                tables.exports.remove_cluster(cluster, evidence),
                tables.services.remove_cluster(cluster, evidence),
            )
        });
        let dirty = |kind| move |name| Dirty { kind, name };
        let exports = exports.into_iter().map(dirty(RecordKind::Exports));
        let services = services.into_iter().map(dirty(RecordKind::Services));
        self.report(exports.chain(services).collect());
    }

    fn report(&self, dirty: BTreeSet<Dirty>) {
        for changed in dirty {
            (self.shared.sink)(changed);
        }
    }

    fn refused(&self, cluster: &ClusterName, kind: RecordKind) -> Counter {
        let labels = vec![("cluster", cluster.to_string()), ("kind", kind.to_string())];
        self.shared.refused.get_or_create_owned(&labels)
    }

    fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        read(
            &self
                .shared
                .tables
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn write<T>(&self, write: impl FnOnce(&mut Tables) -> T) -> T {
        write(
            &mut self
                .shared
                .tables
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn with_peers<T>(&self, read: impl FnOnce(&Peers) -> T) -> T {
        read(
            &self
                .shared
                .peers
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn update_peers(&self, update: impl FnOnce(&mut Peers)) {
        let changed = {
            let mut peers = self
                .shared
                .peers
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            let before = peers.meaning();
            update(&mut peers);
            before != peers.meaning()
        };
        if changed {
            self.shared.changed.send_modify(|version| *version += 1);
        }
    }
}

impl Peers {
    /// What the silence of each peer means: whether the configuration was read, and how far each peer in it was.
    fn meaning(&self) -> (bool, Vec<(ClusterName, PeerState, bool)>) {
        let of = |peer: &PeerStatus| (peer.cluster.clone(), peer.state, peer.synced);
        (self.loaded, self.by_name.values().map(of).collect())
    }
}

impl Tables {
    fn apply(&mut self, cluster: &ClusterName, change: Change) -> Option<Dirty> {
        let (kind, name, changed) = match change {
            Change::Set(name, Row::Export(row)) => {
                let changed = self.exports.set(cluster, &name, *row);
                (RecordKind::Exports, name, changed)
            }
            Change::Set(name, Row::Service(row)) => {
                let changed = self.services.set(cluster, &name, *row);
                (RecordKind::Services, name, changed)
            }
            Change::Remove(kind, name, evidence) => {
                let changed = match kind {
                    RecordKind::Exports => self.exports.remove(cluster, &name, evidence),
                    RecordKind::Services => self.services.remove(cluster, &name, evidence),
                };
                (kind, name, changed)
            }
        };
        changed.then_some(Dirty { kind, name })
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
