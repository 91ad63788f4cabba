//! Peers that never rest: they keep themselves busy, and this cluster hardly.

use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tombolo_core::{
    names::ClusterName,
    peer_status::Limit,
    wire::{
        canary,
        cluster_config::{self, ClusterConfig},
        key::Resource,
    },
};

use super::{
    super::peers::PeerState,
    Memory,
    testkit::{Follower, Tapped, Writer, capable},
};
use crate::kvstore::{KvStore, memory::MemoryStore, testing::eventually};

/// For how long a peer does not rest.
const RESTLESS: Duration = Duration::from_secs(30);

/// A peer `rome` that exports `cart`, in a store that says what it is asked, followed until ready.
async fn followed(store: &Tapped) -> (Writer<Tapped>, Follower<Tapped>) {
    let mut writer = Writer::new("rome", store.clone());
    writer.fill(&["cart"]).await;
    let mut follower = Follower::new("rome", store.clone());
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    (writer, follower)
}

/// Does something a thousand times a second for a while.
async fn restlessly(mut act: impl FnMut(u32)) {
    let end = Instant::now() + RESTLESS;
    let mut times = 0;
    while Instant::now() < end {
        act(times);
        times += 1;
        sleep(Duration::from_millis(1)).await;
    }
}

/// Deletes a key and writes it anew; a store in memory does so at once.
fn rewrite(store: &MemoryStore, key: &str, value: &[u8]) {
    let deleted = store.delete(key).now_or_never();
    deleted.expect("it does not wait").unwrap();
    put(store, key, value);
}

fn put(store: &MemoryStore, key: &str, value: &[u8]) {
    let put = store.put(key, value.to_vec(), None).now_or_never();
    put.expect("it does not wait").unwrap();
}

fn rome() -> ClusterName {
    "rome".try_into().unwrap()
}

fn config(id: u32) -> (String, Vec<u8>) {
    let config = ClusterConfig {
        id: id.try_into().unwrap(),
        capabilities: capable(),
    };
    cluster_config::encode(&rome(), &config)
}

/// What a peer exports from now on is followed as ever, and it is within its limits again.
async fn is_followed_as_ever(
    writer: &Writer<Tapped>,
    follower: &Follower<Tapped>,
    beating: &JoinHandle<()>,
) {
    follower.until_state(PeerState::Ready).await;
    writer.export("web", 1).await;
    let begin = Instant::now();
    follower.until_rows(&["cart", "web"]).await;
    let noticed = begin.elapsed();
    writer.unexport("web").await;
    follower.until_rows(&["cart"]).await;
    assert!(noticed < Duration::from_millis(100), "{noticed:?}");
    eventually("it is within its limits", async || {
        let status = follower.status();
        status.limited.is_empty() && status.last_error.is_none()
    })
    .await;
    assert!(!beating.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_is_rewritten_without_end_causes_few_lists() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (writer, follower) = followed(&store).await;
    let beating = writer.keep_beating();
    let before = store.lists();

    let (key, value) = canary::encode(&rome(), Resource::ServiceExports, Timestamp::UNIX_EPOCH);
    restlessly(|_| rewrite(&memory, &key, &value)).await;
    let (lists, status) = (store.lists() - before, follower.status());

    assert!((5..=20).contains(&lists), "{lists}");
    assert_eq!(status.limited, [Limit::EventRate]);
    assert_eq!(follower.rows(), ["cart"]);
    is_followed_as_ever(&writer, &follower, &beating).await;
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_is_rewritten_during_every_list_is_not_listed_after_without_a_pause() {
    let memory = MemoryStore::new("rome");
    let rewriting = memory.clone();
    let (key, value) = canary::encode(&rome(), Resource::ServiceExports, Timestamp::UNIX_EPOCH);
    let store = Tapped::new(memory.clone()).on_list(move |lists| {
        assert!(lists < 100, "it lists without end");
        rewrite(&rewriting, &key, &value);
    });
    let mut writer = Writer::new("rome", store.clone());
    writer.fill(&["cart"]).await;
    let _beating = writer.keep_beating();
    let mut follower = Follower::new("rome", store.clone());

    follower.start(Memory::default());
    follower.until_rows(&["cart"]).await;
    sleep(RESTLESS).await;

    let lists = store.lists();
    assert!((5..=40).contains(&lists), "{lists}");
    let error = follower.status().last_error.unwrap_or_default();
    assert!(error.contains("listed again"), "{error}");
    // What it says is followed all the same.
    writer.export("web", 1).await;
    follower.until_rows(&["cart", "web"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_config_that_is_rewritten_without_end_is_seldom_looked_at() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (writer, follower) = followed(&store).await;
    let beating = writer.keep_beating();
    let before = store.gets();

    let (key, value) = config(2);
    restlessly(|_| rewrite(&memory, &key, &value)).await;
    let (gets, status) = (store.gets() - before, follower.status());

    assert!((10..=200).contains(&gets), "{gets}");
    assert_eq!(status.limited, [Limit::EventRate]);
    assert_eq!(status.state, PeerState::Suspect);
    let error = status.last_error.unwrap_or_default();
    assert!(error.contains("looked at again"), "{error}");
    assert_eq!(follower.rows(), ["cart"]);
    is_followed_as_ever(&writer, &follower, &beating).await;
}

#[tokio::test(start_paused = true)]
async fn an_id_that_changes_without_end_empties_the_rows_seldom() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (writer, follower) = followed(&store).await;
    let beating = writer.keep_beating();
    let before = (store.gets(), store.lists());
    follower.take_dirty();

    restlessly(|times| {
        let (key, value) = config(2 + times % 2);
        put(&memory, &key, &value);
    })
    .await;
    let (key, value) = config(2);
    put(&memory, &key, &value);
    let (gets, lists) = (store.gets() - before.0, store.lists() - before.1);

    assert!((10..=200).contains(&gets), "{gets}");
    assert!(lists <= 40, "{lists}");
    assert!(follower.take_dirty().len() <= 40);
    is_followed_as_ever(&writer, &follower, &beating).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_cluster_config_that_is_rewritten_without_end_is_seldom_looked_at() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (_, value) = config(1);
    let (key, good) = config(2);
    put(&memory, &key, &value);
    let mut follower = Follower::new("rome", store.clone());
    follower.start(Memory::default());
    follower.until_error("assigned to the local cluster").await;
    let before = store.gets();

    restlessly(|_| put(&memory, &key, &value)).await;
    let gets = store.gets() - before;
    let begin = Instant::now();
    put(&memory, &key, &good);
    follower.until_state(PeerState::Listing).await;

    assert!((5..=40).contains(&gets), "{gets}");
    assert!(
        begin.elapsed() <= Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn connections_that_break_as_soon_as_they_are_made_are_made_seldom() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (writer, follower) = followed(&store).await;
    let beating = writer.keep_beating();
    let before = store.gets();

    restlessly(|_| memory.disconnect()).await;
    let gets = store.gets() - before;

    assert!((10..=200).contains(&gets), "{gets}");
    is_followed_as_ever(&writer, &follower, &beating).await;
}

#[tokio::test(start_paused = true)]
async fn heartbeats_without_end_count_as_events() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (writer, follower) = followed(&store).await;
    let beating = writer.keep_beating();

    let (key, value) = canary::heartbeat(Timestamp::UNIX_EPOCH);
    restlessly(|_| put(&memory, &key, &value)).await;
    let status = follower.status();

    assert_eq!(status.limited, [Limit::EventRate]);
    assert_eq!(status.state, PeerState::Ready);
    is_followed_as_ever(&writer, &follower, &beating).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_starts_anew_twice_is_listed_at_once() {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let (mut writer, follower) = followed(&store).await;
    let _beating = writer.keep_beating();

    for export in ["one", "two"] {
        writer.end_lease().await;
        follower.until_state(PeerState::Suspect).await;
        let begin = Instant::now();
        writer.fill(&["cart", export]).await;
        follower.until_rows(&["cart", export]).await;
        follower.until_state(PeerState::Ready).await;
        let took = begin.elapsed();
        assert!(took < Duration::from_millis(100), "{export}: {took:?}");
    }
}
