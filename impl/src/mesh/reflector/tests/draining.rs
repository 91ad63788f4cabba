//! Peers that are taken out of the configuration.

use futures::StreamExt;
use tombolo_core::wire::key::Resource;

use super::*;
use crate::kvstore::{
    Event, Scope,
    testing::{Subject, battery},
};

battery![
    a_peer_that_is_taken_out_is_drained_in_order_after_its_grace,
    a_peer_that_is_back_within_its_grace_loses_nothing,
    what_is_left_of_a_peer_that_nobody_configures_is_drained,
    without_draining_everything_stays,
];

const SHORT: Option<Duration> = Some(Duration::from_millis(300));

async fn a_peer_that_is_taken_out_is_drained_in_order_after_its_grace<S: Subject>(subject: S) {
    let (rome, oslo) = (peer("rome", &["a", "b"]).await, peer("oslo", &["c"]).await);
    oslo.config(3, capable()).await;
    let mut here = Here::new(subject.store());
    here.grace = SHORT;
    here.start(&[("rome", rome.store.clone()), ("oslo", oslo.store.clone())]);
    here.until_ready().await;
    let from = here.store.get("x").await.unwrap().revision + 1;
    let scope = Scope::Prefix("cilium/c".to_owned());
    let mut changes = here.store.watch(&scope, from).await.unwrap();
    let scope = Scope::Prefix("cilium/synced/".to_owned());
    let mut canaries = here.store.watch(&scope, from).await.unwrap();

    let began = tokio::time::Instant::now();
    here.configure(["oslo"]);
    let mut gone = BTreeMap::new();
    for (watch, count) in [(&mut changes, 3), (&mut canaries, Resource::ALL.len())] {
        let wanted = gone.len() + count;
        while gone.len() < wanted {
            let batch = tokio::time::timeout(budget(), watch.next()).await;
            for event in batch.unwrap().unwrap().unwrap().events {
                assert!(matches!(event, Event::Delete { .. }), "{event:?}");
                gone.insert(event.key().to_owned(), event.mod_revision());
            }
        }
    }

    assert!(began.elapsed() >= here.grace.unwrap());
    let config = gone.remove("cilium/cluster-config/rome").unwrap();
    let canary_of_exports = gone[&canary("rome", Resource::ServiceExports)];
    assert!(gone.values().all(|revision| *revision > config), "{gone:?}");
    for record in ["a", "b"].map(|service| gone[&export_of("rome", service)]) {
        assert!(
            canary_of_exports < record,
            "it vouched for less than there was"
        );
    }
    eventually("nothing of rome is left", async || {
        here.everything()
            .await
            .keys()
            .all(|key| !key.contains("rome"))
    })
    .await;
    assert!(
        here.entry(&canary("oslo", Resource::ServiceExports))
            .await
            .is_some()
    );
    here.until_records(&["serviceexports/v1/oslo/shop/c"]).await;
}

async fn a_peer_that_is_back_within_its_grace_loses_nothing<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    here.configure([]);
    eventually("nobody begins to read", async || {
        here.entry("cilium/cluster-config/rome").await.is_none()
    })
    .await;
    here.configure(["rome"]);
    // A peer that is configured anew is connected anew.
    rome.store.disconnect();
    eventually("the cluster-config is back", async || {
        here.entry("cilium/cluster-config/rome").await.is_some()
    })
    .await;

    let mut after = here.everything().await;
    let config = after.remove("cilium/cluster-config/rome").unwrap();
    let mut rest = before;
    assert_eq!(
        rest.remove("cilium/cluster-config/rome").unwrap().value,
        config.value
    );
    assert_eq!(after, rest, "and was not even written");
}

async fn what_is_left_of_a_peer_that_nobody_configures_is_drained<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    here.store
        .put(
            "cilium/cluster-config/own",
            br#"{"id":1,"capabilities":{}}"#.to_vec(),
            None,
        )
        .await
        .unwrap();
    here.kill().await;

    here.grace = SHORT;
    here.start::<MemoryStore>(&[]);

    eventually("only what is no copy is left", async || {
        here.everything().await.into_keys().collect::<Vec<_>>() == ["cilium/cluster-config/own"]
    })
    .await;
}

async fn without_draining_everything_stays<S: Subject>(subject: S) {
    let (rome, oslo) = (peer("rome", &["a"]).await, peer("oslo", &["c"]).await);
    oslo.config(3, capable()).await;
    let mut here = Here::new(subject.store());
    here.grace = None;
    here.start(&[("rome", rome.store.clone()), ("oslo", oslo.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    here.configure(["oslo"]);
    // What comes after shows that it was taken in.
    oslo.export("d", 1).await;
    here.until_records(&[
        "serviceexports/v1/oslo/shop/c",
        "serviceexports/v1/oslo/shop/d",
        "serviceexports/v1/rome/shop/a",
    ])
    .await;

    let mut after = here.everything().await;
    after.remove(&export_of("oslo", "d"));
    assert_eq!(after, before);
}
