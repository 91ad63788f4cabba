//! One incarnation of the store after the other: list the own keys, follow them, and begin anew when the store was lost.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream::select_all};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::{Publisher, STORE_RETRY_MAX, State, view::SIGNS};
use crate::{
    kvstore::{
        Asker, Entry, Error, Event, KvStore, LeaseId, Scope, Watch, WatchBatch,
        backoff::Backoff,
        lease::{self, FenceSeen, Fenced},
    },
    mesh::inquiry::Respondent,
    queue::RETRY_FIRST,
};

impl<S: KvStore> Publisher<S> {
    /// Follows the own keys for ever.
    pub(super) async fn follow_store(&self) {
        let mut backoff = Backoff::new(RETRY_FIRST, STORE_RETRY_MAX);
        let (view, cluster) = (&self.options.view, &self.options.publishing.cluster);
        let respondent = view.respondent(cluster, &self.store, &self.keys);
        loop {
            let ended = self.follow_incarnation(&respondent, &mut backoff).await;
            respondent.end();
            self.state().listed = false;
            self.open_gate(false);
            match ended {
                Ok(()) => info!("the store was lost; listing it anew"),
                Err(error) => {
                    self.note_failure(error.reason(), &error);
                    warn!(%error, "cannot follow the own keys; trying again");
                    tokio::time::sleep(backoff.wait()).await;
                }
            }
        }
    }

    /// Lists the own keys, marks everything dirty, then follows. Ends without error when a new list is needed at once.
    async fn follow_incarnation(
        &self,
        respondent: &Respondent,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let work = respondent.pulse.begin();
        let seen = self.state().fence.seen();
        let fence = self.fence(seen).await?;
        let (entries, watches) = self.list_and_watch().await?;
        if !self.begin(seen, fence, entries) {
            return Ok(());
        }
        backoff.reset();
        drop(work);
        let askers: Vec<_> = watches.iter().map(|watch| watch.asker().clone()).collect();
        let named = SIGNS.into_iter().zip(watches);
        let mut batches =
            select_all(named.map(|(sign, watch)| watch.map(move |batch| (sign, batch))));
        respondent.begin(SIGNS);
        let mut keepalive = interval(lease::keepalive_pause(self.fence_ttl()));
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.restart.notified() => return Ok(()),
                () = respondent.asked() => askers.iter().for_each(Asker::ask),
                batch = batches.next() => {
                    let Some((sign, batch)) = batch else {
                        return Ok(());
                    };
                    let batch = batch?;
                    let delivered = batch.delivered();
                    if !self.take_in(batch) {
                        return Ok(());
                    }
                    respondent.took(sign, delivered);
                }
                _ = keepalive.tick() => match self.store.keep_alive(fence).await {
                    Ok(()) => {}
                    Err(Error::LeaseNotFound { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// The lease that the canaries hang on: the present one if the store still has it, else a new one.
    pub(super) async fn fence(&self, seen: FenceSeen) -> Result<LeaseId, Error> {
        lease::prolong_or_grant(&self.store, seen.lease, self.fence_ttl()).await
    }

    /// Time-to-live of that lease.
    fn fence_ttl(&self) -> Duration {
        lease::canary_ttl(self.options.lease_ttl)
    }

    async fn list_and_watch(&self) -> Result<(Vec<Entry>, Vec<Watch>), Error> {
        let mut entries = Vec::new();
        let mut watches = Vec::new();
        for prefix in [&self.keys.services, &self.keys.exports, &self.keys.canaries] {
            let listing = self.store.list(prefix).await?;
            let scope = Scope::Prefix(prefix.clone());
            watches.push(self.store.watch(&scope, listing.revision + 1).await?);
            entries.extend(listing.entries.into_values());
        }
        let config = self.store.get(&self.keys.config).await?;
        let scope = Scope::Key(self.keys.config.clone());
        watches.push(self.store.watch(&scope, config.revision + 1).await?);
        entries.extend(config.entry);
        Ok((entries, watches))
    }

    /// Takes in a list of the own keys, made under this lease. False when records or the configuration went meanwhile, so that the
    /// canaries need another lease.
    pub(super) fn begin(&self, seen: FenceSeen, fence: LeaseId, entries: Vec<Entry>) -> bool {
        let mut state = self.state();
        let keys = entries.len();
        match state.fence.renew(seen, fence) {
            Fenced::Outdated => return false,
            Fenced::Same => {
                state.lent_gone = self.lent_and_gone(&state, &entries);
                state.ledger.relist(entries);
                // Nobody who lives takes the configuration away.
                if state.lent_gone.contains(&self.keys.config) {
                    warn!(
                        "the configuration went with the lease of another publisher; writing everything that is missing again"
                    );
                    state.fence.outdate();
                    return false;
                }
            }
            Fenced::Renewed => {
                state.lent_gone.clear();
                state.ledger.relist(entries);
                state.ledger.disown(&self.keys.canaries);
            }
        }
        info!(keys, "listed the own keys");
        state.listed = true;
        self.mark_all(&state);
        // Also of those that nobody wants any more: else they would be remembered for ever.
        state.lent_gone.iter().for_each(|key| self.mark(key));
        // Nobody watches the heartbeat: what took other keys may have taken it too.
        self.beat.notify_one();
        true
    }

    /// Records and configuration that were left to another publisher and are not in this list.
    fn lent_and_gone(&self, state: &State, entries: &[Entry]) -> BTreeSet<String> {
        let lent = state.ledger.lent().map(str::to_owned);
        let mut gone: BTreeSet<_> = lent.chain(state.lent_gone.iter().cloned()).collect();
        gone.retain(|key| !key.starts_with(&self.keys.canaries));
        if !gone.is_empty() {
            for entry in entries {
                gone.remove(&entry.key);
            }
        }
        gone
    }

    /// Takes in what happened to the own keys; what was not done by this process is put right. False when a canary or the
    /// configuration was taken away: who did that may have taken records too, of which another watch has yet to tell. Then
    /// nothing vouches for the records until the store is listed anew.
    pub(super) fn take_in(&self, batch: WatchBatch) -> bool {
        let mut state = self.state();
        for event in batch.events {
            if self.leaves(&mut state, &event) {
                continue;
            }
            let deleted = matches!(event, Event::Delete { .. });
            let vouches = deleted && self.keys.suffix(event.key()).is_none();
            let key = event.key().to_owned();
            if deleted && state.ledger.is_lent(&key) {
                state.lent_gone.insert(key.clone());
            }
            if state.ledger.apply(event) {
                self.mark(&key);
                state.listed &= !vouches;
            }
        }
        state.listed
    }

    /// Whether an event is a write of another publisher of this cluster that leaves nothing to be done. To put it right would make
    /// both write for ever. Canaries of both say the same, whatever time is in them.
    fn leaves(&self, state: &mut State, event: &Event) -> bool {
        let Event::Put(entry) = event else {
            return false;
        };
        let canary = entry.key.starts_with(&self.keys.canaries);
        state.ledger.lend(entry, canary)
    }
}
