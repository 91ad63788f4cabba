//! One life after the other, and two at once.

use futures::StreamExt;
use tombolo_core::wire::key::Resource;

use super::{super::writer::Writer as CopyWriter, *};
use crate::kvstore::{
    Event, Scope, Watch,
    testing::{Subject, battery},
};

battery![
    a_life_after_a_kill_writes_only_what_differs,
    a_lease_of_an_earlier_life_that_has_ended_is_noticed_before_anything_vouches,
    copies_of_a_peer_that_is_away_outlive_the_life_that_made_them,
    a_wiped_peer_keeps_its_copy_until_it_has_filled_its_store,
    an_emptied_store_ends_the_process_and_the_next_life_fills_it,
    a_second_process_stands_by_and_takes_over,
    an_orderly_end_gives_the_lock_back_and_leaves_the_copies,
    a_peer_that_cannot_be_reached_holds_up_readiness_for_a_while_only,
    a_peer_that_is_never_complete_holds_up_readiness_until_the_time_is_over,
    what_a_life_without_the_peer_began_with_is_not_taken_for_complete,
    a_peer_with_another_id_than_its_copy_is_drained_before_anything_new_is_copied,
];

async fn a_life_after_a_kill_writes_only_what_differs<S: Subject>(subject: S) {
    let rome = peer("rome", &["gone", "stays"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;
    here.kill().await;

    rome.unexport("gone").await;
    rome.export("new", 1).await;
    here.metrics = Metrics::default();
    here.start(&[("rome", rome.store.clone())]);
    here.until_records(&[
        "serviceexports/v1/rome/shop/new",
        "serviceexports/v1/rome/shop/stays",
    ])
    .await;
    here.until_ready().await;

    let mut after = here.everything().await;
    let mut expected = before;
    assert!(after.remove(&export_of("rome", "new")).is_some());
    assert!(expected.remove(&export_of("rome", "gone")).is_some());
    assert_eq!(after, expected, "canaries and all are as they were");
    assert_eq!(here.metrics.writes(&name("rome"), "serviceexports"), (1, 1));
    assert_eq!(here.metrics.writes(&name("rome"), "canary"), (0, 0));
}

async fn a_lease_of_an_earlier_life_that_has_ended_is_noticed_before_anything_vouches<
    S: Subject,
>(
    subject: S,
) {
    let store = subject.store();
    let lease = store.grant(Duration::from_mins(1)).await.unwrap();
    let copy = export_of("rome", "cart");
    store.put(&copy, b"{}".to_vec(), Some(lease)).await.unwrap();
    let listing = store.list(&copy).await.unwrap();
    let entries: Vec<_> = listing.entries.into_values().collect();
    let options = Options {
        config_dir: "unused".into(),
        local: Here::new(store.clone()).local,
        peers: remote_cluster::Options::default(),
        lease_ttl: Duration::from_mins(1),
        drain_grace: None,
        patience: Patience::default(),
        metrics: Metrics::default(),
        view: View::default(),
        statuses: Statuses::default(),
        gate: None,
    };
    let writer = CopyWriter::new(store.clone(), Reflection::new(None), &options);

    let before = writer.prolong_earlier(&entries).await.unwrap();
    store.revoke(lease).await.unwrap();
    let after = writer.prolong_earlier(&entries).await.unwrap();

    assert_eq!((entries.len(), before, after), (1, true, false));
}

async fn copies_of_a_peer_that_is_away_outlive_the_life_that_made_them<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.lease_ttl = Duration::from_secs(20);
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;
    let left = here
        .store
        .grant(here.lease_ttl + Duration::from_secs(2))
        .await
        .unwrap();
    here.store
        .put("left", Vec::new(), Some(left))
        .await
        .unwrap();
    here.kill().await;

    rome.store.set_reachable(false);
    here.patience.per_cluster = Duration::from_millis(200);
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    eventually(
        "the leases of the earlier life would have ended",
        async || here.entry("left").await.is_none(),
    )
    .await;

    let mut after = here.everything().await;
    after.remove("left");
    assert_eq!(after, before);
}

async fn a_wiped_peer_keeps_its_copy_until_it_has_filled_its_store<S: Subject>(subject: S) {
    let mut rome = peer("rome", &["a", "b"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    rome.store.wipe(false);
    eventually("the loss is noticed", async || {
        here.running().statuses.peers()[0].state.as_str() == "Suspect"
    })
    .await;
    let kept = here.everything().await;
    rome.new_lease().await;
    refill(&mut rome, &["b"]).await;
    here.until_records(&["serviceexports/v1/rome/shop/b"]).await;

    assert_eq!(kept, before);
    let b = export_of("rome", "b");
    assert_eq!(here.entry(&b).await.as_ref(), before.get(&b));
}

async fn an_emptied_store_ends_the_process_and_the_next_life_fills_it<S: Subject>(mut subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    subject.wipe().await;
    let error = here.end().await;
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    assert_eq!(error.reason(), "LockLost", "{error}");
    let text = error.to_string();
    assert!(
        text.contains(key::KVSTOREMESH_LOCK) && text.contains("begin anew"),
        "{text}"
    );
    here.until_records(&["serviceexports/v1/rome/shop/a"]).await;
}

async fn a_second_process_stands_by_and_takes_over<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let (mut first, mut second) = (Here::new(subject.store()), Here::new(subject.store()));
    first.start(&[("rome", rome.store.clone())]);
    first.until_ready().await;
    let before = first.everything().await;

    second.start(&[("rome", rome.store.clone())]);
    second.until_ready().await;
    rome.export("b", 1).await;
    first
        .until_records(&[
            "serviceexports/v1/rome/shop/a",
            "serviceexports/v1/rome/shop/b",
        ])
        .await;
    let by_standby = second.metrics.writes(&name("rome"), "serviceexports");
    first.kill().await;
    rome.unexport("a").await;
    second
        .until_records(&["serviceexports/v1/rome/shop/b"])
        .await;

    assert_eq!(by_standby, (0, 0));
    // The store shows a deletion before who asked for it has the answer, and counts it.
    eventually("it is counted", async || {
        second.metrics.writes(&name("rome"), "serviceexports") == (0, 1)
    })
    .await;
    let canary = canary("rome", Resource::ServiceExports);
    assert_eq!(second.entry(&canary).await.as_ref(), before.get(&canary));
}

async fn an_orderly_end_gives_the_lock_back_and_leaves_the_copies<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    here.stop().await;

    let lock = here.store.list(key::KVSTOREMESH_LOCK).await.unwrap();
    assert_eq!(lock.entries.len(), 0);
    assert_eq!(here.everything().await, before);
}

async fn a_peer_that_cannot_be_reached_holds_up_readiness_for_a_while_only<S: Subject>(subject: S) {
    let (rome, oslo) = (peer("rome", &["a"]).await, MemoryStore::new("oslo"));
    oslo.set_reachable(false);
    let mut here = Here::new(subject.store());
    here.patience.per_cluster = Duration::from_secs(2);

    let began = tokio::time::Instant::now();
    here.start(&[("rome", rome.store.clone()), ("oslo", oslo)]);
    here.until_ready().await;

    assert!(began.elapsed() >= here.patience.per_cluster);
    assert!(
        here.entry(&canary("rome", Resource::Ip)).await.is_some(),
        "what can be reached is copied"
    );
}

async fn a_peer_that_is_never_complete_holds_up_readiness_until_the_time_is_over<S: Subject>(
    subject: S,
) {
    let rome = Writer::new("rome", MemoryStore::new("rome"));
    rome.config(2, capable()).await;
    rome.export("a", 1).await;
    let mut here = Here::new(subject.store());
    here.patience.global = Duration::from_secs(2);

    let began = tokio::time::Instant::now();
    here.start(&[("rome", rome.store.clone())]);
    here.until_records(&["serviceexports/v1/rome/shop/a"]).await;
    here.until_ready().await;

    assert!(began.elapsed() >= here.patience.global);
    assert_eq!(
        here.entry(&canary("rome", Resource::ServiceExports)).await,
        None
    );
}

async fn what_a_life_without_the_peer_began_with_is_not_taken_for_complete<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    here.kill().await;
    // Its canary went, as it does when a writer is dead for long: nothing says that the copy is whole.
    here.store
        .delete(&canary("rome", Resource::ServiceExports))
        .await
        .unwrap();
    rome.store.set_reachable(false);

    let oslo = peer("oslo", &[]).await;
    oslo.config(3, capable()).await;

    here.start(&[("rome", rome.store.clone()), ("oslo", oslo.store.clone())]);
    eventually("the other peer is copied", async || {
        here.entry(&canary("oslo", Resource::ServiceExports))
            .await
            .is_some()
    })
    .await;
    let vouched = here.entry(&canary("rome", Resource::ServiceExports)).await;
    rome.store.set_reachable(true);
    eventually("the canary is back", async || {
        here.entry(&canary("rome", Resource::ServiceExports))
            .await
            .is_some()
    })
    .await;

    assert_eq!(vouched, None);
    here.until_records(&["serviceexports/v1/rome/shop/a"]).await;
}

/// What happened to the copies of `rome`: what kind of key was written or deleted, repetitions left out.
async fn history_of_rome(mut watch: Watch, until: &Entry) -> Vec<(&'static str, &'static str)> {
    let mut history = Vec::new();
    loop {
        let batch = watch.next().await.expect("it goes on").unwrap();
        for event in &batch.events {
            let what = match event.key() {
                key if !key.contains("/rome") => continue,
                key if key.starts_with(key::SYNCED) => "canary",
                key if key.starts_with(key::CLUSTER_CONFIG) => "config",
                _ => "record",
            };
            let how = match event {
                Event::Put(_) => "put",
                Event::Delete { .. } => "deleted",
            };
            if history.last() != Some(&(how, what)) {
                history.push((how, what));
            }
        }
        if batch.revision >= until.mod_revision {
            return history;
        }
    }
}

/// What is watched from now on, and the cluster behind the name becomes another one with other exports.
async fn replace<S: KvStore>(here: &Here<S>, rome: &mut Writer<MemoryStore>) -> Watch {
    let scope = Scope::Prefix("cilium/".to_owned());
    let watch = here.store.watch(&scope, 0).await.unwrap();
    rome.store.wipe(true);
    rome.new_lease().await;
    rome.config(7, capable()).await;
    for export in ["new", "same"] {
        rome.export(export, 1).await;
    }
    all_canaries(rome).await;
    watch
}

/// Waits until the copies are those of the new cluster, and sees in which order that came about.
async fn is_drained_first<S: KvStore>(here: &Here<S>, watch: Watch) {
    here.until_records(&[
        "serviceexports/v1/rome/shop/new",
        "serviceexports/v1/rome/shop/same",
    ])
    .await;
    eventually("all canaries stand", async || {
        let canaries = Resource::ALL.map(|kind| canary("rome", kind));
        let stored = here.everything().await;
        canaries.iter().all(|key| stored.contains_key(key))
    })
    .await;
    let config = here.value("cilium/cluster-config/rome").await.unwrap();
    let last = here.entry(&canary("rome", Resource::Ip)).await.unwrap();

    assert!(config.starts_with(r#"{"id":7,"#), "{config}");
    let history = history_of_rome(watch, &last).await;
    let (first, rest) = history.split_at(4);
    assert_eq!(
        first,
        [
            ("deleted", "canary"),
            ("deleted", "config"),
            ("deleted", "record"),
            ("put", "config"),
        ]
    );
    // Kinds without records have their canaries while the records of others are written.
    let anew = |(how, what): &(&str, &str)| *how == "put" && *what != "config";
    assert!(rest.iter().all(anew), "{rest:?}");
}

async fn a_peer_with_another_id_than_its_copy_is_drained_before_anything_new_is_copied<
    S: Subject,
>(
    subject: S,
) {
    let mut rome = peer("rome", &["old", "same"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    here.kill().await;

    let watch = replace(&here, &mut rome).await;
    here.start(&[("rome", rome.store.clone())]);

    is_drained_first(&here, watch).await;
    here.until_ready().await;
}
