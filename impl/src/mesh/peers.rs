//! What the operator knows of all peers: their rows, and how far each peer can be trusted.
//!
//! Readers get copies; names that changed are reported to one sink, after the lock was released. Rows leave only by
//! evidence. That a peer has no row means something only when [`RemoteState::may_remove`] says so.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tombolo_core::{
    evidence::{Complete, Evidence},
    names::{ClusterName, NamespacedName},
    service::{ClusterService, ExportSpec},
    wire::key::Resource,
};

pub use super::peer::{Dirty, LocalCluster, PeerState, PeerStatus, RecordKind};
pub use super::peering::run_peers;
pub use super::remote_cluster::{Budget, Options};
pub use super::statuses::Statuses;
use super::{
    remote_cluster::{Origin, Outcome, RawChange, Records},
    rows::{self, Row},
    tables::Table,
};

/// Called with each service whose rows changed; must not block.
pub type Sink = Arc<dyn Fn(Dirty) + Send + Sync>;

/// What is known of all peers. Clones are the same state.
#[derive(Clone)]
pub struct RemoteState {
    shared: Arc<Shared>,
    statuses: Statuses,
}

struct Shared {
    tables: RwLock<Tables>,
    sink: Sink,
}

#[derive(Debug, Default)]
struct Tables {
    exports: Table<ExportSpec>,
    services: Table<ClusterService>,
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
                sink,
            }),
            statuses: Statuses::default(),
        }
    }

    /// The status of the peers.
    pub fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// What peers export under this name, by cluster.
    pub fn exports(&self, name: &NamespacedName) -> Vec<ExportSpec> {
        self.read(|tables| {
            let rows = tables.exports.rows(name);
            rows.map(|(_, row)| row.clone()).collect()
        })
    }

    /// The global services of peers under this name, by cluster.
    pub fn services(&self, name: &NamespacedName) -> Vec<ClusterService> {
        self.read(|tables| {
            let rows = tables.services.rows(name);
            rows.map(|(_, row)| row.clone()).collect()
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
        self.statuses.peers()
    }

    /// As [`Statuses::may_remove`].
    pub fn may_remove(&self, cluster: &ClusterName) -> bool {
        self.statuses.may_remove(cluster)
    }

    /// As [`Statuses::all_synced`].
    pub fn all_synced(&self) -> bool {
        self.statuses.all_synced()
    }

    /// As [`Statuses::changes`].
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.statuses.changes()
    }

    /// Adds the counters to a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.statuses.register_metrics(registry);
    }

    fn report(&self, dirty: BTreeSet<Dirty>) {
        for changed in dirty {
            (self.shared.sink)(changed);
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        let tables = self.shared.tables.read();
        read(&tables.unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Tables) -> T) -> T {
        let tables = self.shared.tables.write();
        write(&mut tables.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Records for RemoteState {
    fn kinds(&self) -> &'static [Resource] {
        &[Resource::ServiceExports, Resource::Services]
    }

    fn apply(&self, origin: &Origin<'_>, changes: &[RawChange<'_>]) -> Vec<Outcome> {
        // Records are decoded before the lock is taken.
        let read: Vec<_> = changes
            .iter()
            .map(|change| rows::read(origin, change))
            .collect();
        let mut dirty = BTreeSet::new();
        let outcomes = self.write(|tables| {
            let apply = |read| match read {
                Ok(change) => {
                    let (outcome, name) = tables.apply(origin.peer, change);
                    dirty.extend(name);
                    outcome
                }
                Err(refusal) => Outcome::Refused(refusal),
            };
            read.into_iter().map(apply).collect()
        });
        self.report(dirty);
        outcomes
    }

    fn retain_listed(
        &self,
        origin: &Origin<'_>,
        present: &BTreeSet<String>,
        complete: Complete,
    ) -> usize {
        let present = present
            .iter()
            .filter_map(|key| rows::name(key).ok())
            .collect();
        let Some(kind) = rows::kind(origin.kind) else {
            return 0;
        };
        let removed = self.write(|tables| match kind {
            RecordKind::Exports => tables
                .exports
                .retain_listed(origin.peer, &present, complete),
            RecordKind::Services => tables
                .services
                .retain_listed(origin.peer, &present, complete),
        });
        let count = removed.len();
        let dirty = removed.into_iter().map(|name| gone(kind, name));
        self.report(dirty.collect());
        count
    }

    fn drain(&self, peer: &ClusterName, kinds: &[Resource], evidence: Evidence) {
        let mut dirty = BTreeSet::new();
        for kind in kinds.iter().copied().filter_map(rows::kind) {
            let removed = self.write(|tables| match kind {
                RecordKind::Exports => tables.exports.remove_cluster(peer, evidence),
                RecordKind::Services => tables.services.remove_cluster(peer, evidence),
            });
            dirty.extend(removed.into_iter().map(|name| gone(kind, name)));
        }
        self.report(dirty);
    }
}

impl Tables {
    fn apply(&mut self, cluster: &ClusterName, change: rows::Change) -> (Outcome, Option<Dirty>) {
        let (kind, name, changed, lost) = match change {
            rows::Change::Set(name, Row::Export(row)) => {
                let changed = self.exports.set(cluster, &name, *row);
                (RecordKind::Exports, name, changed, false)
            }
            rows::Change::Set(name, Row::Service(row)) => {
                let before = self.services.row(cluster, &name);
                let lost = before.is_some_and(|before| loses_backends(before, &row));
                let changed = self.services.set(cluster, &name, *row);
                (RecordKind::Services, name, changed, lost)
            }
            rows::Change::Remove(kind, name, evidence) => {
                let removed = match kind {
                    RecordKind::Exports => self.exports.remove(cluster, &name, evidence),
                    RecordKind::Services => self.services.remove(cluster, &name, evidence),
                };
                return (Outcome::Gone, removed.then(|| gone(kind, name)));
            }
        };
        (Outcome::Held, changed.then_some(Dirty { kind, name, lost }))
    }
}

/// A row is gone.
fn gone(kind: RecordKind, name: NamespacedName) -> Dirty {
    Dirty {
        kind,
        name,
        lost: true,
    }
}

/// Whether a backend that was there is not there any more.
fn loses_backends(before: &ClusterService, now: &ClusterService) -> bool {
    let mut addresses = before.backends.keys();
    addresses.any(|address| !now.backends.contains_key(address))
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
