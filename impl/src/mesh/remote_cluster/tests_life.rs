//! Signs of life: what is kept of a peer that is not heard of, and for how long.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    super::peers::PeerState,
    Memory,
    testkit::{Follower, Writer, battery, followed},
};
use crate::kvstore::testing::{Memory as InMemory, Subject};

battery![a_peer_that_is_not_heard_of_expires_and_is_shown_again_when_it_is_back];

async fn a_peer_that_is_not_heard_of_expires_and_is_shown_again_when_it_is_back<S: Subject>(
    mut subject: S,
) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart", "gone"]).await;
    writer.service("web", true).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.cache_ttl = Duration::from_secs(5);
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    follower.until_rows(&["cart", "gone", "web"]).await;
    let healthy = follower.status().expires_in_seconds;
    follower.take_dirty();

    subject.stop().await;
    follower.until_state(PeerState::Suspect).await;
    let (rows, left) = (follower.rows(), follower.status().expires_in_seconds);
    follower.until_state(PeerState::Expired).await;
    let (dirty, expired) = (follower.take_dirty(), follower.rows());
    let telling = follower.state.statuses().may_remove(&follower.peer);
    subject.resume().await;
    follower.until_rows(&["cart", "gone", "web"]).await;

    assert_eq!(healthy, None);
    assert_eq!(rows, ["cart", "gone", "web"]);
    assert!(left.is_some_and(|left| left <= 5), "{left:?}");
    assert_eq!(dirty, ["cart", "gone", "web"]);
    assert!(expired.is_empty() && telling);
    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.status().expires_in_seconds, None);
}

#[tokio::test(start_paused = true)]
async fn without_a_time_to_live_a_peer_that_is_away_stays() {
    let mut subject = InMemory::start().await;
    let (_writer, follower) = followed(&subject, &["cart"]).await;

    subject.stop().await;
    follower.until_state(PeerState::Suspect).await;
    sleep(Duration::from_hours(24)).await;

    let status = follower.status();
    assert_eq!(status.state, PeerState::Suspect);
    assert_eq!(status.expires_in_seconds, None);
    assert!(status.failures > 1000, "{}", status.failures);
    assert_eq!(status.last_failure.unwrap().reason, "Unreachable");
    assert_eq!(follower.rows(), ["cart"]);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_was_never_reached_expires_too() {
    let mut subject = InMemory::start().await;
    subject.stop().await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.cache_ttl = Duration::from_mins(10);
    let begin = Instant::now();

    follower.start(Memory::default());
    sleep(Duration::from_mins(9)).await;
    let before = follower.state.statuses().may_remove(&follower.peer);
    follower.until_state(PeerState::Expired).await;

    assert!(!before, "its silence means nothing yet");
    assert_eq!(begin.elapsed().as_secs() / 60, 10);
    assert!(follower.state.statuses().may_remove(&follower.peer));
    assert!(follower.state.statuses().all_synced());
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_stops_makes_the_peer_suspect_and_removes_nothing() {
    let subject = InMemory::start().await;
    let (writer, follower) = followed(&subject, &["cart"]).await;
    let beating = writer.keep_beating();
    sleep(Duration::from_mins(10)).await;
    let while_beating = follower.status().state;

    beating.abort();
    let begin = Instant::now();
    follower.until_state(PeerState::Suspect).await;
    let after = begin.elapsed().as_secs();
    follower
        .until_error("cilium/.heartbeat has not changed for 2 min")
        .await;
    let rows = follower.rows();
    writer.beat().await;

    assert_eq!(while_beating, PeerState::Ready);
    assert!((60..=125).contains(&after), "{after} s");
    assert_eq!(rows, ["cart"]);
    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.status().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_writer_expires_although_its_store_answers_and_its_leftovers_stay_away() {
    let subject = InMemory::start().await;
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.cache_ttl = Duration::from_mins(10);
    let begin = Instant::now();

    follower.start(Memory::default());
    follower.until_state(PeerState::Suspect).await;
    follower.until_state(PeerState::Expired).await;
    let after = begin.elapsed().as_secs() / 60;
    sleep(Duration::from_mins(30)).await;
    let (state, rows) = (follower.status().state, follower.rows());
    writer.beat().await;

    assert_eq!(after, 12);
    assert_eq!(state, PeerState::Expired);
    assert!(rows.is_empty(), "nothing flaps: {rows:?}");
    follower.until_rows(&["cart"]).await;
    follower.until_state(PeerState::Ready).await;
}
