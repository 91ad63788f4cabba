//! One connection to a peer: cluster-config, then every kind of records, then whatever happens.

use std::{ops::ControlFlow, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use tombolo_core::{
    peer_status::Limit,
    wire::key::{self, HEARTBEAT, Resource},
};

use super::{
    super::inquiry::Respondent,
    Error, Records, RemoteCluster,
    config::Accepted,
    feed::Feed,
    happening::{Feeds, Happening, Signs, Waits, next_change, next_happening},
    memory::Mark,
    pace::PAUSE_MAX,
    timers::PROBE_INTERVAL,
};
use crate::kvstore::{self, Event, KvStore, Scope, Watch, WatchBatch, backoff::Backoff};

/// Time between two looks at the store of a peer that expired, beside what its watches say.
const LIFE_INTERVAL: Duration = Duration::from_secs(30);

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
        self.memory.forget_put_off();
        let from = read.revision + 1;
        let mut config = self.store.watch(&Scope::Key(config_key), from).await?;
        let accepted = match self.accept(read.entry.as_ref()) {
            Ok(accepted) => accepted,
            Err(error) => {
                drop(work);
                return self.refuse(&error, &mut config, backoff).await;
            }
        };
        let mut heartbeat = self.start_heartbeat(from).await?;
        if self.stays_expired(&accepted) {
            drop(work);
            return self.await_life(&mut config, &mut heartbeat).await;
        }
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
        drop(work);
        let mut signs = Signs {
            config,
            heartbeat,
            canaries,
        };
        respondent.begin(signs.all(&feeds));
        let begin = Instant::now();
        let ended = self
            .follow_all(&accepted, &mut signs, &mut feeds, respondent)
            .await;
        // One that broke at once would be made again and again.
        if begin.elapsed() >= PAUSE_MAX {
            backoff.reset();
        }
        ended
    }

    /// Reads the heartbeat, and watches it.
    async fn start_heartbeat(&mut self, from: i64) -> Result<Watch, Error> {
        let read = self.read(HEARTBEAT).await?;
        self.heartbeat_seen(read.map(|entry| entry.mod_revision));
        let scope = Scope::Key(HEARTBEAT.to_owned());
        Ok(self.store.watch(&scope, from).await?)
    }

    fn heartbeat_seen(&mut self, revision: Option<i64>) {
        let heartbeat = &mut self.memory.heartbeat;
        heartbeat.seen(revision, Instant::now(), Timestamp::now());
    }

    /// The peer is not accepted: waits until its cluster-config changes, or a while.
    async fn refuse(
        &mut self,
        error: &Error,
        config: &mut Watch,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let pause = backoff.wait();
        self.report_refusal(error);
        tokio::select! {
            changed = next_change(config) => changed?,
            () = tokio::time::sleep(pause) => return Ok(()),
        };
        self.rest().await;
        Ok(())
    }

    /// Waits for a sign of life.
    async fn await_life(&mut self, config: &mut Watch, heartbeat: &mut Watch) -> Result<(), Error> {
        tokio::select! {
            changed = next_change(config) => changed?,
            changed = next_change(heartbeat) => changed?,
            () = tokio::time::sleep(LIFE_INTERVAL) => return Ok(()),
        };
        self.rest().await;
        Ok(())
    }

    /// A peer that is not followed changed something: waits if it does so too often.
    async fn rest(&mut self) {
        let opens = self.memory.configs.opens(Instant::now());
        tokio::time::sleep_until(opens).await;
        self.memory.configs.took(opens);
    }

    /// The cluster-config is not the one that was accepted. Breaks when it may be looked at now.
    pub(super) fn config_changed(&mut self) -> ControlFlow<()> {
        let now = Instant::now();
        let opens = self.memory.configs.opens(now);
        if opens > now {
            self.memory.config_at = Some(opens);
            return ControlFlow::Continue(());
        }
        self.memory.configs.took(now);
        ControlFlow::Break(())
    }

    fn feeds(&mut self, accepted: &Accepted) -> Feeds {
        let mut feeds = Vec::new();
        for &kind in self.records.kinds() {
            let place = self.place(&accepted.config.capabilities, kind);
            self.note_withdrawal(kind, place.as_ref());
            match place {
                Some(place) => feeds.push(Feed { place, watch: None }),
                None if self.has_nothing_of(kind) => self.records.not_published(&self.peer, kind),
                None => {}
            }
        }
        Feeds(feeds)
    }

    /// Whether the peer expired and is still not heard of: what is left in its store was written long ago.
    fn stays_expired(&self, accepted: &Accepted) -> bool {
        self.is_expired() && !self.is_heard(accepted)
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
        let mut probe = Instant::now() + PROBE_INTERVAL;
        loop {
            turn += 1;
            let waits = Waits {
                records: self.memory.opens(&self.options.budget, Instant::now()),
                signs: self.memory.signs_open(),
                timer: self.next_timer(probe),
            };
            let happening = tokio::select! {
                happening = next_happening(signs, feeds, turn, waits) => happening?,
                () = respondent.asked() => Happening::Asked,
            };
            let _work = respondent.pulse.begin();
            let taken = happening.taken();
            self.count_signs(happening.signs());
            match happening {
                Happening::Config(batch) if batch.events.is_empty() => {}
                Happening::Config(_) => {
                    if self.config_changed().is_break() {
                        return Ok(());
                    }
                }
                Happening::Heartbeat(batch) => self.look_at_heartbeat(&batch),
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
                Happening::Timer => {
                    if self.on_timer(accepted, feeds, &mut probe).await?.is_break() {
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

    /// Canaries, cluster-config and heartbeat count as records do, and hardly wait.
    fn count_signs(&mut self, events: usize) {
        if events == 0 {
            return;
        }
        let now = Instant::now();
        self.memory.take_signs(&self.options.budget, events, now);
        if self.memory.is_throttled() {
            self.exceeded(Limit::EventRate);
        }
    }

    fn look_at_heartbeat(&mut self, batch: &WatchBatch) {
        self.memory.reached(batch.revision);
        for event in &batch.events {
            if let Event::Put(entry) = event {
                self.heartbeat_seen(Some(entry.mod_revision));
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
}
