//! What the end of a lease proves: nothing, for as long as the writer may be dying.

use std::time::Duration;

use tokio::time::Instant;
use tombolo_core::wire::{cluster_config::ClusterConfig, key::Resource};

use super::{
    super::peers::PeerState,
    Memory,
    config::Accepted,
    happening::Feeds,
    memory::{Mark, SETTLE},
    testkit::{Follower, Tapped, Writer, battery, capable, followed},
    verdict::LEASES_ASKED_MAX,
};
use crate::kvstore::{
    KvStore, LeaseId,
    memory::MemoryStore,
    testing::{Memory as InMemory, Subject, eventually},
};

battery![
    a_writer_that_dies_lease_by_lease_removes_nothing,
    a_deletion_on_a_living_lease_beside_the_canarys_is_one,
    a_list_that_lacks_keys_of_an_ended_lease_is_not_believed,
    a_new_canary_makes_a_list_believable_at_once,
    keys_of_an_ended_lease_stay_when_the_peers_file_changes,
];

/// A peer whose exports hang on one lease and whose canaries on another; followed until ready. Returns the first lease.
async fn followed_with_two_leases<S: Subject>(
    subject: &S,
    exports: &[&str],
) -> (Writer<S::Store>, Follower<S::Store>, LeaseId) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    for export in exports {
        writer.export(export, 1).await;
    }
    let lease = writer.another_lease().await;
    writer.config(2, capable()).await;
    writer.canaries().await;
    let mut follower = Follower::new("rome", subject.store());
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    (writer, follower, lease)
}

async fn a_writer_that_dies_lease_by_lease_removes_nothing<S: Subject>(subject: S) {
    let (mut writer, follower, lease) = followed_with_two_leases(&subject, &["cart", "gone"]).await;

    writer.store.revoke(lease).await.unwrap();
    follower.until_state(PeerState::Suspect).await;
    writer.export("new", 1).await;
    follower.until_rows(&["cart", "gone", "new"]).await;
    writer.end_lease().await;
    writer.new_lease().await;
    writer.export("newer", 1).await;
    follower.until_rows(&["cart", "gone", "new", "newer"]).await;
    writer.fill(&["cart", "newer"]).await;

    follower.until_rows(&["cart", "newer"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn a_deletion_on_a_living_lease_beside_the_canarys_is_one<S: Subject>(subject: S) {
    let (writer, follower, _) = followed_with_two_leases(&subject, &["cart", "web"]).await;

    writer.unexport("cart").await;

    follower.until_rows(&["web"]).await;
    assert_eq!(follower.status().state, PeerState::Ready);
}

async fn a_list_that_lacks_keys_of_an_ended_lease_is_not_believed<S: Subject>(subject: S) {
    let (writer, mut follower, lease) = followed_with_two_leases(&subject, &["cart", "gone"]).await;

    let memory = follower.stop().await;
    writer.store.revoke(lease).await.unwrap();
    writer.export("new", 1).await;
    subject.compact().await;
    follower.start(memory);
    follower.until_rows(&["cart", "gone", "new"]).await;

    follower.until_state(PeerState::Suspect).await;
    assert_eq!(follower.rows(), ["cart", "gone", "new"]);
}

async fn a_new_canary_makes_a_list_believable_at_once<S: Subject>(subject: S) {
    let (mut writer, follower, lease) = followed_with_two_leases(&subject, &["cart", "gone"]).await;

    writer.store.revoke(lease).await.unwrap();
    follower.until_state(PeerState::Suspect).await;
    writer.new_lease().await;
    writer.export("cart", 1).await;
    writer.canary(Resource::ServiceExports).await;

    follower.until_rows(&["cart"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn keys_of_an_ended_lease_stay_when_the_peers_file_changes<S: Subject>(subject: S) {
    let (writer, mut follower, lease) = followed_with_two_leases(&subject, &["cart", "gone"]).await;

    for suspect_before in [false, true] {
        if suspect_before {
            follower.until_state(PeerState::Suspect).await;
        }
        let mut memory = follower.stop().await;
        memory.forget_positions();
        if !suspect_before {
            writer.store.revoke(lease).await.unwrap();
            writer.export("new", 1).await;
        }
        follower.start(memory);
        follower.until_rows(&["cart", "gone", "new"]).await;
    }
    follower.until_state(PeerState::Suspect).await;
    // What comes after the list shows what the list did.
    writer.export("newer", 1).await;
    follower.until_rows(&["cart", "gone", "new", "newer"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_put_back_removes_nothing_before_its_lease_would_have_ended() {
    let subject = InMemory::start().await;
    let (writer, follower) = followed(&subject, &["cart"]).await;
    let earlier = writer.store.get("x").await.unwrap().revision;
    // More revisions than the store makes again before it is looked at.
    for second in 1..=50 {
        writer.export("web", second).await;
    }
    eventually("all is taken over", async || {
        follower.second("web") == Some(50)
    })
    .await;
    let _beating = writer.keep_beating();
    let begin = tokio::time::Instant::now();

    writer.store.put_back(earlier);
    follower.until_state(PeerState::Suspect).await;
    writer.export("new", 1).await;
    follower.until_rows(&["cart", "new", "web"]).await;
    follower.until_rows(&["cart", "new"]).await;

    assert!(begin.elapsed().as_secs() > 15 * 60, "{:?}", begin.elapsed());
    follower.until_state(PeerState::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_an_earlier_writer_go_once_the_canary_has_stood_for_long() {
    let subject = InMemory::start().await;
    let (writer, follower, lease) = followed_with_two_leases(&subject, &["left-over"]).await;
    writer.export("cart", 1).await;
    let _beating = writer.keep_beating();
    let begin = Instant::now();

    writer.store.revoke(lease).await.unwrap();
    follower.until_state(PeerState::Suspect).await;
    let rows = follower.rows();
    follower.until_rows(&["cart"]).await;

    assert_eq!(rows, ["cart", "left-over"]);
    assert!(begin.elapsed().as_secs() >= 5 * 60, "{:?}", begin.elapsed());
    follower.until_state(PeerState::Ready).await;
}

/// A peer with so many exports, each on a lease of its own; followed until ready, then cut off while all of them are deleted.
async fn all_deleted_while_away(count: usize) -> (Tapped, Writer<Tapped>, Follower<Tapped>) {
    let memory = MemoryStore::new("rome");
    let store = Tapped::new(memory.clone());
    let mut writer = Writer::new("rome", store.clone());
    let names: Vec<_> = (0..count).map(|number| format!("s{number}")).collect();
    for name in &names {
        writer.new_lease().await;
        writer.export(name, 1).await;
    }
    writer.new_lease().await;
    writer.config(2, capable()).await;
    writer.canaries().await;
    let mut follower = Follower::new("rome", store.clone());
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows().len(), count);
    let learnt = follower.stop().await;
    for name in &names {
        writer.unexport(name).await;
    }
    // So that there is a list to be believed, or not.
    memory.compact();
    follower.start(learnt);
    (store, writer, follower)
}

#[tokio::test(start_paused = true)]
async fn many_leases_are_asked_for_a_few_at_a_time() {
    let (store, _writer, follower) = all_deleted_while_away(100).await;

    follower.until_rows(&[]).await;

    assert_eq!(store.leases(), (100, 16));
    follower.until_state(PeerState::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn of_too_many_leases_none_is_asked_for_and_rows_stay_until_the_canary_has_stood_for_long() {
    let count = LEASES_ASKED_MAX + 1;
    let (store, writer, follower) = all_deleted_while_away(count).await;
    let _beating = writer.keep_beating();
    let begin = Instant::now();

    follower.until_state(PeerState::Suspect).await;
    let (rows, asked) = (follower.rows().len(), store.leases());
    follower.until_state(PeerState::Ready).await;

    assert_eq!((rows, asked), (count, (0, 0)));
    assert!(begin.elapsed().as_secs() >= 5 * 60, "{:?}", begin.elapsed());
    assert!(follower.rows().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_unsettled_of_a_kind_that_is_not_followed_any_more_keeps_nobody_busy() {
    let follower = Follower::new("rome", MemoryStore::new("rome"));
    let mut remote = follower.remote(Memory::default());
    let mark = Mark {
        create_revision: 7,
        lease: None,
    };
    let exports = remote.memory.feed_mut(Resource::ServiceExports);
    exports.unsettle(mark, Instant::now(), SETTLE);
    exports.last_mark = Some(mark);
    let accepted = Accepted {
        config: ClusterConfig {
            id: 2.try_into().unwrap(),
            capabilities: capable(),
        },
        present: None,
    };
    tokio::time::advance(Duration::from_mins(10)).await;
    let mut probe = Instant::now() + Duration::from_mins(1);

    let due = remote.next_timer(probe);
    let mut feeds = Feeds(Vec::new());
    let ended = remote.on_timer(&accepted, &mut feeds, &mut probe);
    assert!(ended.await.unwrap().is_continue());

    assert!(due <= Instant::now());
    assert_eq!(remote.next_timer(probe), probe);
}
