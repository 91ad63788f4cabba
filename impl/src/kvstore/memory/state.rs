//! The content of a store in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::super::{Condition, Entry, Error, Event, LeaseId, Read, Scope, WatchBatch};

pub(super) type Sender = mpsc::UnboundedSender<Result<WatchBatch, Error>>;

#[derive(Debug)]
pub(super) struct State {
    pub(super) reachable: bool,
    pub(super) store_id: u64,
    pub(super) revision: i64,
    pub(super) compacted: i64,
    pub(super) entries: BTreeMap<String, Entry>,
    /// The entries at the time of the last compaction, which `history` builds on.
    pub(super) base: BTreeMap<String, Entry>,
    pub(super) history: Vec<(i64, Vec<Event>)>,
    pub(super) watchers: Vec<Watcher>,
    /// Watchers of a store that is gone, to which nothing is told.
    pub(super) deaf: Vec<Watcher>,
    pub(super) leases: BTreeMap<LeaseId, Lease>,
    pub(super) last_lease: i64,
}

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) scope: Scope,
    pub(super) sender: Sender,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) ttl: Duration,
    pub(super) ends: Instant,
    pub(super) keys: BTreeSet<String>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            reachable: true,
            store_id: 1,
            revision: 1,
            compacted: 0,
            entries: BTreeMap::new(),
            base: BTreeMap::new(),
            history: Vec::new(),
            watchers: Vec::new(),
            deaf: Vec::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
        }
    }

    /// Loses everything but the id, or that too.
    pub(super) fn wipe(&mut self, new_id: bool) {
        *self = Self {
            reachable: self.reachable,
            store_id: self.store_id + u64::from(new_id),
            last_lease: self.last_lease,
            ..Self::new()
        };
    }

    /// Is as it was at a revision that is not compacted, leases aside.
    pub(super) fn put_back(&mut self, revision: i64) {
        self.history.retain(|(at, _)| *at <= revision);
        self.entries = self.base.clone();
        for event in self.history.iter().flat_map(|(_, events)| events) {
            match event {
                Event::Put(entry) => self.entries.insert(entry.key.clone(), entry.clone()),
                Event::Delete { key, .. } => self.entries.remove(key),
            };
        }
        for (id, lease) in &mut self.leases {
            let hang_on = self
                .entries
                .values()
                .filter(|entry| entry.lease == Some(*id));
            lease.keys = hang_on.map(|entry| entry.key.clone()).collect();
        }
        self.revision = revision;
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
        self.base = self.entries.clone();
        let compacted = self.compacted;
        self.history.retain(|(revision, _)| *revision >= compacted);
    }

    /// Writes events of a new revision.
    pub(super) fn commit(&mut self, events: Vec<Event>) {
        let batch = |events| WatchBatch {
            revision: self.revision,
            store_id: self.store_id,
            events,
        };
        self.watchers.retain(|watcher| {
            let seen = in_scope(&events, &watcher.scope);
            if seen.is_empty() {
                !watcher.sender.is_closed()
            } else {
                watcher.sender.send(Ok(batch(seen))).is_ok()
            }
        });
        self.history.push((self.revision, events));
    }

    pub(super) fn break_watches(&mut self, error: &Error) {
        for watcher in self.watchers.drain(..) {
            let _gone = watcher.sender.send(Err(error.clone()));
        }
    }

    pub(super) fn read(&self, key: &str) -> Read {
        Read {
            revision: self.revision,
            store_id: self.store_id,
            entry: self.entries.get(key).cloned(),
        }
    }

    /// What the keys of the conditions hold, if one of them does not hold.
    pub(super) fn refuse(&self, conditions: &[Condition]) -> Option<Vec<Read>> {
        let fails = |condition: &Condition| !condition.holds(self.entries.get(condition.key()));
        let read = |condition: &Condition| self.read(condition.key());
        let refused = conditions.iter().any(fails);
        refused.then(|| conditions.iter().map(read).collect())
    }

    /// Writes a key under a lease that exists; returns the revision.
    pub(super) fn put(&mut self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> i64 {
        self.revision += 1;
        let revision = self.revision;
        let before = self.entries.remove(key);
        if let Some(before) = &before {
            self.detach(before);
        }
        if let Some(held) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
            held.keys.insert(key.to_owned());
        }
        let entry = Entry {
            key: key.to_owned(),
            value,
            create_revision: before.map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            lease,
        };
        self.entries.insert(key.to_owned(), entry.clone());
        self.commit(vec![Event::Put(entry)]);
        revision
    }

    /// Deletes a key; returns the revision and whether it was there.
    pub(super) fn delete(&mut self, key: &str) -> (i64, bool) {
        let before = self.revision;
        self.remove(&BTreeSet::from([key.to_owned()]));
        (self.revision, self.revision > before)
    }

    pub(super) fn remove(&mut self, keys: &BTreeSet<String>) {
        let there: Vec<_> = keys
            .iter()
            .filter(|key| self.entries.contains_key(*key))
            .cloned()
            .collect();
        if there.is_empty() {
            return;
        }
        self.revision += 1;
        let mod_revision = self.revision;
        let mut events = Vec::new();
        for key in there {
            let entry = self.entries.remove(&key).expect("invariant: it is there");
            self.detach(&entry);
            events.push(Event::Delete { key, mod_revision });
        }
        self.commit(events);
    }

    pub(super) fn detach(&mut self, entry: &Entry) {
        if let Some(lease) = entry.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.remove(&entry.key);
        }
    }

    pub(super) fn end_leases(&mut self, now: Instant) {
        let due: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.ends <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            if let Some(lease) = self.leases.remove(&id) {
                self.remove(&lease.keys);
            }
        }
    }
}

pub(super) fn in_scope(events: &[Event], scope: &Scope) -> Vec<Event> {
    events
        .iter()
        .filter(|event| scope.contains(event.key()))
        .cloned()
        .collect()
}

/// The entries of a prefix as they were: today's with the later events taken back.
pub(super) fn entries_at(state: &State, revision: i64, prefix: &str) -> BTreeMap<String, Entry> {
    if revision == state.revision {
        return range(&state.entries, prefix);
    }
    let mut entries = range(&state.base, prefix);
    for (at, events) in &state.history {
        for event in events {
            if *at > revision || !event.key().starts_with(prefix) {
                continue;
            }
            match event {
                Event::Put(entry) => entries.insert(entry.key.clone(), entry.clone()),
                Event::Delete { key, .. } => entries.remove(key),
            };
        }
    }
    entries
}

fn range(entries: &BTreeMap<String, Entry>, prefix: &str) -> BTreeMap<String, Entry> {
    entries
        .range(prefix.to_owned()..)
        .take_while(|(key, _)| key.starts_with(prefix))
        .map(|(key, entry)| (key.clone(), entry.clone()))
        .collect()
}
