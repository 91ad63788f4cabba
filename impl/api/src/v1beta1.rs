//! `multicluster.x-k8s.io/v1beta1`, the stored version. `v1alpha1` has the same schema.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SessionAffinityConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a ServiceExport adds to the Service of its name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceExport",
    plural = "serviceexports",
    namespaced,
    status = "ServiceExportStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ServiceExportSpec {
    /// Labels for the ServiceImport (`KEP-1645#17`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported_labels: Option<BTreeMap<String, String>>,
    /// Annotations for the ServiceImport (`KEP-1645#17`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported_annotations: Option<BTreeMap<String, String>>,
}

/// Status of a ServiceExport, written by the controller of its own cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceExportStatus {
    /// `Valid`, `Ready`, `Conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// What a ServiceImport offers to the clients of its cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceImport",
    plural = "serviceimports",
    namespaced,
    status = "ServiceImportStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ServiceImportSpec {
    /// Ports; may be empty.
    #[serde(default)]
    pub ports: Vec<ServicePort>,
    /// Virtual IPs of this cluster, at most two; only for type ClusterSetIP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ips: Option<Vec<String>>,
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type", default)]
    pub type_: String,
    /// `None` or `ClientIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// Time-out of the session affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// `IPv4`, `IPv6` in order of preference, at most two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_families: Option<Vec<String>>,
    /// `Cluster` or `Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    /// As in a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
}

/// Port of a ServiceImport. There is no target port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Name; absent for an unnamed port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP`, `UDP`, `SCTP`; absent means TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Application protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Port number.
    pub port: i32,
}

/// Status of a ServiceImport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportStatus {
    /// `Present` or `Absent`: whether there are EndpointSlices for it (`KEP-1645#39`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_slice_objects: Option<String>,
    /// Exporting clusters (`KEP-1645#38`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<ClusterStatus>>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// An exporting cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub cluster: String,
}

/// Makes a missing or `null` `spec` an empty one. The schema lets users leave it out, and a list with one such object
/// must still be readable.
macro_rules! optional_spec {
    ($spec:ident, $path:literal) => {
        impl<'de> Deserialize<'de> for $spec {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                struct Given(#[serde(with = $path)] $spec);

                let given = Option::<Given>::deserialize(deserializer)?;
                Ok(given.map(|given| given.0).unwrap_or_default())
            }
        }

        impl Serialize for $spec {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }
    };
}

optional_spec!(ServiceExportSpec, "ServiceExportSpec");
optional_spec!(ServiceImportSpec, "ServiceImportSpec");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_spec_is_read_as_one_with_an_empty_spec() {
        for text in [
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a"},"spec":null}"#,
        ] {
            let export: ServiceExport = serde_json::from_str(text).unwrap();
            let import: ServiceImport = serde_json::from_str(text).unwrap();

            assert_eq!(export.spec, ServiceExportSpec::default());
            assert_eq!(import.spec, ServiceImportSpec::default());
        }
    }

    #[test]
    fn a_spec_is_written_as_it_was_read() {
        let text = r#"{"exportedLabels":{"a":"b"}}"#;

        let spec: ServiceExportSpec = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
    }
}
