//! What is held of one kind of one peer: which keys, under which lease, how large; and what was refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::kvstore::{Entry, LeaseId};

/// Most refused records that are remembered, so that each is logged and counted once.
const REFUSED_MAX: usize = 1000;

/// Most records that are remembered by name as not taken because the peer exceeds its limits.
const OVER_MAX: usize = 1000;

/// The records that are held, by their keys after the prefix.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    records: BTreeMap<String, Held>,
    bytes: usize,
    /// Which writing of which record was refused last, and why.
    refused: BTreeMap<String, (&'static str, i64)>,
    /// Records that were not taken because the peer exceeds its limits; the first of them.
    over: BTreeSet<String>,
    /// How many more there were.
    over_unnamed: usize,
    /// Whether there may be room for them now.
    shrunk: bool,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    lease: Option<LeaseId>,
    bytes: usize,
}

/// How new a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// The record was not refused before, or for another reason.
    Reason,
    /// It was written anew, and is refused for the same reason.
    Writing,
    /// It was seen before, just so.
    Nothing,
}

impl Holdings {
    /// How many records are held.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Size of their values in the peer's store.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a record is held under the key.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.records.contains_key(key)
    }

    /// A record is held as the peer wrote it.
    pub(super) fn hold(&mut self, key: &str, entry: &Entry) {
        self.refused.remove(key);
        self.over.remove(key);
        let held = Held {
            lease: entry.lease,
            bytes: entry.value.len(),
        };
        self.bytes += held.bytes;
        if let Some(before) = self.records.insert(key.to_owned(), held) {
            self.bytes -= before.bytes;
            self.shrunk |= held.bytes < before.bytes;
        }
    }

    /// Nothing is held under the key any more.
    pub(super) fn release(&mut self, key: &str) {
        self.refused.remove(key);
        self.shrunk |= !self.over.remove(key);
        if let Some(before) = self.records.remove(key) {
            self.bytes -= before.bytes;
        }
    }

    /// A record was refused: what was held under its key stays, and goes with the lease of the new writing.
    pub(super) fn refuse(&mut self, key: &str, entry: &Entry, reason: &'static str) -> News {
        if let Some(held) = self.records.get_mut(key) {
            held.lease = entry.lease;
        }
        let revision = entry.mod_revision;
        let before = self.refused.get(key).copied();
        if before.is_some() || self.refused.len() < REFUSED_MAX {
            self.refused.insert(key.to_owned(), (reason, revision));
        }
        match before {
            Some((known, at)) if known == reason && at == revision => News::Nothing,
            Some((known, _)) if known == reason => News::Writing,
            Some(_) | None => News::Reason,
        }
    }

    /// A record was not taken because the peer exceeds its limits: what was held under its key stays.
    pub(super) fn refuse_over(&mut self, key: &str, entry: &Entry) {
        if let Some(held) = self.records.get_mut(key) {
            held.lease = entry.lease;
        }
        if self.over.len() < OVER_MAX || self.over.contains(key) {
            self.over.insert(key.to_owned());
        } else {
            self.over_unnamed += 1;
        }
    }

    /// How many records are not taken because the peer exceeds its limits.
    pub(super) fn over(&self) -> usize {
        self.over.len() + self.over_unnamed
    }

    /// Whether there are such records and may be room for them.
    pub(super) fn asks_for_list(&self) -> bool {
        self.shrunk && self.over() > 0
    }

    /// A list begins: it tells anew what does not fit.
    pub(super) fn begin_list(&mut self) {
        self.over.clear();
        self.over_unnamed = 0;
        self.shrunk = false;
    }

    /// Size of the value of a record that is held.
    pub(super) fn size(&self, key: &str) -> Option<usize> {
        self.records.get(key).map(|held| held.bytes)
    }

    /// Only these are held.
    pub(super) fn retain(&mut self, present: &BTreeSet<String>) {
        let before = self.records.len();
        self.records.retain(|key, _| present.contains(key));
        self.shrunk |= self.records.len() < before;
        self.bytes = self.records.values().map(|held| held.bytes).sum();
    }

    /// The lease that a record hangs on, if it is held and hangs on one.
    pub(super) fn lease(&self, key: &str) -> Option<LeaseId> {
        self.records.get(key).and_then(|held| held.lease)
    }

    /// The leases of records that are held but not present.
    pub(super) fn leases_of_absent(&self, present: &BTreeSet<String>) -> BTreeSet<LeaseId> {
        let absent = self
            .records
            .iter()
            .filter(|(key, _)| !present.contains(*key));
        absent.filter_map(|(_, held)| held.lease).collect()
    }

    /// Leases of another store mean nothing.
    pub(super) fn forget_leases(&mut self) {
        for held in self.records.values_mut() {
            held.lease = None;
        }
    }

    /// Nothing is held any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(revision: i64, bytes: usize, lease: Option<i64>) -> Entry {
        Entry {
            key: String::new(),
            value: vec![0; bytes],
            create_revision: 1,
            mod_revision: revision,
            lease: lease.map(LeaseId),
        }
    }

    #[test]
    fn bytes_are_those_of_the_records_that_are_held() {
        let mut holdings = Holdings::default();

        holdings.hold("a", &entry(1, 100, None));
        holdings.hold("a", &entry(2, 40, None));
        holdings.hold("b", &entry(3, 7, None));
        holdings.hold("c", &entry(4, 5, None));
        holdings.release("b");
        assert_eq!((holdings.len(), holdings.bytes()), (2, 45));
        holdings.retain(&BTreeSet::from(["c".to_owned()]));

        assert_eq!((holdings.len(), holdings.bytes()), (1, 5));
    }

    #[test]
    fn a_refusal_is_news_once_for_each_reason_and_writing() {
        let mut holdings = Holdings::default();

        assert_eq!(
            holdings.refuse("a", &entry(1, 1, None), "One"),
            News::Reason
        );
        assert_eq!(
            holdings.refuse("a", &entry(1, 1, None), "One"),
            News::Nothing
        );
        assert_eq!(
            holdings.refuse("a", &entry(2, 1, None), "One"),
            News::Writing
        );
        assert_eq!(
            holdings.refuse("a", &entry(3, 1, None), "Two"),
            News::Reason
        );
        holdings.hold("a", &entry(4, 1, None));
        assert_eq!(
            holdings.refuse("a", &entry(5, 1, None), "Two"),
            News::Reason
        );
    }

    #[test]
    fn what_is_remembered_of_refusals_is_bounded() {
        let mut holdings = Holdings::default();

        for number in 0..2 * REFUSED_MAX {
            holdings.refuse(&format!("key-{number}"), &entry(1, 1, None), "One");
        }

        assert_eq!(holdings.refused.len(), REFUSED_MAX);
    }

    #[test]
    fn records_over_the_limit_ask_for_a_list_when_something_else_goes() {
        let mut holdings = Holdings::default();
        holdings.hold("a", &entry(1, 1, None));
        holdings.refuse_over("b", &entry(2, 1, None));
        holdings.refuse_over("b", &entry(3, 1, None));
        assert_eq!((holdings.over(), holdings.asks_for_list()), (1, false));

        holdings.release("b");
        assert_eq!((holdings.over(), holdings.asks_for_list()), (0, false));
        holdings.refuse_over("c", &entry(4, 1, None));
        holdings.release("a");
        assert!(holdings.asks_for_list());
        holdings.begin_list();
        assert_eq!((holdings.over(), holdings.asks_for_list()), (0, false));
    }

    #[test]
    fn a_record_hangs_on_the_lease_of_its_last_writing_even_when_that_was_refused() {
        let mut holdings = Holdings::default();

        holdings.hold("a", &entry(1, 1, Some(1)));
        holdings.refuse("a", &entry(2, 1, Some(2)), "One");

        assert_eq!(holdings.lease("a"), Some(LeaseId(2)));
        let present = BTreeSet::new();
        assert_eq!(holdings.leases_of_absent(&present), [LeaseId(2)].into());
        holdings.forget_leases();
        assert!(holdings.leases_of_absent(&present).is_empty());
    }
}
