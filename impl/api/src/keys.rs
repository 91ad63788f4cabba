//! Labels, annotations and label values on objects.
//!
//! Labels on objects begin with `multicluster.kubernetes.io/`; only the API group and the labels of the CRDs themselves
//! are under `multicluster.x-k8s.io`.

/// Label on an EndpointSlice: name of the ServiceImport it belongs to (`KEP-1645#125`).
pub const SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";
/// Label on an EndpointSlice: cluster that the endpoints are in (`KEP-1645#126`).
pub const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
/// Annotation on a ServiceImport: name of its derived Service. Reference controller of MCS-API.
pub const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";

/// Label on an EndpointSlice: name of the Service whose proxy rules it feeds. Kubernetes.
pub const KUBERNETES_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label on an EndpointSlice: who manages it. Kubernetes.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label on EndpointSlices of headless Services, with an empty value. Kubernetes.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// Value of [`MANAGED_BY`] on slices of Kubernetes' own controller.
pub const MANAGED_BY_KUBERNETES: &str = "endpointslice-controller.k8s.io";
/// Value of [`MANAGED_BY`] on slices with endpoints of other clusters. Cilium's: its exporters skip exactly these.
pub const MANAGED_BY_MESH: &str = "endpointslice-mesh-controller.cilium.io";
/// Value of [`MANAGED_BY`] on local slices mirrored to a derived Service. Cilium's.
pub const MANAGED_BY_MIRROR: &str = "endpointslice-local-mcsapi-controller.cilium.io";

/// Label on a mirrored slice: name of the slice it mirrors. Cilium's.
pub const LOCAL_SLICE: &str = "service.cilium.io/local-endpointslice";
/// Annotation on a Service: `true` makes it global. Cilium's.
pub const GLOBAL: &str = "service.cilium.io/global";
/// Older spelling of [`GLOBAL`]; read only when that is absent.
pub const GLOBAL_ALIAS: &str = "io.cilium/global-service";
/// Annotation on a global Service: `false` keeps its backends from other clusters. Cilium's.
pub const SHARED: &str = "service.cilium.io/shared";
/// Older spelling of [`SHARED`]; read only when that is absent.
pub const SHARED_ALIAS: &str = "io.cilium/shared-service";
/// Annotation on a global Service: whether remote endpoints are written as EndpointSlices. Cilium's.
pub const SYNC_ENDPOINT_SLICES: &str = "service.cilium.io/global-sync-endpoint-slices";
/// Annotation on a Namespace: whether its services may be global. Cilium's.
pub const NAMESPACE_GLOBAL: &str = "clustermesh.cilium.io/global";
/// Annotation on a ServiceImport and its derived Service: comma list of families this cluster can serve. Cilium's.
pub const SUPPORTED_IP_FAMILIES: &str = "clustermesh.cilium.io/supported-ip-families";

/// Label on the CRDs: release of MCS-API they belong to.
pub const CRD_RELEASE: &str = "multicluster.x-k8s.io/release-version";
/// Label on the CRDs: revision of the schema within the release, an integer.
pub const CRD_REVISION: &str = "multicluster.x-k8s.io/crd-schema-revision";
