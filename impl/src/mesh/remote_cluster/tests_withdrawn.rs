//! Capabilities that a peer withdraws: what was known stays for a while, then goes.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tombolo_core::wire::{
    cluster_config::{Capabilities, EndpointSlicesExportMode},
    key::Resource,
};

use super::{
    super::peers::PeerState,
    Memory,
    testkit::{Follower, Writer, battery, capable},
};
use crate::kvstore::testing::{Memory as InMemory, Subject};

battery![
    exports_that_are_withdrawn_stay_for_a_while_and_come_back_with_the_capability,
    services_go_when_the_peer_has_published_slices_only_for_long_enough,
    without_its_canaries_a_peer_is_not_believed_for_a_while,
];

/// How long what was withdrawn stays: long enough for a busy machine to see it stay.
const A_WHILE: Duration = Duration::from_secs(10);

/// A peer with the export `cart` and the service `web`, followed until ready.
async fn followed_for<S: Subject>(
    subject: &S,
    withdrawn_for: Duration,
) -> (Writer<S::Store>, Follower<S::Store>) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    writer.service("web", true).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.withdrawn_for = withdrawn_for;
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    follower.until_rows(&["cart", "web"]).await;
    (writer, follower)
}

fn without_exports() -> Capabilities {
    Capabilities {
        service_exports_enabled: None,
        ..capable()
    }
}

async fn exports_that_are_withdrawn_stay_for_a_while_and_come_back_with_the_capability<
    S: Subject,
>(
    subject: S,
) {
    let (writer, follower) = followed_for(&subject, A_WHILE).await;

    writer.config(2, without_exports()).await;
    follower.until_state(PeerState::Suspect).await;
    follower
        .until_error("serviceexports: the peer withdrew the capability")
        .await;
    let (rows, status) = (follower.rows(), follower.status());
    follower.until_rows(&["web"]).await;
    follower.until_state(PeerState::Ready).await;
    writer.config(2, capable()).await;

    assert_eq!(rows, ["cart", "web"]);
    let exports = &status.kinds[&Resource::ServiceExports];
    let left = exports.withdrawn_for_seconds.unwrap();
    assert!(left <= A_WHILE.as_secs(), "{left}");
    assert!(!exports.published);
    follower.until_rows(&["cart", "web"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn services_go_when_the_peer_has_published_slices_only_for_long_enough<S: Subject>(
    subject: S,
) {
    let (writer, follower) = followed_for(&subject, A_WHILE).await;

    let endpoint_slices_export_mode = EndpointSlicesExportMode::EndpointSlicesOnly;
    let capabilities = Capabilities {
        endpoint_slices_export_mode,
        ..capable()
    };
    writer.config(2, capabilities).await;
    follower.until_state(PeerState::Suspect).await;
    let rows = follower.rows();

    assert_eq!(rows, ["cart", "web"]);
    follower.until_rows(&["cart"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn without_its_canaries_a_peer_is_not_believed_for_a_while<S: Subject>(subject: S) {
    let (writer, follower) = followed_for(&subject, A_WHILE).await;

    let synced_canaries = false;
    let capabilities = Capabilities {
        synced_canaries,
        ..capable()
    };
    writer.config(2, capabilities).await;
    follower.until_state(PeerState::Suspect).await;
    writer.unexport("cart").await;
    writer.export("new", 1).await;
    follower.until_rows(&["cart", "new", "web"]).await;

    follower.until_rows(&["new", "web"]).await;
    follower.until_state(PeerState::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_is_the_default_and_zero_is_for_ever() {
    for (withdrawn_for, goes) in [(Duration::from_hours(1), true), (Duration::ZERO, false)] {
        let subject = InMemory::start().await;
        let (writer, follower) = followed_for(&subject, withdrawn_for).await;
        let _beating = writer.keep_beating();
        let begin = Instant::now();

        writer.config(2, without_exports()).await;
        follower.until_state(PeerState::Suspect).await;
        sleep(Duration::from_mins(59)).await;
        let rows = follower.rows();
        sleep(Duration::from_mins(2)).await;

        assert_eq!(rows, ["cart", "web"]);
        assert_eq!(follower.rows().len(), if goes { 1 } else { 2 });
        assert!(begin.elapsed().as_secs() > 60 * 60);
    }
}
