use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::wire::key::{Resource, canary_key};

use super::{
    caches::{on_named, on_slice},
    metrics::KeyKind,
    *,
};
use crate::{
    cluster::cache::{Cache, Cached},
    kvstore::{
        Entry,
        testing::{Etcd, Memory, Subject, eventually},
    },
    telemetry::health::Health,
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
        lease_ttl: Duration::from_secs(10),
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
    publisher: Arc<Publisher<S>>,
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

    fn list_exports(&self) {
        let caches = &self.publisher.caches;
        list(&caches.exports, export());
        self.set_exports_dirty();
    }

    fn list_services(&self) {
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

    fn set_namespace(&self, namespace: Namespace) {
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
    fn at_rest(&self) -> bool {
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

fn namespace(version: &str, global: &str) -> Namespace {
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

async fn records_come_before_configuration_and_canaries<S: Subject>(subject: S) {
    let store = subject.store();
    let running = Running::start(subject.store());

    running.list_all();

    all_canaries(&store).await;
    assert_order(&store).await;
    present(&store, HEARTBEAT).await;
    let config = entry(&store, CONFIG).await.unwrap();
    assert_eq!(
        String::from_utf8(config.value).unwrap(),
        r#"{"id":7,"capabilities":{"syncedCanaries":true,"maxConnectedClusters":255,"serviceExportsEnabled":true}}"#
    );
    running.stop().await;
}

async fn stopping_withdraws_nothing_and_the_next_life_takes_over<S: Subject>(subject: S) {
    let store = subject.store();
    let first = Running::start(subject.store());
    first.list_all();
    all_canaries(&store).await;
    let before = entry(&store, SERVICE).await.unwrap();
    first.stop().await;
    let stale = "cilium/state/services/v1/paris/shop/stale";
    store.put(stale, b"{}".to_vec(), None).await.unwrap();

    let second = Running::start(subject.store());

    // As long as the API server was not listed, everything is taken over and nothing judged.
    eventually("the record hangs on a new lease", async || {
        entry(&store, SERVICE)
            .await
            .is_some_and(|entry| entry.lease != before.lease)
    })
    .await;
    eventually("the stale key hangs on a lease", async || {
        entry(&store, stale)
            .await
            .is_some_and(|entry| entry.lease.is_some())
    })
    .await;
    second.list_all();
    absent(&store, stale).await;
    assert_eq!(entry(&store, SERVICE).await.unwrap().value, before.value);
    assert!(entry(&store, EXPORT).await.is_some());
    second.stop().await;
}

async fn without_the_kind_of_exports_services_are_published<S: Subject>(subject: S) {
    let store = subject.store();
    let health = Health::new(Registry::default());
    let options = Options {
        gate: Some(health.gate("published")),
        ..options()
    };
    let running = Running::start_with(subject.store(), options);

    running.list_services();
    present(&store, SERVICE).await;
    present(&store, &canary(Resource::Services)).await;
    eventually("the publisher rests", async || running.at_rest()).await;
    assert!(
        entry(&store, &canary(Resource::ServiceExports))
            .await
            .is_none()
    );
    assert!(entry(&store, EXPORT).await.is_none());
    eventually("it is ready", async || health.closed().is_empty()).await;

    running.list_exports();
    present(&store, &canary(Resource::ServiceExports)).await;
    let export = entry(&store, EXPORT).await.unwrap();
    let canary = entry(&store, &canary(Resource::ServiceExports))
        .await
        .unwrap();
    assert!(export.mod_revision < canary.create_revision);
    running.stop().await;
    assert_eq!(health.closed(), ["published"]);
}

async fn changes_of_objects_reach_the_store_and_nothing_else_is_written<S: Subject>(subject: S) {
    let store = subject.store();
    let running = Running::start(subject.store());
    running.list_all();
    all_canaries(&store).await;
    let metrics = running.publisher.options.metrics.clone();
    let puts = metrics.put_count(KeyKind::Service);

    running.set_slice(slice("2", "10.1.0.2"));
    contains(&store, SERVICE, "10.1.0.2").await;
    running.set_slice(slice("3", "10.1.0.2"));
    eventually("the publisher rests", async || running.at_rest()).await;
    assert_eq!(metrics.put_count(KeyKind::Service), puts + 1);

    running.set_namespace(namespace("2", "false"));
    absent(&store, SERVICE).await;
    absent(&store, EXPORT).await;
    running.set_namespace(namespace("3", "true"));
    present(&store, SERVICE).await;
    present(&store, EXPORT).await;

    running.remove_export();
    absent(&store, EXPORT).await;
    assert!(entry(&store, SERVICE).await.is_some());
    assert_eq!(metrics.delete_count(KeyKind::ServiceExport), 2);
    running.stop().await;
}

async fn slices_that_the_mesh_made_are_not_published<S: Subject>(subject: S) {
    let store = subject.store();
    let running = Running::start(subject.store());
    running.list_all();
    all_canaries(&store).await;
    let mut imported = slice("2", "10.2.0.1");
    imported.metadata.name = Some("cart-remote".to_owned());
    let labels = imported.metadata.labels.as_mut().unwrap();
    labels.insert(
        "endpointslice.kubernetes.io/managed-by".to_owned(),
        "endpointslice-mesh-controller.cilium.io".to_owned(),
    );

    running.set_slice(imported);
    running.set_slice(slice("3", "10.1.0.3"));

    contains(&store, SERVICE, "10.1.0.3").await;
    let value = entry(&store, SERVICE).await.unwrap().value;
    assert!(!String::from_utf8(value).unwrap().contains("10.2.0.1"));
    running.stop().await;
}

async fn what_others_did_to_own_keys_is_put_right<S: Subject>(subject: S) {
    let store = subject.store();
    let running = Running::start(subject.store());
    running.list_all();
    all_canaries(&store).await;

    for key in [SERVICE, EXPORT, CONFIG, &canary(Resource::Services)] {
        let before = entry(&store, key).await.unwrap();
        store.delete(key).await.unwrap();
        present(&store, key).await;

        store.put(key, b"spoilt".to_vec(), None).await.unwrap();
        eventually(&format!("{key} is mended"), async || {
            entry(&store, key)
                .await
                .is_some_and(|entry| entry.value != b"spoilt" && entry.lease.is_some())
        })
        .await;
        if key != canary(Resource::Services) {
            assert_eq!(entry(&store, key).await.unwrap().value, before.value);
        }
    }
    let foreign = "cilium/state/services/v1/paris/shop/foreign";
    store.put(foreign, b"{}".to_vec(), None).await.unwrap();
    absent(&store, foreign).await;
    running.stop().await;
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

on_both_stores!(
    records_come_before_configuration_and_canaries,
    stopping_withdraws_nothing_and_the_next_life_takes_over,
    without_the_kind_of_exports_services_are_published,
    changes_of_objects_reach_the_store_and_nothing_else_is_written,
    slices_that_the_mesh_made_are_not_published,
    what_others_did_to_own_keys_is_put_right,
);
