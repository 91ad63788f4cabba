//! Several peers do not disturb each other.

use std::fs;

use super::{
    super::{peers::PeerState, remote_cluster::testkit::service},
    testkit::{Here, file_of, peer},
    *,
};
use crate::kvstore::testing::{Subject, eventually};

#[tokio::test]
async fn two_peers_do_not_disturb_each_other() {
    let (mut rome_etcd, _) = peer("rome", 2, &["cart", "rome-only"]).await;
    let (oslo_etcd, oslo) = peer("oslo", 3, &["cart"]).await;
    let here = Here::start(|dir| {
        fs::write(dir.join("rome"), file_of(&rome_etcd)).unwrap();
        fs::write(dir.join("oslo"), file_of(&oslo_etcd)).unwrap();
        fs::write(dir.join("paris"), "endpoints: nowhere").unwrap();
    });
    here.until_state("rome", PeerState::Ready).await;
    here.until_state("oslo", PeerState::Ready).await;
    assert_eq!(here.state.exports(&service("cart")).len(), 2);

    rome_etcd.wipe().await;
    oslo.unexport("cart").await;
    oslo.export("web", 1).await;

    here.until_rows(&["cart", "rome-only", "web"]).await;
    here.until_state("rome", PeerState::Suspect).await;
    assert_eq!(here.status("oslo").unwrap().state, PeerState::Ready);
    here.until_error("paris", "/paris: ").await;
}

#[tokio::test]
async fn two_peers_with_one_id_are_not_both_accepted() {
    let (rome_etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let (oslo_etcd, _oslo) = peer("oslo", 2, &["web"]).await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&rome_etcd)).unwrap());
    here.until_rows(&["cart"]).await;

    here.put("oslo", &file_of(&oslo_etcd));
    here.until_error("oslo", "clusterID 2 is already used by rome")
        .await;
    let rows = here.rows();
    fs::remove_file(here.dir.path().join("rome")).unwrap();

    assert_eq!(rows, ["cart"]);
    here.until_rows(&["web"]).await;
}

#[tokio::test]
async fn an_unsynced_peer_holds_removals_back_and_all_are_synced_when_it_is() {
    let (etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|dir| {
        fs::write(dir.join("rome"), file_of(&etcd)).unwrap();
        fs::write(dir.join("oslo"), "endpoints: ['http://127.0.0.1:1']").unwrap();
    });
    let (rome, oslo, other) = (
        "rome".try_into().unwrap(),
        "oslo".try_into().unwrap(),
        "other".try_into().unwrap(),
    );

    here.until_rows(&["cart"]).await;
    eventually("rome is synced", async || {
        here.state.statuses().may_remove(&rome)
    })
    .await;
    let in_time = here.synced_within(Duration::from_millis(50)).await;

    assert!(!in_time);
    assert!(!here.state.statuses().may_remove(&oslo));
    assert!(here.state.statuses().may_remove(&other));
    fs::remove_file(here.dir.path().join("oslo")).unwrap();
    assert!(here.synced_within(Duration::from_secs(20)).await);
}
