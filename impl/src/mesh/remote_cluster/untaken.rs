//! What a peer says of one kind and was not taken: refused, or over its limits. Bounded; of each it is known whether it is news.
//!
//! Nothing is known of what is behind these keys. So whoever takes silence for deletion has to ask here first.

use std::collections::{BTreeMap, BTreeSet};

use crate::kvstore::Entry;

/// Most refused records that are remembered, so that each is logged and counted once.
const REFUSED_MAX: usize = 1000;

/// Most records that are remembered by name as not taken because the peer exceeds its limits.
const OVER_MAX: usize = 1000;

/// Longest key after the prefix, in bytes, that is looked at: etcd takes longer ones, up to its limit for a request, but names of
/// Kubernetes, at most 253 and 63 bytes, never make one.
pub(super) const KEY_BYTES_MAX: usize = 1024;

/// How many characters of a key are shown of those that are only counted.
const KEY_SHOWN: usize = 100;

/// The records that were not taken, by their keys after the prefix.
#[derive(Debug, Default)]
pub(crate) struct Untaken {
    /// Which writing of which record was refused last, and why; the first of them.
    refused: BTreeMap<String, Writing>,
    /// The same from before the list that is being read: what of it is no news.
    known: BTreeMap<String, Writing>,
    /// How many more were refused.
    refused_unnamed: Rest,
    /// Records under keys longer than [`KEY_BYTES_MAX`].
    long_keys: Rest,
    /// Records that were not taken because the peer exceeds its limits; the first of them.
    over: BTreeSet<String>,
    /// How many more there were.
    over_unnamed: usize,
    /// Whether something of it was taken since the last list, or is gone.
    resolved: bool,
    /// Whether a list is being read.
    listing: bool,
}

/// Why a record was refused, and at which revision it was written.
type Writing = (&'static str, i64);

/// How new a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// The record was not refused before, or for another reason.
    Reason,
    /// It was written anew, and is refused for the same reason.
    Writing,
    /// It was seen before, just so.
    Nothing,
    /// It is one of those that are not remembered.
    Unnamed(Unnamed),
}

/// What is known of a record that is not remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unnamed {
    /// Whether it is the first since the last list, and there were none in it. What is in a list is told when it is finished.
    pub(super) first: bool,
    /// Whether there are more of them than ever since the list before.
    pub(super) more: bool,
}

/// Records that are only counted.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Since the last list began.
    pub(super) count: usize,
    /// The key of the first of them, after the prefix; its beginning if it is long.
    pub(super) first: String,
    /// Most that were known at once since the list before that.
    most: usize,
}

impl Rest {
    fn add(&mut self, key: &str, listing: bool) -> Unnamed {
        if self.count == 0 {
            self.first = key.chars().take(KEY_SHOWN).collect();
        }
        self.count += 1;
        let more = self.count > self.most;
        self.most = self.most.max(self.count);
        Unnamed {
            first: self.count == 1 && !listing,
            more,
        }
    }
}

impl Untaken {
    /// The keys of the refused records that are remembered.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &str> {
        self.refused.keys().map(String::as_str)
    }

    /// How many records are refused as they stand. While a list is being read, those that it may still tell of count.
    pub(crate) fn refused_count(&self) -> usize {
        let known = self.known.keys();
        let untold = known.filter(|key| !self.refused.contains_key(*key)).count();
        self.refused.len() + untold + self.refused_unnamed.count
    }

    /// The keys of the records over the limits that are remembered.
    pub(crate) fn over(&self) -> impl Iterator<Item = &str> {
        self.over.iter().map(String::as_str)
    }

    /// How many records are over the limits.
    pub(crate) fn over_count(&self) -> usize {
        self.over.len() + self.over_unnamed
    }

    /// The refused records that are not remembered.
    pub(super) fn refused_unnamed(&self) -> &Rest {
        &self.refused_unnamed
    }

    /// The records under keys that are too long. Such keys name nothing, so no silence depends on them.
    pub(super) fn long_keys(&self) -> &Rest {
        &self.long_keys
    }

    /// Whether there are records that are not remembered by their keys.
    pub(crate) fn has_unnamed(&self) -> bool {
        self.over_unnamed > 0 || self.refused_unnamed.count > 0
    }

    /// Whether some of it was taken, or is gone, since the last list began.
    pub(super) fn is_resolved(&self) -> bool {
        self.resolved
    }

    /// A record was refused.
    pub(super) fn refuse(&mut self, key: &str, entry: &Entry, reason: &'static str) -> News {
        self.resolved |= self.over.remove(key);
        let revision = entry.mod_revision;
        let before = self.refused.get(key).or_else(|| self.known.get(key));
        let before = before.copied();
        if self.refused.contains_key(key) || self.refused.len() < REFUSED_MAX {
            self.refused.insert(key.to_owned(), (reason, revision));
        } else {
            let unnamed = self.refused_unnamed.add(key, self.listing);
            return News::Unnamed(unnamed);
        }
        match before {
            Some((known, at)) if known == reason && at == revision => News::Nothing,
            Some((known, _)) if known == reason => News::Writing,
            Some(_) | None => News::Reason,
        }
    }

    /// A record was not looked at since its key is too long.
    pub(super) fn refuse_long_key(&mut self, key: &str) -> Unnamed {
        self.long_keys.add(key, self.listing)
    }

    /// A record was not taken because the peer exceeds its limits.
    pub(super) fn exceed(&mut self, key: &str) {
        if self.over.len() < OVER_MAX || self.over.contains(key) {
            self.over.insert(key.to_owned());
        } else {
            self.over_unnamed += 1;
        }
    }

    /// A record was taken.
    pub(super) fn taken(&mut self, key: &str) {
        self.forget(key);
    }

    /// A record is gone; whether it was over the limits, as far as is remembered.
    pub(super) fn gone(&mut self, key: &str) -> bool {
        let (named, over) = self.forget(key);
        self.resolved |= !named && self.has_unnamed();
        over
    }

    fn forget(&mut self, key: &str) -> (bool, bool) {
        self.known.remove(key);
        let (refused, over) = (self.refused.remove(key).is_some(), self.over.remove(key));
        let named = refused || over;
        self.resolved |= named;
        (named, over)
    }

    /// A list begins: it tells anew what is not taken.
    pub(super) fn begin_list(&mut self) {
        // A list that was not finished has told of some only.
        let earlier = std::mem::replace(&mut self.known, std::mem::take(&mut self.refused));
        for (key, writing) in earlier {
            if self.known.len() < 2 * REFUSED_MAX {
                self.known.entry(key).or_insert(writing);
            }
        }
        self.refused_unnamed.count = 0;
        self.long_keys.count = 0;
        self.over.clear();
        self.over_unnamed = 0;
        self.resolved = false;
        self.listing = true;
    }

    /// A list is finished: what it did not tell is not there any more.
    pub(super) fn end_list(&mut self) {
        self.listing = false;
        self.known.clear();
        for rest in [&mut self.refused_unnamed, &mut self.long_keys] {
            rest.most = rest.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(revision: i64) -> Entry {
        Entry {
            key: String::new(),
            value: Vec::new(),
            create_revision: 1,
            mod_revision: revision,
            lease: None,
        }
    }

    fn unnamed(first: bool, more: bool) -> News {
        News::Unnamed(Unnamed { first, more })
    }

    #[test]
    fn a_refusal_is_news_once_for_each_reason_and_writing() {
        let mut untaken = Untaken::default();

        assert_eq!(untaken.refuse("a", &written(1), "One"), News::Reason);
        assert_eq!(untaken.refuse("a", &written(1), "One"), News::Nothing);
        assert_eq!(untaken.refuse("a", &written(2), "One"), News::Writing);
        assert_eq!(untaken.refuse("a", &written(3), "Two"), News::Reason);
        untaken.taken("a");
        assert_eq!(untaken.refuse("a", &written(5), "Two"), News::Reason);
    }

    #[test]
    fn beyond_what_is_remembered_refusals_are_counted_once_and_told_together() {
        let mut untaken = Untaken::default();
        let list = |untaken: &mut Untaken, records: usize| {
            untaken.begin_list();
            let refuse = |number| untaken.refuse(&format!("key-{number:05}"), &written(1), "One");
            let news: Vec<_> = (0..records).map(refuse).collect();
            untaken.end_list();
            news
        };

        let first = list(&mut untaken, REFUSED_MAX + 3);
        let second = list(&mut untaken, REFUSED_MAX + 4);
        let later = untaken.refuse("later", &written(9), "One");
        list(&mut untaken, REFUSED_MAX);
        let alone = untaken.refuse("later", &written(9), "One");

        assert_eq!(first[REFUSED_MAX..], [unnamed(false, true); 3]);
        assert_eq!(second[..REFUSED_MAX], [News::Nothing; REFUSED_MAX]);
        let again = [false, false, false, true].map(|more| unnamed(false, more));
        assert_eq!(second[REFUSED_MAX..], again);
        assert_eq!(later, unnamed(false, true), "the list told of some");
        assert_eq!(alone, unnamed(true, true));
        assert_eq!(untaken.refused_unnamed().first, "later");
    }

    #[test]
    fn a_list_makes_room_for_the_names_of_others() {
        let mut untaken = Untaken::default();
        for number in 0..=REFUSED_MAX {
            untaken.refuse(&format!("key-{number:05}"), &written(1), "One");
        }
        assert!(untaken.has_unnamed() && !untaken.is_resolved());

        untaken.gone("key-00000");
        assert!(untaken.is_resolved(), "a list would tell more");
        untaken.begin_list();
        for number in 1..=REFUSED_MAX {
            untaken.refuse(&format!("key-{number:05}"), &written(1), "One");
        }
        untaken.end_list();

        assert!(!untaken.has_unnamed() && !untaken.is_resolved());
        assert!(
            untaken
                .refused()
                .any(|key| key == format!("key-{REFUSED_MAX:05}"))
        );
    }

    #[test]
    fn lists_that_are_never_finished_fill_no_memory() {
        let mut untaken = Untaken::default();

        for list in 0..5 {
            untaken.begin_list();
            for number in 0..REFUSED_MAX {
                untaken.refuse(&format!("key-{list}-{number}"), &written(1), "One");
                untaken.exceed(&format!("over-{list}-{number}"));
                untaken.exceed(&format!("more-{list}-{number}"));
            }
        }

        assert_eq!(untaken.known.len(), 2 * REFUSED_MAX);
        assert_eq!(untaken.over().count(), OVER_MAX);
        assert_eq!(untaken.over_count(), 2 * OVER_MAX);
    }
}
