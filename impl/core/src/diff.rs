//! Diff: the changes that turn what is into what should be. One shape for stored keys, API objects and kernel maps.
//!
//! It compares and borrows; it must never order or perform the changes, which is the business of whoever applies them.

use std::{cmp::Ordering, collections::BTreeMap};

/// What should be, by key.
#[derive(Debug)]
pub struct Desired<'a, K, V>(pub &'a BTreeMap<K, V>);

/// What is, by key.
#[derive(Debug)]
pub struct Actual<'a, K, V>(pub &'a BTreeMap<K, V>);

/// One thing to do for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a, V> {
    /// It is missing.
    Create(&'a V),
    /// It is different.
    Update {
        /// What is.
        from: &'a V,
        /// What should be.
        to: &'a V,
    },
    /// It should not be.
    Delete(&'a V),
}

/// Changes by key; a key that is as it should be has none.
pub type Changes<'a, K, V> = BTreeMap<&'a K, Change<'a, V>>;

/// The changes that turn `actual` into `desired`; empty exactly when they are equal.
///
/// ```
/// use std::collections::BTreeMap;
/// use tombolo_core::diff::{Actual, Change, Desired, diff};
/// let desired = BTreeMap::from([("a", 1), ("b", 2)]);
/// let actual = BTreeMap::from([("b", 3), ("c", 4)]);
///
/// let changes = diff(Desired(&desired), Actual(&actual));
///
/// assert_eq!(changes[&"a"], Change::Create(&1));
/// assert_eq!(changes[&"b"], Change::Update { from: &3, to: &2 });
/// assert_eq!(changes[&"c"], Change::Delete(&4));
/// ```
pub fn diff<'a, K: Ord, V: PartialEq>(
    desired: Desired<'a, K, V>,
    actual: Actual<'a, K, V>,
) -> Changes<'a, K, V> {
    let mut wanted = desired.0.iter().peekable();
    let mut present = actual.0.iter().peekable();
    let mut changes = Changes::new();
    loop {
        let order = match (wanted.peek(), present.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((wanted_key, _)), Some((present_key, _))) => wanted_key.cmp(present_key),
        };
        let to = wanted.next_if(|_| order.is_le());
        let from = present.next_if(|_| order.is_ge());
        match (to, from) {
            (Some((key, to)), Some((_, from))) if to != from => {
                changes.insert(key, Change::Update { from, to });
            }
            (Some((key, to)), None) => {
                changes.insert(key, Change::Create(to));
            }
            (None, Some((key, from))) => {
                changes.insert(key, Change::Delete(from));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

/// Performs changes on a map: what every real store must end up with.
pub fn apply<K: Ord + Clone, V: Clone>(changes: &Changes<'_, K, V>, actual: &mut BTreeMap<K, V>) {
    for (&key, change) in changes {
        match change {
            Change::Create(to) | Change::Update { to, .. } => {
                actual.insert(key.clone(), (*to).clone());
            }
            Change::Delete(_) => {
                actual.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_map, prelude::*};

    use super::*;

    #[test]
    fn equal_maps_have_no_changes() {
        let map = BTreeMap::from([("a", 1), ("b", 2)]);

        assert!(diff(Desired(&map), Actual(&map.clone())).is_empty());
    }

    #[test]
    fn an_empty_desired_map_deletes_everything_that_is() {
        let actual = BTreeMap::from([("a", 1), ("b", 2)]);

        let desired = BTreeMap::new();
        let changes = diff(Desired(&desired), Actual(&actual));

        assert_eq!(changes.len(), 2);
        assert!(
            changes
                .values()
                .all(|change| matches!(change, Change::Delete(_)))
        );
    }

    proptest! {
        #[test]
        fn applying_the_diff_yields_what_is_desired(
            actual in btree_map(0u8..20, 0u8..3, 0..20),
            desired in btree_map(0u8..20, 0u8..3, 0..20),
        ) {
            let mut store = actual.clone();

            apply(&diff(Desired(&desired), Actual(&actual)), &mut store);

            prop_assert_eq!(&store, &desired);
            prop_assert!(diff(Desired(&desired), Actual(&store)).is_empty());
        }

        #[test]
        fn only_keys_that_differ_have_changes(
            actual in btree_map(0u8..20, 0u8..3, 0..20),
            desired in btree_map(0u8..20, 0u8..3, 0..20),
        ) {
            let changes = diff(Desired(&desired), Actual(&actual));

            for key in 0u8..20 {
                prop_assert_eq!(changes.contains_key(&key), actual.get(&key) != desired.get(&key));
            }
        }
    }
}
