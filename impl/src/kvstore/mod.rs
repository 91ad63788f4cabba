//! A cluster's store: the part of etcd that the mesh uses, as a trait with two implementations.
//!
//! [`etcd::EtcdStore`] is the real one; [`memory::MemoryStore`] is for tests and can be broken on purpose. One battery of
//! tests runs on both. A call that fails says so; nothing here retries for ever, turns an error into an empty answer, or
//! gives an answer of another store than the one it began with.

use std::{collections::BTreeMap, fmt, future::Future, time::Duration};

pub mod backoff;
#[cfg(test)]
mod battery;
pub mod config;
pub mod error;
pub mod etcd;
pub mod fenced;
#[cfg(test)]
mod foreign_keys_tests;
pub mod lease;
pub mod memory;
pub mod mutex;
#[cfg(test)]
mod mutex_tests;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod network_watch_tests;
mod paging;
#[cfg(test)]
mod progress_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) mod testing_pki;
#[cfg(test)]
pub(crate) mod testing_proxy;
#[cfg(test)]
mod testing_subject;
pub mod tls_fault;
#[cfg(test)]
mod tls_tests;
pub mod watch;

pub use error::{Error, Step};
use paging::PageLimit;
pub use paging::{PAGE_BYTES_MAX, PAGE_ENTRIES};
pub use watch::{Asker, Event, Watch, WatchBatch};

/// Id of a lease, chosen by the store; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub(crate) i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Revision of the store at which the key was made.
    pub create_revision: i64,
    /// Revision of the store at which the value was written.
    pub mod_revision: i64,
    /// The lease that the key goes with, if any.
    pub lease: Option<LeaseId>,
}

impl Entry {
    /// Bytes of key and value.
    pub fn size(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// Answer to a read of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Revision of the store when it answered.
    pub revision: i64,
    /// Id of the etcd cluster that answered. A wiped etcd that starts with the same flags has the same id.
    pub store_id: u64,
    /// The entry, if the key exists.
    pub entry: Option<Entry>,
}

/// One page of a list, in the order of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Revision that the entries are of; equal in all pages of one list.
    pub revision: i64,
    /// Id of the etcd cluster that answered.
    pub store_id: u64,
    /// The entries: at most [`PAGE_ENTRIES`], and [`PAGE_BYTES_MAX`] unless it is a single one.
    pub entries: Vec<Entry>,
    /// Where the next page begins; none after the last.
    pub next: Option<Cursor>,
}

/// Where the next page of a list begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    revision: i64,
    /// The last key of the page before, which need not be text.
    after: Vec<u8>,
    limit: PageLimit,
}

/// A finished list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Revision that the entries are of.
    pub revision: i64,
    /// Id of the etcd cluster that answered.
    pub store_id: u64,
    /// Every entry, by key.
    pub entries: BTreeMap<String, Entry>,
}

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One key, exactly. A peer's credentials may allow no more than that for its cluster-config (Cilium's `remote` role).
    Key(String),
    /// Every key that begins with this text.
    Prefix(String),
}

impl Scope {
    /// Whether the key is in the scope.
    pub fn contains(&self, key: &str) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Prefix(prefix) => key.starts_with(prefix.as_str()),
        }
    }

    /// The key or prefix as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Key(text) | Self::Prefix(text) => text,
        }
    }
}

/// A condition of a write: looked at in the very revision of the write, so that nobody can come between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    Absent(String),
    /// The key exists and was made at this revision: since then nobody deleted it, or made it anew.
    MadeAt {
        /// The key.
        key: String,
        /// Revision of the store at which it was made.
        create_revision: i64,
    },
    /// The key exists and was written at this revision: since then nobody wrote or deleted it.
    WrittenAt {
        /// The key.
        key: String,
        /// Revision of the store at which it was written.
        mod_revision: i64,
    },
}

impl Condition {
    /// The key that is looked at.
    pub fn key(&self) -> &str {
        match self {
            Self::Absent(key) | Self::MadeAt { key, .. } | Self::WrittenAt { key, .. } => key,
        }
    }

    /// Whether the condition holds, given what is stored under its key.
    pub(crate) fn holds(&self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Absent(_) => entry.is_none(),
            Self::MadeAt {
                create_revision, ..
            } => entry.is_some_and(|entry| entry.create_revision == *create_revision),
            Self::WrittenAt { mod_revision, .. } => {
                entry.is_some_and(|entry| entry.mod_revision == *mod_revision)
            }
        }
    }
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It holds this from now on.
    Put {
        /// The value.
        value: Vec<u8>,
        /// The lease that the key goes with, if any.
        lease: Option<LeaseId>,
    },
    /// It does not exist any more.
    Delete,
}

impl Change {
    /// What a store calls it that cannot make it.
    fn step(&self) -> Step {
        match self {
            Self::Put { .. } => Step::Put,
            Self::Delete => Step::Delete,
        }
    }
}

/// Answer to a write under conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt<T> {
    /// They held: written.
    Done(T),
    /// One did not, and nothing was written. This is what their keys hold, in their order.
    Refused(Vec<Read>),
}

impl<T> Attempt<T> {
    fn map<U>(self, map: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Done(done) => Attempt::Done(map(done)),
            Self::Refused(reads) => Attempt::Refused(reads),
        }
    }

    /// The answer to a change without conditions.
    fn done(self) -> T {
        match self {
            Self::Done(done) => done,
            Self::Refused(reads) => panic!("a change without conditions was refused: {reads:?}"),
        }
    }
}

/// A store. Clones share the connection. Every call is bounded in time.
pub trait KvStore: Clone + Send + Sync + 'static {
    /// What to call the store in messages: its endpoints.
    fn endpoint(&self) -> String;

    /// Reads one key; the answer is not older than the call.
    fn get(&self, key: &str) -> impl Future<Output = Result<Read, Error>> + Send;

    /// Reads a page of a prefix: the first without a cursor, then with the last page's.
    ///
    /// [`Error::Compacted`] when the revision of the list is gone: begin again.
    fn page(
        &self,
        prefix: &str,
        cursor: Option<Cursor>,
    ) -> impl Future<Output = Result<Page, Error>> + Send;

    /// Watches from a revision on, that one included. Returns once the store has accepted.
    ///
    /// The stream ends with an error: [`Error::Compacted`] asks for a new list, and so does [`Error::StoreBehind`], made when
    /// the store has not reached `from_revision - 1` (a wiped etcd accepts such a watch and is silent for ever).
    fn watch(
        &self,
        scope: &Scope,
        from_revision: i64,
    ) -> impl Future<Output = Result<Watch, Error>> + Send;

    /// Makes a lease. The store may lengthen a short time-to-live (etcd: about 2 s).
    fn grant(&self, ttl: Duration) -> impl Future<Output = Result<LeaseId, Error>> + Send;

    /// Prolongs a lease by its time-to-live; [`Error::LeaseNotFound`] when it is gone, and its keys with it.
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether a lease is still there. Needs no rights on its keys.
    fn lease_exists(&self, lease: LeaseId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Ends a lease; its keys go in one revision. No error when it is gone already.
    fn revoke(&self, lease: LeaseId) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes a change if every condition holds; returns the store's revision after it, and whether there was something to
    /// change: there is not when a key is to be deleted that does not exist.
    fn change_if(
        &self,
        conditions: &[Condition],
        key: &str,
        change: Change,
    ) -> impl Future<Output = Result<Attempt<(i64, bool)>, Error>> + Send;

    /// Writes a key, under a lease if there is one; returns the revision.
    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    ) -> impl Future<Output = Result<i64, Error>> + Send {
        async move { Ok(self.put_if(&[], key, value, lease).await?.done()) }
    }

    /// Deletes a key; returns the store's revision after it and whether the key was there.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(i64, bool), Error>> + Send {
        async move { Ok(self.delete_if(&[], key).await?.done()) }
    }

    /// Writes a key if every condition holds; returns the revision.
    fn put_if(
        &self,
        conditions: &[Condition],
        key: &str,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    ) -> impl Future<Output = Result<Attempt<i64>, Error>> + Send {
        let put = Change::Put { value, lease };
        let attempt = self.change_if(conditions, key, put);
        async move { Ok(attempt.await?.map(|(revision, _)| revision)) }
    }

    /// Deletes a key if every condition holds; returns the store's revision after it and whether the key was there.
    fn delete_if(
        &self,
        conditions: &[Condition],
        key: &str,
    ) -> impl Future<Output = Result<Attempt<(i64, bool)>, Error>> + Send {
        self.change_if(conditions, key, Change::Delete)
    }

    /// Writes a key unless it holds this value on this lease already; returns the revision, or what is there. Overwrites only
    /// what it has looked at: begins anew when somebody else wrote in between.
    fn put_if_different(
        &self,
        key: &str,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    ) -> impl Future<Output = Result<Attempt<i64>, Error>> + Send {
        async move {
            loop {
                let read = self.get(key).await?;
                let key = key.to_owned();
                let unchanged = match &read.entry {
                    Some(entry) if entry.value == value && entry.lease == lease => {
                        return Ok(Attempt::Refused(vec![read]));
                    }
                    Some(entry) => Condition::WrittenAt {
                        key: key.clone(),
                        mod_revision: entry.mod_revision,
                    },
                    None => Condition::Absent(key.clone()),
                };
                let attempt = self
                    .put_if(&[unchanged], &key, value.clone(), lease)
                    .await?;
                if matches!(attempt, Attempt::Done(_)) {
                    return Ok(attempt);
                }
            }
        }
    }

    /// Reads all pages of a prefix. For prefixes that fit into memory twice; others go page by page.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Listing, Error>> + Send {
        async move {
            let mut entries = BTreeMap::new();
            let mut cursor = None;
            loop {
                let page = self.page(prefix, cursor).await?;
                entries.extend(
                    page.entries
                        .into_iter()
                        .map(|entry| (entry.key.clone(), entry)),
                );
                cursor = page.next;
                if cursor.is_none() {
                    return Ok(Listing {
                        revision: page.revision,
                        store_id: page.store_id,
                        entries,
                    });
                }
            }
        }
    }
}
