//! One kind of a peer's records: list, proof that the list is complete, watch, and what a deletion proves.

use std::collections::BTreeSet;

use tombolo_core::{
    evidence::{Canary, Complete},
    names::NamespacedName,
    wire::cluster_config,
};

use super::{
    super::peers::Change,
    Error, RemoteCluster,
    config::{Accepted, Place},
    memory::Mark,
    records::Reader,
};
use crate::kvstore::{self, Event, KvStore, Scope, Watch, WatchBatch};

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
    /// Nothing: the canary or the cluster-config is not there.
    Nothing,
}

/// What a canary says of deletions that just arrived.
enum Standing {
    /// It is the one under which the list was complete.
    Same(Canary),
    /// It is another one: a new list will tell.
    Another,
    /// It is gone, or was not there: nothing is known.
    Gone,
}

impl<S: KvStore> RemoteCluster<S> {
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
        let complete = standing.is_some() && memory.synced == standing;
        if standing.is_none() {
            memory.synced = None;
        }
        let Some(position) = memory.position.filter(|_| complete || standing.is_none()) else {
            return self.list(feed, accepted).await;
        };
        match self.watch(feed, position).await {
            Err(Error::Store(kvstore::Error::Compacted { .. })) => self.list(feed, accepted).await,
            outcome => outcome,
        }
    }

    /// Reads everything, removes what is provably gone, and watches from there on.
    pub(super) async fn list(&mut self, feed: &mut Feed, accepted: &Accepted) -> Result<(), Error> {
        feed.watch = None;
        let revision = loop {
            let (revision, present) = self.read_all(&feed.place).await?;
            match self.prove(&feed.place, accepted, revision).await? {
                Proof::ListAgain => continue,
                Proof::Nothing => self.memory.feed_mut(feed.place.kind).synced = None,
                Proof::Complete(complete, mark) => {
                    let removed =
                        self.state
                            .retain_listed(&self.peer, feed.place.kind, &present, complete);
                    let memory = self.memory.feed_mut(feed.place.kind);
                    memory.synced = Some(mark);
                    memory.was_synced = true;
                    tracing::debug!(peer = %self.peer, kind = %feed.place.kind, revision, listed = present.len(), removed, "a list is complete");
                }
            }
            break revision;
        };
        self.memory.feed_mut(feed.place.kind).position = Some(revision + 1);
        self.watch(feed, revision + 1).await
    }

    async fn watch(&self, feed: &mut Feed, from: i64) -> Result<(), Error> {
        let scope = Scope::Prefix(feed.place.prefix.clone());
        feed.watch = Some(self.store.watch(&scope, from).await?);
        Ok(())
    }

    /// Sets every row that is there, page by page; returns the revision and the services with a key, good or bad.
    async fn read_all(&mut self, place: &Place) -> Result<(i64, BTreeSet<NamespacedName>), Error> {
        let mut present = BTreeSet::new();
        let mut cursor = None;
        loop {
            let page = self.store.page(&place.prefix, cursor).await?;
            let reader = self.reader(place);
            let changes = page
                .entries
                .iter()
                .filter_map(|entry| reader.change(entry))
                .collect();
            present.extend(
                page.entries
                    .iter()
                    .filter_map(|entry| reader.name(&entry.key)),
            );
            self.state.apply(&self.peer, changes);
            cursor = page.next;
            if cursor.is_none() {
                self.memory.reached(page.revision);
                return Ok((page.revision, present));
            }
        }
    }

    /// What the list at this revision proves. Canary and cluster-config are read after it: those that were made before it and
    /// are still there were there all the time.
    async fn prove(
        &mut self,
        place: &Place,
        accepted: &Accepted,
        revision: i64,
    ) -> Result<Proof, Error> {
        let Some(config) = self.read(&self.config_key()).await? else {
            return Ok(Proof::Nothing);
        };
        let same_id =
            cluster_config::decode(&config.value).is_ok_and(|read| read.id == accepted.config.id);
        if accepted.present.is_none() || !same_id {
            return Ok(Proof::Nothing);
        }
        let Some(mark) = self.read_mark(&place.canary).await? else {
            return Ok(Proof::Nothing);
        };
        let canary = Canary::seen(mark.create_revision);
        let complete =
            Complete::from_list(canary, revision).filter(|_| config.create_revision <= revision);
        Ok(complete.map_or(Proof::ListAgain, |complete| Proof::Complete(complete, mark)))
    }

    /// Applies what a watch brought. Deletions count when the canary stands now; else the rows stay.
    pub(super) async fn follow(
        &mut self,
        feed: &mut Feed,
        accepted: &Accepted,
        batch: WatchBatch,
    ) -> Result<(), Error> {
        let deletes = batch
            .events
            .iter()
            .any(|event| matches!(event, Event::Delete { .. }));
        let standing = if deletes {
            self.standing(&feed.place).await?
        } else {
            Standing::Gone
        };
        let reader = self.reader(&feed.place);
        let mut held = 0;
        let mut changes = Vec::new();
        for event in &batch.events {
            match event {
                Event::Put(entry) => changes.extend(reader.change(entry)),
                Event::Delete { key, mod_revision } => {
                    let Some(name) = reader.name(key) else {
                        continue;
                    };
                    match standing.evidence(*mod_revision) {
                        Some(evidence) => {
                            changes.push(Change::Remove(feed.place.kind, name, evidence));
                        }
                        None => held += 1,
                    }
                }
            }
        }
        self.state.apply(&self.peer, changes);
        self.memory.reached(batch.revision);
        self.memory.feed_mut(feed.place.kind).position = Some(batch.revision);
        if held == 0 {
            return Ok(());
        }
        self.memory.feed_mut(feed.place.kind).synced = None;
        tracing::warn!(peer = %self.peer, kind = %feed.place.kind, held, revision = batch.revision, "deletions do not count: the canary is not the one that stood before; rows stay until a complete list");
        match standing {
            Standing::Gone => Ok(()),
            Standing::Same(_) | Standing::Another => self.list(feed, accepted).await,
        }
    }

    async fn standing(&mut self, place: &Place) -> Result<Standing, Error> {
        let Some(synced) = self.memory.feed(place.kind).synced else {
            return Ok(Standing::Gone);
        };
        Ok(match self.read_mark(&place.canary).await? {
            None => Standing::Gone,
            Some(mark) if mark == synced => Standing::Same(Canary::seen(mark.create_revision)),
            Some(_) => Standing::Another,
        })
    }

    /// Reads a key now; an error when the store is not the one that was seen before.
    pub(super) async fn read(&mut self, key: &str) -> Result<Option<kvstore::Entry>, Error> {
        let read = self.store.get(key).await?;
        if self.memory.note(read.store_id, read.revision) {
            return Ok(read.entry);
        }
        Err(Error::StoreReplaced {
            endpoint: self.store.endpoint(),
        })
    }

    async fn read_mark(&mut self, key: &str) -> Result<Option<Mark>, Error> {
        Ok(self.read(key).await?.as_ref().map(Mark::of))
    }

    fn reader<'a>(&'a self, place: &'a Place) -> Reader<'a> {
        Reader {
            peer: &self.peer,
            kind: place.kind,
            prefix: &place.prefix,
            state: &self.state,
        }
    }
}

impl Standing {
    fn evidence(&self, revision: i64) -> Option<tombolo_core::evidence::Evidence> {
        match self {
            Self::Same(canary) => canary.deletion(revision),
            Self::Another | Self::Gone => None,
        }
    }
}
