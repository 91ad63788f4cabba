//! Peers of which not everything is copied: no canary vouches for what is lacking.

use futures::StreamExt;
use tombolo_core::{
    evidence::Evidence,
    peer_status::Limit,
    wire::{MAX_VALUE_BYTES, key::Resource},
};

use super::*;
use crate::{
    kvstore::{
        Event, Scope,
        testing::{Subject, battery},
    },
    mesh::remote_cluster::{Origin, RawChange, Records as _},
};

battery![
    a_peer_over_its_limit_has_no_canary_until_everything_of_it_is_copied,
    a_peer_that_comes_to_exceed_its_limit_loses_its_canary_and_gets_it_back,
    what_an_earlier_life_vouched_for_is_not_vouched_for_when_the_limit_is_lower,
    the_canary_goes_before_anything_that_the_copy_lacks,
    a_record_too_large_to_be_copied_costs_its_kind_the_canary_until_it_is_mended,
    a_record_that_becomes_too_large_keeps_its_copy_and_the_canary,
];

const EXPORTS: Resource = Resource::ServiceExports;

/// The copies of these exports.
fn copies(names: &[&str]) -> Vec<String> {
    let copy = |name: &&str| format!("serviceexports/v1/rome/shop/{name}");
    names.iter().map(copy).collect()
}

async fn until_copied<S: KvStore>(here: &Here<S>, names: &[&str]) {
    eventually(&format!("{names:?} are copied"), async || {
        here.records().await == copies(names)
    })
    .await;
}

async fn until_vouched<S: KvStore>(here: &Here<S>, vouched: bool) {
    eventually(&format!("a canary of exports: {vouched}"), async || {
        here.entry(&canary("rome", EXPORTS)).await.is_some() == vouched
    })
    .await;
}

fn over<S: KvStore>(here: &Here<S>) -> u64 {
    let status = here.running().statuses.peers().remove(0);
    let kind = status.kinds.get(&EXPORTS);
    kind.map_or(0, |kind| kind.over_limit)
}

async fn a_peer_over_its_limit_has_no_canary_until_everything_of_it_is_copied<S: Subject>(
    subject: S,
) {
    let rome = peer("rome", &["a", "b", "c", "d"]).await;
    let mut here = Here::new(subject.store());
    here.budget.records = 2;

    here.start(&[("rome", rome.store.clone())]);
    until_copied(&here, &["a", "b"]).await;
    eventually("two are too many", async || over(&here) == 2).await;
    eventually("the other kinds are complete", async || {
        here.entry(&canary("rome", Resource::Ip)).await.is_some()
    })
    .await;
    let vouched = here.entry(&canary("rome", EXPORTS)).await;
    rome.unexport("a").await;
    rome.unexport("b").await;

    assert_eq!(vouched, None);
    until_copied(&here, &["c", "d"]).await;
    until_vouched(&here, true).await;
    here.until_ready().await;
}

async fn a_peer_that_comes_to_exceed_its_limit_loses_its_canary_and_gets_it_back<S: Subject>(
    subject: S,
) {
    let rome = peer("rome", &["a", "b"]).await;
    let mut here = Here::new(subject.store());
    here.budget.records = 2;
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    rome.export("c", 1).await;
    rome.export("a", 7).await;
    until_vouched(&here, false).await;
    eventually("what is held is followed", async || {
        let copy = here.entry(&export_of("rome", "a")).await;
        copy.unwrap().value != before[&export_of("rome", "a")].value
    })
    .await;
    let (records, others) = (here.records().await, canary("rome", Resource::Services));
    // It shrinks by the record that was too much, of which there is no copy to be removed.
    rome.unexport("c").await;
    until_vouched(&here, true).await;

    assert_eq!(records, copies(&["a", "b"]));
    assert_eq!(
        here.entry(&others).await.as_ref(),
        before.get(&others),
        "other kinds are complete"
    );
    until_copied(&here, &["a", "b"]).await;
}

async fn what_an_earlier_life_vouched_for_is_not_vouched_for_when_the_limit_is_lower<S: Subject>(
    subject: S,
) {
    let rome = peer("rome", &["a", "b"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    here.kill().await;

    here.budget.records = 1;
    here.start(&[("rome", rome.store.clone())]);
    until_vouched(&here, false).await;

    until_copied(&here, &["a", "b"]).await;
}

async fn the_canary_goes_before_anything_that_the_copy_lacks<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let from = here.store.get("x").await.unwrap().revision + 1;
    let scope = |prefix: &str| Scope::Prefix(format!("cilium/{prefix}/"));
    let mut copies = here.store.watch(&scope("cache"), from).await.unwrap();
    let mut canaries = here.store.watch(&scope("synced"), from).await.unwrap();

    // In one batch the record goes, and what comes in its place is too much.
    let (rome, key) = (name("rome"), "shop/a");
    let entry = here.entry(&export_of("rome", "a")).await.unwrap();
    let changes = [
        RawChange::Remove {
            key,
            evidence: Evidence::KeyDeleted { revision: 9 },
        },
        RawChange::Withhold {
            key,
            entry: &entry,
            limit: Limit::Records,
        },
    ];
    let origin = Origin {
        peer: &rome,
        id: None,
        kind: EXPORTS,
    };
    here.running().reflection.apply(&origin, &changes);

    let mut gone = Vec::new();
    for watch in [&mut canaries, &mut copies] {
        let first = async {
            loop {
                let batch = watch.next().await.unwrap().unwrap();
                if let Some(event) = batch.events.into_iter().next() {
                    return event;
                }
            }
        };
        let event = tokio::time::timeout(budget(), first).await.unwrap();
        assert!(matches!(event, Event::Delete { .. }), "{event:?}");
        gone.push((event.mod_revision(), event.key().to_owned()));
    }
    assert!(gone.is_sorted(), "{gone:?}");
    assert_eq!(gone[0].1, canary("rome", EXPORTS));
    assert_eq!(gone[1].1, export_of("rome", "a"));
}

async fn a_record_too_large_to_be_copied_costs_its_kind_the_canary_until_it_is_mended<
    S: Subject,
>(
    subject: S,
) {
    let rome = peer("rome", &["a"]).await;
    let large = key::service_export_key(&rome.name, &service("large"));
    rome.put(&large, vec![b' '; MAX_VALUE_BYTES]).await;
    let mut here = Here::new(subject.store());

    here.start(&[("rome", rome.store.clone())]);
    until_copied(&here, &["a"]).await;
    eventually("it is refused", async || {
        let status = here.running().statuses.peers().remove(0);
        status.kinds[&EXPORTS].refused == 1
    })
    .await;
    eventually("the other kinds are complete", async || {
        here.entry(&canary("rome", Resource::Ip)).await.is_some()
    })
    .await;
    let vouched = here.entry(&canary("rome", EXPORTS)).await;
    rome.export("large", 1).await;

    assert_eq!(vouched, None, "an older one may be known to who reads");
    until_copied(&here, &["a", "large"]).await;
    until_vouched(&here, true).await;
}

async fn a_record_that_becomes_too_large_keeps_its_copy_and_the_canary<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    let key = key::service_export_key(&rome.name, &service("a"));
    rome.put(&key, vec![b' '; MAX_VALUE_BYTES]).await;
    rome.put(
        "cilium/state/serviceexports/v1/rome/",
        b"names nothing".to_vec(),
    )
    .await;
    rome.export("b", 1).await;
    until_copied(&here, &["a", "b"]).await;
    here.kill().await;
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    let mut after = here.everything().await;
    assert!(after.remove(&export_of("rome", "b")).is_some());
    assert_eq!(after, before);
}
