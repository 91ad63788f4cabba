//! For tests: a publisher at work on a store, the objects that it is shown, and what becomes of its keys.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::wire::key::{Resource, canary_key};

use super::{
    caches::{on_named, on_slice},
    *,
};
use crate::{
    cluster::cache::{Cache, Cached},
    kvstore::{Entry, testing::eventually},
};

pub(super) const SERVICE: &str = "cilium/state/services/v1/paris/shop/cart";
pub(super) const EXPORT: &str = "cilium/state/serviceexports/v1/paris/shop/cart";
pub(super) const CONFIG: &str = "cilium/cluster-config/paris";

pub(super) fn options() -> Options {
    Options {
        publishing: Publishing {
            cluster: "paris".try_into().unwrap(),
            id: 7.try_into().unwrap(),
            default_global_namespace: true,
        },
        max_connected_clusters: 255,
        // No lease ends by itself, however busy the machine is.
        lease_ttl: Duration::from_mins(15),
        metrics: Metrics::default(),
        view: View::default(),
        gate: None,
    }
}

pub(super) fn canary(resource: Resource) -> String {
    canary_key(&"paris".try_into().unwrap(), resource, false)
}

/// A publisher at work on a store.
pub(super) struct Running<S> {
    pub(super) publisher: Arc<Publisher<S>>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl<S: KvStore> Running<S> {
    pub(super) fn start(store: S) -> Self {
        Self::start_with(store, options())
    }

    pub(super) fn start_with(store: S, options: Options) -> Self {
        let publisher = Arc::new(Publisher::new(store, options));
        let cancel = CancellationToken::new();
        let task = tokio::spawn({
            let (publisher, cancel) = (Arc::clone(&publisher), cancel.clone());
            async move { publisher.run(&cancel).await }
        });
        Self {
            publisher,
            cancel,
            task,
        }
    }

    pub(super) async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }

    /// The API server's lists end, with one exported, global Service with one endpoint in them.
    pub(super) fn list_all(&self) {
        self.list_exports();
        self.list_services();
    }

    pub(super) fn list_exports(&self) {
        let caches = &self.publisher.caches;
        list(&caches.exports, export());
        self.set_exports_dirty();
    }

    pub(super) fn list_services(&self) {
        let caches = &self.publisher.caches;
        list(&caches.namespaces, namespace("1", "true"));
        list(&caches.slices, slice("1", "10.1.0.1"));
        list(&caches.services, service());
    }

    fn set_exports_dirty(&self) {
        self.publisher.queue.add("shop/cart".to_owned());
    }

    pub(super) fn set_slice(&self, slice: EndpointSlice) {
        let dirty = &self.publisher.queue;
        let cache = &self.publisher.caches.slices;
        cache.set(Arc::new(slice), &|change| on_slice(&change, dirty));
    }

    pub(super) fn set_namespace(&self, namespace: Namespace) {
        let (caches, dirty) = (&self.publisher.caches, &self.publisher.queue);
        caches.namespaces.set(Arc::new(namespace), &|change| {
            caches.on_namespace(&change, dirty);
        });
    }

    pub(super) fn remove_export(&self) {
        let dirty = &self.publisher.queue;
        let key = ("shop".to_owned(), "cart".to_owned());
        let cache = &self.publisher.caches.exports;
        cache.remove(&key, &|change| on_named(&change, dirty));
    }

    /// Whether nothing is left to do.
    pub(super) fn at_rest(&self) -> bool {
        self.publisher.queue.is_empty() && self.publisher.state().listed
    }
}

fn list<K: Cached>(cache: &Cache<K>, object: K) {
    let metadata = object.meta();
    let key = (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    );
    cache.relist(BTreeMap::from([(key, Arc::new(object))]), &|_| {});
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn namespace(version: &str, global: &str) -> Namespace {
    object(json!({"metadata": {
        "name": "shop", "resourceVersion": version,
        "annotations": {"clustermesh.cilium.io/global": global},
    }}))
}

fn service() -> Service {
    object(json!({
        "metadata": {
            "namespace": "shop", "name": "cart", "resourceVersion": "1",
            "annotations": {"service.cilium.io/global": "true"},
        },
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80}]},
    }))
}

fn export() -> ServiceExport {
    object(json!({"metadata": {
        "namespace": "shop", "name": "cart", "resourceVersion": "1",
        "creationTimestamp": "2026-03-04T09:10:11Z",
    }}))
}

pub(super) fn slice(version: &str, address: &str) -> EndpointSlice {
    object(json!({
        "metadata": {
            "namespace": "shop", "name": "cart-1", "resourceVersion": version,
            "labels": {"kubernetes.io/service-name": "cart"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "http", "port": 8080}],
    }))
}

pub(super) async fn entry(store: &impl KvStore, key: &str) -> Option<Entry> {
    store.get(key).await.ok()?.entry
}

pub(super) async fn present(store: &impl KvStore, key: &str) {
    eventually(&format!("{key} is there"), async || {
        entry(store, key).await.is_some()
    })
    .await;
}

pub(super) async fn absent(store: &impl KvStore, key: &str) {
    eventually(&format!("{key} is gone"), async || {
        store.get(key).await.is_ok_and(|read| read.entry.is_none())
    })
    .await;
}

pub(super) async fn contains(store: &impl KvStore, key: &str, text: &str) {
    eventually(&format!("{key} contains {text}"), async || {
        entry(store, key)
            .await
            .is_some_and(|entry| String::from_utf8_lossy(&entry.value).contains(text))
    })
    .await;
}

pub(super) async fn all_canaries(store: &impl KvStore) {
    for resource in Resource::ALL {
        present(store, &canary(resource)).await;
    }
}

/// Records before configuration, configuration before canaries, everything on a lease.
pub(super) async fn assert_order(store: &impl KvStore) {
    let read = async |key: &str| {
        entry(store, key)
            .await
            .unwrap_or_else(|| panic!("{key} is missing"))
    };
    let records = [read(SERVICE).await, read(EXPORT).await];
    let config = read(CONFIG).await;
    for record in &records {
        assert!(record.lease.is_some());
        assert!(
            record.create_revision < config.create_revision,
            "{}",
            record.key
        );
    }
    assert!(config.lease.is_some());
    for resource in Resource::ALL {
        let canary = read(&canary(resource)).await;
        assert!(canary.lease.is_some());
        assert_ne!(
            canary.lease, config.lease,
            "canaries have a lease of their own"
        );
        assert!(
            canary.create_revision > config.create_revision,
            "{}",
            canary.key
        );
    }
}

macro_rules! on_both_stores {
    ($($case:ident),+ $(,)?) => {
        mod on_memory {
            use super::*;
            $(#[tokio::test]
            async fn $case() {
                super::$case(Memory::start().await).await;
            })+
        }

        mod on_etcd {
            use super::*;
            $(#[tokio::test]
            async fn $case() {
                super::$case(Etcd::start().await).await;
            })+
        }
    };
}

pub(super) use on_both_stores;
