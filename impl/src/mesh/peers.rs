//! What the operator knows of all peers: their rows, and how far each peer can be trusted.
//!
//! Readers get copies; names that changed are reported to one sink, after the lock was released. Rows leave only by
//! evidence. That a peer has no row means something only when [`RemoteState::may_remove`] says so: what it says of a service
//! may have been refused, or over its limits.

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
    gaps::{Gap, Gaps},
    remote_cluster::{Origin, Outcome, RawChange, Records, Untaken},
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
    gaps: Gaps,
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

    /// Whether it means anything that this cluster has no row of a service: [`Statuses::may_remove`] says so, and what it says of
    /// the service was neither refused nor over its limits.
    pub fn may_remove(
        &self,
        cluster: &ClusterName,
        kind: RecordKind,
        name: &NamespacedName,
    ) -> bool {
        // The status comes first: a peer is synced only after its gaps are known.
        self.statuses.may_remove(cluster)
            && self.read(|tables| !tables.gaps.contains(cluster, kind, name))
    }

    /// Whether that is so of every peer.
    pub fn all_telling(&self, kind: RecordKind, name: &NamespacedName) -> bool {
        self.statuses.all_synced() && self.read(|tables| !tables.gaps.contains_any(kind, name))
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

    /// Rows are gone, and of other services it is known now that there is none.
    fn report_gone(&self, kind: RecordKind, removed: Vec<NamespacedName>, closed: Gap) {
        let names = removed.into_iter().chain(closed.names);
        self.report(names.map(|name| gone(kind, name)).collect());
        if closed.all {
            self.statuses.silence_changed();
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
            let apply = |(change, read): (&RawChange<'_>, _)| match read {
                Ok(change) => {
                    let (outcome, name) = tables.apply(origin.peer, change);
                    dirty.extend(name);
                    outcome
                }
                Err(refusal) => {
                    let about = rows::kind(origin.kind).zip(rows::name(change.key()).ok());
                    if let Some((kind, name)) = about {
                        tables.gaps.open(origin.peer, kind, name);
                    }
                    Outcome::Refused(refusal)
                }
            };
            changes.iter().zip(read).map(apply).collect()
        });
        self.report(dirty);
        outcomes
    }

    fn retain_listed(
        &self,
        origin: &Origin<'_>,
        present: &BTreeSet<String>,
        untaken: &Untaken,
        complete: Complete,
    ) -> usize {
        let Some(kind) = rows::kind(origin.kind) else {
            return 0;
        };
        let present = present
            .iter()
            .filter_map(|key| rows::name(key).ok())
            .collect();
        let mut gap = Gap {
            names: BTreeSet::new(),
            all: untaken.has_unnamed(),
        };
        let keys = untaken.refused().chain(untaken.over());
        for name in keys.filter_map(|key| rows::name(key).ok()) {
            gap.add(name);
        }
        let (removed, closed) = self.write(|tables| {
            let removed = match kind {
                RecordKind::Exports => {
                    tables
                        .exports
                        .retain_listed(origin.peer, &present, complete)
                }
                RecordKind::Services => {
                    tables
                        .services
                        .retain_listed(origin.peer, &present, complete)
                }
            };
            (removed, tables.gaps.replace(origin.peer, kind, gap))
        });
        let count = removed.len();
        self.report_gone(kind, removed, closed);
        count
    }

    fn not_published(&self, peer: &ClusterName, kind: Resource) {
        if let Some(kind) = rows::kind(kind) {
            let closed = self.write(|tables| tables.gaps.replace(peer, kind, Gap::default()));
            self.report_gone(kind, Vec::new(), closed);
        }
    }

    fn drain(&self, peer: &ClusterName, kinds: &[Resource], evidence: Evidence) {
        for kind in kinds.iter().copied().filter_map(rows::kind) {
            let (removed, closed) = self.write(|tables| {
                let removed = match kind {
                    RecordKind::Exports => tables.exports.remove_cluster(peer, evidence),
                    RecordKind::Services => tables.services.remove_cluster(peer, evidence),
                };
                (removed, tables.gaps.replace(peer, kind, Gap::default()))
            });
            self.report_gone(kind, removed, closed);
        }
    }
}

impl Tables {
    fn apply(&mut self, cluster: &ClusterName, change: rows::Change) -> (Outcome, Option<Dirty>) {
        let (kind, name, changed, lost) = match change {
            rows::Change::Unknown(kind, name) => {
                self.gaps.open(cluster, kind, name);
                return (Outcome::Withheld, None);
            }
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
                let known = self.gaps.close(cluster, kind, &name);
                return (Outcome::Gone, (removed || known).then(|| gone(kind, name)));
            }
        };
        self.gaps.close(cluster, kind, &name);
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
