//! What the end of a lease proves: nothing, for as long as the writer may be dying.

use tombolo_core::wire::key::Resource;

use super::{
    super::peers::PeerState,
    Memory,
    testkit::{Follower, Writer, battery, capable},
};
use crate::kvstore::{
    KvStore, LeaseId,
    testing::{Memory as InMemory, Subject},
};

battery![
    a_writer_that_dies_lease_by_lease_removes_nothing,
    a_deletion_on_a_living_lease_beside_the_canarys_is_one,
    a_list_that_lacks_keys_of_an_ended_lease_is_not_believed,
    a_new_canary_makes_a_list_believable_at_once,
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

#[tokio::test(start_paused = true)]
async fn leftovers_of_an_earlier_writer_go_once_the_canary_has_stood_for_long() {
    let subject = InMemory::start().await;
    let (writer, follower, lease) = followed_with_two_leases(&subject, &["left-over"]).await;
    writer.export("cart", 1).await;
    let _beating = writer.keep_beating();
    let begin = tokio::time::Instant::now();

    writer.store.revoke(lease).await.unwrap();
    follower.until_state(PeerState::Suspect).await;
    let rows = follower.rows();
    follower.until_rows(&["cart"]).await;

    assert_eq!(rows, ["cart", "left-over"]);
    assert!(begin.elapsed().as_secs() >= 5 * 60, "{:?}", begin.elapsed());
    follower.until_state(PeerState::Ready).await;
}
