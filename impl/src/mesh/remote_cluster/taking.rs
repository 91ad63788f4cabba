//! Taking over what a peer writes: within its limits, each refusal told once.

use std::collections::{BTreeMap, HashMap};

use tombolo_core::{evidence::Evidence, peer_status::Limit, wire::key::Resource};

use super::{Origin, Outcome, RawChange, Records, RemoteCluster, holdings::News};
use crate::kvstore::{Entry, KvStore};

/// What would be held if everything that was admitted so far were taken.
struct Planned<'a> {
    records: usize,
    bytes: usize,
    sizes: HashMap<&'a str, Option<usize>>,
}

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Whose records these are.
    pub(super) fn origin(&self, kind: Resource) -> Origin<'_> {
        Origin {
            peer: &self.peer,
            id: self.known_id(),
            kind,
        }
    }

    /// Applies changes, and notes what is held now.
    pub(super) fn apply(&mut self, kind: Resource, changes: Vec<RawChange<'_>>) {
        let (admitted, over) = self.admit(kind, changes);
        if !admitted.is_empty() {
            let outcomes = self.records.apply(&self.origin(kind), &admitted);
            for (change, outcome) in admitted.iter().zip(outcomes) {
                self.note(kind, change, outcome);
            }
        }
        for (key, (entry, limit)) in over {
            self.exceeded(limit);
            let holdings = &mut self.memory.feed_mut(kind).holdings;
            holdings.refuse_over(key, entry);
        }
    }

    /// Which changes fit into the peer's limits, in order, and for which keys the last one does not. A record that was taken
    /// before is never given up for another one.
    fn admit<'a>(
        &mut self,
        kind: Resource,
        changes: Vec<RawChange<'a>>,
    ) -> (Vec<RawChange<'a>>, BTreeMap<&'a str, (&'a Entry, Limit)>) {
        let mut planned = Planned {
            records: self.memory.records(),
            bytes: self.memory.bytes(),
            sizes: HashMap::new(),
        };
        let mut over = BTreeMap::new();
        let mut admitted = Vec::with_capacity(changes.len());
        for change in changes {
            let (key, size) = match &change {
                RawChange::Set { key, entry } => (*key, Some(entry.value.len())),
                RawChange::Remove { key, .. } => (*key, None),
            };
            let holdings = &self.memory.feed_mut(kind).holdings;
            let before = planned.sizes.get(key).copied();
            let before = before.unwrap_or_else(|| holdings.size(key));
            let limit = self.options.budget.exceeded(
                planned.records - usize::from(before.is_some()),
                planned.bytes - before.unwrap_or_default(),
                size,
            );
            let grows = size > before;
            match (limit.filter(|_| grows), &change) {
                (Some(limit), RawChange::Set { entry, .. }) => {
                    over.insert(key, (*entry, limit));
                }
                (Some(_), RawChange::Remove { .. }) | (None, _) => {
                    planned.records += usize::from(size.is_some());
                    planned.records -= usize::from(before.is_some());
                    planned.bytes += size.unwrap_or_default();
                    planned.bytes -= before.unwrap_or_default();
                    planned.sizes.insert(key, size);
                    over.remove(key);
                    admitted.push(change);
                }
            }
        }
        (admitted, over)
    }

    fn note(&mut self, kind: Resource, change: &RawChange<'_>, outcome: Outcome) {
        let holdings = &mut self.memory.feed_mut(kind).holdings;
        match (change, outcome) {
            (RawChange::Set { key, entry }, Outcome::Held) => holdings.hold(key, entry),
            (RawChange::Set { key, entry }, Outcome::Refused(refusal)) => {
                let news = holdings.refuse(key, entry, refusal.reason);
                if news == News::Nothing {
                    return;
                }
                self.statuses.count_refused(&self.peer, kind);
                if news == News::Reason {
                    let (peer, key, reason) = (&self.peer, &entry.key, refusal.reason);
                    let error = refusal.text;
                    tracing::warn!(%peer, kind = kind.name(), key, %error, reason, "a record is refused; what it said before stays");
                }
            }
            (RawChange::Set { key, entry }, Outcome::Gone) => {
                let revision = entry.mod_revision;
                self.release(kind, key, Evidence::KeyDeleted { revision });
            }
            (RawChange::Remove { key, evidence }, _) => self.release(kind, key, *evidence),
        }
    }

    /// Nothing is held under the key any more.
    fn release(&mut self, kind: Resource, key: &str, evidence: Evidence) {
        let holdings = &mut self.memory.feed_mut(kind).holdings;
        let held = usize::from(holdings.contains(key));
        holdings.release(key);
        self.statuses
            .count_removed(&self.peer, kind, evidence, held);
    }

    /// Something was not taken, or has to wait.
    pub(super) fn exceeded(&mut self, limit: Limit) {
        if !self.memory.limited.insert(limit) {
            return;
        }
        let (peer, budget) = (&self.peer, &self.options.budget);
        let (records, bytes) = (self.memory.records(), self.memory.bytes());
        let (allowed, flag) = budget.of(limit);
        tracing::warn!(%peer, %limit, allowed, records, bytes, flag, "the peer exceeds a limit: what is beyond it is not taken, or later, and what was taken stays; make the peer publish less, or raise the limit");
    }

    /// Looks whether the peer is within its limits again.
    pub(super) fn review_limits(&mut self) {
        let over = self.memory.over() > 0;
        let throttled = self.memory.is_throttled();
        let still = |limit: &Limit| match limit {
            Limit::Records | Limit::Bytes => over,
            Limit::EventRate => throttled,
        };
        let before = self.memory.limited.len();
        self.memory.limited.retain(still);
        if before > 0 && self.memory.limited.is_empty() {
            tracing::info!(peer = %self.peer, "the peer is within its limits again");
        }
    }

    /// Everything of these kinds goes, and is forgotten.
    pub(super) fn drain(&mut self, kinds: &[Resource], evidence: Evidence) {
        for &kind in kinds {
            let held = self.memory.feed(kind).map(|memory| memory.holdings.len());
            self.statuses
                .count_removed(&self.peer, kind, evidence, held.unwrap_or_default());
        }
        self.records.drain(&self.peer, kinds, evidence);
        for kind in kinds {
            self.memory.feed_mut(*kind).drained();
        }
    }
}
