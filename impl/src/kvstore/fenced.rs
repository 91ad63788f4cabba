//! A store that is written to only while a lock is held.
//!
//! The lock is looked at in the very revision of each write. So a process that was paused for longer than its lease, and whose
//! lock somebody else has now, cannot write any more, not even the write in hand.

use std::time::Duration;

use super::{
    Attempt, Change, Condition, Cursor, Error, KvStore, LeaseId, Page, Read, Scope, Watch,
    mutex::Lock,
};

/// A store whose writes need a lock. Reads and leases do not: leases without keys change nothing.
#[derive(Debug, Clone)]
pub struct Fenced<S> {
    store: S,
    guard: Condition,
}

impl<S: KvStore> Fenced<S> {
    /// The store of the lock, written to only while the lock is held.
    pub fn new(lock: &Lock<S>) -> Self {
        Self {
            store: lock.store().clone(),
            guard: lock.condition(),
        }
    }
}

impl<S: KvStore> KvStore for Fenced<S> {
    fn endpoint(&self) -> String {
        self.store.endpoint()
    }

    async fn get(&self, key: &str) -> Result<Read, Error> {
        self.store.get(key).await
    }

    async fn page(&self, prefix: &str, cursor: Option<Cursor>) -> Result<Page, Error> {
        self.store.page(prefix, cursor).await
    }

    async fn watch(&self, scope: &Scope, from_revision: i64) -> Result<Watch, Error> {
        self.store.watch(scope, from_revision).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, Error> {
        self.store.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.keep_alive(lease).await
    }

    async fn lease_exists(&self, lease: LeaseId) -> Result<bool, Error> {
        self.store.lease_exists(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.revoke(lease).await
    }

    async fn change_if(
        &self,
        conditions: &[Condition],
        key: &str,
        change: Change,
    ) -> Result<Attempt<(i64, bool)>, Error> {
        // The lock comes last: what is left of the reads is those of the conditions.
        let guard = std::iter::once(&self.guard);
        let guarded: Vec<_> = conditions.iter().chain(guard).cloned().collect();
        let attempt = self.store.change_if(&guarded, key, change).await?;
        let Attempt::Refused(mut reads) = attempt else {
            return Ok(attempt);
        };
        let lock = reads.pop().and_then(|read| read.entry);
        if self.guard.holds(lock.as_ref()) {
            Ok(Attempt::Refused(reads))
        } else {
            Err(Error::LockLost {
                endpoint: self.endpoint(),
                lock: self.guard.key().to_owned(),
            })
        }
    }
}
