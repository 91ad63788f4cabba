//! What can happen while connected to a peer, and waiting for it.

use futures::{StreamExt, future::select_all};
use tokio::time::Instant;
use tombolo_core::wire::key::Resource;

use super::{super::inquiry::Sign, Error, feed::Feed};
use crate::kvstore::{self, Watch, WatchBatch};

/// What happens while connected.
pub(super) enum Happening {
    /// The cluster-config changed, or went; or its watch says how far it is.
    Config(WatchBatch),
    /// The heartbeat came, or went.
    Heartbeat(WatchBatch),
    /// Canaries came or went.
    Canaries(WatchBatch),
    /// Records came or went, or their watch broke.
    Records(Resource, Result<WatchBatch, kvstore::Error>),
    /// Somebody wants to know how far this is.
    Asked,
    /// It is time for something.
    Timer,
}

impl Happening {
    /// What is taken in with it: up to which revision, of what.
    pub(super) fn taken(&self) -> Option<(Sign, i64)> {
        match self {
            Self::Config(batch) => Some((Sign::Config, batch.delivered())),
            Self::Canaries(batch) => Some((Sign::Canaries, batch.delivered())),
            Self::Records(kind, Ok(batch)) => Some((Sign::Records(*kind), batch.delivered())),
            Self::Records(_, Err(_)) | Self::Heartbeat(_) | Self::Asked | Self::Timer => None,
        }
    }
}

/// What is watched beside the records.
pub(super) struct Signs {
    pub(super) config: Watch,
    pub(super) heartbeat: Watch,
    pub(super) canaries: Option<Watch>,
}

impl Signs {
    /// Everything that is watched and asked about.
    pub(super) fn all(&self, feeds: &Feeds) -> Vec<Sign> {
        let canaries = self.canaries.is_some().then_some(Sign::Canaries);
        let records = feeds.0.iter().map(|feed| Sign::Records(feed.place.kind));
        let signs = [Sign::Config].into_iter().chain(canaries);
        signs.chain(records).collect()
    }

    /// Asks the store how far each watch is.
    pub(super) fn ask(&self, feeds: &Feeds) {
        let records = feeds.0.iter().filter_map(|feed| feed.watch.as_ref());
        let watches = self.canaries.iter().chain([&self.config]).chain(records);
        for watch in watches {
            watch.asker().ask();
        }
    }
}

/// The kinds that the peer publishes and that are wanted, in the order in which they are read.
pub(super) struct Feeds(pub(super) Vec<Feed>);

impl Feeds {
    /// The feed of a kind, if it is followed.
    pub(super) fn get(&self, kind: Resource) -> Option<&Feed> {
        self.0.iter().find(|feed| feed.place.kind == kind)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, kind: Resource) -> Option<&mut Feed> {
        self.0.iter_mut().find(|feed| feed.place.kind == kind)
    }

    /// The next batch of records; never, when nothing is watched. Kinds take turns.
    async fn next(&mut self, turn: usize) -> (Resource, Result<WatchBatch, kvstore::Error>) {
        let mut next: Vec<_> = self
            .0
            .iter_mut()
            .filter_map(|feed| Some((feed.place.kind, feed.watch.as_mut()?)))
            .map(|(kind, watch)| Box::pin(async move { (kind, next_of(Some(watch)).await) }))
            .collect();
        if next.is_empty() {
            return std::future::pending().await;
        }
        let first = turn % next.len();
        next.rotate_left(first);
        select_all(next).await.0
    }
}

/// Waits for the next happening. Records wait until `opens`; the others do not wait for them.
pub(super) async fn next_happening(
    signs: &mut Signs,
    feeds: &mut Feeds,
    turn: usize,
    opens: Option<Instant>,
    timer: Instant,
) -> Result<Happening, Error> {
    let records = async {
        if let Some(opens) = opens {
            tokio::time::sleep_until(opens).await;
        }
        feeds.next(turn).await
    };
    tokio::select! {
        () = tokio::time::sleep_until(timer) => Ok(Happening::Timer),
        batch = next_of(Some(&mut signs.config)) => Ok(batch.map(Happening::Config)?),
        batch = next_of(Some(&mut signs.heartbeat)) => Ok(batch.map(Happening::Heartbeat)?),
        batch = next_of(signs.canaries.as_mut()) => Ok(batch.map(Happening::Canaries)?),
        (kind, batch) = records => Ok(Happening::Records(kind, batch)),
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
pub(super) async fn next_change(watch: &mut Watch) -> Result<WatchBatch, kvstore::Error> {
    loop {
        let batch = next_of(Some(&mut *watch)).await?;
        if !batch.events.is_empty() {
            return Ok(batch);
        }
    }
}
