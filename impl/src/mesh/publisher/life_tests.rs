//! The order in which a publisher writes when it begins, and what it leaves when it stops.

use prometheus_client::registry::Registry;
use tombolo_core::wire::key::Resource;

use super::{
    testkit::{
        CONFIG, EXPORT, Running, SERVICE, absent, all_canaries, assert_order, canary, entry,
        on_both_stores, options, present,
    },
    *,
};
use crate::{
    kvstore::testing::{Etcd, Memory, Subject, eventually},
    telemetry::health::Health,
};

on_both_stores!(
    records_come_before_configuration_and_canaries,
    stopping_withdraws_nothing_and_the_next_life_takes_over,
    without_the_kind_of_exports_services_are_published,
);

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
