//! Whether keys that went were deleted by the peer, or went with the end of its leases.
//!
//! A canary that stands says that the writer lives, as long as it hangs on the same lease as the keys. Large writers have many
//! leases, which end one by one when the writer dies; so keys whose own lease is gone were not deleted, whatever the canary
//! says, until it has stood for long enough, or another canary shows that the writer lives. Keys of an earlier writer, which go
//! with its leases, are removed a little later for that.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use tokio::time::Instant;
use tombolo_core::{
    evidence::{Canary, Evidence},
    wire::key::Resource,
};

use super::{
    Error, Records, RemoteCluster,
    config::Place,
    feed::Listed,
    memory::{Mark, SETTLE, SETTLE_PUT_BACK},
};
use crate::kvstore::{self, Event, KvStore, LeaseId};

/// Most leases that are asked for because of one batch or one list. A writer with 1000 keys on each lease has a tenth as many for
/// everything that a peer may have.
pub(super) const LEASES_ASKED_MAX: usize = 1000;

/// How many of them are asked for at once.
const LEASES_AT_ONCE: usize = 16;

/// What is known of the keys that went in one batch.
pub(super) struct Verdict {
    standing: Standing,
    /// Keys that went with their lease.
    ended: BTreeSet<String>,
}

/// What the canary says.
enum Standing {
    /// It is the one under which the list was complete.
    Same(Mark),
    /// It is another one: a new list will tell.
    Another,
    /// It is gone, or was not there: nothing is known.
    Gone,
}

impl Verdict {
    /// Evidence for one of the deletions, if it was one.
    pub(super) fn evidence(&self, event: &Event, revision: i64) -> Option<Evidence> {
        match self.standing {
            Standing::Same(_) if self.ended.contains(event.key()) => None,
            Standing::Same(mark) => Canary::seen(mark.create_revision).deletion(revision),
            Standing::Another | Standing::Gone => None,
        }
    }

    /// The canary that stood while keys went with their lease.
    pub(super) fn mark_of_ended_leases(&self) -> Option<Mark> {
        match self.standing {
            Standing::Same(mark) => Some(mark).filter(|_| !self.ended.is_empty()),
            Standing::Another | Standing::Gone => None,
        }
    }

    /// Whether a list can tell more now.
    pub(super) fn asks_for_list(&self) -> bool {
        match self.standing {
            Standing::Same(_) | Standing::Another => true,
            Standing::Gone => false,
        }
    }
}

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Looks, once for all, at the canary and the leases of the keys that went. Without such keys it looks at nothing.
    pub(super) async fn judge(
        &mut self,
        place: &Place,
        events: &[Event],
    ) -> Result<Verdict, Error> {
        let nothing = Verdict {
            standing: Standing::Gone,
            ended: BTreeSet::new(),
        };
        let Some(synced) = self.memory.feed_mut(place.kind).synced else {
            return Ok(nothing);
        };
        let deleted = self.deleted(place, events);
        if deleted.is_empty() {
            return Ok(nothing);
        }
        let leases = deleted.values().flatten().copied();
        let leases = leases.filter(|&lease| Some(lease) != synced.lease);
        let leases: BTreeSet<_> = leases.collect();
        let (read, ended) = tokio::try_join!(
            async { self.store.get(&place.canary).await.map_err(Error::from) },
            self.ended(&leases),
        )?;
        let ended = self.all_if_unknown(place.kind, leases, ended);
        let mark = self.check(read)?.as_ref().map(Mark::of);
        let standing = match mark {
            None => Standing::Gone,
            Some(mark) if mark == synced => Standing::Same(mark),
            Some(_) => Standing::Another,
        };
        let with_lease = deleted
            .into_iter()
            .filter(|(_, lease)| lease.is_some_and(|lease| ended.contains(&lease)));
        Ok(Verdict {
            standing,
            ended: with_lease.map(|(key, _)| key).collect(),
        })
    }

    /// Whether a complete list can be believed: not when it lacks keys that went with their lease under the canary that the
    /// list before had, and not when the store was put back to an earlier revision, which has the canary of that time.
    pub(super) async fn is_settled(
        &mut self,
        kind: Resource,
        mark: Mark,
        listed: &Listed,
    ) -> Result<bool, Error> {
        let memory = self.memory.feed_mut(kind);
        if !memory.is_settled(mark, Instant::now()) {
            return Ok(false);
        }
        if memory.last_mark != Some(mark) {
            return Ok(true);
        }
        if listed.revision < memory.complete_to {
            let (peer, kind, seen) = (&self.peer, kind.name(), memory.complete_to);
            tracing::warn!(%peer, kind, revision = listed.revision, seen, "the peer's store was put back to an earlier revision, with the canary of that time; rows stay until the peer writes another canary, or has had the time to");
            memory.unsettle(mark, Instant::now(), SETTLE_PUT_BACK);
            return Ok(false);
        }
        let mut leases = memory.holdings.leases_of_absent(&listed.present);
        leases.retain(|&lease| Some(lease) != mark.lease);
        let ended = self.ended(&leases).await?;
        if self.all_if_unknown(kind, leases, ended).is_empty() {
            return Ok(true);
        }
        tracing::warn!(peer = %self.peer, kind = kind.name(), "keys went with their lease while the canary stands; their rows stay for now");
        let memory = self.memory.feed_mut(kind);
        memory.unsettle(mark, Instant::now(), SETTLE);
        Ok(false)
    }

    /// The keys that went, with the lease that each hung on when it did.
    fn deleted(&self, place: &Place, events: &[Event]) -> BTreeMap<String, Option<LeaseId>> {
        let holdings = self.memory.feed(place.kind).map(|memory| &memory.holdings);
        let mut written: BTreeMap<&str, Option<LeaseId>> = BTreeMap::new();
        let mut deleted = BTreeMap::new();
        for event in events {
            match event {
                Event::Put(entry) => {
                    written.insert(&entry.key, entry.lease);
                }
                Event::Delete { key, .. } => {
                    let before = || holdings?.lease(place.suffix(key)?);
                    let lease = written.get(key.as_str()).copied().unwrap_or_else(before);
                    deleted.insert(key.clone(), lease);
                }
            }
        }
        deleted
    }

    /// Which of the leases are gone; none when they are too many to ask for.
    async fn ended(&self, leases: &BTreeSet<LeaseId>) -> Result<Option<BTreeSet<LeaseId>>, Error> {
        if leases.len() > LEASES_ASKED_MAX {
            return Ok(None);
        }
        let asked = leases.clone().into_iter().map(|lease| self.is_gone(lease));
        let mut answers = stream::iter(asked).buffer_unordered(LEASES_AT_ONCE);
        let mut ended = BTreeSet::new();
        while let Some(answer) = answers.next().await {
            self.statuses.inquiries().goes_on(&self.peer);
            ended.extend(answer?);
        }
        Ok(Some(ended))
    }

    /// The lease, if it is gone.
    async fn is_gone(&self, lease: LeaseId) -> Result<Option<LeaseId>, Error> {
        match self.store.lease_exists(lease).await {
            Ok(exists) => Ok((!exists).then_some(lease)),
            // Who may not ask has only the canary's word.
            Err(kvstore::Error::Denied { .. }) => Ok(None),
            Err(error) => Err(Error::from(error)),
        }
    }

    /// The leases that are gone; of those that are too many to ask for, any may be.
    fn all_if_unknown(
        &self,
        kind: Resource,
        leases: BTreeSet<LeaseId>,
        ended: Option<BTreeSet<LeaseId>>,
    ) -> BTreeSet<LeaseId> {
        ended.unwrap_or_else(|| {
            let (peer, kind) = (&self.peer, kind.name());
            tracing::warn!(%peer, kind, leases = leases.len(), max = LEASES_ASKED_MAX, "the keys that went hung on too many leases to ask for each: they count as lost for now; make the peer write many keys under one lease");
            leases
        })
    }
}
