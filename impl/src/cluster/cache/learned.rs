//! What writes have answered, in advance of the watch.
//!
//! Without it, whoever looks again right after a write sees the state before it, and writes once more for nothing. It must
//! never keep an object that is gone, nor hide a difference that the watch tells of.

use std::sync::Arc;

use super::{Cache, Cached, ObjectKey, Objects, key_of, without_managed_fields};

/// The state of a cache before a write, for [`Cache::learn`].
#[derive(Debug, Clone, Copy)]
pub struct BeforeWrite {
    lists: u64,
}

impl<K: Cached> Cache<K> {
    /// What [`Self::learn`] needs to know of the time before a write.
    pub fn before_write(&self) -> BeforeWrite {
        let lists = self.read().lists;
        BeforeWrite { lists }
    }

    /// Takes over the state that the answer to a write gives of an object, unless the watch may be past it.
    ///
    /// So the next look sees what was written. Nobody is told: the watch does that when it comes to it, and differences are
    /// those between what the watch tells.
    pub fn learn(&self, before: BeforeWrite, object: K) {
        let object = Arc::new(without_managed_fields(object));
        let mut objects = self.write();
        // A list may have left out an object that is gone again.
        let news = version(&*object).is_some_and(|version| version > objects.told);
        if news && objects.lists == before.lists {
            let key = key_of(object.as_ref());
            let told = objects.last_told(&key);
            objects.behind.insert(key, told);
            objects.replace(self.shared.index, &object);
        }
    }
}

impl<K: Cached> Objects<K> {
    /// Notes up to where the watch has come.
    pub(super) fn tell(&mut self, object: &K) {
        self.told = self.told.max(version(object).unwrap_or_default());
    }

    /// What the watch has told last of an object.
    pub(super) fn last_told(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let known = || self.by_key.get(key).cloned();
        self.behind.get(key).cloned().unwrap_or_else(known)
    }

    /// Whether a later state of an object was learned than the watch tells of now.
    pub(super) fn is_ahead_of(&self, key: &ObjectKey, told: Option<u64>) -> bool {
        let known = self.by_key.get(key).and_then(|known| version(&**known));
        self.behind.contains_key(key) && known > told
    }
}

/// The version of an object; versions of one kind can be compared (Kubernetes, KEP-5504).
pub(super) fn version<K: Cached>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}
