//! Asking the followers of peers where they are, with proof.
//!
//! Whoever asks reads the head of a peer's store himself, and then waits until every watch of the follower has delivered, after
//! the question, everything up to that head. A store that hangs answers neither; a follower that hangs does not take what its
//! watches deliver; so neither can pass for current, however good its last word was.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout, timeout_at},
};
use tombolo_core::{names::ClusterName, wire::key::Resource};

use crate::{
    kvstore::{self, KvStore, Read},
    telemetry::pulse::{Pulse, Pulses},
};

/// Time between two questions to a follower that has not answered: a store that is busy delivering drops questions.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Longest step of following a peer. Every call to a store is bounded by 10 s and connecting by 4 s for each endpoint, and no step
/// is more than a few of them.
pub(crate) const STEP_MAX: Duration = Duration::from_mins(5);

/// What a follower watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    /// The cluster-config.
    Config,
    /// The canaries.
    Canaries,
    /// Records.
    Records(Resource),
}

/// How far a watch has delivered.
#[derive(Debug, Clone, Copy)]
struct Delivered {
    revision: i64,
    at: Instant,
}

/// What every watch of a follower has delivered; empty while it is not connected.
type Progress = BTreeMap<Sign, Option<Delivered>>;

/// The followers of all peers. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Inquiries {
    followers: Arc<Mutex<BTreeMap<ClusterName, Arc<Respondent>>>>,
    pulses: Pulses,
}

/// A follower, as it is seen by those who ask.
pub(crate) struct Respondent {
    asked: Notify,
    progress: watch::Sender<Progress>,
    head: Box<dyn Fn() -> BoxFuture<'static, Result<Read, kvstore::Error>> + Send + Sync>,
    /// Its deadman.
    pub(crate) pulse: Pulse,
}

/// What a question found out about a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Revision of the peer's store when it was asked, or why it is not known.
    pub head: Result<i64, String>,
    /// When that was read.
    pub read_at: Instant,
    /// The kinds of which everything up to the head was taken in, as shown after the question.
    pub current: Vec<Resource>,
}

impl fmt::Debug for Respondent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Respondent")
            .field("progress", &*self.progress.borrow())
            .finish_non_exhaustive()
    }
}

impl Inquiries {
    /// The deadmen of the followers.
    pub fn pulses(&self) -> &Pulses {
        &self.pulses
    }

    /// A follower of a peer begins; `key` is one that it may read in the peer's store.
    pub(crate) fn register<S: KvStore>(
        &self,
        peer: &ClusterName,
        store: S,
        key: String,
    ) -> Arc<Respondent> {
        self.register_part(peer, format!("peer/{peer}"), store, key)
    }

    /// As [`Self::register`], with a name for the deadman.
    pub(crate) fn register_part<S: KvStore>(
        &self,
        peer: &ClusterName,
        part: String,
        store: S,
        key: String,
    ) -> Arc<Respondent> {
        let head = move || -> BoxFuture<'static, _> {
            let (store, key) = (store.clone(), key.clone());
            Box::pin(async move { store.get(&key).await })
        };
        let respondent = Arc::new(Respondent {
            asked: Notify::new(),
            progress: watch::Sender::new(Progress::new()),
            head: Box::new(head),
            pulse: self.pulses.part(part, STEP_MAX),
        });
        self.lock().insert(peer.clone(), Arc::clone(&respondent));
        respondent
    }

    /// The follower of a peer ended, unless another has taken its place.
    pub(crate) fn unregister(&self, peer: &ClusterName, respondent: &Arc<Respondent>) {
        let mut followers = self.lock();
        if followers
            .get(peer)
            .is_some_and(|it| Arc::ptr_eq(it, respondent))
        {
            followers.remove(peer);
        }
    }

    /// A step of following a peer is done, and the next begins.
    pub(crate) fn goes_on(&self, peer: &ClusterName) {
        if let Some(respondent) = self.lock().get(peer) {
            respondent.pulse.goes_on();
        }
    }

    /// Asks about every peer at once; each answer takes at most `bound`. A peer without a follower is not in the answer.
    pub async fn ask_all(&self, bound: Duration) -> BTreeMap<ClusterName, Found> {
        let followers = self.lock().clone();
        let asked = followers.into_iter().map(async |(peer, follower)| {
            let found = follower.ask(bound).await;
            (peer, found)
        });
        join_all(asked).await.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Arc<Respondent>>> {
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Respondent {
    /// Waits until somebody asks. For the follower.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The follower is connected, and watches these.
    pub(crate) fn begin(&self, signs: impl IntoIterator<Item = Sign>) {
        let nothing = signs.into_iter().map(|sign| (sign, None)).collect();
        self.progress.send_replace(nothing);
    }

    /// The follower is not connected any more.
    pub(crate) fn end(&self) {
        self.progress.send_replace(Progress::new());
    }

    /// The follower has taken in everything up to a revision, that one included.
    pub(crate) fn took(&self, sign: Sign, revision: i64) {
        let at = Instant::now();
        self.progress.send_if_modified(|progress| {
            let Some(delivered) = progress.get_mut(&sign) else {
                return false;
            };
            *delivered = Some(Delivered { revision, at });
            true
        });
    }

    async fn ask(&self, bound: Duration) -> Found {
        let asked_at = Instant::now();
        let before = self.reached();
        let read = timeout(bound, (self.head)()).await;
        let head = match read {
            Ok(Ok(read)) => match before {
                Some(before) if before > read.revision => Err(format!(
                    "the store is at revision {}, before {before} which was followed earlier: it was emptied or replaced",
                    read.revision
                )),
                _ => Ok(read.revision),
            },
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {bound:?}")),
        };
        let current = match head {
            Ok(head) => self.wait(head, asked_at, asked_at + bound).await,
            Err(_) => Vec::new(),
        };
        Found {
            head,
            read_at: asked_at,
            current,
        }
    }

    /// The furthest that any watch has delivered.
    fn reached(&self) -> Option<i64> {
        let progress = self.progress.borrow();
        let delivered = progress.values().flatten();
        delivered.map(|it| it.revision).max()
    }

    /// Waits until every watch has delivered everything up to the head; the kinds that have when the time is over.
    async fn wait(&self, head: i64, asked_at: Instant, until: Instant) -> Vec<Resource> {
        let mut changes = self.progress.subscribe();
        let shown = |delivered: &Option<Delivered>| {
            delivered.is_some_and(|it| it.revision >= head && it.at >= asked_at)
        };
        loop {
            self.asked.notify_one();
            let all =
                changes.wait_for(|progress| !progress.is_empty() && progress.values().all(shown));
            let pause = (Instant::now() + ASK_AGAIN).min(until);
            if timeout_at(pause, all).await.is_ok() || Instant::now() >= until {
                break;
            }
        }
        let progress = self.progress.borrow();
        let of = |sign| progress.get(&sign).is_none_or(shown);
        let trusted = of(Sign::Config) && of(Sign::Canaries);
        let current = progress.iter().filter_map(|(sign, delivered)| match sign {
            Sign::Records(kind) if trusted && shown(delivered) => Some(*kind),
            Sign::Records(_) | Sign::Config | Sign::Canaries => None,
        });
        current.collect()
    }
}

#[cfg(test)]
#[path = "inquiry_tests.rs"]
mod tests;
