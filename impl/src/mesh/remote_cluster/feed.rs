//! One kind of a peer's records: list, proof that the list is complete, watch.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tombolo_core::{
    evidence::{Canary, Complete, Evidence},
    peer_status::Limit,
    wire::cluster_config,
};

use super::{
    Error, Origin, RawChange, Records, RemoteCluster,
    config::{Accepted, Place},
    memory::{Mark, SETTLE},
    untaken::KEY_BYTES_MAX,
};
use crate::kvstore::{self, Event, KvStore, Scope, Watch, WatchBatch};

/// Most bytes of keys that one list is remembered by: 64 MiB, several hundred thousand keys. A list with more proves nothing.
const LISTED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One kind of records while connected.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) place: Place,
    pub(super) watch: Option<Watch>,
}

/// What a finished list proves.
enum Proof {
    /// What it lacks is gone; found complete under this canary.
    Complete(Complete, Mark),
    /// The canary or the cluster-config came during the list: another list will tell.
    ListAgain,
    /// Nothing: the canary or the cluster-config is not there, the peer has just stopped to write canaries, or there are too
    /// many keys.
    Nothing,
}

/// A finished list.
pub(super) struct Listed {
    pub(super) revision: i64,
    /// The keys after the prefix, whether what is under them was taken or not: what is listed is not gone.
    pub(super) present: BTreeSet<String>,
    /// Whether all keys are in it: there are not more than [`LISTED_BYTES_MAX`].
    whole: bool,
}

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Goes on where the last connection ended, or lists.
    pub(super) async fn start_feed(
        &mut self,
        feed: &mut Feed,
        accepted: &Accepted,
    ) -> Result<(), Error> {
        let canary = self.read_mark(&feed.place.canary).await?;
        let standing = accepted.present.and(canary);
        let memory = self.memory.feed_mut(feed.place.kind);
        if memory.prefix != feed.place.prefix {
            memory.prefix.clone_from(&feed.place.prefix);
            memory.position = None;
            memory.synced = None;
        }
        if standing.is_none() || memory.withdrawn.is_some() {
            memory.synced = None;
        }
        let complete = standing.is_some() && memory.synced == standing;
        let Some(position) = memory.position.filter(|_| complete || standing.is_none()) else {
            return self.list(feed, accepted).await;
        };
        match self.watch(feed, position).await {
            Err(Error::Store(kvstore::Error::Compacted { .. })) => self.list(feed, accepted).await,
            outcome => outcome,
        }
    }

    /// Reads everything, removes what is provably gone, and watches from there on. Where that was done too often of late, it is put
    /// off, and until then nothing is complete.
    pub(super) async fn list(&mut self, feed: &mut Feed, accepted: &Accepted) -> Result<(), Error> {
        let (kind, now) = (feed.place.kind, Instant::now());
        let memory = self.memory.feed_mut(kind);
        let opens = memory.lists.opens(now);
        if opens > now {
            memory.synced = None;
            memory.list_at = Some(opens);
            let (peer, kind) = (&self.peer, kind.name());
            tracing::debug!(%peer, kind, wait = ?opens - now, "the peer asks for lists too often; the next one waits");
            return Ok(());
        }
        feed.watch = None;
        memory.list_at = None;
        // What a list that was not finished did not tell is unknown: another connection has to begin with a list.
        memory.position = None;
        memory.holdings.begin_list();
        let listed = self.read_all(&feed.place).await?;
        let proof = self.prove(&feed.place, accepted, &listed).await?;
        self.end_list(kind);
        let (from, now) = (listed.revision + 1, Instant::now());
        let memory = self.memory.feed_mut(kind);
        memory.lists.took(now);
        memory.position = Some(from);
        memory.followed = listed.revision;
        match proof {
            Proof::ListAgain => {
                memory.synced = None;
                memory.list_at = Some(memory.lists.opens(now));
            }
            Proof::Nothing => memory.synced = None,
            Proof::Complete(complete, mark) => {
                self.complete(&feed.place, &listed, complete, mark);
            }
        }
        self.watch(feed, from).await
    }

    /// What a list lacks is gone.
    fn complete(&mut self, place: &Place, listed: &Listed, complete: Complete, mark: Mark) {
        let (kind, present, id) = (place.kind, &listed.present, self.known_id());
        let memory = self.memory.feed_mut(kind);
        memory.synced = Some(mark);
        memory.last_mark = Some(mark);
        memory.complete_to = listed.revision;
        memory.by_canary = place.has_canary;
        memory.unsettled = None;
        memory.held_deletions = 0;
        memory.holdings.retain(present);
        let untaken = memory.holdings.untaken();
        let peer = &self.peer;
        let origin = Origin { peer, id, kind };
        let removed = self
            .records
            .retain_listed(&origin, present, untaken, complete);
        let evidence = Evidence::AbsentFrom(complete);
        self.statuses.count_removed(peer, kind, evidence, removed);
        let kind = kind.name();
        tracing::debug!(%peer, kind, revision = listed.revision, listed = present.len(), removed, "a list is complete");
    }

    async fn watch(&self, feed: &mut Feed, from: i64) -> Result<(), Error> {
        let scope = Scope::Prefix(feed.place.prefix.clone());
        feed.watch = Some(self.store.watch(&scope, from).await?);
        Ok(())
    }

    /// Sets every record that is there, page by page.
    async fn read_all(&mut self, place: &Place) -> Result<Listed, Error> {
        let (mut present, mut bytes) = (BTreeSet::new(), 0);
        let mut cursor = None;
        loop {
            let page = self.store.page(&place.prefix, cursor).await?;
            self.statuses.inquiries().goes_on(&self.peer);
            let changes = place.changes(&page.entries);
            self.apply(place.kind, changes);
            for entry in &page.entries {
                let key = place.suffix(&entry.key);
                let Some(key) = key.filter(|key| key.len() <= KEY_BYTES_MAX) else {
                    continue;
                };
                bytes += key.len();
                if bytes <= LISTED_BYTES_MAX {
                    present.insert(key.to_owned());
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                self.memory.reached(page.revision);
                return Ok(Listed {
                    revision: page.revision,
                    present,
                    whole: bytes <= LISTED_BYTES_MAX,
                });
            }
        }
    }

    /// What a list proves. Canary and cluster-config are read after it: those that were made before it and are still there
    /// were there all the time.
    async fn prove(
        &mut self,
        place: &Place,
        accepted: &Accepted,
        listed: &Listed,
    ) -> Result<Proof, Error> {
        let Some(config) = self.read(&self.config_key()).await? else {
            return Ok(Proof::Nothing);
        };
        let same_id =
            cluster_config::decode(&config.value).is_ok_and(|read| read.id == accepted.config.id);
        if accepted.present.is_none() || !same_id {
            return Ok(Proof::Nothing);
        }
        if self.memory.feed_mut(place.kind).withdrawn.is_some() {
            return Ok(Proof::Nothing);
        }
        if !listed.whole {
            let (peer, kind) = (&self.peer, place.kind.name());
            tracing::warn!(%peer, kind, max_bytes = LISTED_BYTES_MAX, "the peer lists too many keys to tell what is gone; its rows stay; remove keys that are not needed from its store");
            return Ok(Proof::Nothing);
        }
        let Some(mark) = self.read_mark(&place.canary).await? else {
            return Ok(Proof::Nothing);
        };
        let canary = Canary::seen(mark.create_revision);
        let complete = Complete::from_list(canary, listed.revision)
            .filter(|_| config.create_revision <= listed.revision);
        let Some(complete) = complete else {
            return Ok(Proof::ListAgain);
        };
        if self.is_settled(place.kind, mark, listed).await? {
            return Ok(Proof::Complete(complete, mark));
        }
        Ok(Proof::Nothing)
    }

    /// Applies what a watch brought. Deletions count when the canary stands now and the keys did not go with their lease;
    /// else the rows stay.
    pub(super) async fn follow(
        &mut self,
        feed: &mut Feed,
        accepted: &Accepted,
        batch: WatchBatch,
    ) -> Result<(), Error> {
        let (place, kind) = (&feed.place, feed.place.kind);
        let verdict = self.judge(place, &batch.events).await?;
        let (mut changes, mut held) = (Vec::new(), 0);
        for event in &batch.events {
            let Some(key) = place.suffix(event.key()) else {
                continue;
            };
            match event {
                Event::Put(entry) => changes.push(RawChange::Set { key, entry }),
                Event::Delete { mod_revision, .. } => {
                    match verdict.evidence(event, *mod_revision) {
                        Some(evidence) => changes.push(RawChange::Remove { key, evidence }),
                        None => held += 1,
                    }
                }
            }
        }
        let (events, now) = (batch.events.len(), Instant::now());
        self.memory.take_events(&self.options.budget, events, now);
        if self.memory.is_throttled() {
            self.exceeded(Limit::EventRate);
        }
        self.apply(kind, changes);
        self.memory.reached(batch.revision);
        let memory = self.memory.feed_mut(kind);
        memory.position = Some(batch.revision);
        memory.followed = batch.revision;
        memory.held_deletions += held;
        if held == 0 {
            if memory.synced.is_some() {
                memory.complete_to = batch.revision;
            }
            return Ok(());
        }
        tracing::warn!(peer = %self.peer, kind = kind.name(), held, revision = batch.revision, "keys went, but not by the peer's will as far as can be told; rows stay until a complete list");
        memory.synced = None;
        match verdict.mark_of_ended_leases() {
            Some(mark) => memory.unsettle(mark, Instant::now(), SETTLE),
            None if verdict.asks_for_list() => self.list(feed, accepted).await?,
            None => {}
        }
        Ok(())
    }

    /// Reads a key now; an error when the store is not the one that was seen before.
    pub(super) async fn read(&mut self, key: &str) -> Result<Option<kvstore::Entry>, Error> {
        let read = self.store.get(key).await?;
        self.check(read)
    }

    /// Notes an answer; an error when the store is not the one that was seen before.
    pub(super) fn check(&mut self, read: kvstore::Read) -> Result<Option<kvstore::Entry>, Error> {
        if self.memory.note(read.store_id, read.revision) {
            return Ok(read.entry);
        }
        Err(Error::StoreReplaced {
            endpoint: self.store.endpoint(),
        })
    }

    pub(super) async fn read_mark(&mut self, key: &str) -> Result<Option<Mark>, Error> {
        Ok(self.read(key).await?.as_ref().map(Mark::of))
    }
}
