//! The cluster-config of a peer: who is accepted, what is followed, what a change means.

use tombolo_core::{
    evidence::Evidence,
    wire::{
        cluster_config::{Capabilities, EndpointSlicesExportMode},
        key::{self, Resource},
        service_export,
    },
};

use super::{
    super::peers::PeerState,
    Memory, Records,
    testkit::{Follower, Writer, battery, capable, export, followed},
};
use crate::kvstore::{
    KvStore,
    testing::{Subject, eventually},
};

battery![
    a_peer_without_cluster_config_is_followed_as_soon_as_it_has_one,
    a_cluster_config_that_goes_makes_the_peer_suspect_and_removes_nothing,
    a_broken_cluster_config_makes_the_peer_suspect_and_removes_nothing,
    another_id_removes_the_rows_and_begins_anew,
    the_local_id_is_refused,
    the_id_of_another_peer_is_refused_until_it_is_given_up,
    an_id_beyond_the_limit_and_another_limit_are_refused,
    a_mesh_of_511_accepts_large_ids_and_one_of_255_any_limit,
    exports_are_followed_although_the_peer_has_the_mcs_api_switched_off,
    without_mcs_api_exports_are_not_followed_and_not_waited_for,
    without_canaries_records_are_read_and_removed_at_once,
    a_cached_peer_is_read_below_the_cache,
    without_services_records_their_canary_is_not_waited_for,
    a_capability_that_is_withdrawn_leaves_the_rows_suspect,
];

async fn a_peer_without_cluster_config_is_followed_as_soon_as_it_has_one<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower
        .until_error("cilium/cluster-config/rome is missing")
        .await;
    writer.fill(&["cart"]).await;

    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), ["cart"]);
}

async fn a_cluster_config_that_goes_makes_the_peer_suspect_and_removes_nothing<S: Subject>(
    subject: S,
) {
    let (writer, follower) = followed(&subject, &["cart", "gone"]).await;

    writer
        .store
        .delete(&key::cluster_config_key(&writer.name))
        .await
        .unwrap();
    follower.until_state(PeerState::Suspect).await;
    writer.unexport("gone").await;
    writer.export("new", 1).await;
    follower.until_rows(&["cart", "gone", "new"]).await;
    writer.config(2, capable()).await;

    follower.until_rows(&["cart", "new"]).await;
    follower.until_state(PeerState::Ready).await;
}

async fn a_broken_cluster_config_makes_the_peer_suspect_and_removes_nothing<S: Subject>(
    subject: S,
) {
    let (writer, follower) = followed(&subject, &["cart"]).await;

    writer
        .put(&key::cluster_config_key(&writer.name), b"{".to_vec())
        .await;
    follower.until_state(PeerState::Suspect).await;
    follower
        .until_error("cilium/cluster-config/rome cannot be read")
        .await;
    writer.export("new", 1).await;

    follower.until_rows(&["cart", "new"]).await;
}

async fn another_id_removes_the_rows_and_begins_anew<S: Subject>(subject: S) {
    let (mut writer, follower) = followed(&subject, &["cart", "web"]).await;
    follower.take_dirty();

    writer.new_lease().await;
    writer.unexport("cart").await;
    writer.export("web", 7).await;
    eventually("the change", async || follower.second("web") == Some(7)).await;
    follower.take_dirty();
    writer.config(3, capable()).await;
    eventually("the new id", async || {
        follower
            .status()
            .config
            .is_some_and(|config| config.id.get() == 3)
    })
    .await;

    follower.until_rows(&["web"]).await;
    follower.until_state(PeerState::Ready).await;
    let dirty = follower.take_dirty();
    assert_eq!(dirty, ["web", "web"], "the row went and came");
    assert!(
        follower
            .reservations
            .take(2.try_into().unwrap(), &"oslo".try_into().unwrap())
            .is_ok()
    );
}

async fn the_local_id_is_refused<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    writer.config(1, capable()).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower
        .until_error("clusterID 1 is assigned to the local cluster")
        .await;
    let (rows, status) = (follower.rows(), follower.status());
    writer.config(2, capable()).await;

    assert!(rows.is_empty());
    assert_eq!(
        (status.state, status.synced),
        (PeerState::Connecting, false)
    );
    follower.until_state(PeerState::Ready).await;
}

async fn the_id_of_another_peer_is_refused_until_it_is_given_up<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    let mut follower = Follower::new("rome", subject.store());
    let oslo = "oslo".try_into().unwrap();
    follower
        .reservations
        .take(2.try_into().unwrap(), &oslo)
        .unwrap();

    follower.start(Memory::default());
    follower
        .until_error("clusterID 2 is already used by oslo")
        .await;
    follower.reservations.release(&oslo);

    follower.until_state(PeerState::Ready).await;
}

async fn an_id_beyond_the_limit_and_another_limit_are_refused<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    writer.config(300, capable()).await;
    let mut small = Follower::new("rome", subject.store());
    small.start(Memory::default());
    small
        .until_error("clusterID 300 is larger than the 255 clusters of this mesh")
        .await;
    let mut large = Follower::new("rome", subject.store());
    large.max_connected = 511;

    large.start(Memory::default());

    large
        .until_error("mismatched MaxConnectedClusters; local=511, remote=255")
        .await;
}

async fn a_mesh_of_511_accepts_large_ids_and_one_of_255_any_limit<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    let large = Capabilities {
        max_connected_clusters: 511,
        ..capable()
    };

    writer.config(511, large.clone()).await;
    let mut of_511 = Follower::new("rome", subject.store());
    of_511.max_connected = 511;
    of_511.start(Memory::default());
    of_511.until_state(PeerState::Ready).await;
    let id = of_511.status().config.unwrap().id.get();
    writer.config(255, large).await;
    let mut of_255 = Follower::new("rome", subject.store());
    of_255.start(Memory::default());

    of_255.until_state(PeerState::Ready).await;
    assert_eq!(id, 511);
}

async fn exports_are_followed_although_the_peer_has_the_mcs_api_switched_off<S: Subject>(
    subject: S,
) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    let service_exports_enabled = Some(false);
    let capabilities = Capabilities {
        service_exports_enabled,
        ..capable()
    };
    writer.config(2, capabilities).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());

    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), ["cart"]);
}

async fn without_mcs_api_exports_are_not_followed_and_not_waited_for<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    let service_exports_enabled = None;
    writer
        .config(
            2,
            Capabilities {
                service_exports_enabled,
                ..capable()
            },
        )
        .await;
    writer.export("cart", 1).await;
    writer.service("web", true).await;
    writer.canary(Resource::Services).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());

    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), ["web"]);
}

async fn without_canaries_records_are_read_and_removed_at_once<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    let synced_canaries = false;
    writer
        .config(
            2,
            Capabilities {
                synced_canaries,
                ..capable()
            },
        )
        .await;
    writer.export("cart", 1).await;
    writer.export("web", 1).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    writer.unexport("cart").await;
    follower.until_rows(&["web"]).await;
    writer.end_lease().await;

    follower.until_state(PeerState::Suspect).await;
    assert_eq!(follower.rows(), ["web"]);
}

async fn a_cached_peer_is_read_below_the_cache<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    writer
        .config(
            2,
            Capabilities {
                cached: true,
                ..capable()
            },
        )
        .await;
    let (_, value) = service_export::encode(&export(&writer.name, "cart", 1));
    writer
        .put(
            &format!(
                "{}shop/cart",
                key::service_exports_prefix(&writer.name, true)
            ),
            value,
        )
        .await;
    writer.export("not-this", 1).await;
    for resource in [Resource::Services, Resource::ServiceExports] {
        writer
            .put(&key::canary_key(&writer.name, resource, true), Vec::new())
            .await;
    }
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());

    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), ["cart"]);
}

async fn without_services_records_their_canary_is_not_waited_for<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.new_lease().await;
    let endpoint_slices_export_mode = EndpointSlicesExportMode::EndpointSlicesOnly;
    writer
        .config(
            2,
            Capabilities {
                endpoint_slices_export_mode,
                ..capable()
            },
        )
        .await;
    writer.export("cart", 1).await;
    writer.canary(Resource::ServiceExports).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());

    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), ["cart"]);
}

async fn a_capability_that_is_withdrawn_leaves_the_rows_suspect<S: Subject>(subject: S) {
    let (writer, follower) = followed(&subject, &["cart"]).await;

    let service_exports_enabled = None;
    writer
        .config(
            2,
            Capabilities {
                service_exports_enabled,
                ..capable()
            },
        )
        .await;
    follower.until_state(PeerState::Suspect).await;
    let rows = follower.rows();
    writer.config(2, capable()).await;

    assert_eq!(rows, ["cart"]);
    follower.until_state(PeerState::Ready).await;
    let kinds = follower.state.kinds();
    let evidence = Evidence::PeerRemoved;
    follower.state.drain(&follower.peer, kinds, evidence);
    assert!(follower.rows().is_empty());
}
