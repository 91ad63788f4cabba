//! A store in memory, for tests: etcd's revisions, leases, watches and compaction, and the ways in which an etcd fails.
//!
//! It never forgets an event unless told to compact, and runs leases on tokio's clock.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Attempt, Change, Condition, Cursor, Entry, Error, KvStore, LeaseId, PAGE_BYTES_MAX, Page,
    PageLimit, Read, Scope, Step, Watch, WatchBatch,
};

mod state;

use state::{Lease, State, Watcher, entries_at, in_scope};

/// A store in memory. Clones are the same store.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

impl MemoryStore {
    /// An empty store with this name in messages.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            state: Arc::new(Mutex::new(State::new())),
        }
    }

    /// Breaks every watch and fails every call, until told otherwise.
    pub fn set_reachable(&self, reachable: bool) {
        let mut state = self.state();
        state.reachable = reachable;
        if !reachable {
            let error = self.unreachable(Step::Watch);
            state.break_watches(&error);
        }
    }

    /// Empties the store as a lost disk does: no events, revisions from 1, the same id unless `new_id`.
    pub fn wipe(&self, new_id: bool) {
        let mut state = self.state();
        let error = self.unreachable(Step::Watch);
        state.break_watches(&error);
        state.wipe(new_id);
    }

    /// The same behind a proxy that keeps connections: watches stay open, and nothing ever comes through them.
    pub fn wipe_silently(&self) {
        let mut state = self.state();
        let watchers = std::mem::take(&mut state.watchers);
        state.wipe(false);
        state.deaf = watchers;
    }

    /// Puts the store back to an earlier revision, as from a snapshot of its disk: the same id, leases and canaries.
    pub fn put_back(&self, revision: i64) {
        let mut state = self.state();
        let error = self.unreachable(Step::Watch);
        state.break_watches(&error);
        state.put_back(revision);
    }

    /// Forgets the events before the present revision.
    pub fn compact(&self) {
        self.state().compact();
    }

    /// Breaks every watch; new ones work at once.
    pub fn disconnect(&self) {
        let error = self.unreachable(Step::Watch);
        self.state().break_watches(&error);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if a client could reach it.
    fn reach(&self, step: Step) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.state();
        if !state.reachable {
            return Err(self.unreachable(step));
        }
        state.end_leases(Instant::now());
        Ok(state)
    }

    fn unreachable(&self, step: Step) -> Error {
        Error::Unreachable {
            endpoint: self.name.to_string(),
            step,
            detail: "the store is cut off".to_owned(),
        }
    }

    /// Ends leases when they are due, also when nobody calls.
    fn spawn_expiry(&self, due: Instant) {
        let weak = Arc::downgrade(&self.state);
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            if let Some(state) = weak.upgrade() {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.end_leases(Instant::now());
            }
        });
    }
}

impl KvStore for MemoryStore {
    fn endpoint(&self) -> String {
        self.name.to_string()
    }

    async fn get(&self, key: &str) -> Result<Read, Error> {
        let state = self.reach(Step::Get)?;
        Ok(state.read(key))
    }

    async fn page(&self, prefix: &str, cursor: Option<Cursor>) -> Result<Page, Error> {
        let state = self.reach(Step::List)?;
        let (revision, after, mut limit) = match cursor {
            None => (state.revision, None, PageLimit::FIRST),
            Some(cursor) => (cursor.revision, Some(cursor.after), cursor.limit),
        };
        if revision < state.compacted {
            return Err(Error::Compacted {
                endpoint: self.name.to_string(),
                step: Step::List,
            });
        }
        if revision > state.revision {
            return Err(self.behind(Step::List, revision, state.revision));
        }
        let mut entries: Vec<_> = entries_at(&state, revision, prefix)
            .into_values()
            .filter(|entry| {
                after
                    .as_ref()
                    .is_none_or(|after| entry.key.as_bytes() > after.as_slice())
            })
            .collect();
        let mut more = false;
        // As with etcd, a page that is too large is asked for again with fewer entries.
        loop {
            more |= entries.len() > limit.get();
            entries.truncate(limit.get());
            let bytes: usize = entries.iter().map(Entry::size).sum();
            match limit.smaller() {
                Some(smaller) if bytes > PAGE_BYTES_MAX => limit = smaller,
                Some(_) | None => break,
            }
        }
        let last = entries.last().map(|entry| entry.key.clone().into_bytes());
        let limit = limit.after(entries.iter().map(Entry::size));
        Ok(Page {
            revision,
            store_id: state.store_id,
            entries,
            next: last.filter(|_| more).map(|after| Cursor {
                revision,
                after,
                limit,
            }),
        })
    }

    async fn watch(&self, scope: &Scope, from_revision: i64) -> Result<Watch, Error> {
        let mut state = self.reach(Step::Watch)?;
        if from_revision > 0 && from_revision < state.compacted {
            return Err(Error::Compacted {
                endpoint: self.name.to_string(),
                step: Step::Watch,
            });
        }
        if state.revision < from_revision - 1 {
            return Err(self.behind(Step::Watch, from_revision - 1, state.revision));
        }
        let from = if from_revision == 0 {
            state.revision + 1
        } else {
            from_revision
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        for (revision, events) in &state.history {
            let seen = in_scope(events, scope);
            if *revision >= from && !seen.is_empty() {
                let _open = sender.send(Ok(WatchBatch {
                    revision: *revision,
                    store_id: state.store_id,
                    events: seen,
                }));
            }
        }
        let (weak, store) = (sender.downgrade(), self.clone());
        state.watchers.push(Watcher {
            scope: scope.clone(),
            sender,
        });
        let batches = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|batch| (batch, receiver))
        });
        let ask = move || {
            let state = store.state();
            if let Some(sender) = weak.upgrade() {
                let _open = sender.send(Ok(WatchBatch {
                    revision: state.revision,
                    store_id: state.store_id,
                    events: Vec::new(),
                }));
            }
        };
        Ok(Watch::new(batches.fuse(), ask))
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, Error> {
        let ends = Instant::now() + ttl;
        let id = {
            let mut state = self.reach(Step::Grant)?;
            state.last_lease += 1;
            let id = LeaseId(state.last_lease);
            state.leases.insert(
                id,
                Lease {
                    ttl,
                    ends,
                    keys: BTreeSet::new(),
                },
            );
            id
        };
        self.spawn_expiry(ends);
        Ok(id)
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let ends = {
            let mut state = self.reach(Step::KeepAlive)?;
            let Some(held) = state.leases.get_mut(&lease) else {
                return Err(self.lease_not_found(lease));
            };
            held.ends = Instant::now() + held.ttl;
            held.ends
        };
        self.spawn_expiry(ends);
        Ok(())
    }

    async fn lease_exists(&self, lease: LeaseId) -> Result<bool, Error> {
        Ok(self.reach(Step::LeaseStatus)?.leases.contains_key(&lease))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let mut state = self.reach(Step::Revoke)?;
        if let Some(held) = state.leases.remove(&lease) {
            state.remove(&held.keys);
        }
        Ok(())
    }

    async fn change_if(
        &self,
        conditions: &[Condition],
        key: &str,
        change: Change,
    ) -> Result<Attempt<(i64, bool)>, Error> {
        let mut state = self.reach(change.step())?;
        if let Some(reads) = state.refuse(conditions) {
            return Ok(Attempt::Refused(reads));
        }
        Ok(Attempt::Done(match change {
            Change::Delete => state.delete(key),
            Change::Put { value, lease } => {
                if let Some(lease) = lease.filter(|lease| !state.leases.contains_key(lease)) {
                    return Err(self.lease_not_found(lease));
                }
                (state.put(key, value, lease), true)
            }
        }))
    }
}

impl MemoryStore {
    fn lease_not_found(&self, lease: LeaseId) -> Error {
        Error::LeaseNotFound {
            endpoint: self.name.to_string(),
            lease,
        }
    }

    fn behind(&self, step: Step, expected: i64, got: i64) -> Error {
        Error::StoreBehind {
            endpoint: self.name.to_string(),
            step,
            expected,
            got,
        }
    }
}
