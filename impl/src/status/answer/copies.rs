//! What a process says of its copies of peers' records in the own store.

use serde::{Deserialize, Serialize};
use tombolo_core::{names::ClusterName, wire::key::Resource};

use super::{Asked, Failures, Lease};

/// Copies of peers' records in the own store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Copies {
    /// Whether this replica makes them; else it stands by, and follows no peers.
    pub leads: bool,
    /// Who holds the lock when this replica stands by, as the store said when the question came: a key of the store. None when
    /// nobody else does, or the store did not say.
    #[serde(deserialize_with = "Option::deserialize")]
    pub holder: Option<String>,
    /// What was found out when the question came; `current` names the kinds whose copies were seen up to the head.
    pub asked: Asked,
    /// Whether it is known what the store holds.
    pub listed: bool,
    /// Records that wait to be written, at least.
    pub waiting: u64,
    /// The leases that the copies hang on.
    pub lease: Lease,
    /// What went wrong.
    pub failures: Failures,
    /// The copy of each peer, by name. Also of those that are taken out of the configuration, until nothing is left of them.
    pub peers: Vec<PeerCopy>,
}

/// The copy of one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerCopy {
    /// The peer.
    pub cluster: ClusterName,
    /// Whether it is to stay; else the peer was taken out of the configuration.
    pub stays: bool,
    /// Whether the peer was accepted since this process began; else the copy is one of an earlier life.
    pub accepted: bool,
    /// Whether the cluster-config is written as it should be.
    pub config: bool,
    /// Records that wait to be written, at least.
    pub waiting: u64,
    /// Cluster-configs and canaries that are to be written or deleted.
    pub steps: u64,
    /// The kinds whose canary stands: everything that the peer said of them is written.
    pub canaries: Vec<Resource>,
}
