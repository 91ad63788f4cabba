//! Condition types and reasons of ServiceExport and ServiceImport. MCS-API, `pkg/apis/v1beta1`.

/// ServiceExport: whether the export is acceptable at all (`KEP-1645#170`).
pub const VALID: &str = "Valid";
/// ServiceExport: whether it can be pulled by other clusters. ServiceImport: whether it can be used.
pub const READY: &str = "Ready";
/// ServiceExport: whether clusters disagree on the service (`KEP-1645#140`).
pub const CONFLICT: &str = "Conflict";

/// `Valid` is true.
pub const REASON_VALID: &str = "Valid";
/// `Valid` is false: there is no Service of that name.
pub const REASON_NO_SERVICE: &str = "NoService";
/// `Valid` is false: the Service's type cannot be exported (`KEP-1645#53`).
pub const REASON_INVALID_SERVICE_TYPE: &str = "InvalidServiceType";
/// `Valid` is false: `spec.exportedLabels` has what no label can have. Tombolo's.
pub const REASON_INVALID_EXPORTED_LABELS: &str = "InvalidExportedLabels";
/// `Valid` is false: `spec.exportedAnnotations` has what no annotation can have, or too much. Tombolo's.
pub const REASON_INVALID_EXPORTED_ANNOTATIONS: &str = "InvalidExportedAnnotations";
/// `Valid` of an export, `Ready` of an import is false: the namespace is not global. Cilium's.
pub const REASON_NAMESPACE_NOT_GLOBAL: &str = "NamespaceNotGlobal";
/// `Ready` of an export is true: it was pushed to the other clusters (`KEP-1645#172`).
pub const REASON_EXPORTED: &str = "Exported";
/// `Ready` is true.
pub const REASON_READY: &str = "Ready";
/// `Ready` is false or unknown: in progress.
pub const REASON_PENDING: &str = "Pending";
/// `Ready` of an import is false: this cluster has none of its IP families (`KEP-1645#37`).
pub const REASON_IP_FAMILY_NOT_SUPPORTED: &str = "IPFamilyNotSupported";
/// `Conflict` is false (`KEP-1645#155`).
pub const REASON_NO_CONFLICTS: &str = "NoConflicts";
/// `Conflict` is true: ports differ (`KEP-1645#145`).
pub const REASON_PORT_CONFLICT: &str = "PortConflict";
/// `Conflict` is true: one is headless, another is not (`KEP-1645#149`).
pub const REASON_TYPE_CONFLICT: &str = "TypeConflict";
/// `Conflict` is true: session affinity differs (`KEP-1645#150`).
pub const REASON_SESSION_AFFINITY_CONFLICT: &str = "SessionAffinityConflict";
/// `Conflict` is true: the time-out of the session affinity differs (`KEP-1645#150`).
pub const REASON_SESSION_AFFINITY_CONFIG_CONFLICT: &str = "SessionAffinityConfigConflict";
/// `Conflict` is true: exported labels differ (`KEP-1645#153`).
pub const REASON_LABELS_CONFLICT: &str = "LabelsConflict";
/// `Conflict` is true: exported annotations differ (`KEP-1645#153`).
pub const REASON_ANNOTATIONS_CONFLICT: &str = "AnnotationsConflict";
/// `Conflict` is true: internal traffic policy differs (`KEP-1645#151`).
pub const REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT: &str = "InternalTrafficPolicyConflict";
/// `Conflict` is true: traffic distribution differs (`KEP-1645#152`).
pub const REASON_TRAFFIC_DISTRIBUTION_CONFLICT: &str = "TrafficDistributionConflict";
/// `Conflict` is true: an IP would reach a part of the backends only (`KEP-1645#21`).
pub const REASON_IP_FAMILY_CONFLICT: &str = "IPFamilyConflict";
