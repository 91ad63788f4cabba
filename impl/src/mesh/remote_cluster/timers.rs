//! What is done when it is time for it, rather than when something happens.

use std::{ops::ControlFlow, time::Duration};

use jiff::SignedDuration;
use tokio::time::Instant;
use tombolo_core::{evidence::Evidence, peer_status::PeerState, wire::key::Resource};

use super::{
    Error, Records, RemoteCluster,
    config::Accepted,
    happening::Feeds,
    memory::{Mark, Unsettled},
};
use crate::kvstore::KvStore;

/// Time between two looks at the peer's store. They notice a store that was replaced without a word: a read of one key every
/// 5 s costs 511 peers about 100 reads a second.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Shortest time between two lists that are made because a peer that exceeded its limits has shrunk.
const RELIST_INTERVAL: Duration = Duration::from_secs(5);
/// How many times as long as the last of these lists took is waited at least.
const RELIST_REST: u32 = 10;

/// The kinds that go when a peer expires. As in Cilium's kvstoremesh: nodes, identities and addresses stay.
pub(super) const EXPIRING: [Resource; 3] = [
    Resource::Services,
    Resource::ServiceExports,
    Resource::EndpointSlices,
];

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// When it is time for something.
    pub(super) fn next_timer(&self, probe: Instant) -> Instant {
        let now = Instant::now();
        let silent = self.memory.heartbeat.silent_from();
        let relist = self.asks_for_list().then_some(self.memory.next_relist);
        let times = [
            self.memory.settles(),
            self.memory.put_off(),
            silent.filter(|at| *at > now),
            relist.map(|at| at.unwrap_or(now)),
            self.memory.withdrawals(self.options.withdrawn_for).min(),
        ];
        times.into_iter().flatten().fold(probe, Instant::min)
    }

    /// Does what it is time for. Breaks when the cluster-config is not the one that was accepted, and may be looked at.
    pub(super) async fn on_timer(
        &mut self,
        accepted: &Accepted,
        feeds: &mut Feeds,
        probe: &mut Instant,
    ) -> Result<ControlFlow<()>, Error> {
        let now = Instant::now();
        if self.memory.config_at.is_some_and(|at| at <= now) {
            return Ok(self.config_changed());
        }
        self.list_put_off(accepted, feeds).await?;
        self.list_settled(accepted, feeds).await?;
        self.end_withdrawals(accepted, feeds).await?;
        self.list_after_shrinking(accepted, feeds).await?;
        if *probe > Instant::now() {
            return Ok(ControlFlow::Continue(()));
        }
        *probe = Instant::now() + PROBE_INTERVAL;
        let key = self.config_key();
        let config = self.read(&key).await?;
        if config.as_ref().map(Mark::of) != accepted.present {
            return Ok(self.config_changed());
        }
        self.ask_those_behind(feeds);
        Ok(ControlFlow::Continue(()))
    }

    /// Asks the store how far the watches are that are behind it: what they lack may be nothing of theirs.
    fn ask_those_behind(&self, feeds: &Feeds) {
        let head = self.memory.seen().map_or(0, |seen| seen.revision);
        for feed in &feeds.0 {
            let memory = self.memory.feed(feed.place.kind);
            if let Some(watch) = &feed.watch
                && memory.is_some_and(|memory| memory.followed < head)
            {
                watch.asker().ask();
            }
        }
    }

    /// Lists the kinds whose list was put off.
    async fn list_put_off(&mut self, accepted: &Accepted, feeds: &mut Feeds) -> Result<(), Error> {
        for feed in &mut feeds.0 {
            let list_at = self.memory.feed_mut(feed.place.kind).list_at;
            if list_at.is_some_and(|at| at <= Instant::now()) {
                self.list(feed, accepted).await?;
            }
        }
        Ok(())
    }

    /// Lists the kinds whose canary has stood long enough.
    async fn list_settled(&mut self, accepted: &Accepted, feeds: &mut Feeds) -> Result<(), Error> {
        for &kind in self.records.kinds() {
            let memory = self.memory.feed_mut(kind);
            let settled = |unsettled: &mut Unsettled| unsettled.until <= Instant::now();
            if memory.unsettled.take_if(settled).is_none() {
                continue;
            }
            // A kind that the peer publishes no more has nothing to be listed.
            if let Some(feed) = feeds.get_mut(kind) {
                // The list is to be believed although the leases are gone.
                memory.last_mark = None;
                self.list(feed, accepted).await?;
            }
        }
        Ok(())
    }

    /// Removes what was withdrawn for long enough; where only canaries were withdrawn, lists are believed without from now on.
    async fn end_withdrawals(
        &mut self,
        accepted: &Accepted,
        feeds: &mut Feeds,
    ) -> Result<(), Error> {
        let now = Instant::now();
        for &kind in self.records.kinds() {
            let memory = self.memory.feed_mut(kind);
            let Some(age) = memory.withdrawn_for(self.options.withdrawn_for, now) else {
                continue;
            };
            memory.withdrawn = None;
            memory.by_canary = false;
            if let Some(feed) = feeds.get_mut(kind) {
                self.list(feed, accepted).await?;
                continue;
            }
            let records = memory.holdings.len();
            tracing::warn!(peer = %self.peer, kind = kind.name(), records, ?age, "the peer no longer publishes these records, for long enough: they are removed");
            let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
            self.drain(&[kind], Evidence::CapabilityWithdrawn { age });
            self.records.not_published(&self.peer, kind);
        }
        Ok(())
    }

    /// Whether a list can tell more than is known.
    fn asks_for_list(&self) -> bool {
        let mut kinds = self.records.kinds().iter();
        kinds.any(|kind| self.kind_asks_for_list(*kind))
    }

    fn kind_asks_for_list(&self, kind: Resource) -> bool {
        self.memory.feed(kind).is_some_and(|memory| {
            let resolved = memory.holdings.untaken().is_resolved();
            memory.holdings.asks_for_list()
                || resolved && self.records.awaits_list(&self.origin(kind))
        })
    }

    /// Lists the kinds of which something was not taken, now that there may be room for it, or it was mended.
    async fn list_after_shrinking(
        &mut self,
        accepted: &Accepted,
        feeds: &mut Feeds,
    ) -> Result<(), Error> {
        let begin = Instant::now();
        if !self.asks_for_list() || self.memory.next_relist.is_some_and(|at| at > begin) {
            return Ok(());
        }
        for feed in &mut feeds.0 {
            let kind = feed.place.kind;
            let over = self.memory.feed_mut(kind).holdings.over() > 0;
            if over || self.kind_asks_for_list(kind) {
                self.list(feed, accepted).await?;
            }
        }
        let rest = (begin.elapsed() * RELIST_REST).max(RELIST_INTERVAL);
        self.memory.next_relist = Some(Instant::now() + rest);
        Ok(())
    }

    /// The peer was not heard of for longer than the cache time-to-live.
    pub(super) fn expire(&mut self) {
        let ttl = self.options.cache_ttl;
        self.memory.unheard.restart(Instant::now());
        let kinds = self.records.kinds().iter().copied();
        let kinds: Vec<_> = kinds.filter(|kind| EXPIRING.contains(kind)).collect();
        let records = self.memory.expiring_records();
        if records > 0 || self.statuses.state_of(&self.peer) != Some(PeerState::Expired) {
            tracing::warn!(peer = %self.peer, records, ?ttl, "the peer was not heard of for longer than --clustermesh-cache-ttl: its services, exports and slices are removed; what it says when it is back is shown again");
        }
        let age = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        self.drain(&kinds, Evidence::Expired { age });
        self.memory.forget_positions();
        self.report_expired();
    }
}
