//! A store that is written to only while a lock is held.
//!
//! The lock is looked at in the very revision of each write. So a process that was paused for longer than its lease, and whose
//! lock somebody else has now, cannot write any more, not even the write in hand.

use std::time::Duration;

use super::{
    Attempt, Condition, Cursor, Error, KvStore, LeaseId, Page, Read, Scope, Watch, mutex::Lock,
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

    fn lost(&self) -> Error {
        Error::LockLost {
            endpoint: self.endpoint(),
            lock: self.guard.key().to_owned(),
        }
    }

    /// The conditions, and after them the lock.
    fn with_guard(&self, conditions: &[Condition]) -> Vec<Condition> {
        let guard = std::iter::once(&self.guard);
        conditions.iter().chain(guard).cloned().collect()
    }

    /// The answer to a write under [`Self::with_guard`]; an error when it was the lock that did not hold.
    fn settle<T>(&self, attempt: Attempt<T>) -> Result<Attempt<T>, Error> {
        let Attempt::Refused(mut reads) = attempt else {
            return Ok(attempt);
        };
        let lock = reads.pop().and_then(|read| read.entry);
        if self.guard.holds(lock.as_ref()) {
            Ok(Attempt::Refused(reads))
        } else {
            Err(self.lost())
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

    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<i64, Error> {
        match self.put_if(&[], key, value, lease).await? {
            Attempt::Done(revision) => Ok(revision),
            Attempt::Refused(_) => Err(self.lost()),
        }
    }

    async fn delete(&self, key: &str) -> Result<(i64, bool), Error> {
        match self.delete_if(&[], key).await? {
            Attempt::Done(deleted) => Ok(deleted),
            Attempt::Refused(_) => Err(self.lost()),
        }
    }

    async fn put_if(
        &self,
        conditions: &[Condition],
        key: &str,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    ) -> Result<Attempt<i64>, Error> {
        let conditions = self.with_guard(conditions);
        self.settle(self.store.put_if(&conditions, key, value, lease).await?)
    }

    async fn delete_if(
        &self,
        conditions: &[Condition],
        key: &str,
    ) -> Result<Attempt<(i64, bool)>, Error> {
        let conditions = self.with_guard(conditions);
        self.settle(self.store.delete_if(&conditions, key).await?)
    }
}
