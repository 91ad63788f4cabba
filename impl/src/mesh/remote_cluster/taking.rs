//! Taking over what a peer writes: within its limits, each refusal told once.

use std::collections::{BTreeMap, HashMap};

use tombolo_core::{evidence::Evidence, peer_status::Limit, wire::key::Resource};

use super::{
    Origin, Outcome, RawChange, Records, Refusal, RemoteCluster,
    untaken::{KEY_BYTES_MAX, News, Rest, Unnamed},
};
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
        let changes = self.refuse_long_keys(kind, changes);
        let changes = self.admit(kind, changes);
        if changes.is_empty() {
            return;
        }
        let outcomes = self.records.apply(&self.origin(kind), &changes);
        for (change, outcome) in changes.iter().zip(outcomes) {
            self.note(kind, change, outcome);
        }
    }

    /// Refuses what is under keys that nobody can have, without remembering them.
    fn refuse_long_keys<'a>(
        &mut self,
        kind: Resource,
        changes: Vec<RawChange<'a>>,
    ) -> Vec<RawChange<'a>> {
        let is_long = |change: &RawChange<'_>| change.key().len() > KEY_BYTES_MAX;
        let (long, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_long);
        for change in long {
            let RawChange::Set { key, .. } = change else {
                continue;
            };
            let holdings = &mut self.memory.feed_mut(kind).holdings;
            let unnamed = holdings.refuse_long_key(key);
            if unnamed.more {
                self.statuses.count_refused(&self.peer, kind);
            }
            if unnamed.first {
                self.tell_unnamed(kind);
            }
        }
        changes
    }

    /// Which changes fit into the peer's limits, in order; after them, those that do not and are the last of their key. A record
    /// that was taken before is never given up for another one.
    fn admit<'a>(&mut self, kind: Resource, changes: Vec<RawChange<'a>>) -> Vec<RawChange<'a>> {
        let mut planned = Planned {
            records: self.memory.records(),
            bytes: self.memory.bytes(),
            sizes: HashMap::new(),
        };
        let mut over = BTreeMap::new();
        let mut admitted = Vec::with_capacity(changes.len());
        for change in changes {
            let (key, set) = match &change {
                RawChange::Set { key, entry } => (*key, Some(*entry)),
                RawChange::Withhold { key, .. } | RawChange::Remove { key, .. } => (*key, None),
            };
            let size = set.map(Entry::size);
            let holdings = &self.memory.feed_mut(kind).holdings;
            let before = planned.sizes.get(key).copied();
            let before = before.unwrap_or_else(|| holdings.size(key));
            let limit = self.options.budget.exceeded(
                planned.records - usize::from(before.is_some()),
                planned.bytes - before.unwrap_or_default(),
                size,
            );
            let grows = size > before;
            if let (Some(limit), Some(entry)) = (limit.filter(|_| grows), set) {
                over.insert(key, RawChange::Withhold { key, entry, limit });
                continue;
            }
            planned.records += usize::from(size.is_some());
            planned.records -= usize::from(before.is_some());
            planned.bytes += size.unwrap_or_default();
            planned.bytes -= before.unwrap_or_default();
            planned.sizes.insert(key, size);
            over.remove(key);
            admitted.push(change);
        }
        admitted.extend(over.into_values());
        admitted
    }

    fn note(&mut self, kind: Resource, change: &RawChange<'_>, outcome: Outcome) {
        let holdings = &mut self.memory.feed_mut(kind).holdings;
        match (change, outcome) {
            (RawChange::Set { key, entry }, Outcome::Held) => holdings.hold(key, entry),
            (RawChange::Set { key, entry }, Outcome::Refused(refusal)) => {
                let news = holdings.refuse(key, entry, refusal.reason);
                self.tell_refusal(kind, entry, &refusal, news);
            }
            (RawChange::Set { key, entry }, Outcome::Gone) => {
                let revision = entry.mod_revision;
                self.release(kind, key, Evidence::KeyDeleted { revision });
            }
            // The answer to what is not to be taken, and to nothing else.
            (RawChange::Set { .. }, Outcome::Withheld) => {}
            (RawChange::Withhold { key, entry, limit }, _) => {
                holdings.refuse_over(key, entry);
                self.exceeded(*limit);
            }
            (RawChange::Remove { key, evidence }, _) => self.release(kind, key, *evidence),
        }
    }

    /// Counts a refusal, and logs it once.
    fn tell_refusal(&self, kind: Resource, entry: &Entry, refusal: &Refusal, news: News) {
        let (counts, logs) = match news {
            News::Reason => (true, true),
            News::Writing => (true, false),
            News::Nothing => (false, false),
            News::Unnamed(unnamed) => (unnamed.more, false),
        };
        if counts {
            self.statuses.count_refused(&self.peer, kind);
        }
        if logs {
            let (peer, key, reason, error) =
                (&self.peer, &entry.key, refusal.reason, &refusal.text);
            tracing::warn!(%peer, kind = kind.name(), key, %error, reason, "a record is refused; what it said before stays, and nothing that was made of it is removed");
        }
        if matches!(news, News::Unnamed(Unnamed { first: true, .. })) {
            self.tell_unnamed(kind);
        }
    }

    /// A list is finished: tells at once what was too much of it to be told one by one.
    pub(super) fn end_list(&mut self, kind: Resource) {
        self.memory.feed_mut(kind).holdings.end_list();
        self.tell_unnamed(kind);
    }

    fn tell_unnamed(&self, kind: Resource) {
        let Some(memory) = self.memory.feed(kind) else {
            return;
        };
        let (peer, kind, untaken) = (&self.peer, kind.name(), memory.holdings.untaken());
        let Rest { count, first, .. } = untaken.refused_unnamed();
        if *count > 0 {
            tracing::warn!(%peer, kind, count, first, "more records are refused than are told one by one; nothing of this kind is removed for want of a record; mend or delete them in the peer's store");
        }
        let Rest { count, first, .. } = untaken.long_keys();
        if *count > 0 {
            tracing::warn!(%peer, kind, count, begins = first, max_bytes = KEY_BYTES_MAX, reason = "KeyTooLong", "records are refused since their keys are too long to name anything; delete them in the peer's store");
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
