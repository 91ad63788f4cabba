//! The status of a peer in the shape of Cilium's `RemoteCluster`, as its operator's `GET /v1/cluster` gives it: members that are
//! zero or false are left out. For tools that know Cilium; it says nothing of how far behind a store anybody is.

use serde::Serialize;
use tombolo_core::{
    peer_status::{KindStatus, PeerState, PeerStatus},
    wire::{cluster_config::ClusterConfig, key::Resource},
};

/// Go's zero time, which Cilium shows for what has not happened.
const NEVER: &str = "0001-01-01T00:00:00.000Z";

/// Cilium's `RemoteCluster`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RemoteCluster {
    /// Its name.
    pub name: String,
    #[serde(skip_serializing_if = "is_false")]
    ready: bool,
    #[serde(skip_serializing_if = "is_false")]
    connected: bool,
    status: String,
    #[serde(skip_serializing_if = "is_zero")]
    num_shared_services: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_service_exports: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_endpoint_slices: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_failures: u64,
    last_failure: String,
    synced: Synced,
    config: Config,
}

/// Cilium's `RemoteClusterSynced`. What its operator does not follow counts as synced there, and here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Synced {
    endpoints: bool,
    identities: bool,
    nodes: bool,
    #[serde(skip_serializing_if = "is_false")]
    services: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_exports: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_slices: Option<bool>,
}

/// Cilium's `RemoteClusterConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    required: bool,
    #[serde(skip_serializing_if = "is_false")]
    retrieved: bool,
    #[serde(skip_serializing_if = "is_zero_id")]
    cluster_id: u32,
    #[serde(skip_serializing_if = "is_false")]
    kvstoremesh: bool,
    #[serde(skip_serializing_if = "is_false")]
    sync_canaries: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_exports_enabled: Option<bool>,
}

impl RemoteCluster {
    /// A peer's status.
    pub fn of(status: &PeerStatus) -> Self {
        let records = |kind| kind_of(status, kind).map_or(0, |known| known.records);
        let failure = status.last_failure.as_ref();
        Self {
            name: status.cluster.to_string(),
            ready: status.connected && status.state == PeerState::Ready,
            connected: status.connected,
            status: text(status),
            num_shared_services: records(Resource::Services),
            num_service_exports: records(Resource::ServiceExports),
            num_endpoint_slices: records(Resource::EndpointSlices),
            num_failures: status.failures,
            last_failure: failure.map_or_else(
                || NEVER.to_owned(),
                |failure| failure.at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            ),
            synced: Synced::of(status),
            config: Config::of(status.config.as_ref()),
        }
    }
}

impl Synced {
    fn of(status: &PeerStatus) -> Self {
        let synced = |kind| {
            kind_of(status, kind)
                .filter(|known| known.published)
                .map(|known| known.synced)
        };
        Self {
            endpoints: true,
            identities: true,
            nodes: true,
            services: synced(Resource::Services).unwrap_or_default(),
            service_exports: synced(Resource::ServiceExports),
            endpoint_slices: synced(Resource::EndpointSlices),
        }
    }
}

impl Config {
    fn of(config: Option<&ClusterConfig>) -> Self {
        let can = config.map(|config| &config.capabilities);
        Self {
            required: true,
            retrieved: config.is_some(),
            cluster_id: config.map_or(0, |config| config.id.get()),
            kvstoremesh: can.is_some_and(|can| can.cached),
            sync_canaries: can.is_some_and(|can| can.synced_canaries),
            service_exports_enabled: can.and_then(|can| can.service_exports_enabled),
        }
    }
}

/// What Cilium says of the connection, as far as it is true here.
fn text(status: &PeerStatus) -> String {
    match (&status.store_id, status.connected) {
        (Some(id), true) => format!(
            "etcd: 1/1 connected, leases=0, lock leases=0, has-quorum=true: {}, ID: {id}",
            status.endpoint
        ),
        (Some(_), false) => format!(
            "etcd: 0/1 connected, leases=0, lock leases=0, has-quorum=false: {}",
            status.error().unwrap_or_default()
        ),
        (None, _) => "Waiting for initial connection to be established".to_owned(),
    }
}

fn kind_of(status: &PeerStatus, kind: Resource) -> Option<&KindStatus> {
    status.kinds.get(&kind)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero_id(value: &u32) -> bool {
    *value == 0
}
