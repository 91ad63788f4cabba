//! What a queue holds. Synchronous; the time comes in as an argument.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::Fill;

/// How many names of which something was taken away may go in a row while others wait.
pub(super) const FIRST_IN_A_ROW: u32 = 8;

#[derive(Debug)]
pub(super) struct State<K> {
    /// Names that go first, in the order in which they became dirty.
    first: BTreeMap<u64, K>,
    /// The others.
    later: BTreeMap<u64, K>,
    waiting: BTreeMap<K, Waiting>,
    working: BTreeMap<K, Dirty>,
    again: BTreeMap<K, Dirty>,
    delayed: BTreeSet<(Instant, K)>,
    /// When each delayed name is due, the same as in `delayed`, and whether it goes first.
    due: BTreeMap<K, (Instant, bool)>,
    pub(super) failures: BTreeMap<K, u32>,
    pub(super) held: bool,
    /// When names began to be handed out.
    resumed: Instant,
    /// Number of the next name.
    number: u64,
    /// Names that went first since one of the others went.
    in_a_row: u32,
}

/// Since when a name is dirty, and whether something was taken away.
#[derive(Debug, Clone, Copy)]
struct Dirty {
    since: Instant,
    first: bool,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: u64,
    dirty: Dirty,
}

pub(super) enum Taken<K> {
    Key { key: K, more: bool },
    WaitUntil(Option<Instant>),
}

impl<K: Ord + Clone> State<K> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            first: BTreeMap::new(),
            later: BTreeMap::new(),
            waiting: BTreeMap::new(),
            working: BTreeMap::new(),
            again: BTreeMap::new(),
            delayed: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            held: false,
            resumed: now,
            number: 0,
            in_a_row: 0,
        }
    }

    pub(super) fn add(&mut self, key: K, first: bool, now: Instant) {
        let dirty = Dirty { since: now, first };
        if self.working.contains_key(&key) {
            let again = self.again.entry(key).or_insert(dirty);
            again.first |= first;
        } else {
            self.enqueue(key, dirty);
        }
    }

    /// Puts a name behind those of its kind; one that waits behind others and may go first changes over.
    fn enqueue(&mut self, key: K, dirty: Dirty) {
        let mut dirty = dirty;
        match self.waiting.get(&key) {
            Some(waiting) if waiting.dirty.first || !dirty.first => return,
            Some(waiting) => {
                self.later.remove(&waiting.number);
                dirty.since = waiting.dirty.since;
            }
            None => {}
        }
        let number = self.number;
        self.number += 1;
        self.waiting.insert(key.clone(), Waiting { number, dirty });
        let line = if dirty.first {
            &mut self.first
        } else {
            &mut self.later
        };
        line.insert(number, key);
    }

    /// Hands a name out at `due`, or when it is due already if that is earlier. It goes first if it did before.
    pub(super) fn delay(&mut self, key: K, due: Instant) {
        let first = self.working.get(&key).is_some_and(|dirty| dirty.first);
        match self.due.get(&key).copied() {
            Some((earlier, _)) if earlier <= due => return,
            Some((later, _)) => {
                self.delayed.remove(&(later, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), (due, first));
        self.delayed.insert((due, key));
    }

    pub(super) fn take(&mut self, now: Instant) -> Taken<K> {
        if self.held {
            return Taken::WaitUntil(None);
        }
        while self.delayed.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                let first = self.due.remove(&key).is_some_and(|(_, first)| first);
                self.add(key, first, now);
            }
        }
        let Some(key) = self.pop() else {
            return Taken::WaitUntil(self.delayed.first().map(|(due, _)| *due));
        };
        let dirty = self.waiting.remove(&key).map(|waiting| waiting.dirty);
        let mut dirty = dirty.unwrap_or(Dirty {
            since: now,
            first: false,
        });
        if let Some((due, first)) = self.due.remove(&key) {
            self.delayed.remove(&(due, key.clone()));
            dirty.first |= first;
        }
        self.working.insert(key.clone(), dirty);
        Taken::Key {
            key,
            more: !self.waiting.is_empty(),
        }
    }

    /// The next name: one that goes first, unless others have waited for [`FIRST_IN_A_ROW`] of them.
    fn pop(&mut self) -> Option<K> {
        let others = self.in_a_row >= FIRST_IN_A_ROW && !self.later.is_empty();
        if !others && let Some((_, key)) = self.first.pop_first() {
            self.in_a_row += 1;
            return Some(key);
        }
        self.in_a_row = 0;
        self.later.pop_first().map(|(_, key)| key)
    }

    pub(super) fn release(&mut self, key: &K) {
        self.working.remove(key);
        if let Some((key, dirty)) = self.again.remove_entry(key) {
            self.enqueue(key, dirty);
        }
    }

    pub(super) fn resume(&mut self, now: Instant) {
        if std::mem::take(&mut self.held) {
            self.resumed = now;
        }
    }

    pub(super) fn fill(&self, now: Instant) -> Fill {
        let waiting = self.waiting.values().map(|waiting| waiting.dirty.since);
        let since = waiting
            .chain(self.working.values().map(|dirty| dirty.since))
            .min();
        let age = |since: Instant| now - since.max(self.resumed);
        Fill {
            waiting: self.waiting.len(),
            working: self.working.len(),
            delayed: self.delayed.len(),
            oldest: since.filter(|_| !self.held).map(age),
            held: self.held,
        }
    }
}
