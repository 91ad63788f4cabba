//! What the store holds of the keys that a writer calls its own, and what has to be done about one of them. Synchronous.
//!
//! Fed by lists, by the watch of the own keys, and by the answers to own writes, in any order: of two reports about one key the
//! one with the higher revision counts.

use std::collections::BTreeMap;

use crate::kvstore::{Entry, Event};

/// What should be stored under one key. `V` is a value's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<V = Vec<u8>> {
    /// This value.
    Present(V),
    /// Nothing.
    Absent,
    /// That cannot be said: the objects cannot be understood. What is stored stays.
    Unknown,
}

/// The own keys.
#[derive(Debug)]
pub(in crate::mesh) struct Ledger<V = Vec<u8>> {
    keys: BTreeMap<String, Stored<V>>,
}

#[derive(Debug)]
struct Stored<V> {
    /// The value; none after a deletion whose event has not arrived yet.
    value: Option<V>,
    revision: i64,
    writer: Writer,
}

/// Who wrote a key last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// This process: the key hangs on a lease of this process.
    Us,
    /// Another process with the same work, after this one, and alike: it hangs on a lease of that one.
    Alike,
    /// Somebody else, or nobody knows.
    Other,
}

impl<V> Stored<V> {
    /// Whether nothing has to be done as long as the value is as it should be.
    fn is_good(&self) -> bool {
        match self.writer {
            Writer::Us | Writer::Alike => true,
            Writer::Other => false,
        }
    }
}

/// What to do about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mesh) enum Action<V = Vec<u8>> {
    /// Nothing: it is as it should be, or nobody knows how it should be.
    Nothing,
    /// Write this.
    Put(V),
    /// Delete it.
    Delete,
}

impl<V> Default for Ledger<V> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
        }
    }
}

impl<V: PartialEq + Clone + From<Vec<u8>>> Ledger<V> {
    /// Replaces everything by a complete list. A key that still is as this process wrote it stays its own.
    pub(in crate::mesh) fn relist(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let old = std::mem::take(&mut self.keys);
        for entry in entries {
            let before = old.get(&entry.key);
            let value = V::from(entry.value);
            let untouched = before.filter(|stored| {
                stored.revision == entry.mod_revision && stored.value.as_ref() == Some(&value)
            });
            let stored = Stored {
                value: Some(value),
                revision: entry.mod_revision,
                writer: untouched.map_or(Writer::Other, |stored| stored.writer),
            };
            self.keys.insert(entry.key, stored);
        }
    }

    /// Takes in an event of the watch; true when it was news.
    pub(in crate::mesh) fn apply(&mut self, event: Event) -> bool {
        let known = self
            .keys
            .get(event.key())
            .map_or(0, |stored| stored.revision);
        let revision = event.mod_revision();
        match event {
            Event::Put(entry) if revision > known => {
                let stored = Stored {
                    value: Some(V::from(entry.value)),
                    revision,
                    writer: Writer::Other,
                };
                self.keys.insert(entry.key, stored);
                true
            }
            Event::Delete { key, .. } if revision >= known => self
                .keys
                .remove(&key)
                .is_some_and(|stored| stored.value.is_some()),
            Event::Put(_) | Event::Delete { .. } => false,
        }
    }

    /// This process wrote a key.
    pub(in crate::mesh) fn written(&mut self, key: &str, value: V, revision: i64) {
        let known = self.keys.get(key).map_or(0, |stored| stored.revision);
        if revision >= known {
            let stored = Stored {
                value: Some(value),
                revision,
                writer: Writer::Us,
            };
            self.keys.insert(key.to_owned(), stored);
        }
    }

    /// Another process that writes the same keys has written one alike, or with any value, on a lease: the key is left to it. False
    /// when the key was not ours, or is not as it should be.
    pub(in crate::mesh) fn lend(&mut self, entry: &Entry, any_value: bool) -> bool {
        let Some(stored) = self.keys.get_mut(&entry.key) else {
            return false;
        };
        let value = V::from(entry.value.clone());
        let alike = stored.value.is_some() && (any_value || stored.value.as_ref() == Some(&value));
        let later = entry.mod_revision > stored.revision && entry.lease.is_some();
        if !(stored.is_good() && later && alike) {
            return false;
        }
        *stored = Stored {
            value: Some(value),
            revision: entry.mod_revision,
            writer: Writer::Alike,
        };
        true
    }

    /// Whether a key was left to another process.
    pub(in crate::mesh) fn is_lent(&self, key: &str) -> bool {
        self.keys
            .get(key)
            .is_some_and(|stored| stored.writer == Writer::Alike)
    }

    /// The keys that were left to another process.
    pub(in crate::mesh) fn lent(&self) -> impl Iterator<Item = &str> {
        let lent = self.keys.iter();
        let lent = lent.filter(|(_, stored)| stored.writer == Writer::Alike);
        lent.map(|(key, _)| key.as_str())
    }

    /// This process deleted a key.
    pub(in crate::mesh) fn deleted(&mut self, key: &str, revision: i64) {
        if let Some(stored) = self.keys.get_mut(key)
            && revision >= stored.revision
        {
            *stored = Stored {
                value: None,
                revision,
                writer: Writer::Us,
            };
        }
    }

    /// A key went with its lease.
    pub(in crate::mesh) fn forget(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// The keys of a prefix no longer hang on a lease of this process.
    pub(in crate::mesh) fn disown(&mut self, prefix: &str) {
        for (key, stored) in &mut self.keys {
            if key.starts_with(prefix) {
                stored.writer = Writer::Other;
            }
        }
    }

    /// A key that an earlier life of this process wrote hangs on a lease that this one has taken over.
    pub(in crate::mesh) fn adopt(&mut self, key: &str) {
        if let Some(stored) = self.keys.get_mut(key) {
            stored.writer = Writer::Us;
        }
    }

    /// The value that the store holds under a key.
    pub(in crate::mesh) fn value(&self, key: &str) -> Option<&V> {
        self.keys.get(key)?.value.as_ref()
    }

    /// The keys of a prefix that the store holds.
    pub(in crate::mesh) fn keys_under<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let range = self.keys.range(prefix.to_owned()..);
        let under = range.take_while(move |(key, _)| key.starts_with(prefix));
        let present = under.filter(|(_, stored)| stored.value.is_some());
        present.map(|(key, _)| key.as_str())
    }

    /// Every key that the store holds.
    pub(in crate::mesh) fn keys(&self) -> impl Iterator<Item = &str> {
        let present = self
            .keys
            .iter()
            .filter(|(_, stored)| stored.value.is_some());
        present.map(|(key, _)| key.as_str())
    }

    /// Whether the store holds a key that this process wrote.
    pub(in crate::mesh) fn holds_ours(&self, key: &str) -> bool {
        self.keys
            .get(key)
            .is_some_and(|stored| stored.is_good() && stored.value.is_some())
    }

    /// What to do about a key, given what should be stored under it. What another process wrote, an earlier life of this
    /// one for instance, is taken over by writing it again, also when it is not known yet whether it is right.
    pub(in crate::mesh) fn decide(&self, key: &str, record: Record<V>) -> Action<V> {
        let stored = self.keys.get(key);
        let ours = stored.is_some_and(Stored::is_good);
        let value = stored.and_then(|stored| stored.value.as_ref());
        match (record, value) {
            (Record::Present(wanted), Some(value)) if ours && wanted == *value => Action::Nothing,
            (Record::Present(wanted), _) => Action::Put(wanted),
            (Record::Absent, Some(_)) => Action::Delete,
            (Record::Unknown, Some(value)) if !ours => Action::Put(value.clone()),
            (Record::Absent, None) | (Record::Unknown, _) => Action::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvstore::LeaseId;

    fn entry(key: &str, value: &str, revision: i64) -> Entry {
        Entry {
            key: key.to_owned(),
            value: value.into(),
            create_revision: revision,
            mod_revision: revision,
            lease: None,
        }
    }

    fn put(value: &str, revision: i64) -> Event {
        Event::Put(entry("k", value, revision))
    }

    fn delete(revision: i64) -> Event {
        Event::Delete {
            key: "k".to_owned(),
            mod_revision: revision,
        }
    }

    fn present(value: &str) -> Record {
        Record::Present(value.into())
    }

    fn wrote(value: &str, revision: i64) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.written("k", value.into(), revision);
        ledger
    }

    #[test]
    fn what_is_as_it_should_be_is_not_written() {
        let ledger = wrote("v", 5);

        assert_eq!(ledger.decide("k", present("v")), Action::Nothing);
        assert_eq!(ledger.decide("k", present("w")), Action::Put("w".into()));
        assert_eq!(ledger.decide("k", Record::Absent), Action::Delete);
        assert_eq!(ledger.decide("k", Record::Unknown), Action::Nothing);
        assert_eq!(ledger.decide("other", Record::Absent), Action::Nothing);
    }

    #[test]
    fn what_an_earlier_life_wrote_is_taken_over_even_before_it_is_known_to_be_right() {
        let mut ledger: Ledger = Ledger::default();
        ledger.relist([entry("k", "v", 5)]);

        assert_eq!(ledger.decide("k", present("v")), Action::Put("v".into()));
        assert_eq!(ledger.decide("k", Record::Unknown), Action::Put("v".into()));
        assert_eq!(ledger.decide("k", Record::Absent), Action::Delete);
    }

    #[test]
    fn the_echo_of_an_own_write_is_no_news_whichever_comes_first() {
        let mut answered_first = wrote("v", 5);
        let mut echoed_first: Ledger = Ledger::default();

        assert!(!answered_first.apply(put("v", 5)));
        echoed_first.apply(put("v", 5));
        echoed_first.written("k", "v".into(), 5);

        assert!(answered_first.holds_ours("k"));
        assert!(echoed_first.holds_ours("k"));
    }

    #[test]
    fn a_foreign_write_or_deletion_is_put_right() {
        let mut overwritten = wrote("v", 5);
        let mut removed = wrote("v", 5);

        assert!(overwritten.apply(put("x", 6)));
        assert!(removed.apply(delete(6)));

        assert_eq!(
            overwritten.decide("k", present("v")),
            Action::Put("v".into())
        );
        assert_eq!(removed.decide("k", present("v")), Action::Put("v".into()));
    }

    #[test]
    fn a_key_that_another_writer_wrote_alike_on_a_lease_is_left_to_it() {
        let leased = |value, revision| Entry {
            lease: Some(LeaseId(7)),
            ..entry("k", value, revision)
        };
        let mut ledger = wrote("v", 5);

        assert!(!ledger.lend(&entry("k", "v", 6), false), "it would stay");
        assert!(!ledger.lend(&leased("x", 6), false));
        assert!(!ledger.lend(&leased("v", 4), false));
        assert!(ledger.lend(&leased("v", 6), false) && ledger.is_lent("k"));
        assert_eq!(ledger.decide("k", present("v")), Action::Nothing);
        assert!(ledger.lend(&leased("any", 7), true));
        ledger.relist([leased("any", 7)]);
        assert!(ledger.is_lent("k"));
        assert_eq!(ledger.decide("k", present("w")), Action::Put("w".into()));
        ledger.written("k", "w".into(), 8);
        assert!(!ledger.is_lent("k"));
        ledger.relist([leased("w", 9)]);
        assert!(!ledger.lend(&leased("w", 10), false), "it was not ours");
    }

    #[test]
    fn an_event_from_before_an_own_write_changes_nothing() {
        let mut ledger = wrote("v", 5);

        assert!(!ledger.apply(delete(4)));
        assert!(!ledger.apply(put("old", 3)));

        assert_eq!(ledger.decide("k", present("v")), Action::Nothing);
    }

    #[test]
    fn a_late_event_does_not_bring_a_deleted_key_back() {
        let mut ledger = wrote("v", 5);
        ledger.deleted("k", 7);

        assert!(!ledger.apply(put("v", 5)));
        assert_eq!(ledger.decide("k", Record::Absent), Action::Nothing);
        assert!(!ledger.apply(delete(7)));
        assert_eq!(ledger.keys().count(), 0);
    }

    #[test]
    fn a_list_keeps_what_is_ours_only_when_it_was_not_touched() {
        let mut ledger = wrote("v", 5);
        ledger.written("l", "v".into(), 6);
        ledger.written("gone", "v".into(), 7);

        ledger.relist([entry("k", "v", 5), entry("l", "v", 9)]);

        assert!(ledger.holds_ours("k"));
        assert!(!ledger.holds_ours("l"));
        assert_eq!(ledger.keys().count(), 2);
    }

    #[test]
    fn keys_of_a_lost_lease_are_written_again() {
        let mut ledger = wrote("v", 5);
        ledger.disown("k");

        assert_eq!(ledger.decide("k", present("v")), Action::Put("v".into()));
    }
}
