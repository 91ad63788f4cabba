//! A cache of all objects of one kind, kept by a watch, with one secondary index.
//!
//! Never empties itself: while the API server is away the last known objects stay, and the next complete list is
//! compared with them. Every difference reaches the change callback exactly once, after the cache holds it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::{debug, warn};

mod backoff;
mod learned;

use super::client::watching;
use backoff::WatchBackoff;
pub use backoff::{WATCH_RETRY_FIRST, WATCH_RETRY_MAX};
pub use learned::BeforeWrite;
use learned::version;

/// Namespace (empty for cluster-scoped kinds) and name of an object.
pub type ObjectKey = (String, String);

/// Gives the key under which an object is found by [`Cache::indexed`].
pub type IndexFn<K> = fn(&K) -> Option<String>;

/// What the API server must know of a kind to be cached.
pub trait Cached:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// A cache of all objects of one kind. Cloning gives another handle on the same cache.
#[derive(Debug)]
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K> {
    objects: RwLock<Objects<K>>,
    synced: watch::Sender<bool>,
    index: IndexFn<K>,
}

#[derive(Debug)]
struct Objects<K> {
    by_key: BTreeMap<ObjectKey, Arc<K>>,
    by_index: BTreeMap<(String, String), BTreeSet<String>>,
    /// What the watch has told of objects of which a later state was learned.
    behind: BTreeMap<ObjectKey, Option<Arc<K>>>,
    /// The greatest version that the watch has told of.
    told: u64,
    /// How many lists there were.
    lists: u64,
}

/// One difference: what was there before and what is there now. At least one of the two is present.
#[derive(Debug)]
pub struct Difference<'a, K> {
    /// The object before, unless it is new.
    pub old: Option<&'a K>,
    /// The object now, unless it is gone.
    pub new: Option<&'a K>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Cached> Cache<K> {
    /// An empty cache. It fills while [`Self::run`] is running.
    pub fn new(index: IndexFn<K>) -> Self {
        let objects = Objects {
            by_key: BTreeMap::new(),
            by_index: BTreeMap::new(),
            behind: BTreeMap::new(),
            told: 0,
            lists: 0,
        };
        let shared = Shared {
            objects: RwLock::new(objects),
            synced: watch::Sender::new(false),
            index,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// An empty cache without a secondary index.
    pub fn unindexed() -> Self {
        Self::new(|_| None)
    }

    /// Lists and watches until the future is dropped; each difference is handed to `on_change` after the cache holds it.
    ///
    /// Failures are retried for ever, and logged when they begin or change.
    pub async fn run(&self, api: Api<K>, on_change: impl Fn(Difference<'_, K>) + Send + Sync) {
        let events = watcher(api, watching()).backoff(WatchBackoff::default());
        pin_mut!(events);
        let mut listing = BTreeMap::new();
        let mut failing = String::new();
        while let Some(event) = events.next().await {
            if matches!(event, Ok(ref event) if !matches!(event, watcher::Event::Init)) {
                failing.clear();
            }
            match event {
                Ok(watcher::Event::Init) => listing.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    listing.insert(key_of(&object), Arc::new(without_managed_fields(object)));
                }
                Ok(watcher::Event::InitDone) => {
                    self.relist(std::mem::take(&mut listing), &on_change);
                    debug!(kind = %K::kind(&()), objects = self.len(), "listed");
                }
                Ok(watcher::Event::Apply(object)) => {
                    self.set(Arc::new(without_managed_fields(object)), &on_change);
                }
                Ok(watcher::Event::Delete(object)) => {
                    self.write().tell(&object);
                    self.remove(&key_of(&object), &on_change);
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != failing {
                        warn!(kind = %K::kind(&()), %error, "cannot watch; keeping what is known and trying again");
                        failing = text;
                    }
                }
            }
        }
    }

    /// Replaces everything by a complete list, reporting the differences. Fed by [`Self::run`]; public for tests.
    pub fn relist(
        &self,
        listing: BTreeMap<ObjectKey, Arc<K>>,
        on_change: &impl Fn(Difference<'_, K>),
    ) {
        let old = {
            let mut objects = self.write();
            objects.by_index.clear();
            objects.lists += 1;
            for (key, object) in &listing {
                objects.tell(object.as_ref());
                objects.insert_index(self.shared.index, key, object);
            }
            let behind = std::mem::take(&mut objects.behind);
            let mut old = std::mem::replace(&mut objects.by_key, listing.clone());
            for (key, told) in behind {
                match told {
                    Some(told) => old.insert(key, told),
                    None => old.remove(&key),
                };
            }
            old
        };
        self.shared.synced.send_replace(true);
        for (key, new) in &listing {
            let before = old.get(key);
            if before.is_none_or(|before| before.resource_version() != new.resource_version()) {
                on_change(Difference {
                    old: before.map(AsRef::as_ref),
                    new: Some(new),
                });
            }
        }
        for (_, gone) in old.iter().filter(|(key, _)| !listing.contains_key(*key)) {
            on_change(Difference {
                old: Some(gone),
                new: None,
            });
        }
    }

    /// Sets one object, unless a later state of it was learned. Fed by [`Self::run`]; public for tests.
    pub fn set(&self, object: Arc<K>, on_change: &impl Fn(Difference<'_, K>)) {
        let old = {
            let mut objects = self.write();
            objects.tell(object.as_ref());
            let key = key_of(object.as_ref());
            let old = objects.last_told(&key);
            if objects.is_ahead_of(&key, version(&*object)) {
                objects.behind.insert(key, Some(Arc::clone(&object)));
            } else {
                objects.behind.remove(&key);
                objects.replace(self.shared.index, &object);
            }
            old
        };
        on_change(Difference {
            old: old.as_deref(),
            new: Some(&object),
        });
    }

    /// Removes one object. Fed by [`Self::run`]; public for tests.
    pub fn remove(&self, key: &ObjectKey, on_change: &impl Fn(Difference<'_, K>)) {
        let old = {
            let mut objects = self.write();
            let old = objects.last_told(key);
            let told = objects.told;
            if objects.is_ahead_of(key, Some(told)) {
                objects.behind.insert(key.clone(), None);
            } else {
                objects.behind.remove(key);
                objects.drop_object(self.shared.index, key);
            }
            old
        };
        if let Some(old) = &old {
            on_change(Difference {
                old: Some(old),
                new: None,
            });
        }
    }

    /// The object of this namespace and name; for cluster-scoped kinds the namespace is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read()
            .by_key
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// The objects of a namespace whose index key is `key`, ordered by name.
    pub fn indexed(&self, namespace: &str, key: &str) -> Vec<Arc<K>> {
        let objects = self.read();
        let names = objects
            .by_index
            .get(&(namespace.to_owned(), key.to_owned()));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| {
                objects
                    .by_key
                    .get(&(namespace.to_owned(), name.clone()))
                    .cloned()
            })
            .collect()
    }

    /// All objects of a namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = (namespace.to_owned(), String::new());
        let objects = self.read();
        let range = objects.by_key.range(first..);
        range
            .take_while(|((of, _), _)| of == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// All objects, ordered by namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().by_key.values().cloned().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a complete list was seen since the start.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits for the first complete list.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.shared
            .objects
            .read()
            .expect("no code panics while it holds the cache")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.shared
            .objects
            .write()
            .expect("no code panics while it holds the cache")
    }
}

impl<K: Cached> Objects<K> {
    fn replace(&mut self, index: IndexFn<K>, object: &Arc<K>) {
        let key = key_of(object.as_ref());
        self.drop_object(index, &key);
        self.insert_index(index, &key, object);
        self.by_key.insert(key, Arc::clone(object));
    }

    fn drop_object(&mut self, index: IndexFn<K>, key: &ObjectKey) {
        if let Some(old) = self.by_key.remove(key) {
            self.remove_index(index, key, &old);
        }
    }

    fn insert_index(&mut self, index: IndexFn<K>, key: &ObjectKey, object: &K) {
        if let Some(index_key) = index(object) {
            self.by_index
                .entry((key.0.clone(), index_key))
                .or_default()
                .insert(key.1.clone());
        }
    }

    fn remove_index(&mut self, index: IndexFn<K>, key: &ObjectKey, object: &K) {
        let Some(index_key) = index(object) else {
            return;
        };
        let index_key = (key.0.clone(), index_key);
        if let Some(names) = self.by_index.get_mut(&index_key) {
            names.remove(&key.1);
            if names.is_empty() {
                self.by_index.remove(&index_key);
            }
        }
    }
}

fn key_of<K: Cached>(object: &K) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Drops what no reader needs and what makes up much of an object's size.
fn without_managed_fields<K: Cached>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object
}

#[cfg(test)]
use backoff::WATCH_RETRY_RESET;

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
