//! What is remembered of a peer between connections: how far it was followed, and under which canary it was complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;
use tombolo_core::{
    peer_status::Limit,
    wire::{cluster_config::ClusterConfig, key::Resource},
};

use super::{
    budget::{Budget, EventRate},
    heartbeat::Heartbeat,
    holdings::Holdings,
    pace::Pace,
    timers::EXPIRING,
    unheard::Unheard,
};
use crate::kvstore::{Entry, LeaseId};

/// How long a canary has to stand, after keys went with a lease of their own, to be believed. A writer that died loses its
/// leases within a third of their time-to-live (etcd's clients prolong them so often); 15 min is Cilium's.
pub(super) const SETTLE: Duration = Duration::from_mins(6);

/// How long a canary has to stand in a store that was put back to an earlier revision: its lease came back with it, and lasts so
/// long without a writer (15 min is Cilium's).
pub(super) const SETTLE_PUT_BACK: Duration = Duration::from_mins(16);

/// Time between two looks at canaries, cluster-config and heartbeat of a peer that exceeds its event rate. What came in between is
/// looked at together.
const SIGNS_INTERVAL: Duration = Duration::from_millis(100);

/// What is remembered of a peer between connections.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The cluster-config that was accepted last.
    pub(super) config: Option<ClusterConfig>,
    seen: Option<Seen>,
    /// Since when it was not heard of.
    pub(super) unheard: Unheard,
    /// The sign of life of its store.
    pub(super) heartbeat: Heartbeat,
    /// The limits that it exceeds.
    pub(super) limited: BTreeSet<Limit>,
    /// When a list for want of room may be made again.
    pub(super) next_relist: Option<Instant>,
    rate: Option<EventRate>,
    /// When canaries, cluster-config or heartbeat were looked at last.
    looked: Option<Instant>,
    /// How often its cluster-config changes.
    pub(super) configs: Pace,
    /// When a change of its cluster-config that had to wait is looked at.
    pub(super) config_at: Option<Instant>,
    feeds: BTreeMap<Resource, FeedMemory>,
}

/// How far a store was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Id of the etcd cluster.
    pub(super) store_id: u64,
    /// Its revision.
    pub(super) revision: i64,
}

/// What is remembered of one prefix.
#[derive(Debug, Default)]
pub(super) struct FeedMemory {
    /// The prefix.
    pub(super) prefix: String,
    /// Revision to go on from, that one included; none before the first list.
    pub(super) position: Option<i64>,
    /// Revision up to which everything was taken over.
    pub(super) followed: i64,
    /// Keys that went without evidence since the last complete list.
    pub(super) held_deletions: u64,
    /// The canary under which the rows are exactly what the peer says; none while that is unknown.
    pub(super) synced: Option<Mark>,
    /// Whether the last list that was believed was so for a canary, rather than for the cluster-config of a peer without.
    pub(super) by_canary: bool,
    /// Since when the peer does not say any more that it publishes this kind, or that it writes canaries.
    pub(super) withdrawn: Option<Instant>,
    /// The records that are held.
    pub(super) holdings: Holdings,
    /// Set when keys went with a lease of their own: until then, or until there is another canary, no list is believed.
    pub(super) unsettled: Option<Unsettled>,
    /// The canary of the last list that was believed; none before the first.
    pub(super) last_mark: Option<Mark>,
    /// Revision up to which the rows were exactly what the peer said under that canary.
    pub(super) complete_to: i64,
    /// How often it is listed.
    pub(super) lists: Pace,
    /// When it is listed next, after a list that proved nothing or had to wait.
    pub(super) list_at: Option<Instant>,
}

/// Keys went with their lease while a canary on another lease stood: the writer may be dying, lease by lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsettled {
    /// The canary that stood.
    pub(super) mark: Mark,
    /// When it has stood long enough to be believed.
    pub(super) until: Instant,
}

/// Which writing of a canary it is. A store that was emptied and filled again has another: leases are numbered at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) create_revision: i64,
    pub(super) lease: Option<LeaseId>,
}

impl Mark {
    /// The mark of an entry.
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            create_revision: entry.create_revision,
            lease: entry.lease,
        }
    }
}

impl FeedMemory {
    /// Nothing is held any more: everything is to be read anew.
    pub(super) fn drained(&mut self) {
        self.holdings.clear();
        self.position = None;
        self.followed = 0;
        self.held_deletions = 0;
        self.synced = None;
        self.last_mark = None;
        self.complete_to = 0;
        self.unsettled = None;
        self.by_canary = false;
        self.withdrawn = None;
    }

    /// How long ago the kind was withdrawn, if that is long enough; zero for never.
    pub(super) fn withdrawn_for(&self, long: Duration, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.withdrawn?);
        (!long.is_zero() && age >= long).then_some(age)
    }

    /// This canary says nothing for so long.
    pub(super) fn unsettle(&mut self, mark: Mark, now: Instant, long: Duration) {
        self.synced = None;
        self.unsettled = Some(Unsettled {
            mark,
            until: now + long,
        });
    }

    /// Whether a list under this canary can be believed. A new canary can, at once: the writer lives.
    pub(super) fn is_settled(&self, mark: Mark, now: Instant) -> bool {
        self.unsettled
            .is_none_or(|unsettled| unsettled.mark != mark || unsettled.until <= now)
    }
}

impl Memory {
    /// What is remembered of one kind.
    pub(super) fn feed(&self, kind: Resource) -> Option<&FeedMemory> {
        self.feeds.get(&kind)
    }

    /// The same, to be changed.
    pub(super) fn feed_mut(&mut self, kind: Resource) -> &mut FeedMemory {
        self.feeds.entry(kind).or_default()
    }

    /// How far the store was seen.
    pub(super) fn seen(&self) -> Option<Seen> {
        self.seen
    }

    /// Records of all kinds that are held.
    pub(super) fn records(&self) -> usize {
        self.feeds.values().map(|feed| feed.holdings.len()).sum()
    }

    /// Size of their keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.feeds.values().map(|feed| feed.holdings.bytes()).sum()
    }

    /// Records that are not taken because the peer exceeds its limits.
    pub(super) fn over(&self) -> usize {
        self.feeds.values().map(|feed| feed.holdings.over()).sum()
    }

    /// Records that go when the peer expires.
    pub(super) fn expiring_records(&self) -> usize {
        let feeds = EXPIRING.iter().filter_map(|kind| self.feeds.get(kind));
        feeds.map(|feed| feed.holdings.len()).sum()
    }

    /// When kinds go that were withdrawn.
    pub(super) fn withdrawals(&self, long: Duration) -> impl Iterator<Item = Instant> {
        let since = self.feeds.values().filter_map(|feed| feed.withdrawn);
        since
            .filter(move |_| !long.is_zero())
            .map(move |at| at + long)
    }

    /// Takes events from what the peer may send.
    pub(super) fn take_events(&mut self, budget: &Budget, events: usize, now: Instant) {
        let rate = self
            .rate
            .get_or_insert_with(|| EventRate::full(budget, now));
        rate.take(budget, events, now);
    }

    /// Takes events of canaries, cluster-config and heartbeat, which are looked at now.
    pub(super) fn take_signs(&mut self, budget: &Budget, events: usize, now: Instant) {
        self.looked = Some(now);
        let rate = self
            .rate
            .get_or_insert_with(|| EventRate::full(budget, now));
        rate.take_at_most(budget, events, now);
    }

    /// When canaries, cluster-config and heartbeat may be looked at; none when at once.
    pub(super) fn signs_open(&self) -> Option<Instant> {
        let looked = self.looked.filter(|_| self.is_throttled());
        looked.map(|at| at + SIGNS_INTERVAL)
    }

    /// When the next events may be taken; none when at once.
    pub(super) fn opens(&mut self, budget: &Budget, now: Instant) -> Option<Instant> {
        let rate = self.rate.as_mut()?;
        rate.refill(budget, now);
        rate.opens(budget)
    }

    /// Whether events had to wait lately.
    pub(super) fn is_throttled(&self) -> bool {
        self.rate.is_some_and(|rate| rate.is_throttled())
    }

    /// Forgets where to go on, so that everything is read anew. What speaks against a canary is kept, by that canary: another
    /// store has another one.
    pub(crate) fn forget_positions(&mut self) {
        self.seen = None;
        self.heartbeat.forget_revision();
        for feed in self.feeds.values_mut() {
            feed.position = None;
            feed.followed = 0;
            feed.synced = None;
        }
    }

    /// A connection begins: what was put off belongs to the one before.
    pub(super) fn forget_put_off(&mut self) {
        self.config_at = None;
        for feed in self.feeds.values_mut() {
            feed.list_at = None;
        }
    }

    /// When what was put off is to be done.
    pub(super) fn put_off(&self) -> Option<Instant> {
        let lists = self.feeds.values().filter_map(|feed| feed.list_at);
        lists.chain(self.config_at).min()
    }

    /// When the next kind has settled.
    pub(super) fn settles(&self) -> Option<Instant> {
        let unsettled = self.feeds.values().filter_map(|feed| feed.unsettled);
        unsettled.map(|kind| kind.until).min()
    }

    /// Notes an answer of the store; false when the store is not the one that was seen, or went back in time. Then
    /// where to go on is forgotten.
    pub(super) fn note(&mut self, store_id: u64, revision: i64) -> bool {
        let continues = self
            .seen
            .is_none_or(|seen| seen.store_id == store_id && seen.revision <= revision);
        if !continues {
            self.forget_positions();
        }
        self.seen = Some(Seen { store_id, revision });
        continues
    }

    /// Notes that the store reached a revision, as told by a watch (which may be behind other answers).
    pub(super) fn reached(&mut self, revision: i64) {
        if let Some(seen) = &mut self.seen {
            seen.revision = seen.revision.max(revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> Memory {
        let mut memory = Memory::default();
        memory.note(1, 10);
        memory.feed_mut(Resource::Ip).position = Some(11);
        memory
    }

    #[test]
    fn a_store_that_goes_on_keeps_the_positions() {
        let mut memory = followed();

        assert!(memory.note(1, 10));
        assert!(memory.note(1, 12));
        assert_eq!(memory.feed(Resource::Ip).unwrap().position, Some(11));
    }

    #[test]
    fn a_store_that_goes_back_or_has_another_id_loses_the_positions() {
        for (store_id, revision) in [(1, 9), (2, 20)] {
            let mut memory = followed();

            assert!(!memory.note(store_id, revision));
            assert_eq!(memory.feed(Resource::Ip).unwrap().position, None);
            assert!(memory.note(store_id, revision));
        }
    }

    #[test]
    fn what_a_watch_reached_counts() {
        let mut memory = followed();
        memory.reached(30);
        memory.reached(5);

        assert!(!memory.note(1, 29));
    }
}
