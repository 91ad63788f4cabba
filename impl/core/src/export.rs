//! What one cluster exports: from facts about its objects to what peers may know.
//!
//! Two records leave a cluster. [`evaluate`] decides about the export of a Service (the `serviceexports` record),
//! [`global_service`] about its addresses and backends (the `services` record). Nothing here looks at other clusters:
//! whether they agree is the business of the merge.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;

use crate::{
    mutant::{self, Mutant},
    names::{ClusterId, ClusterName, NamespacedName, PortName},
    service::{
        BackendZone, ClusterService, ExportSpec, ImportType, InternalTrafficPolicy, IpFamily,
        L4Port, Protocol, ServicePort, SessionAffinity, TrafficDistribution,
    },
    wire::rules,
};

/// Annotation on a Service that makes it global. Cilium, `Documentation/network/clustermesh/global-services`.
pub const GLOBAL: &str = "service.cilium.io/global";
/// Older spelling of [`GLOBAL`]; read only when that is absent.
pub const GLOBAL_ALIAS: &str = "io.cilium/global-service";
/// Annotation on a global Service that keeps its backends from other clusters when it is not `true`. Cilium.
pub const SHARED: &str = "service.cilium.io/shared";
/// Older spelling of [`SHARED`]; read only when that is absent.
pub const SHARED_ALIAS: &str = "io.cilium/shared-service";
/// Label that marks a headless Service, whatever its `clusterIP` is. Kubernetes.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Who manages a slice of endpoints of other clusters. Such slices are never published again. Cilium.
pub const MANAGED_BY_MESH: &str = "endpointslice-mesh-controller.cilium.io";

/// What matters of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Namespace and name.
    pub name: NamespacedName,
    /// Whether its type is ExternalName (`KEP-1645#53`).
    pub external_name: bool,
    /// Whether its `clusterIP` is `None`.
    pub headless: bool,
    /// Virtual IPs; empty when headless or not yet assigned.
    pub cluster_ips: Vec<IpAddr>,
    /// Ports in the Service's order.
    pub ports: Vec<ServicePort>,
    /// Session affinity.
    pub session_affinity: SessionAffinity,
    /// Session affinity time-out, in seconds, if stated.
    pub session_affinity_timeout_seconds: Option<i32>,
    /// IP families in order of preference.
    pub ip_families: Vec<IpFamily>,
    /// Internal traffic policy, if stated.
    pub internal_traffic_policy: Option<InternalTrafficPolicy>,
    /// Traffic distribution, if stated.
    pub traffic_distribution: Option<TrafficDistribution>,
    /// Labels of the Service; they go into the `services` record, never into the export.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Service; they steer, they are never published.
    pub annotations: BTreeMap<String, String>,
    /// Pod selector.
    pub selector: BTreeMap<String, String>,
}

/// What matters of a ServiceExport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportFacts {
    /// Creation time, which decides precedence (`KEP-1645#141`).
    pub created_at: Timestamp,
    /// `spec.exportedLabels` (`KEP-1645#17`).
    pub labels: BTreeMap<String, String>,
    /// `spec.exportedAnnotations` (`KEP-1645#17`).
    pub annotations: BTreeMap<String, String>,
}

/// What matters of an EndpointSlice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceFacts {
    /// Value of the label that names the slice's manager.
    pub managed_by: Option<String>,
    /// Endpoints.
    pub endpoints: Vec<EndpointFacts>,
    /// Ports, the same for all endpoints.
    pub ports: Vec<EndpointPort>,
}

/// What matters of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFacts {
    /// Addresses; only the addresses of IPv4 and IPv6 slices appear here.
    pub addresses: Vec<IpAddr>,
    /// Condition; absent counts as true.
    pub ready: Option<bool>,
    /// Condition; absent counts as true.
    pub serving: Option<bool>,
    /// Condition; absent counts as false.
    pub terminating: Option<bool>,
    /// Host name, if any.
    pub hostname: Option<String>,
    /// Zone, if any.
    pub zone: Option<String>,
    /// Topology hints.
    pub for_zones: Vec<String>,
}

/// A port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPort {
    /// Name; matched with the Service's port of the same name.
    pub name: PortName,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port number; absent means "all ports", which no record can say.
    pub port: Option<u16>,
}

/// Why a Service is not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The namespace is not global.
    NamespaceNotGlobal,
    /// Nobody asked: there is no ServiceExport of that name.
    NoServiceExport,
    /// There is no Service of that name.
    NoService,
    /// The Service's type cannot be exported (`KEP-1645#53`).
    InvalidServiceType,
    /// `spec.exportedLabels` has a key or value that no object can have.
    InvalidExportedLabels,
    /// `spec.exportedAnnotations` has a key that no object can have, or is too large for one.
    InvalidExportedAnnotations,
}

/// The decision about one export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportVerdict {
    /// Exported, with this content.
    Exported(Box<ExportSpec>),
    /// Not exported.
    Refused(Refusal),
}

/// Whether a namespace is global: its annotation decides when it is there (`true` in any case of letters, nothing else),
/// the cluster's default otherwise. Cilium's namespace gate.
///
/// ```
/// use tombolo_core::export::namespace_is_global;
/// assert!(namespace_is_global(None, true));
/// assert!(namespace_is_global(Some("TRUE"), false));
/// assert!(!namespace_is_global(Some(""), true));
/// ```
pub fn namespace_is_global(annotation: Option<&str>, default_global: bool) -> bool {
    annotation.map_or(default_global, is_true)
}

/// Whether a Service with these annotations is global.
pub fn is_global(annotations: &BTreeMap<String, String>) -> bool {
    first_present(annotations, [GLOBAL, GLOBAL_ALIAS]).is_some_and(is_true)
}

/// Whether a Service with these annotations lends its backends to other clusters: it is global and does not say no.
///
/// ```
/// use std::collections::BTreeMap;
/// use tombolo_core::export::is_shared;
/// let global = BTreeMap::from([("service.cilium.io/global".to_owned(), "true".to_owned())]);
/// assert!(is_shared(&global));
/// assert!(!is_shared(&BTreeMap::new()));
/// ```
pub fn is_shared(annotations: &BTreeMap<String, String>) -> bool {
    is_global(annotations) && first_present(annotations, [SHARED, SHARED_ALIAS]).is_none_or(is_true)
}

/// Decides whether a Service is exported, and as what. The first reason against it wins, in the order of [`Refusal`].
pub fn evaluate(
    cluster: &ClusterName,
    namespace_global: bool,
    service: Option<&ServiceFacts>,
    export: Option<&ExportFacts>,
) -> ExportVerdict {
    if !namespace_global {
        return ExportVerdict::Refused(Refusal::NamespaceNotGlobal);
    }
    let Some(export) = export else {
        return ExportVerdict::Refused(Refusal::NoServiceExport);
    };
    let Some(service) = service else {
        return ExportVerdict::Refused(Refusal::NoService);
    };
    if service.external_name && !mutant::is(Mutant::ExternalNameExported) {
        return ExportVerdict::Refused(Refusal::InvalidServiceType);
    }
    // The API server does not check these, and would refuse every import that has them.
    if rules::check_labels(&export.labels).is_err() {
        return ExportVerdict::Refused(Refusal::InvalidExportedLabels);
    }
    if rules::check_annotations(&export.annotations).is_err() {
        return ExportVerdict::Refused(Refusal::InvalidExportedAnnotations);
    }
    ExportVerdict::Exported(Box::new(ExportSpec {
        cluster: cluster.clone(),
        name: service.name.clone(),
        created_at: export.created_at,
        labels: export.labels.clone(),
        annotations: export.annotations.clone(),
        ports: service.ports.clone(),
        import_type: if service.headless {
            ImportType::Headless
        } else {
            ImportType::ClusterSetIp
        },
        session_affinity: service.session_affinity,
        session_affinity_timeout_seconds: service.session_affinity_timeout_seconds,
        ip_families: service.ip_families.clone(),
        internal_traffic_policy: service.internal_traffic_policy,
        traffic_distribution: service.traffic_distribution,
    }))
}

/// The `services` record of a Service, or none when peers may not have it: it must be global and shared, in a global
/// namespace, and not of type ExternalName (Cilium publishes those with an address that every reader refuses).
///
/// Slices of [`MANAGED_BY_MESH`] are left out: what was imported is never published again. A derived Service is a
/// service like any other here; its mirrored local slices are how the backends of an export travel.
pub fn global_service(
    cluster: &ClusterName,
    id: ClusterId,
    namespace_global: bool,
    service: &ServiceFacts,
    slices: &[SliceFacts],
) -> Option<ClusterService> {
    if !namespace_global || service.external_name || !is_shared(&service.annotations) {
        return None;
    }
    let mut record = ClusterService {
        cluster: cluster.clone(),
        cluster_id: id,
        name: service.name.clone(),
        frontends: frontends(service),
        backends: BTreeMap::new(),
        hostnames: BTreeMap::new(),
        zones: BTreeMap::new(),
        labels: service.labels.clone(),
        selector: service.selector.clone(),
        shared: true,
    };
    let local = |slice: &&SliceFacts| {
        slice.managed_by.as_deref() != Some(MANAGED_BY_MESH)
            || mutant::is(Mutant::ImportsRepublished)
    };
    for slice in slices.iter().filter(local) {
        let ports = backend_ports(slice);
        for endpoint in slice
            .endpoints
            .iter()
            .filter(|endpoint| is_usable(endpoint))
        {
            add_backend(&mut record, endpoint, &ports);
        }
    }
    Some(record)
}

fn frontends(service: &ServiceFacts) -> BTreeMap<IpAddr, BTreeMap<PortName, L4Port>> {
    if service.headless || service.labels.contains_key(HEADLESS) {
        return BTreeMap::new();
    }
    let ports: BTreeMap<_, _> = service
        .ports
        .iter()
        .map(|port| {
            let l4 = L4Port {
                protocol: port.protocol,
                port: port.port,
            };
            (port.name.clone(), l4)
        })
        .collect();
    service
        .cluster_ips
        .iter()
        .map(|&ip| (ip, ports.clone()))
        .collect()
}

fn backend_ports(slice: &SliceFacts) -> BTreeMap<PortName, L4Port> {
    slice
        .ports
        .iter()
        .filter_map(|port| {
            let l4 = L4Port {
                protocol: port.protocol,
                port: port.port?,
            };
            Some((port.name.clone(), l4))
        })
        .collect()
}

/// Left out only when neither ready nor serving; the record has no conditions, so a serving, terminating endpoint is in it.
fn is_usable(endpoint: &EndpointFacts) -> bool {
    endpoint.ready.unwrap_or(true)
        || endpoint.serving.unwrap_or(true)
        || mutant::is(Mutant::UnreadyServes)
}

/// Adds the addresses of an endpoint. An address of two slices keeps the ports of both, the later slice's on a clash.
fn add_backend(
    record: &mut ClusterService,
    endpoint: &EndpointFacts,
    ports: &BTreeMap<PortName, L4Port>,
) {
    for &address in &endpoint.addresses {
        let known = record.backends.entry(address).or_default();
        known.extend(ports.iter().map(|(name, &l4)| (name.clone(), l4)));
        if let Some(hostname) = non_empty(endpoint.hostname.as_ref()) {
            record.hostnames.insert(address, hostname.clone());
        }
        if let Some(zone) = non_empty(endpoint.zone.as_ref()) {
            let zone = BackendZone {
                zone: zone.clone(),
                for_zones: endpoint.for_zones.clone(),
            };
            record.zones.insert(address, zone);
        }
    }
}

fn non_empty(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

fn first_present<'a>(
    annotations: &'a BTreeMap<String, String>,
    keys: [&'static str; 2],
) -> Option<&'a str> {
    keys.into_iter()
        .find_map(|key| annotations.get(key))
        .map(String::as_str)
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
