//! Two publishers of one cluster on one store.

use futures::StreamExt;
use tombolo_core::wire::key::Resource;

use super::{
    testkit::{
        CONFIG, EXPORT, Running, SERVICE, absent, all_canaries, canary, contains, entry,
        on_both_stores, present, slice,
    },
    *,
};
use crate::kvstore::{
    Entry, LeaseId, Scope,
    testing::{Etcd, Memory, Subject, eventually},
};

on_both_stores!(
    two_publishers_leave_what_the_other_has_written_alike,
    what_went_with_the_lease_of_another_publisher_comes_back_before_new_canaries,
    a_configuration_that_was_anothers_comes_back_before_new_canaries,
);

/// How long nothing may be written to count as rest: some hundred writes of two that fight.
const REST: Duration = Duration::from_millis(500);

async fn at_rest(store: &impl KvStore) {
    eventually("nothing is written any more", async || {
        let scope = Scope::Prefix("cilium/".to_owned());
        let mut watch = store.watch(&scope, 0).await.unwrap();
        tokio::time::timeout(REST, watch.next()).await.is_err()
    })
    .await;
}

async fn lease(store: &impl KvStore, key: &str) -> Option<LeaseId> {
    entry(store, key).await.and_then(|entry| entry.lease)
}

async fn two_publishers_leave_what_the_other_has_written_alike<S: Subject>(subject: S) {
    let store = subject.store();
    let both = [
        Running::start(subject.store()),
        Running::start(subject.store()),
    ];
    for one in &both {
        one.list_all();
    }

    all_canaries(&store).await;
    at_rest(&store).await;
    for one in &both {
        one.set_slice(slice("2", "10.1.0.2"));
    }
    contains(&store, SERVICE, "10.1.0.2").await;
    at_rest(&store).await;
    for one in &both {
        one.remove_export();
    }
    absent(&store, EXPORT).await;
    at_rest(&store).await;

    for one in both {
        one.stop().await;
    }
    all_canaries(&store).await;
}

/// Two publishers of one cluster, of which the second wrote the records last, and a canary of that time.
async fn two_at_rest<S: Subject>(subject: &S) -> (Running<S::Store>, Running<S::Store>, Entry) {
    let store = subject.store();
    let first = Running::start(subject.store());
    first.list_all();
    all_canaries(&store).await;
    let of_first = lease(&store, SERVICE).await;
    let second = Running::start(subject.store());
    second.list_all();
    eventually("the second has written the record", async || {
        let lease = lease(&store, SERVICE).await;
        lease.is_some() && lease != of_first
    })
    .await;
    at_rest(&store).await;
    let before = entry(&store, &canary(Resource::Services)).await.unwrap();
    (first, second, before)
}

/// Waits for canaries that were written after all of these keys, on another lease than that one.
async fn new_canaries<S: KvStore>(store: &S, before: &Entry, keys: &[&str]) {
    for resource in Resource::ALL {
        let key = canary(resource);
        eventually("the canary comes after the records", async || {
            let mut last = 0;
            for key in keys {
                last = last.max(
                    entry(store, key)
                        .await
                        .map_or(i64::MAX, |it| it.mod_revision),
                );
            }
            let canary = entry(store, &key).await;
            canary.is_some_and(|it| it.mod_revision > last && it.lease != before.lease)
        })
        .await;
    }
}

async fn what_went_with_the_lease_of_another_publisher_comes_back_before_new_canaries<
    S: Subject,
>(
    subject: S,
) {
    let store = subject.store();
    let (first, second, before) = two_at_rest(&subject).await;
    let of_second = lease(&store, SERVICE).await.unwrap();

    second.stop().await;
    store.revoke(of_second).await.unwrap();

    present(&store, SERVICE).await;
    present(&store, EXPORT).await;
    new_canaries(&store, &before, &[SERVICE, EXPORT]).await;
    at_rest(&store).await;
    first.stop().await;
}

/// Nobody who lives deletes it.
async fn a_configuration_that_was_anothers_comes_back_before_new_canaries<S: Subject>(subject: S) {
    let store = subject.store();
    let (first, second, before) = two_at_rest(&subject).await;

    second.stop().await;
    store.delete(CONFIG).await.unwrap();

    new_canaries(&store, &before, &[CONFIG]).await;
    at_rest(&store).await;
    first.stop().await;
}
