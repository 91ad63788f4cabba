//! etcd's mutex: of the keys `<name>/<lease in hex>`, the one that was made first holds the lock.
//!
//! The same keys as those of etcd's own client library (and so of Cilium's kvstoremesh), so that processes of both exclude each
//! other. Who waits watches the key before its own. A lock is lost with its lease or its key, or when the lease could not be
//! prolonged for its whole time-to-live.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

use super::{Attempt, Condition, Entry, Error, Event, KvStore, LeaseId, Scope, backoff::Backoff};

/// First and longest pause between attempts to reach the store while waiting.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Longest pause between two looks at lease and key.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A place in the line for a lock; the lock itself once it is the first.
#[derive(Debug)]
pub struct Lock<S> {
    store: S,
    lease: LeaseId,
    name: String,
    key: String,
    create_revision: i64,
    lost: watch::Receiver<Option<Error>>,
    upkeep: JoinHandle<()>,
}

impl<S: KvStore> Lock<S> {
    /// Enters the line for the lock of this name, with a lease of this time-to-live (Cilium's `LockLeaseTTL`: 25 s). Must be
    /// called within a runtime.
    pub async fn enter(store: S, name: &str, ttl: Duration) -> Result<Self, Error> {
        let began = Instant::now();
        let lease = store.grant(ttl).await?;
        let key = format!("{name}/{lease}");
        let absent = [Condition::Absent(key.clone())];
        let made = store.put_if(&absent, &key, Vec::new(), Some(lease));
        let create_revision = match made.await? {
            Attempt::Done(revision) => revision,
            // A lease has a new id: nobody else has this key.
            Attempt::Refused(_) => return Err(lost(&store, &key)),
        };
        let (tell, lost) = watch::channel(None);
        let keeper = Keeper {
            store: store.clone(),
            lease,
            key: key.clone(),
            create_revision,
            ttl,
            alive_until: began + ttl,
        };
        let upkeep = tokio::spawn(async move {
            tell.send_replace(Some(keeper.run().await));
        });
        Ok(Self {
            store,
            lease,
            name: name.to_owned(),
            key,
            create_revision,
            lost,
            upkeep,
        })
    }

    /// Waits until this is the first in the line. `waiting` is called with the holder's key whenever it is not.
    ///
    /// An error when the place in the line is lost; the store being away is none.
    pub async fn first(&self, mut waiting: impl FnMut(&str)) -> Result<(), Error> {
        let turn = async {
            let mut backoff = Backoff::new(RETRY.0, RETRY.1);
            loop {
                match self.wait_once(&mut waiting).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => backoff.reset(),
                    Err(error @ Error::LockLost { .. }) => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, lock = self.name, "cannot wait for the lock; trying again");
                        sleep(backoff.wait()).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            turn = turn => turn,
        }
    }

    /// Waits until the lock, or the place in the line, is lost.
    pub async fn lost(&self) -> Error {
        let mut told = self.lost.clone();
        let error = told.wait_for(Option::is_some).await;
        let error = error.ok().and_then(|error| error.clone());
        error.unwrap_or_else(|| lost(&self.store, &self.key))
    }

    /// What has to hold for every write that needs the lock.
    pub fn condition(&self) -> Condition {
        Condition::MadeAt {
            key: self.key.clone(),
            create_revision: self.create_revision,
        }
    }

    /// Gives the lock, or the place in the line, up.
    pub async fn release(self) -> Result<(), Error> {
        self.upkeep.abort();
        self.store.revoke(self.lease).await
    }

    /// The key of this place in the line.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The store that the lock is in.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// True when this is the first; false when something happened to the one before it.
    async fn wait_once(&self, waiting: &mut impl FnMut(&str)) -> Result<bool, Error> {
        let line = self.store.list(&format!("{}/", self.name)).await?;
        let before = match before(&line.entries, &self.key, self.create_revision) {
            Place::Lost => return Err(lost(&self.store, &self.key)),
            Place::First => return Ok(true),
            Place::After { holder, before } => {
                waiting(&holder);
                before
            }
        };
        let scope = Scope::Key(before);
        let mut watch = self.store.watch(&scope, line.revision + 1).await?;
        while let Some(batch) = watch.next().await {
            let gone = |event: &Event| matches!(event, Event::Delete { .. });
            if batch?.events.iter().any(gone) {
                break;
            }
        }
        Ok(false)
    }
}

impl<S> Drop for Lock<S> {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

/// Where in the line a key is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// At its head.
    First,
    /// Behind others.
    After {
        /// The key that holds the lock.
        holder: String,
        /// The key right before.
        before: String,
    },
    /// Nowhere.
    Lost,
}

fn before(line: &BTreeMap<String, Entry>, key: &str, create_revision: i64) -> Place {
    let own = line.get(key);
    if own.is_none_or(|own| own.create_revision != create_revision) {
        return Place::Lost;
    }
    let ahead = line
        .values()
        .filter(|entry| entry.create_revision < create_revision);
    let mut ahead: Vec<_> = ahead
        .map(|entry| (entry.create_revision, &entry.key))
        .collect();
    ahead.sort_unstable();
    match (ahead.first(), ahead.last()) {
        (Some((_, holder)), Some((_, before))) => Place::After {
            holder: (*holder).clone(),
            before: (*before).clone(),
        },
        _ => Place::First,
    }
}

/// Prolongs the lease and looks whether the key is still there.
struct Keeper<S> {
    store: S,
    lease: LeaseId,
    key: String,
    create_revision: i64,
    ttl: Duration,
    /// Until when the store keeps the lease for sure.
    alive_until: Instant,
}

impl<S: KvStore> Keeper<S> {
    /// Runs until the lock is lost; returns how.
    async fn run(mut self) -> Error {
        let pause = (self.ttl / 3).min(LOOK_MAX);
        loop {
            let began = Instant::now();
            if began >= self.alive_until {
                return lost(&self.store, &self.key);
            }
            match timeout_at(self.alive_until, self.look()).await {
                Ok(Ok(true)) => self.alive_until = began + self.ttl,
                Ok(Ok(false)) | Err(_) => return lost(&self.store, &self.key),
                Ok(Err(error @ Error::LeaseNotFound { .. })) => {
                    tracing::error!(%error, lock = self.key, "the lease of the lock is gone");
                    return lost(&self.store, &self.key);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, lock = self.key, "cannot prolong the lock; trying again");
                }
            }
            tokio::time::sleep_until(self.alive_until.min(began + pause)).await;
        }
    }

    /// Prolongs the lease; false when the key is gone.
    async fn look(&self) -> Result<bool, Error> {
        self.store.keep_alive(self.lease).await?;
        let entry = self.store.get(&self.key).await?.entry;
        Ok(entry.is_some_and(|entry| entry.create_revision == self.create_revision))
    }
}

fn lost<S: KvStore>(store: &S, key: &str) -> Error {
    Error::LockLost {
        endpoint: store.endpoint(),
        lock: key.to_owned(),
    }
}
