//! A store in memory that tells which calls a reader makes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::kvstore::{
    Attempt, Change, Condition, Cursor, Error, KvStore, LeaseId, Page, Read, Scope, Watch,
    memory::MemoryStore,
};

/// What is done before a page is answered; the argument is how many lists were begun.
type OnList = dyn Fn(usize) + Send + Sync;

/// A store in memory, and how often it was asked for what. Clones count together.
#[derive(Clone)]
pub(crate) struct Tapped {
    store: MemoryStore,
    calls: Arc<Calls>,
    on_list: Arc<OnList>,
}

/// How often a store was asked.
#[derive(Debug, Default)]
struct Calls {
    gets: AtomicUsize,
    lists: AtomicUsize,
    leases: AtomicUsize,
    leases_at_once: AtomicUsize,
    leases_at_once_most: AtomicUsize,
}

impl Tapped {
    pub(crate) fn new(store: MemoryStore) -> Self {
        Self {
            store,
            calls: Arc::default(),
            on_list: Arc::new(|_| {}),
        }
    }

    /// Does something after each list was read and before it is answered.
    pub(crate) fn on_list(mut self, act: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_list = Arc::new(act);
        self
    }

    /// How many keys were read.
    pub(crate) fn gets(&self) -> usize {
        self.calls.gets.load(Ordering::Relaxed)
    }

    /// How many lists were begun.
    pub(crate) fn lists(&self) -> usize {
        self.calls.lists.load(Ordering::Relaxed)
    }

    /// How many leases were asked for, and how many of them at once at most.
    pub(crate) fn leases(&self) -> (usize, usize) {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let calls = &self.calls;
        (load(&calls.leases), load(&calls.leases_at_once_most))
    }
}

impl fmt::Debug for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls.fmt(f)
    }
}

impl KvStore for Tapped {
    fn endpoint(&self) -> String {
        self.store.endpoint()
    }

    async fn get(&self, key: &str) -> Result<Read, Error> {
        self.calls.gets.fetch_add(1, Ordering::Relaxed);
        self.store.get(key).await
    }

    async fn page(&self, prefix: &str, cursor: Option<Cursor>) -> Result<Page, Error> {
        let begins = cursor.is_none();
        let page = self.store.page(prefix, cursor).await;
        if begins {
            (self.on_list)(self.calls.lists.fetch_add(1, Ordering::Relaxed) + 1);
        }
        page
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

    /// Takes a millisecond, so that it shows what is asked at once.
    async fn lease_exists(&self, lease: LeaseId) -> Result<bool, Error> {
        let calls = &self.calls;
        calls.leases.fetch_add(1, Ordering::Relaxed);
        let now = calls.leases_at_once.fetch_add(1, Ordering::Relaxed) + 1;
        calls.leases_at_once_most.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        calls.leases_at_once.fetch_sub(1, Ordering::Relaxed);
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
        self.store.change_if(conditions, key, change).await
    }
}
