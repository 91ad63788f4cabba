//! What changes of objects, and of the own keys by others, make of the records.

use tombolo_core::wire::key::Resource;

use super::{
    metrics::KeyKind,
    testkit::{
        CONFIG, EXPORT, Running, SERVICE, absent, all_canaries, canary, contains, entry, namespace,
        on_both_stores, present, slice,
    },
    *,
};
use crate::kvstore::testing::{Etcd, Memory, Subject, eventually};

on_both_stores!(
    changes_of_objects_reach_the_store_and_nothing_else_is_written,
    slices_that_the_mesh_made_are_not_published,
    what_others_did_to_own_keys_is_put_right,
);

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
    eventually("the publisher rests again", async || running.at_rest()).await;
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
