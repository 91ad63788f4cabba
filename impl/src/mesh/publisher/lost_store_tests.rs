//! What becomes of the records when the store, or a lease, is lost.

use tombolo_core::wire::key::Resource;

use super::{
    testkit::{
        CONFIG, EXPORT, Running, SERVICE, absent, all_canaries, assert_order, canary, contains,
        entry, on_both_stores, options, present, slice,
    },
    *,
};
use crate::kvstore::{
    Event, WatchBatch,
    testing::{Etcd, Memory, Subject, eventually},
};

on_both_stores!(
    an_emptied_store_is_filled_again_in_order,
    what_happened_while_the_store_was_away_is_published_after,
    keys_of_a_revoked_lease_come_back,
    no_canary_vouches_for_records_of_a_lost_store,
    no_canary_comes_back_before_the_records_that_were_taken_with_it,
);

async fn an_emptied_store_is_filled_again_in_order<S: Subject>(mut subject: S) {
    let running = Running::start(subject.store());
    let store = subject.store();
    running.list_all();
    all_canaries(&store).await;

    subject.wipe().await;

    let store = subject.store();
    all_canaries(&store).await;
    assert_order(&store).await;
    present(&store, HEARTBEAT).await;
    running.stop().await;
}

async fn what_happened_while_the_store_was_away_is_published_after<S: Subject>(mut subject: S) {
    let store = subject.store();
    let running = Running::start(subject.store());
    running.list_all();
    all_canaries(&store).await;

    subject.stop().await;
    running.set_slice(slice("2", "10.1.0.2"));
    running.remove_export();
    subject.resume().await;

    contains(&store, SERVICE, "10.1.0.2").await;
    absent(&store, EXPORT).await;
    all_canaries(&store).await;
    running.stop().await;
}

async fn keys_of_a_revoked_lease_come_back<S: Subject>(subject: S) {
    let store = subject.store();
    let running = Running::start(subject.store());
    running.list_all();
    all_canaries(&store).await;
    let records = entry(&store, SERVICE).await.unwrap().lease.unwrap();
    let canaries = entry(&store, &canary(Resource::Ip))
        .await
        .unwrap()
        .lease
        .unwrap();

    store.revoke(records).await.unwrap();
    present(&store, SERVICE).await;
    present(&store, EXPORT).await;
    present(&store, CONFIG).await;
    present(&store, HEARTBEAT).await;
    for resource in Resource::ALL {
        let key = canary(resource);
        eventually("the canary hangs on a new lease", async || {
            let lease = entry(&store, &key).await.and_then(|entry| entry.lease);
            lease.is_some_and(|lease| lease != canaries)
        })
        .await;
        let canary = entry(&store, &key).await.unwrap();
        for record in [SERVICE, EXPORT] {
            let record = entry(&store, record).await.unwrap();
            assert!(record.mod_revision < canary.mod_revision, "{key}");
        }
    }

    let canaries = entry(&store, &canary(Resource::Ip))
        .await
        .and_then(|entry| entry.lease)
        .unwrap();
    store.revoke(canaries).await.unwrap();
    all_canaries(&store).await;
    running.stop().await;
}

async fn no_canary_vouches_for_records_of_a_lost_store<S: Subject>(mut subject: S) {
    let publisher = Publisher::new(subject.store(), options());
    let fence = publisher.store.grant(Duration::from_mins(1)).await.unwrap();
    {
        let mut state = publisher.state();
        let seen = state.fence.seen();
        state.fence.renew(seen, fence);
        state.listed = true;
        state.services_ready = true;
        state.exports_ready = true;
    }
    subject.wipe().await;
    let store = subject.store();
    eventually("the publisher reaches the new store", async || {
        publisher.store.get(CONFIG).await.is_ok()
    })
    .await;

    publisher.finish_incarnation().await.unwrap();

    assert!(
        !publisher.state().listed,
        "the store has to be listed again"
    );
    for resource in Resource::ALL {
        assert_eq!(entry(&store, &canary(resource)).await, None);
    }
}

async fn no_canary_comes_back_before_the_records_that_were_taken_with_it<S: Subject>(subject: S) {
    let store = subject.store();
    let publisher = Publisher::new(subject.store(), options());
    let fence = store.grant(Duration::from_mins(1)).await.unwrap();
    let canary_key = canary(Resource::Services);
    {
        let mut state = publisher.state();
        let seen = state.fence.seen();
        state.fence.renew(seen, fence);
        (state.listed, state.services_ready, state.exports_ready) = (true, true, true);
        for key in [SERVICE, CONFIG, &canary_key] {
            state.ledger.written(key, publisher.config(), 5);
        }
    }

    // Somebody emptied the store in revision 6; of the canary's watch this is known, of the records' watch not yet.
    let event = Event::Delete {
        key: canary_key.clone(),
        mod_revision: 6,
    };
    let goes_on = publisher.take_in(WatchBatch {
        store_id: 1,
        revision: 6,
        events: vec![event],
    });
    publisher.finish_incarnation().await.unwrap();

    assert!(!goes_on, "the store has to be listed again");
    assert_eq!(entry(&store, &canary_key).await, None);
}
