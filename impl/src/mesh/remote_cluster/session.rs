//! One connection to a peer: cluster-config, then both kinds of records, then whatever happens.

use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use tombolo_core::wire::key;

use super::{
    super::peers::{PeerState, RecordKind},
    Error, RemoteCluster,
    config::Accepted,
    feed::Feed,
    memory::Mark,
};
use crate::kvstore::{self, Event, KvStore, Scope, Watch, WatchBatch, backoff::Backoff};

/// Time between two looks at the peer's store that nothing else causes: they notice a store that was replaced without a word.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// What happens while connected.
enum Happening {
    /// The cluster-config changed, or went.
    Config,
    /// Canaries came or went.
    Canaries(WatchBatch),
    /// Records came or went, or their watch broke.
    Records(RecordKind, Result<WatchBatch, kvstore::Error>),
    /// A canary has stood long enough to be believed.
    Settled,
    /// Time for a look.
    Probe,
}

/// What is watched beside the records.
struct Signs {
    config: Watch,
    canaries: Option<Watch>,
}

/// The kinds that the peer publishes.
struct Feeds {
    exports: Option<Feed>,
    services: Option<Feed>,
}

impl<S: KvStore> RemoteCluster<S> {
    /// Follows the peer over one connection. Returns when its cluster-config changed, or with the error that ended it.
    pub(super) async fn session(&mut self, backoff: &mut Backoff) -> Result<(), Error> {
        let config_key = self.config_key();
        let read = self.store.get(&config_key).await?;
        if !self.memory.note(read.store_id, read.revision) {
            tracing::warn!(peer = %self.peer, endpoint = %self.store.endpoint(), "the peer's store was emptied or replaced; reading everything anew; rows stay until it is complete");
        }
        let from = read.revision + 1;
        let mut config = self.store.watch(&Scope::Key(config_key), from).await?;
        let accepted = match self.accept(read.entry.as_ref()) {
            Ok(accepted) => accepted,
            Err(error) => return self.refuse(&error, &mut config, backoff).await,
        };
        let canaries = if accepted.config.capabilities.synced_canaries {
            let prefix = Scope::Prefix(key::canaries_prefix(&self.peer));
            Some(self.store.watch(&prefix, from).await?)
        } else {
            None
        };
        let mut feeds = self.feeds(&accepted);
        let trusted = self.is_complete(&accepted, &feeds);
        self.state.update_peer(&self.peer, |status| {
            status.config = Some(accepted.config.clone());
            status.state = match (status.synced, trusted) {
                // A peer that was ready stays so until something speaks against it.
                (true, true) => status.state,
                (true, false) => PeerState::Suspect,
                (false, _) => PeerState::Listing,
            };
        });
        for feed in feeds.all_mut() {
            self.start_feed(feed, &accepted).await?;
        }
        self.report(&accepted, &feeds);
        backoff.reset();
        self.follow_all(&accepted, &mut Signs { config, canaries }, &mut feeds)
            .await
    }

    /// The peer is not accepted: waits until its cluster-config changes, or a while.
    async fn refuse(
        &self,
        error: &Error,
        config: &mut Watch,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let pause = backoff.wait();
        self.state.update_peer(&self.peer, |status| {
            status.state = if status.synced { PeerState::Suspect } else { PeerState::Connecting };
            let text = error.to_string();
            if status.last_error.as_ref() != Some(&text) {
                tracing::warn!(peer = %self.peer, %error, reason = error.reason(), "the peer is not accepted");
                status.last_error = Some(text);
            }
        });
        tokio::select! {
            changed = next_change(config) => changed.map(|_| ()).map_err(Error::from),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    fn feeds(&self, accepted: &Accepted) -> Feeds {
        let feed = |kind| {
            let place = self.place(&accepted.config.capabilities, kind)?;
            Some(Feed { place, watch: None })
        };
        Feeds {
            exports: feed(RecordKind::Exports),
            services: feed(RecordKind::Services),
        }
    }

    async fn follow_all(
        &mut self,
        accepted: &Accepted,
        signs: &mut Signs,
        feeds: &mut Feeds,
    ) -> Result<(), Error> {
        loop {
            match next_happening(signs, feeds, self.memory.settles()).await? {
                Happening::Config => return Ok(()),
                Happening::Canaries(batch) => {
                    self.look_at_canaries(accepted, feeds, &batch).await?;
                }
                Happening::Records(kind, batch) => {
                    let feed = feeds
                        .get_mut(kind)
                        .expect("invariant: only feeds are watched");
                    match batch {
                        Ok(batch) => self.follow(feed, accepted, batch).await?,
                        Err(kvstore::Error::Compacted { .. }) => self.list(feed, accepted).await?,
                        Err(error) => return Err(error.into()),
                    }
                }
                Happening::Settled => self.list_settled(accepted, feeds).await?,
                Happening::Probe => {
                    let key = self.config_key();
                    if self.read(&key).await?.as_ref().map(Mark::of) != accepted.present {
                        return Ok(());
                    }
                }
            }
            self.report(accepted, feeds);
        }
    }

    /// A canary that came asks for a list, unless it is the one that the rows are complete under; one that went makes its
    /// kind suspect.
    async fn look_at_canaries(
        &mut self,
        accepted: &Accepted,
        feeds: &mut Feeds,
        batch: &WatchBatch,
    ) -> Result<(), Error> {
        self.memory.reached(batch.revision);
        for feed in feeds.all_mut() {
            let mut list = false;
            for event in batch
                .events
                .iter()
                .filter(|event| event.key() == feed.place.canary)
            {
                let memory = self.memory.feed_mut(feed.place.kind);
                match event {
                    Event::Put(entry) => list = memory.synced != Some(Mark::of(entry)),
                    Event::Delete { .. } => {
                        memory.synced = None;
                        list = false;
                    }
                }
            }
            if list && accepted.present.is_some() {
                self.list(feed, accepted).await?;
            }
        }
        Ok(())
    }

    /// Lists the kinds whose canary has stood long enough.
    async fn list_settled(&mut self, accepted: &Accepted, feeds: &mut Feeds) -> Result<(), Error> {
        for feed in feeds.all_mut() {
            let memory = self.memory.feed_mut(feed.place.kind);
            if memory
                .unsettled
                .take_if(|unsettled| unsettled.until <= Instant::now())
                .is_some()
            {
                // The list is to be believed although the leases are gone.
                memory.last_mark = None;
                self.list(feed, accepted).await?;
            }
        }
        Ok(())
    }

    /// Whether the rows are exactly what the peer says.
    fn is_complete(&self, accepted: &Accepted, feeds: &Feeds) -> bool {
        accepted.present.is_some()
            && RecordKind::ALL.into_iter().all(|kind| {
                let memory = self.memory.feed(kind);
                match feeds.get(kind) {
                    Some(_) => memory.synced.is_some(),
                    // A capability that was withdrawn leaves rows behind that nobody vouches for.
                    None => memory.last_mark.is_none(),
                }
            })
    }

    /// Tells how far the peer can be trusted now.
    fn report(&self, accepted: &Accepted, feeds: &Feeds) {
        let complete = self.is_complete(accepted, feeds);
        let revision = RecordKind::ALL
            .into_iter()
            .filter_map(|kind| self.memory.feed(kind).position)
            .max();
        self.state
            .followed(&self.peer, revision.unwrap_or_default());
        let state = match (complete, self.state.is_synced(&self.peer)) {
            (true, _) => PeerState::Ready,
            (false, true) => PeerState::Suspect,
            (false, false) => PeerState::Listing,
        };
        if self.state.state_of(&self.peer) == Some(state) {
            return;
        }
        tracing::info!(peer = %self.peer, state = state.as_str(), "the peer's state changed");
        self.state.update_peer(&self.peer, |status| {
            status.state = state;
            if complete {
                status.synced = true;
                status.last_error = None;
            }
        });
    }
}

impl Feeds {
    fn all_mut(&mut self) -> impl Iterator<Item = &mut Feed> {
        self.exports.iter_mut().chain(self.services.iter_mut())
    }

    fn get(&self, kind: RecordKind) -> Option<&Feed> {
        match kind {
            RecordKind::Exports => self.exports.as_ref(),
            RecordKind::Services => self.services.as_ref(),
        }
    }

    fn get_mut(&mut self, kind: RecordKind) -> Option<&mut Feed> {
        match kind {
            RecordKind::Exports => self.exports.as_mut(),
            RecordKind::Services => self.services.as_mut(),
        }
    }
}

async fn next_happening(
    signs: &mut Signs,
    feeds: &mut Feeds,
    settles: Option<Instant>,
) -> Result<Happening, Error> {
    let settled = async {
        match settles {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = settled => Ok(Happening::Settled),
        changed = next_change(&mut signs.config) => Ok(changed.map(|_| Happening::Config)?),
        batch = next_of(signs.canaries.as_mut()) => Ok(batch.map(Happening::Canaries)?),
        batch = next_of(feeds.exports.as_mut().and_then(|feed| feed.watch.as_mut())) => {
            Ok(Happening::Records(RecordKind::Exports, batch))
        }
        batch = next_of(feeds.services.as_mut().and_then(|feed| feed.watch.as_mut())) => {
            Ok(Happening::Records(RecordKind::Services, batch))
        }
        () = tokio::time::sleep(PROBE_INTERVAL) => Ok(Happening::Probe),
    }
}

/// The next batch; never, without a watch.
async fn next_of(watch: Option<&mut Watch>) -> Result<WatchBatch, kvstore::Error> {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
    match watch.next().await {
        Some(batch) => batch,
        None => std::future::pending().await,
    }
}

/// The next batch with changes.
async fn next_change(watch: &mut Watch) -> Result<WatchBatch, kvstore::Error> {
    loop {
        let batch = next_of(Some(&mut *watch)).await?;
        if !batch.events.is_empty() {
            return Ok(batch);
        }
    }
}
