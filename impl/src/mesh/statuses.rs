//! The status of every configured peer: written by the peers' tasks, read by everybody.
//!
//! Clocks are read here and in the tasks, nowhere else. What gives the silence of a peer another meaning is told to those who
//! wait; counters, errors and revisions change without a word.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use jiff::Timestamp;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::{sync::watch, time::Instant};
use tombolo_core::{evidence::Evidence, names::ClusterName, wire::key::Resource};

use super::{
    inquiry::Inquiries,
    peer::{PeerState, PeerStatus},
    tallies::Tallies,
};
use crate::telemetry::series::Announced;

/// The status of every configured peer. Clones are the same.
#[derive(Clone)]
pub struct Statuses {
    shared: Arc<Shared>,
}

struct Shared {
    peers: RwLock<Peers>,
    changed: watch::Sender<u64>,
    refused: Family<Vec<(&'static str, String)>, Counter>,
    inquiries: Inquiries,
    tallies: Tallies,
}

#[derive(Debug, Default)]
struct Peers {
    loaded: bool,
    /// Whether the configuration could not be read when it was looked at last.
    unreadable: bool,
    by_name: BTreeMap<ClusterName, Known>,
}

#[derive(Debug)]
struct Known {
    status: PeerStatus,
    deadlines: Deadlines,
}

/// What happens to a peer's records, and when, unless something changes. On the monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// When the peer expires.
    pub(crate) expires: Option<Instant>,
    /// When kinds go that the peer withdrew.
    pub(crate) withdrawn: BTreeMap<Resource, Instant>,
}

impl Default for Statuses {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                peers: RwLock::default(),
                changed: watch::Sender::new(0),
                refused: Family::default(),
                inquiries: Inquiries::default(),
                tallies: Tallies::default(),
            }),
        }
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.peers()).finish()
    }
}

impl Statuses {
    /// The configured peers, by name, as of now.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let now = Instant::now();
        self.read(|peers| peers.by_name.values().map(|peer| peer.at(now)).collect())
    }

    /// Where the followers can be asked how far they are.
    pub fn inquiries(&self) -> &Inquiries {
        &self.shared.inquiries
    }

    /// Whether the configuration was read; before, that there are no peers means nothing.
    pub fn is_loaded(&self) -> bool {
        self.read(|peers| peers.loaded)
    }

    /// Whether the configuration was read when it was looked at last, so that these are the peers as of now.
    pub fn is_current(&self) -> bool {
        self.read(|peers| peers.loaded && !peers.unreadable)
    }

    /// The configuration could be read, or could not.
    pub(crate) fn set_readable(&self, readable: bool) {
        self.write(|peers| peers.unreadable = !readable);
    }

    /// Whether it means anything that this cluster has no record: it is no configured peer, was synced once, or expired.
    ///
    /// False for every cluster until the configuration was read. Objects made from records of a cluster for which this is false
    /// must not be removed for want of records. Where it is true, records of single services may still be unknown:
    /// [`RemoteState::may_remove`](super::peers::RemoteState::may_remove).
    pub fn may_remove(&self, cluster: &ClusterName) -> bool {
        self.read(|peers| {
            let telling = |peer: &Known| peer.status.is_telling();
            peers.loaded && peers.by_name.get(cluster).is_none_or(telling)
        })
    }

    /// Whether the configuration was read and the silence of every peer in it means something.
    pub fn all_synced(&self) -> bool {
        self.read(|peers| {
            let mut known = peers.by_name.values();
            peers.loaded && known.all(|peer| peer.status.is_telling())
        })
    }

    /// The silence of peers has another meaning, for another reason than their state: tells those who wait for
    /// [`Self::changes`].
    pub(crate) fn silence_changed(&self) {
        self.tell(true);
    }

    /// Changes whenever a peer comes, goes, or changes its state; records, errors and revisions do not count: readers look at
    /// everything anew. When a peer became synced, what was held back for it can be looked at again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Adds the counters to a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "tombolo_mesh_records_refused",
            "Records of a peer that were skipped because they are malformed or lie about their origin",
            Announced(self.shared.refused.clone()),
        );
        registry.register_collector(Box::new(self.shared.tallies.clone()));
    }

    /// How many records of a peer were refused since this process began: malformed, or not the peer's to write.
    pub fn records_refused(&self, cluster: &ClusterName, kind: Resource) -> u64 {
        self.refused(cluster, kind).get()
    }

    /// Counts a refused record; returns how many there were.
    pub(crate) fn count_refused(&self, cluster: &ClusterName, kind: Resource) -> u64 {
        self.refused(cluster, kind).inc() + 1
    }

    /// Counts records of a peer that were removed.
    pub(crate) fn count_removed(
        &self,
        cluster: &ClusterName,
        kind: Resource,
        evidence: Evidence,
        count: usize,
    ) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.shared.tallies.removed(cluster, kind, evidence, count);
    }

    /// How often everything of a peer was removed because it was not heard of for longer than the cache time-to-live.
    pub fn revocations(&self, cluster: &ClusterName) -> u64 {
        self.shared.tallies.revocations(cluster)
    }

    /// Whether a peer was synced once.
    pub(crate) fn is_synced(&self, cluster: &ClusterName) -> bool {
        self.read(|peers| {
            let peer = peers.by_name.get(cluster);
            peer.is_some_and(|peer| peer.status.synced)
        })
    }

    /// A peer's state.
    pub(crate) fn state_of(&self, cluster: &ClusterName) -> Option<PeerState> {
        self.read(|peers| peers.by_name.get(cluster).map(|peer| peer.status.state))
    }

    /// The configuration was read: these are the peers. Their status stays when they were there before.
    pub(crate) fn configure(&self, names: &BTreeSet<ClusterName>) {
        let now = Timestamp::now();
        self.forget_counts(names);
        let changed = self.write(|peers| {
            let before = peers.by_name.len();
            peers.by_name.retain(|name, _| names.contains(name));
            let mut changed = before != peers.by_name.len() || !peers.loaded;
            peers.loaded = true;
            for name in names {
                peers.by_name.entry(name.clone()).or_insert_with(|| {
                    changed = true;
                    Known {
                        status: PeerStatus::new(name.clone(), now),
                        deadlines: Deadlines::default(),
                    }
                });
            }
            changed
        });
        self.tell(changed);
    }

    /// Changes the status of a configured peer; the closure gets the time as well.
    pub(crate) fn update(
        &self,
        cluster: &ClusterName,
        update: impl FnOnce(&mut PeerStatus, Timestamp),
    ) {
        let now = Timestamp::now();
        let changed = self.write(|peers| {
            let Some(peer) = peers.by_name.get_mut(cluster) else {
                return false;
            };
            let before = (peer.status.state, peer.status.synced);
            update(&mut peer.status, now);
            if before.0 != PeerState::Expired && peer.status.state == PeerState::Expired {
                self.shared.tallies.revoked(cluster);
            }
            before != (peer.status.state, peer.status.synced)
        });
        self.tell(changed);
    }

    /// Says what will happen to a peer's records.
    pub(crate) fn set_deadlines(&self, cluster: &ClusterName, deadlines: Deadlines) {
        self.write(|peers| {
            if let Some(peer) = peers.by_name.get_mut(cluster) {
                peer.deadlines = deadlines;
            }
        });
    }

    /// The counters of peers that are not among these go.
    fn forget_counts(&self, names: &BTreeSet<ClusterName>) {
        self.shared.tallies.retain(names);
        let gone = self.read(|peers| {
            let known = peers.by_name.keys();
            let gone = known.filter(|name| !names.contains(*name)).cloned();
            gone.collect::<Vec<_>>()
        });
        for cluster in gone {
            for kind in Resource::ALL {
                self.shared.refused.remove(&labels(&cluster, kind));
            }
        }
    }

    fn refused(&self, cluster: &ClusterName, kind: Resource) -> Counter {
        let labels = labels(cluster, kind);
        self.shared.refused.get_or_create_owned(&labels)
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.shared.changed.send_modify(|version| *version += 1);
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Peers) -> T) -> T {
        let peers = self.shared.peers.read();
        read(&peers.unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Peers) -> T) -> T {
        let peers = self.shared.peers.write();
        write(&mut peers.unwrap_or_else(PoisonError::into_inner))
    }
}

fn labels(cluster: &ClusterName, kind: Resource) -> Vec<(&'static str, String)> {
    vec![
        ("cluster", cluster.to_string()),
        ("kind", kind.name().to_owned()),
    ]
}

impl Known {
    /// The status with what is left of the deadlines.
    fn at(&self, now: Instant) -> PeerStatus {
        let left = |until: Instant| until.saturating_duration_since(now).as_secs();
        let mut status = self.status.clone();
        status.expires_in_seconds = self.deadlines.expires.map(left);
        for (kind, until) in &self.deadlines.withdrawn {
            if let Some(kind) = status.kinds.get_mut(kind) {
                kind.withdrawn_for_seconds = Some(left(*until));
            }
        }
        status
    }
}

#[cfg(test)]
#[path = "statuses_tests.rs"]
mod tests;
