//! A watch that is asked how far it is, on both stores.

use futures::StreamExt;

use super::{
    Event, KvStore, Scope, Watch, WatchBatch,
    testing::{Etcd, Memory, Subject, budget},
};

async fn next(watch: &mut Watch) -> WatchBatch {
    let next = tokio::time::timeout(budget(), watch.next()).await;
    next.expect("in time")
        .expect("it goes on")
        .expect("a batch")
}

/// Asks until everything up to the revision was delivered; the keys that were, and the revision that was reached.
async fn until(watch: &mut Watch, revision: i64) -> (Vec<String>, i64) {
    let mut keys = Vec::new();
    loop {
        watch.asker().ask();
        let batch = next(watch).await;
        let delivered = batch.delivered();
        keys.extend(batch.events.iter().map(Event::key).map(str::to_owned));
        if delivered >= revision {
            return (keys, delivered);
        }
    }
}

async fn answers_come_behind_all_events(subject: impl Subject) {
    let store = subject.store();
    let first = store.put("a/1", Vec::new(), None).await.unwrap();
    let scope = Scope::Prefix("a/".to_owned());
    let mut watch = store.watch(&scope, first).await.unwrap();
    store.put("a/2", Vec::new(), None).await.unwrap();
    // Nobody who watches `a/` hears of this one.
    let head = store.put("b", Vec::new(), None).await.unwrap();

    let (keys, delivered) = until(&mut watch, head).await;

    assert_eq!(delivered, head);
    assert_eq!(keys, ["a/1", "a/2"]);
}

async fn a_watch_of_the_future_answers_too_and_leaves_out_the_past(subject: impl Subject) {
    let store = subject.store();
    let head = store.put("a/1", Vec::new(), None).await.unwrap();
    let scope = Scope::Prefix("a/".to_owned());
    let mut watch = store.watch(&scope, head + 1).await.unwrap();

    let idle = until(&mut watch, head).await;
    let later = store.put("a/2", Vec::new(), None).await.unwrap();
    let busy = until(&mut watch, later).await;

    assert_eq!(idle, (Vec::new(), head));
    assert_eq!(busy, (vec!["a/2".to_owned()], later));
}

#[tokio::test]
async fn answers_come_behind_all_events_in_memory() {
    answers_come_behind_all_events(Memory::start().await).await;
}

#[tokio::test]
async fn answers_come_behind_all_events_of_an_etcd() {
    answers_come_behind_all_events(Etcd::start().await).await;
}

#[tokio::test]
async fn a_watch_of_the_future_answers_too_in_memory() {
    a_watch_of_the_future_answers_too_and_leaves_out_the_past(Memory::start().await).await;
}

#[tokio::test]
async fn a_watch_of_the_future_answers_too_of_an_etcd() {
    a_watch_of_the_future_answers_too_and_leaves_out_the_past(Etcd::start().await).await;
}
