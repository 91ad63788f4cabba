use serde_json::{json, to_value};

use super::*;
use crate::wire::cluster_config::{Capabilities, EndpointSlicesExportMode};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn rome() -> PeerStatus {
    let mut rome = PeerStatus::new("rome".try_into().unwrap(), at(10));
    let kind = KindStatus {
        published: true,
        revision: 5,
        ..KindStatus::default()
    };
    rome.kinds.insert(Resource::Services, kind);
    rome
}

#[test]
fn the_shape_of_the_json_is_stable() {
    let mut rome = rome();
    rome.endpoint = "https://rome:2379".to_owned();
    rome.config = Some(ClusterConfig {
        id: 7.try_into().unwrap(),
        capabilities: Capabilities {
            synced_canaries: true,
            max_connected_clusters: 255,
            endpoint_slices_export_mode: EndpointSlicesExportMode::EndpointSlicesOnly,
            ..Capabilities::default()
        },
    });
    rome.last_failure = Some(Failure {
        at: at(11),
        reason: "Unreachable".to_owned(),
        text: "refused".to_owned(),
    });
    rome.limited = vec![Limit::Records];
    rome.expires_in_seconds = Some(9);

    let json = to_value(&rome).unwrap();

    let expected = json!({
        "cluster": "rome",
        "state": "Connecting",
        "since": "1970-01-01T00:00:10Z",
        "endpoint": "https://rome:2379",
        "connected": false,
        "synced": false,
        "config": { "id": 7, "capabilities": {
            "syncedCanaries": true, "cached": false, "maxConnectedClusters": 255, "serviceExportsEnabled": null,
            "endpointSlicesExportMode": "endpointslices-only" } },
        "failures": 0,
        "lastFailure": { "at": "1970-01-01T00:00:11Z", "reason": "Unreachable", "text": "refused" },
        "head": 0,
        "kinds": { "services": { "published": true, "synced": false, "records": 0, "bytes": 0, "revision": 5,
            "heldDeletions": 0, "refused": 0, "refusedNow": 0, "overLimit": 0 } },
        "expiresInSeconds": 9,
        "limited": ["Records"],
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<PeerStatus>(json).unwrap(), rome);
}

#[test]
fn since_is_the_time_of_the_last_change_of_state() {
    let mut rome = rome();

    rome.enter(PeerState::Connecting, at(20));
    assert_eq!(rome.since, at(10));
    rome.enter(PeerState::Listing, at(30));
    assert_eq!((rome.state, rome.since), (PeerState::Listing, at(30)));
}

#[test]
fn a_kind_is_behind_since_the_store_was_first_seen_ahead_of_it() {
    let mut rome = rome();

    rome.note_head(5, at(1));
    assert_eq!(rome.lag_revisions(Resource::Services), 0);
    rome.note_head(8, at(2));
    rome.note_head(9, at(3));
    assert_eq!(rome.kinds[&Resource::Services].behind_since, Some(at(2)));
    assert_eq!(rome.lag_revisions(Resource::Services), 4);
    let services = rome.kinds.get_mut(&Resource::Services).unwrap();
    services.revision = 9;
    rome.note_head(9, at(4));
    assert_eq!(rome.kinds[&Resource::Services].behind_since, None);
    assert_eq!(rome.lag_revisions(Resource::Nodes), 0);
}
