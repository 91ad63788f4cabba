//! `about.k8s.io/v1beta1`: ClusterProperty of the About API (KEP-2149), by which a cluster says who it is.
//!
//! Its CustomResourceDefinition belongs to the About API and is installed by others.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Name of the property that holds the cluster's id, unique in its ClusterSet (`KEP-1645#180`).
pub const CLUSTER_ID: &str = "cluster.clusterset.k8s.io";

/// Name of the property that holds the name of the ClusterSet (`KEP-1645#181`).
pub const CLUSTERSET: &str = "clusterset.k8s.io";

/// One fact about a cluster; which one is its name.
///
/// ```
/// use tombolo_api::about::{CLUSTER_ID, ClusterProperty, ClusterPropertySpec};
/// let property = ClusterProperty::new(CLUSTER_ID, ClusterPropertySpec { value: "paris".to_owned() });
/// assert_eq!(property.spec.value, "paris");
/// ```
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "about.k8s.io",
    version = "v1beta1",
    kind = "ClusterProperty",
    plural = "clusterproperties",
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct ClusterPropertySpec {
    /// Its value, not empty.
    pub value: String,
}
