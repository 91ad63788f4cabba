//! What is known: what should be in the store, what is, and what is still to be done. Synchronous; behind one lock, which is never
//! held over an await.

use std::collections::BTreeSet;

use tombolo_core::{
    names::ClusterName,
    wire::key::{self, Resource},
};

mod look;

use super::{
    backlog::{Backlog, Feed},
    copies::{Copies, PeerCopy, Standing, Value, is_copy},
    keys::{Part, place},
};
use crate::{
    kvstore::{
        Entry, LeaseId,
        lease::{Fence, FenceSeen, Fenced},
    },
    mesh::ledger::{Action, Ledger, Record},
};

/// What is known.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What should be in the store.
    pub(super) copies: Copies,
    /// What is in the store.
    pub(super) ledger: Ledger<Value>,
    /// The records that are still to be written.
    pub(super) backlog: Backlog,
    /// Whether the ledger holds what the store holds.
    pub(super) listed: bool,
    /// Whether the store was listed once, so that the copies are those of the earlier life.
    pub(super) seeded: bool,
    /// The lease of the canaries.
    pub(super) fence: Fence,
    /// Canaries that are being written, or may have been: they count as standing until the ledger knows better.
    underway: BTreeSet<Feed>,
}

/// What is to be done about a peer beside its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Delete the canary of a kind, which vouches for what is no longer held.
    DropCanary(Resource),
    /// Write the cluster-config.
    PutConfig(Value),
    /// Delete the cluster-config.
    DropConfig,
    /// Write the canary of a kind: everything of it is written.
    PutCanary(Resource),
    /// Nothing is left of the peer.
    Forget,
}

impl State {
    /// Takes in a list of all copies that are in the store, made after the lease of the canaries was granted. The first also says what should
    /// be there, and which leases of an earlier life are to be kept alive; those are returned. None when records went meanwhile, so that another
    /// lease is needed.
    pub(super) fn begin(
        &mut self,
        seen: FenceSeen,
        fence: LeaseId,
        entries: Vec<Entry>,
    ) -> Option<Vec<(String, LeaseId)>> {
        let fenced = self.fence.renew(seen, fence);
        if fenced == Fenced::Outdated {
            return None;
        }
        let entries: Vec<_> = entries
            .into_iter()
            .filter(|entry| self.is_ours(entry))
            .collect();
        let leased = |entry: &Entry| entry.lease.map(|lease| (entry.key.clone(), lease));
        let adopted: Vec<_> = if self.seeded {
            Vec::new()
        } else {
            self.copies.seed(&entries);
            entries.iter().filter_map(leased).collect()
        };
        self.ledger.relist(entries);
        if fenced == Fenced::Renewed {
            self.ledger.disown(key::SYNCED);
        }
        for (key, _) in &adopted {
            self.ledger.adopt(key);
        }
        self.seeded = true;
        self.listed = true;
        self.mark_everything();
        Some(adopted)
    }

    /// Whether an entry is a copy, or stands where one should be.
    pub(super) fn is_ours(&self, entry: &Entry) -> bool {
        is_copy(entry)
            || place(&entry.key).is_some_and(|(cluster, _)| self.copies.get(&cluster).is_some())
    }

    /// What is to be done about a record. Nothing while it has to wait: for a canary to go that vouches for other content, for
    /// the cluster-config of another cluster to go, or for the cluster-config to be written. [`Self::mark_kind`] follows those.
    pub(super) fn decide(&self, (peer, kind): &Feed, key: &str) -> Action<Value> {
        let Some(copy) = self.copies.get(peer) else {
            return Action::Nothing;
        };
        if !self.listed || self.vouched_wrongly(peer, copy, *kind) {
            return Action::Nothing;
        }
        let offered = || self.ledger.value(&key::cluster_config_key(peer)).is_some();
        if copy.has_leftovers() && offered() {
            return Action::Nothing;
        }
        match self.ledger.decide(key, copy.record(*kind, key)) {
            Action::Put(_) if !self.has_config(peer, copy) => Action::Nothing,
            action @ (Action::Nothing | Action::Put(_) | Action::Delete) => action,
        }
    }

    /// Marks a record if something is to be done about it.
    pub(super) fn mark(&mut self, feed: &Feed, key: &str) {
        match self.decide(feed, key) {
            Action::Nothing => {}
            Action::Put(_) => self.backlog.mark(feed, key.to_owned(), false),
            Action::Delete => self.backlog.mark(feed, key.to_owned(), true),
        }
    }

    /// Marks the records of a kind about which something is to be done.
    pub(super) fn mark_kind(&mut self, peer: &ClusterName, kind: Resource) {
        let prefix = key::records_prefix(peer, kind, true);
        let stored = self.ledger.keys_under(&prefix).map(str::to_owned);
        let mut keys: BTreeSet<_> = stored.collect();
        if let Some(copy) = self.copies.get(peer) {
            keys.extend(copy.keys(kind).map(str::to_owned));
        }
        let feed = (peer.clone(), kind);
        for key in keys {
            self.mark(&feed, &key);
        }
    }

    /// Marks all records of a peer about which something is to be done.
    pub(super) fn mark_peer(&mut self, peer: &ClusterName) {
        for kind in Resource::ALL {
            self.mark_kind(peer, kind);
        }
    }

    fn mark_everything(&mut self) {
        let peers: Vec<_> = self.copies.names().cloned().collect();
        for peer in peers {
            self.mark_peer(&peer);
        }
    }

    /// The next thing to be done about a peer beside its records.
    pub(super) fn next_step(&mut self, peer: &ClusterName) -> Option<Step> {
        if self.listed {
            for kind in Resource::ALL {
                if !self.may_stand(peer, kind) {
                    self.copies.canary_is_gone(peer, kind);
                }
            }
            if self.is_gone(peer) {
                self.copies.leftovers_gone(peer);
            }
        }
        let copy = self.copies.get(peer).filter(|_| self.listed)?;
        let wrong = Resource::ALL
            .into_iter()
            .find(|kind| self.vouched_wrongly(peer, copy, *kind));
        if let Some(kind) = wrong {
            return Some(Step::DropCanary(kind));
        }
        let config_key = key::cluster_config_key(peer);
        match self.ledger.decide(&config_key, copy.config()) {
            Action::Put(config) => return Some(Step::PutConfig(config)),
            Action::Delete => return Some(Step::DropConfig),
            Action::Nothing => {}
        }
        if copy.standing() == Standing::Draining && self.is_gone(peer) {
            return Some(Step::Forget);
        }
        let due = |kind: &Resource| {
            copy.vouches(*kind)
                && !self.ledger.holds_ours(&key::canary_key(peer, *kind, true))
                && self.backlog.is_idle(&(peer.clone(), *kind))
        };
        let canary = Resource::ALL.into_iter().find(due);
        let canary = canary.filter(|_| self.has_config(peer, copy))?;
        self.underway.insert((peer.clone(), canary));
        Some(Step::PutCanary(canary))
    }

    /// What is to be known of a canary is in the ledger.
    pub(super) fn settle_canary(&mut self, peer: &ClusterName, kind: Resource) {
        self.underway.remove(&(peer.clone(), kind));
    }

    /// Whether everything that a peer publishes was read since this process began and is in the store, canaries included.
    pub(super) fn is_reflected(&self, peer: &ClusterName) -> bool {
        self.copies.get(peer).is_some_and(|copy| {
            let stands = |kind: Resource| {
                let canary = key::canary_key(peer, kind, true);
                copy.vouches(kind)
                    && self.ledger.holds_ours(&canary)
                    && self.backlog.is_idle(&(peer.clone(), kind))
            };
            copy.is_accepted() && Resource::ALL.into_iter().all(stands)
        })
    }

    /// A change of the store that was not made by this process: what is to be looked at because of it. False when a canary or
    /// cluster-config went that should be there: who took it may have taken records too, of which another watch has yet to tell.
    pub(super) fn news(&mut self, key: &str, deleted: bool) -> bool {
        let Some((peer, part)) = place(key) else {
            return true;
        };
        match part {
            Part::Record(kind) => {
                self.mark(&(peer, kind), key);
                true
            }
            Part::Canary(kind) => {
                let wanted = |copy: &PeerCopy| copy.vouches(kind);
                !deleted || !self.copies.get(&peer).is_some_and(wanted)
            }
            Part::Config => {
                let wanted = |copy: &PeerCopy| matches!(copy.config(), Record::Present(_));
                !deleted || !self.copies.get(&peer).is_some_and(wanted)
            }
        }
    }

    /// Whether a canary stands that vouches for what is not held.
    fn vouched_wrongly(&self, peer: &ClusterName, copy: &PeerCopy, kind: Resource) -> bool {
        !copy.vouches(kind) && self.may_stand(peer, kind)
    }

    /// Whether a canary stands, or may.
    fn may_stand(&self, peer: &ClusterName, kind: Resource) -> bool {
        let canary = key::canary_key(peer, kind, true);
        self.ledger.value(&canary).is_some() || self.underway.contains(&(peer.clone(), kind))
    }

    /// Whether the cluster-config is stored as it should be.
    fn has_config(&self, peer: &ClusterName, copy: &PeerCopy) -> bool {
        let Record::Present(config) = copy.config() else {
            return false;
        };
        let key = key::cluster_config_key(peer);
        self.ledger.holds_ours(&key) && self.ledger.value(&key) == Some(&config)
    }

    /// Whether the store holds no record of a peer.
    fn is_gone(&self, peer: &ClusterName) -> bool {
        Resource::ALL.into_iter().all(|kind| {
            let prefix = key::records_prefix(peer, kind, true);
            self.ledger.keys_under(&prefix).next().is_none()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_that_is_being_written_counts_as_standing() {
        let (peer, kind): (ClusterName, _) = ("rome".try_into().unwrap(), Resource::Services);
        let key = key::records_prefix(&peer, kind, true) + "shop/web";
        let mut state = State {
            listed: true,
            ..State::default()
        };
        let id = 2.try_into().unwrap();
        state.copies.accept(&peer, id, b"config".to_vec());
        let config = key::cluster_config_key(&peer);
        state
            .ledger
            .written(&config, b"config".as_slice().into(), 1);
        state.ledger.written(&key, b"old".as_slice().into(), 2);
        state.copies.set(&peer, kind, key.clone(), b"old");
        state.copies.not_published(&peer, kind);
        assert_eq!(state.next_step(&peer), Some(Step::PutCanary(kind)));

        let feed = (peer.clone(), kind);
        let evidence = tombolo_core::evidence::Evidence::KeyDeleted { revision: 3 };
        state.copies.remove(&peer, kind, &key, evidence);
        assert_eq!(state.decide(&feed, &key), Action::Delete);
        state.copies.lack(&peer, kind);

        assert_eq!(state.decide(&feed, &key), Action::Nothing);
        assert_eq!(state.next_step(&peer), Some(Step::DropCanary(kind)));
        state.settle_canary(&peer, kind);
        assert_eq!(state.decide(&feed, &key), Action::Delete);
        assert_eq!(state.next_step(&peer), None);
    }
}
