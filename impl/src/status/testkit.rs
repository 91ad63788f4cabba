//! For tests: answers of processes with which all is well, to be spoilt.

use jiff::{SignedDuration, Timestamp};
use tombolo_core::{
    peer_status::{Failure, KindStatus, PeerState, PeerStatus},
    wire::{
        cluster_config::{Capabilities, ClusterConfig},
        key::Resource,
    },
};

use super::answer::{
    Answer, ApiServer, Asked, Copies, Failures, Keys, Leadership, Lease, LeftOut, Member, OwnStore,
    Peer, PeerCopy, Peers, Ready, Watched, Work,
};

/// The time of every answer.
pub(crate) fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// So many seconds before the answer.
pub(crate) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A peer with which all is well.
pub(crate) fn peer(name: &str, id: u32) -> Peer {
    let mut status = PeerStatus::new(name.try_into().unwrap(), ago(3600));
    status.state = PeerState::Ready;
    status.synced = true;
    status.connected = true;
    status.endpoint = format!("https://{name}.mesh.example:2379");
    status.store_id = Some("cdf818194e3a8c32".to_owned());
    status.last_contact = Some(ago(1));
    status.head = 100;
    status.config = Some(ClusterConfig {
        id: id.try_into().unwrap(),
        capabilities: Capabilities {
            synced_canaries: true,
            max_connected_clusters: 511,
            service_exports_enabled: Some(true),
            ..Capabilities::default()
        },
    });
    for (kind, records) in [(Resource::ServiceExports, 12), (Resource::Services, 40)] {
        let known = KindStatus {
            published: true,
            synced: true,
            records,
            revision: 100,
            ..KindStatus::default()
        };
        status.kinds.insert(kind, known);
    }
    Peer {
        status,
        asked: Asked {
            head: Some(100),
            error: None,
            age_seconds: 0.2,
            current: vec![Resource::ServiceExports, Resource::Services],
        },
    }
}

/// A peer whose store does not answer any more.
pub(crate) fn lost(name: &str, id: u32) -> Peer {
    let mut peer = peer(name, id);
    let text = format!(
        "https://{name}.mesh.example:2379: get: no connection: connection refused; check that etcd runs there and that its port is open"
    );
    peer.status.state = PeerState::Suspect;
    peer.status.connected = false;
    peer.status.last_error = Some(text.clone());
    peer.status.failures = 4;
    peer.status.last_failure = Some(Failure {
        at: ago(12),
        reason: "Unreachable".to_owned(),
        text: text.clone(),
    });
    peer.status.expires_in_seconds = Some(540);
    peer.asked = Asked {
        head: None,
        error: Some(text),
        age_seconds: 0.1,
        current: Vec::new(),
    };
    peer
}

/// A peer of which one kind is behind.
pub(crate) fn late(name: &str, id: u32) -> Peer {
    let mut peer = peer(name, id);
    peer.status.head = 117;
    peer.asked.head = Some(117);
    peer.asked.current = vec![Resource::Services];
    let exports = peer.status.kinds.get_mut(&Resource::ServiceExports);
    exports.unwrap().behind_since = Some(ago(95));
    peer
}

/// An operator with these peers.
pub(crate) fn operator(peers: Vec<Peer>) -> Answer {
    Answer {
        nonce: "1".to_owned(),
        at: now(),
        version: "0.1.0".to_owned(),
        role: "operator".to_owned(),
        cluster: Some(Member {
            name: "paris".to_owned(),
            id: 1,
        }),
        up_seconds: 11_520,
        ready: vec![Ready {
            check: "controllers".to_owned(),
            ok: true,
            failure: None,
            counts: true,
        }],
        stuck: Vec::new(),
        api_server: api_server(),
        leadership: Some(leader()),
        queues: vec![idle("service-import"), idle("service-export")],
        peers: Some(Peers {
            configured: true,
            peers,
        }),
        store: None,
        copies: None,
    }
}

/// An API server that answers.
pub(crate) fn api_server() -> ApiServer {
    let watch = |path: &str| Watched {
        path: path.to_owned(),
        begun_seconds_ago: 12.0,
        failure: None,
    };
    ApiServer {
        answered_seconds_ago: Some(0.1),
        error: None,
        watches: vec![watch("/api/v1/services"), watch("/api/v1/namespaces")],
    }
}

/// A replica that leads by a Lease.
pub(crate) fn leader() -> Leadership {
    Leadership {
        elected: true,
        leads: true,
        identity: Some("operator-0_1f".to_owned()),
        holder: Some("operator-0_1f".to_owned()),
        renewed_seconds_ago: None,
        believed_seconds: 15.0,
        failure: None,
    }
}

/// A replica that stands by, and sees another lead.
pub(crate) fn standby() -> Leadership {
    Leadership {
        leads: false,
        identity: Some("operator-1_2e".to_owned()),
        renewed_seconds_ago: Some(1.5),
        ..leader()
    }
}

/// A queue with nothing in it.
pub(crate) fn idle(controller: &str) -> Work {
    Work {
        controller: controller.to_owned(),
        waiting: 0,
        working: 0,
        retrying: 0,
        oldest_seconds: None,
        held: false,
    }
}

/// The store of a publisher with which all is well.
pub(crate) fn store() -> OwnStore {
    let keys = [
        ("services", 40),
        ("serviceexports", 12),
        ("canaries", 6),
        ("cluster-config", 1),
    ];
    OwnStore {
        endpoints: "http://127.0.0.1:2379".to_owned(),
        asked: Asked {
            head: Some(1234),
            error: None,
            age_seconds: 0.1,
            current: vec![Resource::ServiceExports, Resource::Services],
        },
        published: true,
        keys: keys
            .map(|(kind, count)| Keys {
                kind: kind.to_owned(),
                count,
            })
            .into(),
        waiting: 0,
        left_out: LeftOut::default(),
        lease: Lease {
            ttl_seconds: 900,
            held: 1,
            confirmed_seconds_ago: Some(3.0),
        },
        failures: Failures::default(),
    }
}

/// A mesh role with this store.
pub(crate) fn mesh(store: OwnStore) -> Answer {
    Answer {
        role: "mesh".to_owned(),
        leadership: None,
        queues: Vec::new(),
        peers: None,
        store: Some(store),
        ..operator(Vec::new())
    }
}

/// A mesh role that copies these peers, with which all is well.
pub(crate) fn copier(peers: Vec<Peer>) -> Answer {
    let mut names: Vec<_> = peers
        .iter()
        .map(|peer| peer.status.cluster.clone())
        .collect();
    names.sort();
    let copies = names.into_iter().map(|cluster| PeerCopy {
        cluster,
        stays: true,
        accepted: true,
        config: true,
        waiting: 0,
        steps: 0,
        canaries: Resource::ALL.into(),
    });
    let store = store();
    let asked = Asked {
        current: Resource::ALL.into(),
        ..store.asked.clone()
    };
    Answer {
        copies: Some(Copies {
            leads: true,
            holder: None,
            asked,
            listed: true,
            waiting: 0,
            lease: store.lease.clone(),
            failures: Failures::default(),
            peers: copies.collect(),
        }),
        peers: Some(Peers {
            configured: true,
            peers,
        }),
        ..mesh(store)
    }
}
