//! Peers come, change and go with the directory and its files.

use std::{fs, os::unix::fs::symlink, sync::Arc};

use super::{
    super::{peers::PeerState, remote_cluster::testkit::Writer},
    testkit::{Here, file_of, peer},
    *,
};
use crate::kvstore::testing::{Etcd, Subject, eventually};

#[tokio::test]
async fn peers_come_change_and_go_with_their_files() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|_| {});
    assert!(
        here.synced_within(Duration::from_secs(20)).await,
        "no peers, all synced"
    );

    here.put("rome", &file_of(&etcd));
    here.until_rows(&["cart"]).await;
    here.put("rome", &format!("# another text\n{}", file_of(&etcd)));
    rome.export("web", 1).await;
    here.until_rows(&["cart", "web"]).await;
    fs::remove_file(here.dir.path().join("rome")).unwrap();

    here.until_rows(&[]).await;
    eventually("the peer is forgotten", async || {
        here.status("rome").is_none()
    })
    .await;
    here.cancel.cancel();
    here.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_file_that_names_another_store_keeps_the_rows_until_that_one_is_complete() {
    let (old, _) = peer("rome", 2, &["cart", "gone"]).await;
    let new = Etcd::start().await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&old)).unwrap());
    here.until_state("rome", PeerState::Ready).await;

    here.put("rome", &file_of(&new));
    here.until_error("rome", "cilium/cluster-config/rome is missing")
        .await;
    let (rows, status) = (here.rows(), here.status("rome").unwrap());
    Writer::new("rome", new.store())
        .fill(&["cart", "new"])
        .await;

    assert_eq!(rows, ["cart", "gone"]);
    assert_eq!(status.state, PeerState::Suspect);
    here.until_rows(&["cart", "new"]).await;
}

#[tokio::test]
async fn a_mounted_secret_that_is_swapped_changes_the_peers() {
    let (rome_etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let (oslo_etcd, _oslo) = peer("oslo", 3, &["web"]).await;
    let here = Here::start(|dir| {
        fs::create_dir(dir.join("..v1")).unwrap();
        fs::write(dir.join("..v1/rome"), file_of(&rome_etcd)).unwrap();
        symlink("..v1", dir.join("..data")).unwrap();
        symlink("..data/rome", dir.join("rome")).unwrap();
    });
    here.until_rows(&["cart"]).await;

    let dir = here.dir.path();
    fs::create_dir(dir.join("..v2")).unwrap();
    fs::write(dir.join("..v2/oslo"), file_of(&oslo_etcd)).unwrap();
    symlink("..v2", dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    symlink("..data/oslo", dir.join("oslo")).unwrap();
    fs::remove_file(dir.join("rome")).unwrap();
    fs::remove_dir_all(dir.join("..v1")).unwrap();

    here.until_rows(&["web"]).await;
}

#[tokio::test]
async fn a_file_that_is_empty_or_broken_for_a_while_keeps_its_peer() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&etcd)).unwrap());
    here.until_state("rome", PeerState::Ready).await;

    for (broken, complaint) in [("", "endpoints: missing"), ("endpoints: [", "is not valid")] {
        fs::write(here.dir.path().join("rome"), broken).unwrap();
        here.until_error("rome", complaint).await;
        assert_eq!(here.rows(), ["cart"]);
    }
    rome.export("web", 1).await;

    here.until_rows(&["cart", "web"]).await;
    let status = here.status("rome").unwrap();
    assert_eq!(status.state, PeerState::Ready, "it is followed as before");
    let error = status.file_error.expect("and its file is still broken");
    assert!(error.contains("is not valid"), "{error}");
    here.put("rome", &file_of(&etcd));
    eventually("the file is mended", async || {
        here.status("rome").unwrap().file_error.is_none()
    })
    .await;
}

#[tokio::test]
async fn a_file_that_becomes_a_link_to_nowhere_or_a_directory_keeps_its_peer() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&etcd)).unwrap());
    here.until_state("rome", PeerState::Ready).await;
    let file = here.dir.path().join("rome");

    fs::remove_file(&file).unwrap();
    symlink("..data/rome", &file).unwrap();
    here.until_error("rome", "cannot be read").await;
    rome.export("web", 1).await;
    here.until_rows(&["cart", "web"]).await;
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    here.until_error("rome", "endpoints: missing").await;
    rome.export("desk", 1).await;

    here.until_rows(&["cart", "desk", "web"]).await;
}

#[tokio::test]
async fn a_missing_directory_is_an_error_at_once() {
    let local = LocalCluster {
        name: "here".try_into().unwrap(),
        id: 1.try_into().unwrap(),
        max_connected: 255,
    };
    let state = RemoteState::new(Arc::new(|_| {}));

    let outcome = run_peers(
        "/nowhere/at/all".into(),
        local,
        state,
        Options::default(),
        CancellationToken::new(),
    )
    .await;

    assert!(
        outcome
            .unwrap_err()
            .to_string()
            .starts_with("/nowhere/at/all: ")
    );
}

#[tokio::test]
async fn a_directory_that_is_gone_for_a_while_is_no_longer_current() {
    let here = Here::start(|_| {});
    let current = || here.state.statuses().is_current();
    eventually("the directory was read", async || current()).await;

    fs::remove_dir(here.dir.path()).unwrap();
    eventually("that it is gone is known", async || !current()).await;
    assert!(here.state.statuses().is_loaded(), "what was read stays");
    fs::create_dir(here.dir.path()).unwrap();

    eventually("it was read again", async || current()).await;
    // It is another directory, which nobody has watched before.
    let (etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let begin = Instant::now();
    here.put("rome", &file_of(&etcd));
    here.until_rows(&["cart"]).await;
    let noticed = begin.elapsed();
    assert!(noticed < REREAD_INTERVAL / 3, "{noticed:?}");
}
