//! Keys that go when we go: everything that is put here hangs on a lease, and leases are kept alive.
//!
//! When a lease is lost (the store was emptied, or was away for longer than the time-to-live) its keys are reported so that they
//! can be written again. Stopping revokes nothing: a restart must not look like a deletion.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::Instant};

use super::{Error, KvStore, LeaseId};

/// Most keys on one lease. Cilium's limit, which keeps the end of a lease a small transaction.
pub const KEYS_PER_LEASE: usize = 1000;

/// Longest time between two keep-alives; so fast is the loss of an emptied store noticed.
const KEEPALIVE_MAX: Duration = Duration::from_secs(5);

/// Time between two prolongations of a lease.
pub(crate) fn keepalive_pause(ttl: Duration) -> Duration {
    (ttl / 3).min(KEEPALIVE_MAX)
}

/// Time-to-live of the lease that canaries hang on: shorter than that of the records' leases, by more than the time between
/// two prolongations, so that canaries go first when nobody prolongs.
pub(crate) fn canary_ttl(records: Duration) -> Duration {
    records.saturating_sub((keepalive_pause(records) * 3 / 2).max(records / 10))
}

/// The present lease, prolonged, if the store still has it; else a new one.
pub(crate) async fn prolong_or_grant<S: KvStore>(
    store: &S,
    present: Option<LeaseId>,
    ttl: Duration,
) -> Result<LeaseId, Error> {
    if let Some(present) = present {
        match store.keep_alive(present).await {
            Ok(()) => return Ok(present),
            Err(Error::LeaseNotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    store.grant(ttl).await
}

/// The lease that canaries hang on, granted before the store is listed: a canary on it says that nothing of that list was lost
/// since. Records that go with a lease of theirs outdate it, at any time, also while the store is being listed.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    lease: Option<LeaseId>,
    outdated: u64,
}

/// A fence as it was at some time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FenceSeen {
    /// The lease.
    pub(crate) lease: Option<LeaseId>,
    outdated: u64,
}

/// What became of a lease that was to be the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// It is the one of before.
    Same,
    /// It is another one: canaries hang on an earlier lease.
    Renewed,
    /// The fence was outdated meanwhile: what was listed under this lease proves nothing.
    Outdated,
}

impl Fence {
    /// The present lease.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    /// The fence as it is now.
    pub(crate) fn seen(&self) -> FenceSeen {
        FenceSeen {
            lease: self.lease,
            outdated: self.outdated,
        }
    }

    /// Records went: canaries need another lease, to say that the writer lives.
    pub(crate) fn outdate(&mut self) {
        self.lease = None;
        self.outdated += 1;
    }

    /// A lease was granted, or prolonged, after the fence was seen, and the store listed after that.
    pub(crate) fn renew(&mut self, seen: FenceSeen, lease: LeaseId) -> Fenced {
        if self.outdated != seen.outdated {
            return Fenced::Outdated;
        }
        if self.lease == Some(lease) {
            return Fenced::Same;
        }
        self.lease = Some(lease);
        Fenced::Renewed
    }
}

/// Writes keys under leases and keeps those alive until dropped.
#[derive(Debug)]
pub struct Leases<S> {
    store: S,
    ttl: Duration,
    shared: Arc<Shared>,
    keeper: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    held: Mutex<Held>,
    lost: Notify,
    /// When the store confirmed every lease last.
    confirmed: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Held {
    keys: BTreeMap<LeaseId, BTreeSet<String>>,
    lease_of: BTreeMap<String, LeaseId>,
    lost: BTreeSet<String>,
}

impl<S: KvStore> Leases<S> {
    /// Leases with this time-to-live (Cilium's `--kvstore-lease-ttl`: 15 min). Must be called within a runtime.
    pub fn new(store: S, ttl: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let keeper = tokio::spawn(keep(store.clone(), ttl, Arc::clone(&shared)));
        Self {
            store,
            ttl,
            shared,
            keeper,
        }
    }

    /// Writes a key under a lease with room; returns the revision. A lease that turns out to be gone is replaced at once.
    pub async fn put(&self, key: &str, value: Vec<u8>) -> Result<i64, Error> {
        let lease = self.attach(key).await?;
        match self.store.put(key, value.clone(), Some(lease)).await {
            Err(Error::LeaseNotFound { .. }) => {
                self.shared.lose(lease);
                let lease = self.attach(key).await?;
                let revision = self.store.put(key, value, Some(lease)).await?;
                self.shared.held().lost.remove(key);
                Ok(revision)
            }
            outcome => outcome,
        }
    }

    /// Takes over keys that an earlier life of this process wrote: the leases that they hang on are kept alive from now on, and
    /// keys that go with one of them are reported. Keys that were put here already are left as they are.
    pub fn adopt(&self, keys: impl IntoIterator<Item = (String, LeaseId)>) {
        let mut held = self.shared.held();
        for (key, lease) in keys {
            if !held.lease_of.contains_key(&key) {
                held.keys.entry(lease).or_default().insert(key.clone());
                held.lease_of.insert(key, lease);
            }
        }
    }

    /// Deletes a key; returns the store's revision and whether the key was there.
    pub async fn delete(&self, key: &str) -> Result<(i64, bool), Error> {
        let deleted = self.store.delete(key).await?;
        self.shared.held().detach(key);
        Ok(deleted)
    }

    /// Waits until keys went with a lost lease and returns them, each once. They have to be put again.
    ///
    /// Cancel-safe: keys are taken only when the call returns.
    pub async fn lost(&self) -> BTreeSet<String> {
        loop {
            let lost = mem::take(&mut self.shared.held().lost);
            if !lost.is_empty() {
                return lost;
            }
            self.shared.lost.notified().await;
        }
    }

    /// How many leases are held, and when the store confirmed all of them last.
    pub fn held(&self) -> (usize, Option<Instant>) {
        (self.shared.held().keys.len(), *self.shared.confirmed())
    }

    /// The lease that the key hangs on, else one with room, else a new one.
    async fn attach(&self, key: &str) -> Result<LeaseId, Error> {
        if let Some(lease) = self.shared.held().attach(key) {
            return Ok(lease);
        }
        let lease = self.store.grant(self.ttl).await?;
        self.shared.confirmed().get_or_insert(Instant::now());
        let mut held = self.shared.held();
        held.keys.entry(lease).or_default();
        Ok(held.attach(key).unwrap_or(lease))
    }
}

impl<S> Drop for Leases<S> {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn confirmed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the keys of a lease that is gone.
    fn lose(&self, lease: LeaseId) {
        let mut held = self.held();
        let Some(keys) = held.keys.remove(&lease) else {
            return;
        };
        for key in &keys {
            held.lease_of.remove(key);
        }
        held.lost.extend(keys);
        drop(held);
        self.lost.notify_one();
    }
}

impl Held {
    fn attach(&mut self, key: &str) -> Option<LeaseId> {
        if let Some(lease) = self.lease_of.get(key) {
            return Some(*lease);
        }
        let (lease, keys) = self
            .keys
            .iter_mut()
            .find(|(_, keys)| keys.len() < KEYS_PER_LEASE)?;
        keys.insert(key.to_owned());
        self.lease_of.insert(key.to_owned(), *lease);
        Some(*lease)
    }

    fn detach(&mut self, key: &str) {
        self.lost.remove(key);
        if let Some(keys) = self
            .lease_of
            .remove(key)
            .and_then(|lease| self.keys.get_mut(&lease))
        {
            keys.remove(key);
        }
    }
}

async fn keep<S: KvStore>(store: S, ttl: Duration, shared: Arc<Shared>) {
    let pause = keepalive_pause(ttl);
    loop {
        tokio::time::sleep(pause).await;
        let leases: Vec<_> = shared.held().keys.keys().copied().collect();
        let mut confirmed = !leases.is_empty();
        for lease in leases {
            match store.keep_alive(lease).await {
                Ok(()) => {}
                Err(error @ Error::LeaseNotFound { .. }) => {
                    tracing::warn!(%error, "a lease is lost");
                    shared.lose(lease);
                }
                Err(error) => {
                    tracing::warn!(%error, reason = error.reason(), "a lease could not be kept alive; trying again");
                    confirmed = false;
                    break;
                }
            }
        }
        if confirmed {
            *shared.confirmed() = Some(Instant::now());
        }
    }
}
