//! What this cluster's store should hold of its peers: bytes as the peers wrote them, never looked at. Synchronous.
//!
//! It begins with what an earlier life left in the store, which was complete as far as a canary says so. Records leave only by
//! [`Evidence`]; what a peer does not say right now stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tombolo_core::{
    evidence::{Complete, Evidence},
    names::{ClusterId, ClusterName},
    wire::{
        cluster_config,
        key::{self, Resource},
    },
};

use super::keys::{Part, place};
use crate::{kvstore::Entry, mesh::ledger::Record};

/// A value as the peer wrote it.
pub(super) type Value = Arc<[u8]>;

/// The copies of all peers.
#[derive(Debug, Default)]
pub(super) struct Copies {
    peers: BTreeMap<ClusterName, PeerCopy>,
}

/// The copy of one peer.
#[derive(Debug, Default)]
pub(super) struct PeerCopy {
    standing: Standing,
    /// Whether the peer was accepted since this process began.
    accepted: bool,
    config: Option<Value>,
    /// The id that the records were copied under; none when nobody knows.
    id: Option<ClusterId>,
    /// Whether the store may hold copies of another cluster with the same name: nothing is written before they are gone.
    leftovers: bool,
    kinds: BTreeMap<Resource, KindCopy>,
}

/// Whether the peer is configured, and what becomes of its copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is, or nobody knows yet.
    #[default]
    Configured,
    /// It was taken out. Its cluster-config goes at once, so that nobody begins to read; until then the rest stays for those
    /// who read already, and for a change of mind.
    Grace {
        /// Until when.
        until: Instant,
    },
    /// It was taken out long enough ago: everything goes.
    Draining,
}

#[derive(Debug, Default)]
struct KindCopy {
    /// By their keys in this cluster's store.
    records: BTreeMap<String, Value>,
    /// Whether they are everything the peer said at some time, so that a canary is due.
    complete: bool,
    /// Whether the canary that stands was written for other content: it has to go first.
    withdrawn: bool,
    /// Whether the peer says something that is not copied, as far as is known: no canary vouches for that before another list.
    lacks: bool,
}

impl Copies {
    /// Begins with what an earlier life left in the store.
    pub(super) fn seed<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) {
        for entry in entries {
            let Some((cluster, part)) = place(&entry.key) else {
                continue;
            };
            let copy = self.peers.entry(cluster).or_default();
            let value: Value = entry.value.as_slice().into();
            match part {
                Part::Config => {
                    let config = cluster_config::decode(&value);
                    copy.id = config.ok().map(|config| config.id);
                    copy.config = Some(value);
                }
                Part::Canary(resource) => copy.kind(resource).complete = true,
                Part::Record(resource) => {
                    let records = &mut copy.kind(resource).records;
                    records.insert(entry.key.clone(), value);
                }
            }
        }
    }

    /// The peers with a copy.
    pub(super) fn names(&self) -> impl Iterator<Item = &ClusterName> {
        self.peers.keys()
    }

    /// The copy of a peer.
    pub(super) fn get(&self, peer: &ClusterName) -> Option<&PeerCopy> {
        self.peers.get(peer)
    }

    /// These peers are configured. Others have `grace`, or stay if there is none; returns those whose standing changed.
    pub(super) fn configure(
        &mut self,
        names: &BTreeSet<ClusterName>,
        grace: Option<Duration>,
        now: Instant,
    ) -> Vec<ClusterName> {
        for name in names {
            self.peers.entry(name.clone()).or_default();
        }
        let mut changed = Vec::new();
        for (name, copy) in &mut self.peers {
            let before = copy.standing;
            match (names.contains(name), before, grace) {
                (true, _, _) => copy.standing = Standing::Configured,
                (false, Standing::Configured, Some(grace)) => {
                    copy.leave(now + grace, Evidence::PeerRemoved);
                }
                (false, Standing::Configured, None)
                | (false, Standing::Grace { .. } | Standing::Draining, _) => {}
            }
            if copy.standing != before {
                changed.push(name.clone());
            }
        }
        changed
    }

    /// Ends the grace of the peers that had theirs; returns them.
    pub(super) fn end_grace(&mut self, now: Instant) -> Vec<ClusterName> {
        let mut ended = Vec::new();
        for (name, copy) in &mut self.peers {
            if matches!(copy.standing, Standing::Grace { until } if until <= now) {
                copy.standing = Standing::Draining;
                copy.clear(&Resource::ALL, Evidence::PeerRemoved);
                ended.push(name.clone());
            }
        }
        ended
    }

    /// When the next grace ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let ends = self.peers.values().filter_map(|copy| match copy.standing {
            Standing::Grace { until } => Some(until),
            Standing::Configured | Standing::Draining => None,
        });
        ends.min()
    }

    /// Forgets a peer of which nothing is left.
    pub(super) fn forget(&mut self, peer: &ClusterName) {
        self.peers.remove(peer);
    }

    /// The id that the peer's records were copied under, by this life or an earlier one; none when nobody knows.
    pub(super) fn id(&self, peer: &ClusterName) -> Option<ClusterId> {
        self.peers.get(peer)?.id
    }

    /// The peer was accepted with this id and cluster-config, as it is to be copied.
    pub(super) fn accept(&mut self, peer: &ClusterName, id: ClusterId, config: Vec<u8>) {
        let copy = self.peers.entry(peer.clone()).or_default();
        copy.accepted = true;
        copy.id = Some(id);
        copy.config = Some(config.into());
    }

    /// No copy of another cluster with the name of the peer is left.
    pub(super) fn leftovers_gone(&mut self, peer: &ClusterName) {
        if let Some(copy) = self.peers.get_mut(peer) {
            copy.leftovers = false;
        }
    }

    /// The peer says this.
    pub(super) fn set(&mut self, peer: &ClusterName, kind: Resource, key: String, value: &[u8]) {
        let records = &mut self.kind(peer, kind).records;
        if records.get(&key).is_none_or(|held| **held != *value) {
            records.insert(key, value.into());
        }
    }

    /// The peer no longer says this.
    pub(super) fn remove(
        &mut self,
        peer: &ClusterName,
        kind: Resource,
        key: &str,
        _evidence: Evidence,
    ) {
        self.kind(peer, kind).records.remove(key);
    }

    /// The peer says something that is not copied: who reads the copy must not take it for deleted.
    pub(super) fn lack(&mut self, peer: &ClusterName, kind: Resource) {
        let copy = self.kind(peer, kind);
        copy.complete = false;
        copy.withdrawn = true;
        copy.lacks = true;
    }

    /// Whether that is so.
    pub(super) fn lacks(&self, peer: &ClusterName, kind: Resource) -> bool {
        let copy = self.peers.get(peer);
        copy.and_then(|copy| copy.kinds.get(&kind))
            .is_some_and(|kind| kind.lacks)
    }

    /// Whether there is a record under a key.
    pub(super) fn holds(&self, peer: &ClusterName, kind: Resource, key: &str) -> bool {
        let copy = self.peers.get(peer);
        copy.and_then(|copy| copy.kinds.get(&kind))
            .is_some_and(|kind| kind.records.contains_key(key))
    }

    /// The peer says these and no others; returns the keys of the others. It is everything unless [`Self::lack`] says otherwise
    /// after it.
    pub(super) fn complete(
        &mut self,
        peer: &ClusterName,
        kind: Resource,
        present: &BTreeSet<String>,
        _complete: Complete,
    ) -> Vec<String> {
        let copy = self.kind(peer, kind);
        copy.complete = true;
        copy.lacks = false;
        let gone = copy.records.extract_if(.., |key, _| !present.contains(key));
        gone.map(|(key, _)| key).collect()
    }

    /// The peer does not publish this kind: what there is of it is complete.
    pub(super) fn not_published(&mut self, peer: &ClusterName, kind: Resource) {
        let copy = self.kind(peer, kind);
        copy.complete = true;
        copy.lacks = false;
    }

    /// Nothing of these kinds is held any more. Of another cluster under the same name no canary vouches until it was read.
    pub(super) fn drain(&mut self, peer: &ClusterName, kinds: &[Resource], evidence: Evidence) {
        if let Some(copy) = self.peers.get_mut(peer) {
            copy.clear(kinds, evidence);
        }
    }

    /// No canary of this kind stands: a new one may.
    pub(super) fn canary_is_gone(&mut self, peer: &ClusterName, kind: Resource) {
        if let Some(kind) = self
            .peers
            .get_mut(peer)
            .and_then(|copy| copy.kinds.get_mut(&kind))
        {
            kind.withdrawn = false;
        }
    }

    fn kind(&mut self, peer: &ClusterName, kind: Resource) -> &mut KindCopy {
        self.peers.entry(peer.clone()).or_default().kind(kind)
    }
}

impl PeerCopy {
    /// Whether the peer is configured.
    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether the peer was accepted since this process began.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Whether copies of another cluster with the same name have to go first.
    pub(super) fn has_leftovers(&self) -> bool {
        self.leftovers
    }

    /// The cluster-config that should be stored.
    pub(super) fn config(&self) -> Record<Value> {
        let config = self.config.clone().filter(|_| !self.leftovers);
        config.map_or(Record::Absent, Record::Present)
    }

    /// Whether a canary of this kind should be stored.
    pub(super) fn vouches(&self, kind: Resource) -> bool {
        let kind = self.kinds.get(&kind);
        kind.is_some_and(|kind| kind.complete && !kind.withdrawn)
    }

    /// The record that should be stored under a key.
    pub(super) fn record(&self, kind: Resource, key: &str) -> Record<Value> {
        let kind = self.kinds.get(&kind).filter(|_| !self.leftovers);
        let held = kind.and_then(|kind| kind.records.get(key));
        held.cloned().map_or(Record::Absent, Record::Present)
    }

    /// The keys of a kind that should be stored.
    pub(super) fn keys(&self, kind: Resource) -> impl Iterator<Item = &str> {
        let kind = self.kinds.get(&kind).into_iter();
        kind.flat_map(|kind| kind.records.keys().map(String::as_str))
    }

    fn kind(&mut self, kind: Resource) -> &mut KindCopy {
        self.kinds.entry(kind).or_default()
    }

    fn leave(&mut self, until: Instant, _evidence: Evidence) {
        self.standing = Standing::Grace { until };
        self.accepted = false;
        self.config = None;
    }

    fn clear(&mut self, kinds: &[Resource], evidence: Evidence) {
        if evidence == Evidence::PeerIdChanged {
            self.id = None;
            self.config = None;
            self.leftovers = true;
        }
        for kind in kinds {
            let kind = self.kind(*kind);
            kind.records.clear();
            kind.lacks = false;
            match evidence {
                Evidence::PeerRemoved | Evidence::PeerIdChanged => {
                    kind.complete = false;
                    kind.withdrawn = true;
                }
                Evidence::KeyDeleted { .. }
                | Evidence::AbsentFrom(_)
                | Evidence::Expired { .. }
                | Evidence::CapabilityWithdrawn { .. } => {}
            }
        }
    }
}

/// Whether a stored entry is a copy of a peer's: cluster-configs of others are told apart by their value.
pub(super) fn is_copy(entry: &Entry) -> bool {
    match place(&entry.key) {
        None => false,
        Some((_, Part::Config)) => {
            cluster_config::decode(&entry.value).is_ok_and(|config| config.capabilities.cached)
        }
        Some((_, Part::Canary(_) | Part::Record(_))) => true,
    }
}

/// The key of a record in this cluster's store, from its key after the prefix in the peer's.
pub(super) fn copy_key(peer: &ClusterName, kind: Resource, suffix: &str) -> String {
    key::records_prefix(peer, kind, true) + suffix
}
