//! One connection to a peer: cluster-config, then every kind of records, then whatever happens.

use std::time::Duration;

use futures::{StreamExt, future::select_all};
use tokio::time::Instant;
use tombolo_core::wire::key::{self, Resource};

use super::{
    super::inquiry::{Respondent, Sign},
    Error, Records, RemoteCluster,
    config::Accepted,
    feed::Feed,
    memory::Mark,
};
use crate::kvstore::{self, Event, KvStore, Scope, Watch, WatchBatch, backoff::Backoff};

/// Time between two looks at the peer's store that nothing else causes: they notice a store that was replaced without a word.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// What happens while connected.
enum Happening {
    /// The cluster-config changed, or went; or its watch says how far it is.
    Config(WatchBatch),
    /// Canaries came or went.
    Canaries(WatchBatch),
    /// Records came or went, or their watch broke.
    Records(Resource, Result<WatchBatch, kvstore::Error>),
    /// A canary has stood long enough to be believed.
    Settled,
    /// Somebody wants to know how far this is.
    Asked,
    /// Time for a look.
    Probe,
}

/// What is watched beside the records.
struct Signs {
    config: Watch,
    canaries: Option<Watch>,
}

/// The kinds that the peer publishes and that are wanted, in the order of [`Records::kinds`].
pub(super) struct Feeds(Vec<Feed>);

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Follows the peer over one connection. Returns when its cluster-config changed, or with the error that ended it.
    pub(super) async fn session(
        &mut self,
        respondent: &Respondent,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let work = respondent.pulse.begin();
        let config_key = self.config_key();
        let read = self.store.get(&config_key).await?;
        if !self.memory.note(read.store_id, read.revision) {
            tracing::warn!(peer = %self.peer, endpoint = %self.store.endpoint(), "the peer's store was emptied or replaced; reading everything anew; rows stay until it is complete");
        }
        self.report_contact();
        let from = read.revision + 1;
        let mut config = self.store.watch(&Scope::Key(config_key), from).await?;
        let accepted = match self.accept(read.entry.as_ref()) {
            Ok(accepted) => accepted,
            Err(error) => {
                drop(work);
                return self.refuse(&error, &mut config, backoff).await;
            }
        };
        let canaries = if accepted.config.capabilities.synced_canaries {
            let prefix = Scope::Prefix(key::canaries_prefix(&self.peer));
            Some(self.store.watch(&prefix, from).await?)
        } else {
            None
        };
        let mut feeds = self.feeds(&accepted);
        self.report_accepted(&accepted, &feeds);
        for feed in &mut feeds.0 {
            self.start_feed(feed, &accepted).await?;
        }
        self.report(&accepted, &feeds);
        backoff.reset();
        drop(work);
        let mut signs = Signs { config, canaries };
        respondent.begin(signs.all(&feeds));
        self.follow_all(&accepted, &mut signs, &mut feeds, respondent)
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
        self.report_refusal(error);
        tokio::select! {
            changed = next_change(config) => changed.map(|_| ()).map_err(Error::from),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    fn feeds(&self, accepted: &Accepted) -> Feeds {
        let mut feeds = Vec::new();
        for &kind in self.records.kinds() {
            match self.place(&accepted.config.capabilities, kind) {
                Some(place) => feeds.push(Feed { place, watch: None }),
                None if self.has_nothing_of(kind) => self.records.not_published(&self.peer, kind),
                None => {}
            }
        }
        Feeds(feeds)
    }

    /// Whether nothing is held of a kind, and nothing was ever complete.
    pub(super) fn has_nothing_of(&self, kind: Resource) -> bool {
        let memory = self.memory.feed(kind);
        memory.is_none_or(|memory| memory.last_mark.is_none() && memory.holdings.len() == 0)
    }

    async fn follow_all(
        &mut self,
        accepted: &Accepted,
        signs: &mut Signs,
        feeds: &mut Feeds,
        respondent: &Respondent,
    ) -> Result<(), Error> {
        let mut turn = 0;
        let mut look = Instant::now() + PROBE_INTERVAL;
        loop {
            let settles = self.memory.settles();
            let happening = tokio::select! {
                happening = next_happening(signs, feeds, &mut turn, settles) => happening?,
                () = respondent.asked() => Happening::Asked,
                () = tokio::time::sleep_until(look) => Happening::Probe,
            };
            let _work = respondent.pulse.begin();
            let taken = happening.taken();
            match happening {
                Happening::Config(batch) if batch.events.is_empty() => {}
                Happening::Config(_) => return Ok(()),
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
                Happening::Asked => signs.ask(feeds),
                Happening::Settled => self.list_settled(accepted, feeds).await?,
                Happening::Probe => {
                    look = Instant::now() + PROBE_INTERVAL;
                    let key = self.config_key();
                    if self.read(&key).await?.as_ref().map(Mark::of) != accepted.present {
                        return Ok(());
                    }
                }
            }
            self.report(accepted, feeds);
            if let Some((sign, revision)) = taken {
                respondent.took(sign, revision);
            }
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
        for feed in &mut feeds.0 {
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
        for feed in &mut feeds.0 {
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
}

impl Happening {
    /// What is taken in with it: up to which revision, of what.
    fn taken(&self) -> Option<(Sign, i64)> {
        match self {
            Self::Config(batch) => Some((Sign::Config, batch.delivered())),
            Self::Canaries(batch) => Some((Sign::Canaries, batch.delivered())),
            Self::Records(kind, Ok(batch)) => Some((Sign::Records(*kind), batch.delivered())),
            Self::Records(_, Err(_)) | Self::Settled | Self::Asked | Self::Probe => None,
        }
    }
}

impl Signs {
    /// Everything that is watched.
    fn all(&self, feeds: &Feeds) -> Vec<Sign> {
        let canaries = self.canaries.is_some().then_some(Sign::Canaries);
        let records = feeds.0.iter().map(|feed| Sign::Records(feed.place.kind));
        let signs = [Sign::Config].into_iter().chain(canaries);
        signs.chain(records).collect()
    }

    /// Asks the store how far each watch is.
    fn ask(&self, feeds: &Feeds) {
        let records = feeds.0.iter().filter_map(|feed| feed.watch.as_ref());
        let watches = self.canaries.iter().chain([&self.config]).chain(records);
        for watch in watches {
            watch.asker().ask();
        }
    }
}

impl Feeds {
    /// The feed of a kind, if it is followed.
    pub(super) fn get(&self, kind: Resource) -> Option<&Feed> {
        self.0.iter().find(|feed| feed.place.kind == kind)
    }

    fn get_mut(&mut self, kind: Resource) -> Option<&mut Feed> {
        self.0.iter_mut().find(|feed| feed.place.kind == kind)
    }

    /// The next batch of records; never, when nothing is watched. Kinds take turns.
    async fn next(&mut self, turn: &mut usize) -> (Resource, Result<WatchBatch, kvstore::Error>) {
        *turn += 1;
        let mut next: Vec<_> = self
            .0
            .iter_mut()
            .filter_map(|feed| Some((feed.place.kind, feed.watch.as_mut()?)))
            .map(|(kind, watch)| Box::pin(async move { (kind, next_of(Some(watch)).await) }))
            .collect();
        if next.is_empty() {
            return std::future::pending().await;
        }
        let first = *turn % next.len();
        next.rotate_left(first);
        select_all(next).await.0
    }
}

async fn next_happening(
    signs: &mut Signs,
    feeds: &mut Feeds,
    turn: &mut usize,
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
        batch = next_of(Some(&mut signs.config)) => Ok(batch.map(Happening::Config)?),
        batch = next_of(signs.canaries.as_mut()) => Ok(batch.map(Happening::Canaries)?),
        (kind, batch) = feeds.next(turn) => Ok(Happening::Records(kind, batch)),
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
