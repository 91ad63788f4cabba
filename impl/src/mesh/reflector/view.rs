//! What can be seen of the copies from outside: how far they are, and how that was shown.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout};
use tombolo_core::{
    names::ClusterName,
    wire::key::{HEARTBEAT, KVSTOREMESH_LOCK, Resource},
};

use super::writer::Writer;
use crate::{
    kvstore::{self, KvStore, Listing},
    mesh::{
        failure_log::FailureLog,
        inquiry::{Inquiries, Respondent, Sign},
    },
    status::answer::{Asked, Copies, Failures, Lease},
};

/// What a writer watches of the copies.
pub(super) fn signs() -> impl Iterator<Item = Sign> {
    let records = Resource::ALL.into_iter().map(Sign::Records);
    [Sign::Config, Sign::Canaries].into_iter().chain(records)
}

/// A view of the copies, from before they are made until after. Clones are the same view.
#[derive(Clone, Default)]
pub struct View {
    inquiries: Inquiries,
    seen: Arc<Mutex<SeenNow>>,
    failures: FailureLog,
}

/// What is there to be seen.
#[derive(Default)]
struct SeenNow {
    /// The line for the lock, once this process stands in it.
    line: Option<Line>,
    /// What copies, while it does.
    writer: Option<Weak<dyn Seen>>,
}

/// The line for the lock, and this process's place in it.
#[derive(Clone)]
struct Line {
    own: Option<String>,
    look: Arc<Look>,
}

/// Lists the line.
type Look = dyn Fn() -> BoxFuture<'static, Result<Listing, kvstore::Error>> + Send + Sync;

/// A writer that copies.
pub(super) trait Seen: Send + Sync {
    /// What it has done so far.
    fn look(&self, asked: Asked, failures: Failures) -> Copies;
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    /// The deadmen of the parts that copy are among these.
    pub fn inquiries(&self) -> &Inquiries {
        &self.inquiries
    }

    /// Asks the store and whoever copies, or the store who does. Takes at most `bound`.
    pub async fn ask(&self, bound: Duration) -> Copies {
        if self.writer().is_none() {
            return self.ask_line(bound).await;
        }
        let found = self.inquiries.ask_all(bound).await.pop_first();
        match (found, self.writer()) {
            (Some((_, found)), Some(writer)) => {
                writer.look(Asked::of(&found), self.failures.look())
            }
            // It has just begun or ended.
            (_, _) => self.ask_line(bound).await,
        }
    }

    /// Who is at the head of the line for the lock.
    async fn ask_line(&self, bound: Duration) -> Copies {
        let asked_at = Instant::now();
        let line = self.lock().line.clone();
        let (head, holder) = match line {
            None => (Err("it has not reached the own store yet".to_owned()), None),
            Some(line) => match timeout(bound, (line.look)()).await {
                Ok(Ok(listing)) => (Ok(listing.revision), line.holder(&listing)),
                Ok(Err(error)) => (Err(error.to_string()), None),
                Err(_) => (Err(format!("no answer within {bound:?}")), None),
            },
        };
        Copies {
            leads: false,
            holder,
            asked: Asked {
                head: head.as_ref().ok().copied(),
                error: head.err(),
                age_seconds: asked_at.elapsed().as_secs_f64(),
                current: Vec::new(),
            },
            listed: false,
            waiting: 0,
            lease: Lease::of((0, None), Duration::ZERO),
            failures: self.failures.look(),
            peers: Vec::new(),
        }
    }

    /// This process stands in the line for the lock of a store; `own` is its key, once it has one.
    pub(super) fn stands_in_line<S: KvStore>(&self, store: &S, own: Option<&str>) {
        let store = store.clone();
        let look = move || -> BoxFuture<'static, _> {
            let store = store.clone();
            Box::pin(async move { store.list(&format!("{KVSTOREMESH_LOCK}/")).await })
        };
        self.lock().line = Some(Line {
            own: own.map(str::to_owned),
            look: Arc::new(look),
        });
    }

    /// This process holds the lock, and a writer begins.
    pub(super) fn show(&self, writer: Weak<dyn Seen>) {
        self.lock().writer = Some(writer);
    }

    /// The writer can be asked how far it is.
    pub(super) fn respondent<S: KvStore>(&self, local: &ClusterName, store: &S) -> Arc<Respondent> {
        let name = "writer of copies".to_owned();
        self.inquiries
            .register_part(local, name, store.clone(), HEARTBEAT.to_owned())
    }

    /// Something failed.
    pub(super) fn failed(&self, reason: &'static str, error: &impl fmt::Display) {
        self.failures.note(reason, error);
    }

    fn writer(&self) -> Option<Arc<dyn Seen>> {
        self.lock().writer.as_ref().and_then(Weak::upgrade)
    }

    fn lock(&self) -> MutexGuard<'_, SeenNow> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The key of another process that holds the lock. None when this one is the first: it is about to begin, or hangs.
    fn holder(&self, listing: &Listing) -> Option<String> {
        let line = listing.entries.values();
        let first = line.min_by_key(|entry| entry.create_revision)?;
        (self.own.as_ref() != Some(&first.key)).then(|| first.key.clone())
    }
}

impl<S: KvStore> Seen for Writer<S> {
    fn look(&self, asked: Asked, failures: Failures) -> Copies {
        let lease = Lease::of(self.leases.held(), self.lease_ttl);
        let state = self.reflection.state();
        let waiting = state.backlog.waiting();
        Copies {
            leads: true,
            holder: None,
            asked,
            listed: state.listed,
            waiting: u64::try_from(waiting).unwrap_or(u64::MAX),
            lease,
            failures,
            peers: state.look(),
        }
    }
}
