//! From a peer's store into this cluster's.

use jiff::SignedDuration;
use tombolo_core::{evidence::Evidence, wire::key::Resource};

use super::*;
use crate::{
    kvstore::testing::{Subject, battery},
    mesh::{
        peers::PeerState,
        remote_cluster::{Records as _, testkit::Follower},
    },
};

battery![
    everything_is_copied_byte_for_byte_in_an_order_that_readers_can_rely_on,
    a_kind_that_the_peer_has_not_finished_has_no_canary,
    a_kind_that_the_peer_does_not_publish_is_complete_without_records,
    only_what_the_peer_deleted_is_deleted,
    what_a_peer_writes_again_is_not_written_again,
    a_peer_with_another_id_is_drained_before_anything_new_is_copied,
    what_others_do_to_the_copies_is_put_right,
    copies_whose_lease_is_gone_are_written_again_and_then_vouched_for_again,
    peers_are_copied_side_by_side,
    of_a_peer_that_expired_nodes_and_identities_stay,
    a_peer_that_is_a_copy_itself_is_copied_from_there,
    a_reader_of_the_copies_sees_what_the_peer_says_and_nothing_else,
];

/// Records of every sort that nobody has to understand: key in the peer's store, key below `cilium/cache/`, value.
const RAW: [(&str, &str, &[u8]); 6] = [
    (
        "cilium/state/serviceexports/v1/rome/shop/lie",
        "serviceexports/v1/rome/shop/lie",
        br#"{"cluster":"paris"}"#,
    ),
    (
        "cilium/state/services/v1/rome/shop/broken",
        "services/v1/rome/shop/broken",
        b"{\"cluster\":\xff",
    ),
    (
        "cilium/state/services/v1/rome/shop/empty",
        "services/v1/rome/shop/empty",
        b"",
    ),
    (
        "cilium/state/nodes/v1/rome/n1",
        "nodes/v1/rome/n1",
        b"{\"Name\":\"n1\"}",
    ),
    (
        "cilium/state/identities/v1/id/131073",
        "identities/v1/rome/id/131073",
        b"k8s:app=web;",
    ),
    (
        "cilium/state/ip/v1/default/10.1.0.7",
        "ip/v1/rome/10.1.0.7",
        b"{\"IP\":\"10.1.0.7\"}",
    ),
];

async fn everything_is_copied_byte_for_byte_in_an_order_that_readers_can_rely_on<S: Subject>(
    subject: S,
) {
    let rome = peer("rome", &["web"]).await;
    rome.service("db", true).await;
    for (source, _, value) in RAW {
        rome.put(source, value.to_vec()).await;
    }
    rome.put("cilium/state/services/v1/rome2/shop/other", b"{}".to_vec())
        .await;
    let mut here = Here::new(subject.store());

    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    for (_, copy, value) in RAW {
        let entry = here.entry(&format!("cilium/cache/{copy}")).await;
        assert_eq!(entry.unwrap().value, value, "{copy}");
    }
    let source = rome
        .store
        .get("cilium/state/serviceexports/v1/rome/shop/web")
        .await
        .unwrap();
    let copy = here.entry(&export_of("rome", "web")).await.unwrap();
    assert_eq!(copy.value, source.entry.unwrap().value);
    assert_eq!(
        here.records().await.len(),
        RAW.len() + 2,
        "{:?}",
        here.records().await
    );

    let mut records = here.everything().await;
    let config = records.remove("cilium/cluster-config/rome").unwrap();
    let canaries = Resource::ALL.map(|kind| records.remove(&canary("rome", kind)).unwrap());
    assert_eq!(
        String::from_utf8(config.value).unwrap(),
        r#"{"id":2,"capabilities":{"syncedCanaries":true,"cached":true,"maxConnectedClusters":255,"serviceExportsEnabled":true}}"#
    );
    for (key, record) in &records {
        assert!(record.create_revision > config.create_revision, "{key}");
        assert!(record.lease.is_some(), "{key}");
        for canary in &canaries {
            let theirs = canary
                .key
                .contains(&key["cilium/cache/".len()..key.find("/v1").unwrap()]);
            assert!(
                !theirs || canary.create_revision > record.create_revision,
                "{key}"
            );
            assert_ne!(canary.lease, record.lease, "canaries go first");
        }
    }
}

async fn a_kind_that_the_peer_has_not_finished_has_no_canary<S: Subject>(subject: S) {
    let rome = peer("rome", &["web"]).await;
    let unfinished = "cilium/synced/rome/cilium/state/serviceexports/v1";
    rome.store.delete(unfinished).await.unwrap();
    let mut here = Here::new(subject.store());

    here.start(&[("rome", rome.store.clone())]);
    here.until_records(&["serviceexports/v1/rome/shop/web"])
        .await;
    eventually("the other kinds are complete", async || {
        here.entry(&canary("rome", Resource::Ip)).await.is_some()
    })
    .await;
    let before = (
        here.entry(&canary("rome", Resource::ServiceExports)).await,
        here.is_ready(),
    );
    rome.canary(Resource::ServiceExports).await;
    here.until_ready().await;

    assert_eq!(before, (None, false));
    assert!(
        here.entry(&canary("rome", Resource::ServiceExports))
            .await
            .is_some()
    );
}

async fn a_kind_that_the_peer_does_not_publish_is_complete_without_records<S: Subject>(subject: S) {
    let rome = peer("rome", &["web"]).await;
    rome.config(2, without_exports()).await;
    rome.store
        .delete("cilium/synced/rome/cilium/state/serviceexports/v1")
        .await
        .unwrap();
    let mut here = Here::new(subject.store());

    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    assert!(
        here.entry(&canary("rome", Resource::ServiceExports))
            .await
            .is_some()
    );
    assert_eq!(here.records().await, Vec::<String>::new());
}

async fn only_what_the_peer_deleted_is_deleted<S: Subject>(subject: S) {
    let mut rome = peer("rome", &["a", "b", "c"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let copies = [
        "serviceexports/v1/rome/shop/b",
        "serviceexports/v1/rome/shop/c",
    ];

    rome.unexport("a").await;
    here.until_records(&copies).await;
    // The publisher dies: its keys go with its lease, canaries included. Then it is back with less, and says so.
    rome.end_lease().await;
    eventually("the loss is noticed", async || {
        here.running().statuses.peers()[0].state.as_str() == "Suspect"
    })
    .await;
    let kept = (
        here.records().await,
        here.entry(&canary("rome", Resource::ServiceExports)).await,
    );
    rome.new_lease().await;
    refill(&mut rome, &["c"]).await;

    assert_eq!(kept.0, copies);
    assert!(
        kept.1.is_some(),
        "what is copied is still what the peer said last"
    );
    here.until_records(&["serviceexports/v1/rome/shop/c"]).await;
}

async fn what_a_peer_writes_again_is_not_written_again<S: Subject>(subject: S) {
    let mut rome = peer("rome", &["a", "b"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    rome.new_lease().await;
    refill(&mut rome, &["a", "b"]).await;
    rome.export("b", 2).await;
    rome.export("last", 1).await;
    let b = export_of("rome", "b");
    // The two are written at the same time, and counted once the store has answered.
    eventually("both writes are copied and counted", async || {
        here.entry(&export_of("rome", "last")).await.is_some()
            && here.entry(&b).await.as_ref() != before.get(&b)
            && here.metrics.writes(&name("rome"), "serviceexports") == (4, 0)
    })
    .await;

    let mut after = here.everything().await;
    assert!(after.remove(&export_of("rome", "last")).is_some());
    let changed: Vec<_> = after
        .iter()
        .filter(|(key, entry)| before.get(*key) != Some(entry))
        .collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(changed[0].0, &b);
    assert_eq!(here.metrics.writes(&name("rome"), "serviceexports"), (4, 0));
}

async fn a_peer_with_another_id_is_drained_before_anything_new_is_copied<S: Subject>(subject: S) {
    let mut rome = peer("rome", &["old"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here
        .store
        .get("cilium/cluster-config/rome")
        .await
        .unwrap()
        .revision;

    rome.store.wipe(true);
    rome.new_lease().await;
    rome.export("new", 1).await;
    rome.config(7, capable()).await;
    all_canaries(&rome).await;
    eventually("the new cluster is copied", async || {
        let config = here.value("cilium/cluster-config/rome").await;
        config.is_some_and(|config| config.starts_with(r#"{"id":7,"#))
            && here
                .entry(&canary("rome", Resource::ServiceExports))
                .await
                .is_some()
            && here.records().await == ["serviceexports/v1/rome/shop/new"]
    })
    .await;

    let config = here.entry("cilium/cluster-config/rome").await.unwrap();
    let canary = here
        .entry(&canary("rome", Resource::ServiceExports))
        .await
        .unwrap();
    let record = here.entry(&export_of("rome", "new")).await.unwrap();
    assert!(config.mod_revision > before);
    assert!(
        canary.create_revision > config.mod_revision,
        "an old canary vouched for the new"
    );
    assert!(canary.create_revision > record.create_revision);
}

async fn what_others_do_to_the_copies_is_put_right<S: Subject>(subject: S) {
    let rome = peer("rome", &["a", "b"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;
    let own_config = "cilium/cluster-config/here";

    here.store
        .put(own_config, b"{}".to_vec(), None)
        .await
        .unwrap();
    here.store.delete(&export_of("rome", "a")).await.unwrap();
    here.store
        .put(&export_of("rome", "b"), b"?".to_vec(), None)
        .await
        .unwrap();
    here.store
        .put(&export_of("rome", "strange"), b"?".to_vec(), None)
        .await
        .unwrap();
    here.store
        .delete("cilium/cluster-config/rome")
        .await
        .unwrap();
    here.store
        .delete(&canary("rome", Resource::Nodes))
        .await
        .unwrap();

    eventually("everything is as it was", async || {
        let mut now = here.everything().await;
        let own = now.remove(own_config);
        let canary = |key: &str| key.starts_with("cilium/synced/");
        let same = |(key, entry): (&String, &Entry)| {
            before
                .get(key)
                .is_some_and(|before| canary(key) || before.value == entry.value)
        };
        own.is_some() && now.len() == before.len() && now.iter().all(same)
    })
    .await;
}

async fn copies_whose_lease_is_gone_are_written_again_and_then_vouched_for_again<S: Subject>(
    subject: S,
) {
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(subject.store());
    here.lease_ttl = Duration::from_secs(10);
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;
    let (record, vouched) = (
        export_of("rome", "a"),
        canary("rome", Resource::ServiceExports),
    );

    here.store
        .revoke(before[&record].lease.unwrap())
        .await
        .unwrap();

    eventually("the copy and another canary are there", async || {
        let copy = here.entry(&record).await;
        let canary = here.entry(&vouched).await;
        copy.zip(canary).is_some_and(|(copy, canary)| {
            copy.create_revision > before[&record].create_revision
                && canary.lease != before[&vouched].lease
                && canary.mod_revision > copy.mod_revision
        })
    })
    .await;
    assert_eq!(
        here.entry(&record).await.unwrap().value,
        before[&record].value
    );
}

async fn peers_are_copied_side_by_side<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let oslo = Writer::new("oslo", MemoryStore::new("oslo"));
    let ids: [u32; 2] = [2, 3];
    oslo.config(ids[1], capable()).await;
    oslo.export("a", 5).await;
    all_canaries(&oslo).await;
    let mut here = Here::new(subject.store());

    here.start(&[("rome", rome.store.clone()), ("oslo", oslo.store.clone())]);
    here.until_ready().await;
    rome.store.set_reachable(false);
    oslo.export("b", 5).await;

    here.until_records(&[
        "serviceexports/v1/oslo/shop/a",
        "serviceexports/v1/oslo/shop/b",
        "serviceexports/v1/rome/shop/a",
    ])
    .await;
    assert!(here.is_ready());
}

async fn of_a_peer_that_expired_nodes_and_identities_stay<S: Subject>(subject: S) {
    let rome = peer("rome", &["web"]).await;
    rome.service("db", true).await;
    for key in [
        "identities/v1/id/131073",
        "ip/v1/default/10.1.0.7",
        "nodes/v1/rome/n1",
    ] {
        rome.put(&format!("cilium/state/{key}"), b"?".to_vec())
            .await;
    }
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    let before = here.everything().await;

    // As its follower says once the cache time-to-live is over.
    let kinds = [
        Resource::Services,
        Resource::ServiceExports,
        Resource::EndpointSlices,
    ];
    let age = SignedDuration::from_mins(5);
    let reflection = &here.running().reflection;
    reflection.drain(&name("rome"), &kinds, Evidence::Expired { age });
    here.until_records(&[
        "identities/v1/rome/id/131073",
        "ip/v1/rome/10.1.0.7",
        "nodes/v1/rome/n1",
    ])
    .await;

    let mut expected = before;
    expected.retain(|key, _| !key.contains("/shop/"));
    assert_eq!(
        here.everything().await,
        expected,
        "canaries stand: readers take it for deleted"
    );
}

async fn a_peer_that_is_a_copy_itself_is_copied_from_there<S: Subject>(subject: S) {
    let mut rome = Writer::new("rome", MemoryStore::new("somewhere"));
    rome.new_lease().await;
    let cached = Capabilities {
        cached: true,
        ..capable()
    };
    rome.config(2, cached).await;
    let keys = [
        "cilium/cache/identities/v1/rome/id/131073",
        "cilium/cache/ip/v1/rome/10.1.0.7",
        "cilium/cache/serviceexports/v1/rome/shop/web",
    ];
    for key in keys {
        rome.put(key, key.as_bytes().to_vec()).await;
    }
    rome.put(
        "cilium/state/serviceexports/v1/rome/shop/not",
        b"{}".to_vec(),
    )
    .await;
    for kind in Resource::ALL {
        rome.put(&canary("rome", kind), b"now".to_vec()).await;
    }
    let mut here = Here::new(subject.store());

    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    for key in keys {
        assert_eq!(here.value(key).await.as_deref(), Some(key));
    }
    assert_eq!(here.records().await.len(), keys.len());
}

async fn a_reader_of_the_copies_sees_what_the_peer_says_and_nothing_else<S: Subject>(subject: S) {
    let mut rome = peer("rome", &["web"]).await;
    let lie = br#"{"cluster":"paris","name":"lie","namespace":"shop"}"#.to_vec();
    rome.put("cilium/state/serviceexports/v1/rome/shop/lie", lie)
        .await;
    let mut here = Here::new(subject.store());
    let mut reader = Follower::new("rome", subject.store());

    reader.start(Memory::default());
    here.start(&[("rome", rome.store.clone())]);
    reader.until_state(PeerState::Ready).await;
    reader.until_rows(&["web"]).await;
    assert!(here.entry(&export_of("rome", "lie")).await.is_some());
    rome.export("db", 1).await;
    reader.until_rows(&["db", "web"]).await;
    rome.unexport("web").await;
    reader.until_rows(&["db"]).await;
    // Nothing that happens to peer or copier is a deletion.
    here.kill().await;
    rome.end_lease().await;
    here.start(&[("rome", rome.store.clone())]);
    eventually("the loss is noticed", async || {
        here.running().statuses.peers()[0].last_error.is_some()
    })
    .await;
    assert_eq!(reader.rows(), ["db"]);
    rome.new_lease().await;
    refill(&mut rome, &["new"]).await;

    reader.until_rows(&["new"]).await;
    assert_eq!(reader.status().state, PeerState::Ready);
}
