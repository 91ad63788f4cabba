//! Keys and prefixes in a cluster's etcd. STABLE: peers of any version read them.
//!
//! Every prefix here ends with `/`, so that cluster `c1` never matches `c11`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{ClusterName, Namespace, NamespacedName};

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
/// Under it, per waiting process: the lock of those who copy peers' state into a store. Cilium's `kvstoremesh-lock`.
pub const KVSTOREMESH_LOCK: &str = "cilium/kvstoremesh-lock";

/// A stored kind that has a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

    /// Short name for metrics, logs and status: the kind's part of keys without the version.
    pub fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::ServiceExports => "serviceexports",
            Self::EndpointSlices => "endpointslices",
            Self::Nodes => "nodes",
            Self::Identities => "identities",
            Self::Ip => "ip",
        }
    }

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

/// Prefix of a cluster's `endpointslices` records.
pub fn endpoint_slices_prefix(cluster: &ClusterName, cached: bool) -> String {
    format!("{}/{}/{cluster}/", root(cached), Resource::EndpointSlices)
}

/// Prefix of a cluster's `nodes` records.
pub fn nodes_prefix(cluster: &ClusterName, cached: bool) -> String {
    format!("{}/{}/{cluster}/", root(cached), Resource::Nodes)
}

/// Prefix of a cluster's `identities` records. In the cluster's own store they are one flat list.
///
/// ```
/// use tombolo_core::wire::key::identities_prefix;
/// let paris = "paris".try_into().unwrap();
/// assert_eq!(identities_prefix(&paris, false), "cilium/state/identities/v1/id/");
/// assert_eq!(identities_prefix(&paris, true), "cilium/cache/identities/v1/paris/id/");
/// ```
pub fn identities_prefix(cluster: &ClusterName, cached: bool) -> String {
    let resource = Resource::Identities;
    if cached {
        format!("{CACHE}/{resource}/{cluster}/id/")
    } else {
        format!("{STATE}/{resource}/id/")
    }
}

/// Prefix of a cluster's `ip` records. In the cluster's own store they are one flat list.
///
/// ```
/// use tombolo_core::wire::key::ip_prefix;
/// let paris = "paris".try_into().unwrap();
/// assert_eq!(ip_prefix(&paris, false), "cilium/state/ip/v1/default/");
/// assert_eq!(ip_prefix(&paris, true), "cilium/cache/ip/v1/paris/");
/// ```
pub fn ip_prefix(cluster: &ClusterName, cached: bool) -> String {
    let resource = Resource::Ip;
    if cached {
        format!("{CACHE}/{resource}/{cluster}/")
    } else {
        format!("{STATE}/{resource}/default/")
    }
}

/// Prefix of the records of a kind in a cluster's store; `cached` when the store is a copy in another cluster.
///
/// ```
/// use tombolo_core::wire::key::{Resource, records_prefix};
/// let paris = "paris".try_into().unwrap();
/// assert_eq!(records_prefix(&paris, Resource::Nodes, false), "cilium/state/nodes/v1/paris/");
/// assert_eq!(records_prefix(&paris, Resource::Ip, true), "cilium/cache/ip/v1/paris/");
/// ```
pub fn records_prefix(cluster: &ClusterName, resource: Resource, cached: bool) -> String {
    match resource {
        Resource::Services => services_prefix(cluster, cached),
        Resource::ServiceExports => service_exports_prefix(cluster, cached),
        Resource::EndpointSlices => endpoint_slices_prefix(cluster, cached),
        Resource::Nodes => nodes_prefix(cluster, cached),
        Resource::Identities => identities_prefix(cluster, cached),
        Resource::Ip => ip_prefix(cluster, cached),
    }
}

/// Key of a `services` record that a cluster writes about itself.
pub fn service_key(cluster: &ClusterName, name: &NamespacedName) -> String {
    services_prefix(cluster, false) + &name.to_string()
}

/// Key of a `serviceexports` record that a cluster writes about itself.
pub fn service_export_key(cluster: &ClusterName, name: &NamespacedName) -> String {
    service_exports_prefix(cluster, false) + &name.to_string()
}

/// Key of an `endpointslices` record that a cluster writes about itself.
pub fn endpoint_slice_key(cluster: &ClusterName, namespace: &Namespace, name: &str) -> String {
    format!(
        "{}{namespace}/{name}",
        endpoint_slices_prefix(cluster, false)
    )
}

/// Key of a `nodes` record that a cluster writes about itself.
pub fn node_key(cluster: &ClusterName, name: &str) -> String {
    nodes_prefix(cluster, false) + name
}

/// Key of an `identities` record that a cluster writes about itself.
pub fn identity_key(id: u32) -> String {
    format!("{STATE}/{}/id/{id}", Resource::Identities)
}

/// Key of an `ip` record that a cluster writes about itself; `address` is an address, or a network with its prefix length.
pub fn ip_key(address: &str) -> String {
    format!("{STATE}/{}/default/{address}", Resource::Ip)
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
