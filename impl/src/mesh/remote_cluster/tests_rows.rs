//! What comes, what stays and what goes, on a store in memory and on a real etcd.

use std::time::Duration;

use tombolo_core::wire::key::{self, Resource};
use tombolo_testbed::patience;

use super::{
    super::peers::PeerState,
    Memory,
    testkit::{Follower, Writer, battery, followed, service},
};
use crate::kvstore::{
    KvStore,
    testing::{Etcd, Memory as InMemory, Subject, eventually},
};

battery![
    a_peer_that_is_unreachable_at_first_is_followed_once_it_answers,
    rows_come_before_the_canary_and_go_only_after_it,
    a_deleted_export_is_removed_and_reported,
    an_emptied_store_removes_nothing_and_its_refill_removes_what_is_gone,
    an_emptied_store_that_gets_ahead_of_the_old_one_is_noticed,
    the_end_of_the_writers_lease_removes_nothing,
    a_store_that_goes_away_and_comes_back_keeps_the_rows,
    a_deletion_while_cut_off_is_made_up_for,
    a_compaction_while_cut_off_leads_to_a_new_list,
    a_bad_record_keeps_the_last_good_row_and_is_counted,
    a_lying_record_changes_nothing_and_is_counted,
    a_refused_record_is_counted_once_however_often_it_is_listed,
    a_service_with_the_id_of_another_cluster_is_refused,
    a_service_that_is_no_longer_shared_is_removed,
    a_writer_that_starts_anew_replaces_the_rows,
    many_exports_come_and_go,
];

async fn a_peer_that_is_unreachable_at_first_is_followed_once_it_answers<S: Subject>(
    mut subject: S,
) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    subject.stop().await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    eventually("the failure is told", async || {
        follower.status().last_error.is_some()
    })
    .await;
    let before = follower.status();
    subject.resume().await;

    assert_eq!(
        (before.state, before.synced),
        (PeerState::Connecting, false)
    );
    assert!(
        before
            .last_error
            .unwrap()
            .starts_with(&writer.store.endpoint())
    );
    assert!(!follower.state.statuses().may_remove(&follower.peer));
    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), ["cart"]);
    assert_eq!(follower.status().last_error, None);
    assert!(follower.state.statuses().may_remove(&follower.peer));
}

async fn rows_come_before_the_canary_and_go_only_after_it<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    writer.config(2, super::testkit::capable()).await;
    writer.export("cart", 1).await;
    writer.export("gone", 1).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower.until_rows(&["cart", "gone"]).await;
    writer.unexport("gone").await;
    writer.export("later", 1).await;
    follower.until_rows(&["cart", "gone", "later"]).await;
    let before = follower.status();
    writer.canary(Resource::Services).await;
    writer.canary(Resource::ServiceExports).await;

    assert_eq!((before.state, before.synced), (PeerState::Listing, false));
    follower.until_rows(&["cart", "later"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn a_deleted_export_is_removed_and_reported<S: Subject>(subject: S) {
    let (writer, follower) = followed(&subject, &["cart", "web"]).await;
    follower.take_dirty();

    writer.unexport("cart").await;

    follower.until_rows(&["web"]).await;
    eventually("the removal is reported", async || {
        follower.take_dirty() == ["cart"]
    })
    .await;
    assert_eq!(follower.status().state, PeerState::Ready);
}

async fn an_emptied_store_removes_nothing_and_its_refill_removes_what_is_gone<S: Subject>(
    mut subject: S,
) {
    let (mut writer, follower) = followed(&subject, &["cart", "gone", "web"]).await;

    subject.wipe().await;
    follower.until_state(PeerState::Suspect).await;
    writer.new_lease().await;
    // The order that a writer has which fills its store again: canaries early, the cluster-config last.
    writer.export("cart", 2).await;
    writer.canaries().await;
    eventually("the new row", async || follower.second("cart") == Some(2)).await;
    let (rows, state) = (follower.rows(), follower.status().state);
    writer.export("web", 2).await;
    writer.config(2, super::testkit::capable()).await;

    assert_eq!(rows, ["cart", "gone", "web"]);
    assert_eq!(state, PeerState::Suspect);
    follower.until_rows(&["cart", "web"]).await;
    follower.until_state(PeerState::Ready).await;
    writer.unexport("web").await;
    follower.until_rows(&["cart"]).await;
}

async fn an_emptied_store_that_gets_ahead_of_the_old_one_is_noticed<S: Subject>(mut subject: S) {
    let (mut writer, mut follower) = followed(&subject, &["cart", "gone"]).await;
    let memory = follower.stop().await;

    let before = writer.store.get("x").await.unwrap().revision;
    subject.wipe().await;
    writer.fill(&["cart"]).await;
    while writer.store.get("x").await.unwrap().revision <= before {
        writer.export("cart", 2).await;
    }
    follower.start(memory);

    follower.until_rows(&["cart"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn the_end_of_the_writers_lease_removes_nothing<S: Subject>(subject: S) {
    let (mut writer, follower) = followed(&subject, &["cart", "gone"]).await;

    writer.end_lease().await;
    follower.until_state(PeerState::Suspect).await;
    writer.new_lease().await;
    writer.export("new", 1).await;
    follower.until_rows(&["cart", "gone", "new"]).await;
    writer.fill(&["cart", "new"]).await;

    follower.until_rows(&["cart", "new"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn a_store_that_goes_away_and_comes_back_keeps_the_rows<S: Subject>(mut subject: S) {
    let (writer, follower) = followed(&subject, &["cart"]).await;

    subject.stop().await;
    follower.until_state(PeerState::Suspect).await;
    let (rows, status) = (follower.rows(), follower.status());
    subject.resume().await;
    follower.until_state(PeerState::Ready).await;
    eventually("the writer writes again", async || {
        writer.store.get("x").await.is_ok()
    })
    .await;
    writer.export("web", 1).await;

    assert_eq!(rows, ["cart"]);
    assert!(status.synced && status.last_error.is_some());
    follower.until_rows(&["cart", "web"]).await;
}

async fn a_deletion_while_cut_off_is_made_up_for<S: Subject>(subject: S) {
    let (writer, mut follower) = followed(&subject, &["cart", "gone"]).await;

    let memory = follower.stop().await;
    writer.unexport("gone").await;
    writer.export("new", 1).await;
    follower.start(memory);

    follower.until_rows(&["cart", "new"]).await;
}

async fn a_compaction_while_cut_off_leads_to_a_new_list<S: Subject>(subject: S) {
    let (writer, mut follower) = followed(&subject, &["cart", "gone"]).await;

    let memory = follower.stop().await;
    writer.unexport("gone").await;
    writer.export("new", 1).await;
    writer.export("new", 2).await;
    subject.compact().await;
    follower.start(memory);

    follower.until_rows(&["cart", "new"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn a_bad_record_keeps_the_last_good_row_and_is_counted<S: Subject>(subject: S) {
    let (writer, follower) = followed(&subject, &["cart"]).await;
    let prefix = key::service_exports_prefix(&writer.name, false);

    writer
        .put(&format!("{prefix}shop/cart"), b"{ broken".to_vec())
        .await;
    writer
        .put(&format!("{prefix}no-name"), b"{}".to_vec())
        .await;
    writer
        .put(&format!("{prefix}shop/UPPER"), vec![0xff; 100])
        .await;
    writer.export("web", 1).await;

    follower.until_rows(&["cart", "web"]).await;
    assert_eq!(follower.second("cart"), Some(1));
    assert_eq!(
        follower
            .state
            .statuses()
            .records_refused(&writer.name, Resource::ServiceExports),
        3
    );
    assert_eq!(
        follower
            .state
            .statuses()
            .records_refused(&writer.name, Resource::Services),
        0
    );
    writer.export("cart", 5).await;
    eventually("the good one", async || follower.second("cart") == Some(5)).await;
}

async fn a_refused_record_is_counted_once_however_often_it_is_listed<S: Subject>(subject: S) {
    let (writer, mut follower) = followed(&subject, &["cart"]).await;
    let key = format!(
        "{}shop/bad",
        key::service_exports_prefix(&writer.name, false)
    );
    let statuses = follower.state.statuses().clone();
    let refused = || statuses.records_refused(&writer.name, Resource::ServiceExports);

    writer.put(&key, b"{ broken".to_vec()).await;
    eventually("it is refused", async || refused() == 1).await;
    let memory = follower.stop().await;
    writer.export("web", 1).await;
    writer.export("web", 2).await;
    subject.compact().await;
    follower.start(memory);
    follower.until_rows(&["cart", "web"]).await;
    let after_another_list = refused();
    writer.put(&key, b"{ broken".to_vec()).await;

    eventually("another writing counts", async || refused() == 2).await;
    assert_eq!(after_another_list, 1);
    assert_eq!(
        follower.status().kinds[&Resource::ServiceExports].refused,
        2
    );
}

async fn a_lying_record_changes_nothing_and_is_counted<S: Subject>(subject: S) {
    let (writer, follower) = followed(&subject, &["cart"]).await;
    let prefix = key::service_exports_prefix(&writer.name, false);
    let other = "paris".try_into().unwrap();
    let encode = |export| tombolo_core::wire::service_export::encode(&export).1;

    let of_another_cluster = encode(super::testkit::export(&other, "cart", 9));
    writer
        .put(&format!("{prefix}shop/cart"), of_another_cluster)
        .await;
    let of_another_name = encode(super::testkit::export(&writer.name, "cart", 9));
    writer
        .put(&format!("{prefix}shop/pay"), of_another_name)
        .await;
    writer.export("web", 1).await;

    follower.until_rows(&["cart", "web"]).await;
    assert_eq!(follower.second("cart"), Some(1));
    assert_eq!(
        follower
            .state
            .statuses()
            .records_refused(&writer.name, Resource::ServiceExports),
        2
    );
}

async fn a_service_with_the_id_of_another_cluster_is_refused<S: Subject>(subject: S) {
    let (writer, follower) = followed(&subject, &[]).await;
    writer.service("cart", true).await;
    follower.until_rows(&["cart"]).await;

    writer.service_of(3, "cart", false).await;
    writer.service_of(3, "pay", true).await;
    writer.service("web", true).await;

    follower.until_rows(&["cart", "web"]).await;
    assert_eq!(
        follower
            .state
            .statuses()
            .records_refused(&writer.name, Resource::Services),
        2
    );
}

async fn a_service_that_is_no_longer_shared_is_removed<S: Subject>(subject: S) {
    let (writer, follower) = followed(&subject, &[]).await;

    writer.service("cart", true).await;
    writer.service("web", true).await;
    follower.until_rows(&["cart", "web"]).await;
    writer.service("cart", false).await;

    follower.until_rows(&["web"]).await;
    assert_eq!(follower.state.services(&service("web")).len(), 1);
}

async fn a_writer_that_starts_anew_replaces_the_rows<S: Subject>(subject: S) {
    let (mut writer, follower) = followed(&subject, &["cart", "gone"]).await;

    // The old lease, and what hangs on it, is left to itself.
    writer.unexport("gone").await;
    writer.fill(&["cart", "web"]).await;

    follower.until_rows(&["cart", "web"]).await;
    follower.until_state(PeerState::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_emptied_behind_a_standing_connection_is_noticed_within_seconds() {
    let subject = InMemory::start().await;
    let (mut writer, follower) = followed(&subject, &["cart", "gone"]).await;

    writer.store.wipe_silently();
    let begin = tokio::time::Instant::now();
    follower.until_state(PeerState::Suspect).await;
    let noticed = begin.elapsed();
    let rows = follower.rows();
    writer.fill(&["cart"]).await;

    assert!(noticed.as_secs() <= 5, "{noticed:?}");
    assert_eq!(rows, ["cart", "gone"]);
    follower.until_rows(&["cart"]).await;
    follower.until_state(PeerState::Ready).await;
}

#[tokio::test]
async fn an_etcd_that_is_emptied_in_place_is_noticed_within_seconds() {
    let mut etcd = Etcd::start().await;
    let (mut writer, follower) = followed(&etcd, &["cart", "gone"]).await;
    let failures = follower.status().failures;

    let begin = std::time::Instant::now();
    let wiped = async {
        etcd.wipe().await;
        begin.elapsed()
    };
    let suspect = async {
        follower.until_state(PeerState::Suspect).await;
        begin.elapsed()
    };
    let (answers, noticed) = tokio::join!(wiped, suspect);
    writer.fill(&["cart"]).await;
    follower.until_rows(&["cart"]).await;
    let replaced = begin.elapsed().saturating_sub(answers);
    follower.until_state(PeerState::Ready).await;

    let bound = Duration::from_secs(7) + Duration::from_secs(3) * patience();
    assert!(noticed < bound, "the loss: {noticed:?}");
    assert!(replaced < bound, "the new content: {replaced:?}");
    assert!(follower.status().failures > failures);
}

async fn many_exports_come_and_go<S: Subject>(subject: S) {
    let names: Vec<_> = (0..600)
        .map(|number| format!("service-{number:03}"))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (writer, follower) = followed(&subject, &names).await;

    for name in &names[..300] {
        writer.unexport(name).await;
    }

    follower.until_rows(&names[300..]).await;
}
