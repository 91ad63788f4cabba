//! What can happen while connected to a peer, and waiting for it.

use futures::{FutureExt, StreamExt, future::select_all};
use tokio::time::Instant;
use tombolo_core::wire::key::Resource;

use super::{super::inquiry::Sign, Error, feed::Feed};
use crate::kvstore::{self, Watch, WatchBatch};

/// Most batches of signs that are looked at together.
const TOGETHER_MAX: usize = 1000;

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
    /// How many events of signs came with it.
    pub(super) fn signs(&self) -> usize {
        match self {
            Self::Config(batch) | Self::Heartbeat(batch) | Self::Canaries(batch) => {
                batch.events.len()
            }
            Self::Records(..) | Self::Asked | Self::Timer => 0,
        }
    }

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

/// What the next happening waits for.
pub(super) struct Waits {
    /// When records may be taken; none when at once.
    pub(super) records: Option<Instant>,
    /// When signs may be looked at; none when at once.
    pub(super) signs: Option<Instant>,
    /// When it is time for something.
    pub(super) timer: Instant,
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

impl Signs {
    /// The next sign, with those of its kind that are there already.
    async fn next(&mut self) -> Result<Happening, Error> {
        tokio::select! {
            batch = next_of(Some(&mut self.config)) => {
                Ok(Happening::Config(together(batch?, Some(&mut self.config))?))
            }
            batch = next_of(Some(&mut self.heartbeat)) => {
                Ok(Happening::Heartbeat(together(batch?, Some(&mut self.heartbeat))?))
            }
            batch = next_of(self.canaries.as_mut()) => {
                Ok(Happening::Canaries(together(batch?, self.canaries.as_mut())?))
            }
        }
    }
}

/// Waits for the next happening. Records and signs do not wait for each other.
pub(super) async fn next_happening(
    signs: &mut Signs,
    feeds: &mut Feeds,
    turn: usize,
    waits: Waits,
) -> Result<Happening, Error> {
    let records = async {
        until(waits.records).await;
        feeds.next(turn).await
    };
    let signs = async {
        until(waits.signs).await;
        signs.next().await
    };
    tokio::select! {
        () = tokio::time::sleep_until(waits.timer) => Ok(Happening::Timer),
        sign = signs => sign,
        (kind, batch) = records => Ok(Happening::Records(kind, batch)),
    }
}

async fn until(opens: Option<Instant>) {
    if let Some(opens) = opens {
        tokio::time::sleep_until(opens).await;
    }
}

/// A batch and those that are there behind it, as one. An answer among them is not seen as one: who asked asks again.
fn together(
    mut batch: WatchBatch,
    watch: Option<&mut Watch>,
) -> Result<WatchBatch, kvstore::Error> {
    let Some(watch) = watch else {
        return Ok(batch);
    };
    for _ in 0..TOGETHER_MAX {
        if batch.events.is_empty() {
            break;
        }
        let Some(Some(next)) = watch.next().now_or_never() else {
            break;
        };
        let next = next?;
        batch.revision = next.revision;
        batch.events.extend(next.events);
    }
    Ok(batch)
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
