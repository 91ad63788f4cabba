//! Keys and prefixes in a cluster's etcd. STABLE: peers of any version read them.
//!
//! Every prefix here ends with `/`, so that cluster `c1` never matches `c11`.

use std::fmt;

use crate::names::{ClusterName, NamespacedName};

/// What a cluster says of itself. Cilium's `StatePrefix`.
pub const STATE: &str = "cilium/state";
/// What a cluster copied from its peers. Cilium's `CachePrefix`.
pub const CACHE: &str = "cilium/cache";
/// Under it, per cluster: canaries. Cilium's `SyncedPrefix`.
pub const SYNCED: &str = "cilium/synced";
/// Under it, per cluster: id and capabilities. Cilium's `ClusterConfigPrefix`.
pub const CLUSTER_CONFIG: &str = "cilium/cluster-config";
/// Rewritten every minute, so that clients can tell a living store. Cilium's `HeartbeatPath`.
pub const HEARTBEAT: &str = "cilium/.heartbeat";

/// A stored kind that has a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Global services with their backends.
    Services,
    /// Exports of the MCS-API.
    ServiceExports,
    /// EndpointSlices of global services.
    EndpointSlices,
    /// Nodes.
    Nodes,
    /// Security identities.
    Identities,
    /// Identities of IP addresses.
    Ip,
}

impl Resource {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Services,
        Self::ServiceExports,
        Self::EndpointSlices,
        Self::Nodes,
        Self::Identities,
        Self::Ip,
    ];

    /// The kind's part of keys, with its version.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Services => "services/v1",
            Self::ServiceExports => "serviceexports/v1",
            Self::EndpointSlices => "endpointslices/v1",
            Self::Nodes => "nodes/v1",
            Self::Identities => "identities/v1",
            Self::Ip => "ip/v1",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn root(cached: bool) -> &'static str {
    if cached { CACHE } else { STATE }
}

/// Prefix of a cluster's `services` records.
///
/// ```
/// use tombolo_core::wire::key::services_prefix;
/// let paris = "paris".try_into().unwrap();
/// assert_eq!(services_prefix(&paris, false), "cilium/state/services/v1/paris/");
/// assert_eq!(services_prefix(&paris, true), "cilium/cache/services/v1/paris/");
/// ```
pub fn services_prefix(cluster: &ClusterName, cached: bool) -> String {
    format!("{}/{}/{cluster}/", root(cached), Resource::Services)
}

/// Prefix of a cluster's `serviceexports` records.
pub fn service_exports_prefix(cluster: &ClusterName, cached: bool) -> String {
    format!("{}/{}/{cluster}/", root(cached), Resource::ServiceExports)
}

/// Key of a `services` record that a cluster writes about itself.
pub fn service_key(cluster: &ClusterName, name: &NamespacedName) -> String {
    services_prefix(cluster, false) + &name.to_string()
}

/// Key of a `serviceexports` record that a cluster writes about itself.
pub fn service_export_key(cluster: &ClusterName, name: &NamespacedName) -> String {
    service_exports_prefix(cluster, false) + &name.to_string()
}

/// Prefix of the canaries of a cluster.
pub fn canaries_prefix(cluster: &ClusterName) -> String {
    format!("{SYNCED}/{cluster}/")
}

/// Key of the canary of one kind: it appears once everything of that kind was written.
///
/// ```
/// use tombolo_core::wire::key::{Resource, canary_key};
/// let paris = "paris".try_into().unwrap();
/// assert_eq!(canary_key(&paris, Resource::Ip, false), "cilium/synced/paris/cilium/state/ip/v1");
/// ```
pub fn canary_key(cluster: &ClusterName, resource: Resource, cached: bool) -> String {
    format!("{SYNCED}/{cluster}/{}/{resource}", root(cached))
}

/// Key of a cluster's id and capabilities.
pub fn cluster_config_key(cluster: &ClusterName) -> String {
    format!("{CLUSTER_CONFIG}/{cluster}")
}
