//! What is held of one kind of one peer: which keys, under which lease, how large; and what was not taken.

use std::collections::{BTreeMap, BTreeSet};

use super::untaken::{News, Unnamed, Untaken};
use crate::kvstore::{Entry, LeaseId};

/// The records that are held, by their keys after the prefix.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    records: BTreeMap<String, Held>,
    bytes: usize,
    untaken: Untaken,
    /// Whether there may be room now for what was over the limits.
    shrunk: bool,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    lease: Option<LeaseId>,
    bytes: usize,
}

impl Holdings {
    /// How many records are held.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Size of their keys and values in the peer's store.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a record is held under the key.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.records.contains_key(key)
    }

    /// A record is held as the peer wrote it.
    pub(super) fn hold(&mut self, key: &str, entry: &Entry) {
        self.untaken.taken(key);
        let held = Held {
            lease: entry.lease,
            bytes: entry.size(),
        };
        self.bytes += held.bytes;
        if let Some(before) = self.records.insert(key.to_owned(), held) {
            self.bytes -= before.bytes;
            self.shrunk |= held.bytes < before.bytes;
        }
    }

    /// Nothing is held under the key any more.
    pub(super) fn release(&mut self, key: &str) {
        self.shrunk |= !self.untaken.gone(key);
        if let Some(before) = self.records.remove(key) {
            self.bytes -= before.bytes;
        }
    }

    /// What was not taken.
    pub(super) fn untaken(&self) -> &Untaken {
        &self.untaken
    }

    /// A record was refused: what was held under its key stays, and goes with the lease of the new writing.
    pub(super) fn refuse(&mut self, key: &str, entry: &Entry, reason: &'static str) -> News {
        self.hang_on(key, entry);
        self.untaken.refuse(key, entry, reason)
    }

    /// A record was refused since its key is too long; nothing is ever held under such a key.
    pub(super) fn refuse_long_key(&mut self, key: &str) -> Unnamed {
        self.untaken.refuse_long_key(key)
    }

    /// A record was not taken because the peer exceeds its limits: what was held under its key stays.
    pub(super) fn refuse_over(&mut self, key: &str, entry: &Entry) {
        self.hang_on(key, entry);
        self.untaken.exceed(key);
    }

    /// How many records are not taken because the peer exceeds its limits.
    pub(super) fn over(&self) -> usize {
        self.untaken.over_count()
    }

    /// Whether a list can tell more: of records over the limits there may be room for some, or of those that are not
    /// remembered.
    pub(super) fn asks_for_list(&self) -> bool {
        let untaken = &self.untaken;
        self.shrunk && self.over() > 0 || untaken.is_resolved() && untaken.has_unnamed()
    }

    /// A list begins: it tells anew what is not taken.
    pub(super) fn begin_list(&mut self) {
        self.untaken.begin_list();
        self.shrunk = false;
    }

    /// A list is finished.
    pub(super) fn end_list(&mut self) {
        self.untaken.end_list();
    }

    /// Size of key and value of a record that is held.
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

    fn hang_on(&mut self, key: &str, entry: &Entry) {
        if let Some(held) = self.records.get_mut(key) {
            held.lease = entry.lease;
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
        let mut with_key = entry(4, 3, None);
        with_key.key = "/c".to_owned();
        holdings.hold("c", &with_key);
        holdings.release("b");
        assert_eq!((holdings.len(), holdings.bytes()), (2, 45));
        holdings.retain(&BTreeSet::from(["c".to_owned()]));

        assert_eq!((holdings.len(), holdings.bytes()), (1, 5));
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
    }
}
