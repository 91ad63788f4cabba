//! Copies that are to be written, by peer and kind. Synchronous.
//!
//! A key is in it once, however often its record changed: what is written is what the peer says when its turn comes. So it is
//! never longer than there are keys. Peers and kinds take turns, so that one that changes a lot does not hold up the others;
//! removals go first, since after a heal the addresses of what is gone are still in use.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;
use tombolo_core::{names::ClusterName, wire::key::Resource};

/// One kind of records of one peer.
pub(super) type Feed = (ClusterName, Resource);

/// Most keys that are handed out at once.
pub(super) const BATCH: usize = 8;

/// After so many turns of removals in a row, one of the others is due.
const REMOVAL_TURNS: u8 = 8;

/// First and longest pause of a feed of which a key could not be written.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The keys to be written.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    feeds: BTreeMap<Feed, Pending>,
    /// The feed that had the last turn.
    last: Option<Feed>,
    removal_turns: u8,
}

#[derive(Debug, Default)]
struct Pending {
    removals: BTreeSet<String>,
    puts: BTreeSet<String>,
    /// Whether keys of it are being written. Its other keys wait: two writes of one key never overtake each other.
    busy: bool,
    failures: u32,
    not_before: Option<Instant>,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// These keys. [`Backlog::settle`] is to be called for them.
    Batch(Feed, Vec<String>),
    /// Nothing, before this time, or before something is marked or settled.
    Nothing(Option<Instant>),
}

impl Backlog {
    /// Marks a key of a feed.
    pub(super) fn mark(&mut self, feed: &Feed, key: String, removal: bool) {
        let pending = match self.feeds.get_mut(feed) {
            Some(pending) => pending,
            None => self.feeds.entry(feed.clone()).or_default(),
        };
        if removal {
            pending.puts.remove(&key);
            pending.removals.insert(key);
        } else {
            pending.removals.remove(&key);
            pending.puts.insert(key);
        }
    }

    /// Takes the next keys.
    pub(super) fn take(&mut self, now: Instant) -> Taken {
        let removals = self.next(now, |pending| !pending.removals.is_empty());
        let puts = self.next(now, |pending| !pending.puts.is_empty());
        let (feed, removal) = match (removals, puts) {
            (None, None) => return Taken::Nothing(self.due()),
            (None, Some(feed)) => (feed, false),
            (Some(_), Some(feed)) if self.removal_turns >= REMOVAL_TURNS => (feed, false),
            (Some(feed), None | Some(_)) => (feed, true),
        };
        self.removal_turns = if removal {
            self.removal_turns.saturating_add(1)
        } else {
            0
        };
        let pending = self.feeds.entry(feed.clone()).or_default();
        let waiting = if removal {
            &mut pending.removals
        } else {
            &mut pending.puts
        };
        let keys = std::iter::from_fn(|| waiting.pop_first())
            .take(BATCH)
            .collect();
        pending.busy = true;
        pending.not_before = None;
        self.last = Some(feed.clone());
        Taken::Batch(feed, keys)
    }

    /// The keys that were handed out are done; `failed` of them could not be written and were marked anew.
    pub(super) fn settle(&mut self, feed: &Feed, failed: bool, now: Instant) {
        let Some(pending) = self.feeds.get_mut(feed) else {
            return;
        };
        pending.busy = false;
        if failed {
            let pause = RETRY.0 * 2_u32.saturating_pow(pending.failures.min(16));
            pending.failures += 1;
            pending.not_before = Some(now + pause.min(RETRY.1));
        } else {
            pending.failures = 0;
        }
        if pending.is_idle() {
            self.feeds.remove(feed);
        }
    }

    /// Whether everything of a feed is written.
    pub(super) fn is_idle(&self, feed: &Feed) -> bool {
        !self.feeds.contains_key(feed)
    }

    /// How many keys wait.
    pub(super) fn len(&self) -> usize {
        self.feeds.values().map(Pending::len).sum()
    }

    /// How many keys wait, and feeds of which keys are being written.
    pub(super) fn waiting(&self) -> usize {
        self.feeds.values().map(Pending::waiting).sum()
    }

    /// The same, of one peer.
    pub(super) fn waiting_of(&self, peer: &ClusterName) -> usize {
        let feeds = self.feeds.iter().filter(|((of, _), _)| of == peer);
        feeds.map(|(_, pending)| pending.waiting()).sum()
    }

    /// The next feed after the last one that may have a turn.
    fn next(&self, now: Instant, has_work: impl Fn(&Pending) -> bool) -> Option<Feed> {
        let may = |(_, pending): &(&Feed, &Pending)| {
            !pending.busy && pending.not_before.is_none_or(|due| due <= now) && has_work(pending)
        };
        let after = self.last.iter().flat_map(|last| {
            let after = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.feeds.range::<Feed, _>(after)
        });
        let next = after.chain(&self.feeds).find(may);
        next.map(|(feed, _)| feed.clone())
    }

    /// When the next feed may be tried again.
    fn due(&self) -> Option<Instant> {
        let idle = self.feeds.values().filter(|pending| !pending.busy);
        idle.filter_map(|pending| pending.not_before).min()
    }
}

impl Pending {
    fn len(&self) -> usize {
        self.removals.len() + self.puts.len()
    }

    fn waiting(&self) -> usize {
        self.len() + usize::from(self.busy)
    }

    fn is_idle(&self) -> bool {
        !self.busy && self.removals.is_empty() && self.puts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(cluster: &str, resource: Resource) -> Feed {
        (cluster.try_into().unwrap(), resource)
    }

    fn services(cluster: &str) -> Feed {
        feed(cluster, Resource::Services)
    }

    fn put(backlog: &mut Backlog, feed: &Feed, keys: std::ops::Range<usize>) {
        for key in keys {
            backlog.mark(feed, format!("k{key:03}"), false);
        }
    }

    /// Takes and settles until nothing is left; returns whose turns there were, with their first keys.
    fn turns(backlog: &mut Backlog) -> Vec<(Feed, String)> {
        let now = Instant::now();
        let mut turns = Vec::new();
        while let Taken::Batch(feed, keys) = backlog.take(now) {
            turns.push((feed.clone(), keys[0].clone()));
            backlog.settle(&feed, false, now);
        }
        turns
    }

    #[test]
    fn a_key_that_changes_often_is_written_once() {
        let mut backlog = Backlog::default();
        for _ in 0..1000 {
            put(&mut backlog, &services("a"), 0..2);
        }
        backlog.mark(&services("a"), "k001".to_owned(), true);

        assert_eq!(backlog.len(), 2);
        let keys: Vec<_> = turns(&mut backlog)
            .into_iter()
            .map(|(_, key)| key)
            .collect();
        assert_eq!(keys, ["k001", "k000"]);
        assert!(backlog.is_idle(&services("a")));
    }

    #[test]
    fn a_peer_with_many_changes_does_not_hold_up_another() {
        let mut backlog = Backlog::default();
        put(&mut backlog, &services("busy"), 0..100);
        put(&mut backlog, &services("quiet"), 0..1);
        put(&mut backlog, &feed("busy", Resource::Nodes), 0..1);

        let turns: Vec<_> = turns(&mut backlog)
            .into_iter()
            .map(|(feed, _)| feed)
            .collect();

        let quiet = turns.iter().position(|feed| *feed == services("quiet"));
        let nodes = turns.iter().position(|feed| feed.1 == Resource::Nodes);
        assert_eq!(turns.len(), 100_usize.div_ceil(BATCH) + 2);
        assert!(quiet < Some(3) && nodes < Some(3), "{turns:?}");
    }

    #[test]
    fn removals_go_first_but_not_for_ever() {
        let mut backlog = Backlog::default();
        put(&mut backlog, &services("a"), 0..1);
        for key in 0..BATCH * 20 {
            backlog.mark(&services("z"), format!("gone{key:03}"), true);
        }

        let turns = turns(&mut backlog);

        let first_put = turns.iter().position(|(feed, _)| *feed == services("a"));
        assert_eq!(first_put, Some(usize::from(REMOVAL_TURNS)));
    }

    #[test]
    fn keys_of_a_feed_in_work_wait_until_it_is_settled() {
        let mut backlog = Backlog::default();
        let now = Instant::now();
        put(&mut backlog, &services("a"), 0..1);
        let Taken::Batch(feed, _) = backlog.take(now) else {
            panic!("there is a key");
        };
        put(&mut backlog, &services("a"), 0..1);

        assert_eq!(backlog.take(now), Taken::Nothing(None));
        assert!(!backlog.is_idle(&feed));
        backlog.settle(&feed, false, now);
        assert!(matches!(backlog.take(now), Taken::Batch(_, keys) if keys == ["k000"]));
    }

    #[test]
    fn a_feed_that_fails_pauses_longer_each_time_and_others_go_on() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            put(&mut backlog, &services("bad"), 0..1);
            assert!(matches!(backlog.take(now), Taken::Batch(..)));
            put(&mut backlog, &services("bad"), 0..1);
            backlog.settle(&services("bad"), true, now);
            let Taken::Nothing(Some(due)) = backlog.take(now) else {
                panic!("it has to pause");
            };
            pauses.push(due - now);
            now = due;
        }
        put(&mut backlog, &services("good"), 0..1);

        assert_eq!(pauses[..3], [50, 100, 200].map(Duration::from_millis));
        assert_eq!(pauses[8], RETRY.1);
        assert!(matches!(backlog.take(start), Taken::Batch(feed, _) if feed == services("good")));
    }
}
