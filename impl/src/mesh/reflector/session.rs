//! One look at the store after the other: list the copies, follow them, and begin anew when the store was lost.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream::select_all};
use tokio::time::{MissedTickBehavior, interval};
use tombolo_core::wire::key;
use tracing::{info, warn};

use super::{keys::place, view::signs, writer::Writer};
use crate::{
    kvstore::{
        Asker, Entry, Error, Event, KvStore, LeaseId, Scope, Watch, WatchBatch,
        backoff::Backoff,
        lease::{self, FenceSeen},
    },
    mesh::inquiry::{Respondent, Sign},
    queue::RETRY_FIRST,
};

/// Longest pause between attempts to reach the store. Short, since a restarted etcd is back within seconds.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Where the copies are.
const DIRECTORIES: [&str; 3] = [key::CLUSTER_CONFIG, key::CACHE, key::SYNCED];

/// The directory whose watch tells of this.
fn directory(sign: Sign) -> &'static str {
    match sign {
        Sign::Config => key::CLUSTER_CONFIG,
        Sign::Canaries => key::SYNCED,
        Sign::Records(_) => key::CACHE,
    }
}

impl<S: KvStore> Writer<S> {
    /// Follows the copies for ever.
    pub(super) async fn follow_store(&self) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        let respondent = self.view.respondent(&self.local, &self.store);
        loop {
            let ended = self.follow_incarnation(&respondent, &mut backoff).await;
            respondent.end();
            self.reflection.state().listed = false;
            match ended {
                Ok(()) => info!("the copies are listed anew"),
                Err(error) => {
                    self.failed(&error);
                    warn!(%error, "cannot follow the copies; trying again");
                    tokio::time::sleep(backoff.wait()).await;
                }
            }
        }
    }

    /// Lists, marks what differs, then follows. Ends without error when a new list is needed at once.
    async fn follow_incarnation(
        &self,
        respondent: &Respondent,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let work = respondent.pulse.begin();
        let seen = self.reflection.state().fence.seen();
        let fence = self.fence(seen).await?;
        let (entries, watches) = self.list_and_watch().await?;
        if !self.prolong_earlier(&entries).await? || !self.begin(seen, fence, entries) {
            return Ok(());
        }
        backoff.reset();
        drop(work);
        let askers: Vec<_> = watches
            .iter()
            .map(|(_, watch)| watch.asker().clone())
            .collect();
        let named = watches.into_iter();
        let mut batches = select_all(named.map(|(of, watch)| watch.map(move |batch| (of, batch))));
        respondent.begin(signs());
        let mut keepalive = interval(lease::keepalive_pause(self.fence_ttl()));
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.reflection.restart() => return Ok(()),
                () = respondent.asked() => askers.iter().for_each(Asker::ask),
                batch = batches.next() => {
                    let Some((of, batch)) = batch else {
                        return Ok(());
                    };
                    let batch = batch?;
                    let delivered = batch.delivered();
                    if !self.take_in(batch) {
                        return Ok(());
                    }
                    for sign in signs().filter(|sign| directory(*sign) == of) {
                        respondent.took(sign, delivered);
                    }
                }
                _ = keepalive.tick() => match self.store.keep_alive(fence).await {
                    Ok(()) => {}
                    Err(Error::LeaseNotFound { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Prolongs the leases of an earlier life once before anything vouches for the records on them: else one might end just before
    /// a new canary is written. False when one has ended, and its records with it.
    pub(super) async fn prolong_earlier(&self, entries: &[Entry]) -> Result<bool, Error> {
        let leases: BTreeSet<_> = {
            let state = self.reflection.state();
            let earlier = entries
                .iter()
                .filter(|entry| !state.seeded && state.is_ours(entry));
            earlier.filter_map(|entry| entry.lease).collect()
        };
        for lease in leases {
            match self.store.keep_alive(lease).await {
                Ok(()) => {}
                Err(Error::LeaseNotFound { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The lease that new canaries hang on: the present one if the store still has it, else a new one.
    async fn fence(&self, seen: FenceSeen) -> Result<LeaseId, Error> {
        lease::prolong_or_grant(&self.store, seen.lease, self.fence_ttl()).await
    }

    /// Time-to-live of that lease.
    fn fence_ttl(&self) -> Duration {
        lease::canary_ttl(self.lease_ttl)
    }

    async fn list_and_watch(&self) -> Result<(Vec<Entry>, Vec<(&'static str, Watch)>), Error> {
        let mut entries = Vec::new();
        let mut watches = Vec::new();
        for directory in DIRECTORIES {
            let prefix = format!("{directory}/");
            let listing = self.store.list(&prefix).await?;
            let scope = Scope::Prefix(prefix);
            let watch = self.store.watch(&scope, listing.revision + 1).await?;
            watches.push((directory, watch));
            entries.extend(listing.entries.into_values());
        }
        Ok((entries, watches))
    }

    /// Takes in a list of the copies, made under this lease. False when records went meanwhile, so that the canaries need another
    /// lease.
    fn begin(&self, seen: FenceSeen, fence: LeaseId, entries: Vec<Entry>) -> bool {
        let mut state = self.reflection.state();
        let Some(adopted) = state.begin(seen, fence, entries) else {
            return false;
        };
        let peers: Vec<_> = state.copies.names().cloned().collect();
        let waiting = state.backlog.len();
        drop(state);
        info!(
            peers = peers.len(),
            adopted = adopted.len(),
            waiting,
            "listed the copies"
        );
        self.leases.adopt(adopted);
        for peer in peers {
            self.reflection.steps().add(peer);
        }
        self.reflection.wake();
        self.reflection.progressed();
        true
    }

    /// Takes in what happened to the copies; what was not done by this process is put right. False when the store has to be
    /// listed anew.
    fn take_in(&self, batch: WatchBatch) -> bool {
        let mut state = self.reflection.state();
        let mut touched = Vec::new();
        for event in batch.events {
            let ours = match &event {
                Event::Put(entry) => state.is_ours(entry),
                Event::Delete { .. } => true,
            };
            let Some((peer, _)) = place(event.key()).filter(|_| ours) else {
                continue;
            };
            let (key, deleted) = (
                event.key().to_owned(),
                matches!(event, Event::Delete { .. }),
            );
            if state.ledger.apply(event) {
                state.listed &= state.news(&key, deleted);
                touched.push(peer);
            }
        }
        let listed = state.listed;
        drop(state);
        for peer in touched {
            self.reflection.steps().add(peer);
        }
        self.reflection.wake();
        listed
    }
}
