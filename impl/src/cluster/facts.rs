//! Kubernetes objects as facts of the core.
//!
//! Raw API types stop here. What cannot be understood is a typed error that names object and field; it concerns that
//! object only and is never guessed at.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Service, ServicePort as KubePort, ServiceSpec},
        discovery::v1::{Endpoint, EndpointPort as KubeEndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;
use thiserror::Error;
use tombolo_api::{keys, v1beta1::ServiceExport};
use tombolo_core::{
    export::{self, EndpointFacts, EndpointPort, ExportFacts, ServiceFacts, SliceFacts},
    mutant::{self, Mutant},
    names::{ClusterName, InvalidName, NamespacedName, PortName},
    service::{
        InternalTrafficPolicy, IpFamily, Protocol, ServicePort, SessionAffinity,
        TrafficDistribution,
    },
};

/// An object that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// A name breaks its rule.
    #[error("{object}: {source}; rename it, or leave it out of the mesh")]
    Name {
        /// Kind, namespace and name.
        object: String,
        /// The rule.
        #[source]
        source: InvalidName,
    },
    /// A field has a value that this version does not know.
    #[error("{object}: {field} is {value:?}, expected {expected}; change it, or upgrade Tombolo")]
    Field {
        /// Kind, namespace and name.
        object: String,
        /// The field's path.
        field: &'static str,
        /// Its value.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl Error {
    /// Short name for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name { .. } => "InvalidName",
            Self::Field { .. } => "UnknownValue",
        }
    }
}

/// The object that is being read, for messages.
struct Subject<'a> {
    kind: &'static str,
    metadata: &'a ObjectMeta,
}

impl Subject<'_> {
    fn object(&self) -> String {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        format!("{} {namespace}/{name}", self.kind)
    }

    fn unknown(&self, field: &'static str, value: &str, expected: &'static str) -> Error {
        Error::Field {
            object: self.object(),
            field,
            value: value.to_owned(),
            expected,
        }
    }

    fn name(&self) -> Result<NamespacedName, Error> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        NamespacedName::parse(namespace, name).map_err(|source| self.invalid(source))
    }

    fn invalid(&self, source: InvalidName) -> Error {
        Error::Name {
            object: self.object(),
            source,
        }
    }

    fn known<T>(
        &self,
        field: &'static str,
        value: Option<&String>,
        parse: impl FnOnce(&str) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, Error> {
        value
            .map(|text| parse(text).ok_or_else(|| self.unknown(field, text, expected)))
            .transpose()
    }

    fn address(&self, field: &'static str, text: &str) -> Result<IpAddr, Error> {
        text.parse()
            .map_err(|_| self.unknown(field, text, "an IP address"))
    }

    fn port(&self, field: &'static str, port: i32) -> Result<u16, Error> {
        let number = u16::try_from(port).ok().filter(|port| *port > 0);
        number.ok_or_else(|| self.unknown(field, &port.to_string(), "1 to 65535"))
    }

    fn protocol(&self, field: &'static str, text: Option<&String>) -> Result<Protocol, Error> {
        let known = self.known(field, text, Protocol::parse, "TCP, UDP or SCTP")?;
        Ok(known.unwrap_or(Protocol::Tcp))
    }

    fn port_name(&self, name: Option<&String>) -> Result<PortName, Error> {
        let name = name.map(String::as_str).unwrap_or_default();
        PortName::try_from(name).map_err(|source| self.invalid(source))
    }
}

/// Whether a namespace is global. One that does not exist is not.
pub fn namespace_is_global(namespace: Option<&Namespace>, default_global: bool) -> bool {
    namespace.is_some_and(|namespace| {
        let annotation = namespace.annotations().get(keys::NAMESPACE_GLOBAL);
        export::namespace_is_global(annotation.map(String::as_str), default_global)
    })
}

/// Facts of a Service.
pub fn service(service: &Service) -> Result<ServiceFacts, Error> {
    let subject = Subject {
        kind: "Service",
        metadata: &service.metadata,
    };
    let default = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&default);
    let affinity = &spec.session_affinity_config;
    let timeout = affinity
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    Ok(ServiceFacts {
        name: subject.name()?,
        external_name: spec.type_.as_deref() == Some("ExternalName"),
        headless: is_headless(spec),
        cluster_ips: cluster_ips(&subject, spec)?,
        ports: spec
            .ports
            .iter()
            .flatten()
            .map(|port| service_port(&subject, port))
            .collect::<Result<_, _>>()?,
        session_affinity: subject
            .known(
                "spec.sessionAffinity",
                spec.session_affinity.as_ref(),
                SessionAffinity::parse,
                "None or ClientIP",
            )?
            .unwrap_or_default(),
        session_affinity_timeout_seconds: timeout.and_then(|config| config.timeout_seconds),
        ip_families: spec
            .ip_families
            .iter()
            .flatten()
            .map(|text| {
                IpFamily::parse(text)
                    .ok_or_else(|| subject.unknown("spec.ipFamilies", text, "IPv4 or IPv6"))
            })
            .collect::<Result<_, _>>()?,
        internal_traffic_policy: subject.known(
            "spec.internalTrafficPolicy",
            spec.internal_traffic_policy.as_ref(),
            InternalTrafficPolicy::parse,
            "Cluster or Local",
        )?,
        traffic_distribution: subject.known(
            "spec.trafficDistribution",
            spec.traffic_distribution.as_ref(),
            TrafficDistribution::parse,
            "PreferClose, PreferSameZone or PreferSameNode",
        )?,
        labels: service.labels().clone(),
        annotations: service.annotations().clone(),
        selector: spec.selector.clone().unwrap_or_default(),
    })
}

fn is_none(cluster_ip: &str) -> bool {
    cluster_ip.eq_ignore_ascii_case("none")
}

fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref().is_some_and(is_none)
}

/// The assigned addresses; none for a headless Service, and none as long as nothing is assigned.
fn cluster_ips(subject: &Subject<'_>, spec: &ServiceSpec) -> Result<Vec<IpAddr>, Error> {
    let listed: Vec<_> = spec.cluster_ips.iter().flatten().collect();
    let texts = if listed.is_empty() {
        spec.cluster_ip.iter().collect()
    } else {
        listed
    };
    texts
        .into_iter()
        .filter(|text| !text.is_empty() && !is_none(text))
        .map(|text| subject.address("spec.clusterIPs", text))
        .collect()
}

fn service_port(subject: &Subject<'_>, port: &KubePort) -> Result<ServicePort, Error> {
    Ok(ServicePort {
        name: subject.port_name(port.name.as_ref())?,
        protocol: subject.protocol("spec.ports.protocol", port.protocol.as_ref())?,
        app_protocol: port.app_protocol.clone().filter(|text| !text.is_empty()),
        port: subject.port("spec.ports.port", port.port)?,
    })
}

/// Facts of a ServiceExport.
pub fn service_export(export: &ServiceExport) -> Result<ExportFacts, Error> {
    let subject = Subject {
        kind: "ServiceExport",
        metadata: &export.metadata,
    };
    let created = export.metadata.creation_timestamp.as_ref();
    let created_at = created
        .map(|time| time.0)
        .ok_or_else(|| subject.unknown("metadata.creationTimestamp", "", "a time"))?;
    Ok(ExportFacts {
        created_at,
        labels: export.spec.exported_labels.clone().unwrap_or_default(),
        annotations: export.spec.exported_annotations.clone().unwrap_or_default(),
    })
}

/// Facts of an EndpointSlice. One with addresses of another type than IPv4 and IPv6 has no endpoints.
pub fn endpoint_slice(slice: &EndpointSlice) -> Result<SliceFacts, Error> {
    let subject = Subject {
        kind: "EndpointSlice",
        metadata: &slice.metadata,
    };
    let managed_by = slice.labels().get(keys::MANAGED_BY).cloned();
    if IpFamily::parse(&slice.address_type).is_none() {
        return Ok(SliceFacts {
            managed_by,
            ..SliceFacts::default()
        });
    }
    Ok(SliceFacts {
        managed_by,
        endpoints: slice
            .endpoints
            .iter()
            .flatten()
            .map(|item| endpoint(&subject, item))
            .collect::<Result<_, _>>()?,
        ports: slice
            .ports
            .iter()
            .flatten()
            .map(|port| endpoint_port(&subject, port))
            .collect::<Result<_, _>>()?,
    })
}

fn endpoint(subject: &Subject<'_>, endpoint: &Endpoint) -> Result<EndpointFacts, Error> {
    let conditions = endpoint.conditions.as_ref();
    let hints = endpoint.hints.as_ref();
    let for_zones = hints.and_then(|hints| hints.for_zones.as_ref());
    Ok(EndpointFacts {
        addresses: endpoint
            .addresses
            .iter()
            .map(|text| subject.address("endpoints.addresses", text))
            .collect::<Result<_, _>>()?,
        ready: conditions.and_then(|conditions| conditions.ready),
        serving: conditions.and_then(|conditions| conditions.serving),
        terminating: conditions.and_then(|conditions| conditions.terminating),
        hostname: endpoint.hostname.clone(),
        zone: endpoint.zone.clone(),
        for_zones: for_zones
            .into_iter()
            .flatten()
            .map(|zone| zone.name.clone())
            .collect(),
    })
}

fn endpoint_port(subject: &Subject<'_>, port: &KubeEndpointPort) -> Result<EndpointPort, Error> {
    Ok(EndpointPort {
        name: subject.port_name(port.name.as_ref())?,
        protocol: subject.protocol("ports.protocol", port.protocol.as_ref())?,
        port: port
            .port
            .map(|number| subject.port("ports.port", number))
            .transpose()?,
    })
}

/// The name of the Service that a slice belongs to.
pub fn service_of(slice: &EndpointSlice) -> Option<String> {
    let name = slice.labels().get(keys::KUBERNETES_SERVICE_NAME)?;
    (!name.is_empty()).then(|| name.clone())
}

/// Whether a slice says that its endpoints are of another cluster than this one, whoever it says manages it: the label that
/// names the manager may have been taken off.
pub fn is_of_another_cluster(labels: &BTreeMap<String, String>, local: &ClusterName) -> bool {
    labels
        .get(keys::SOURCE_CLUSTER)
        .is_some_and(|source| source != local.as_str())
        && !mutant::is(Mutant::ImportsRepublished)
}

/// Whether the mesh wrote this slice: such slices are never published again.
pub fn is_imported(labels: &BTreeMap<String, String>) -> bool {
    labels
        .get(keys::MANAGED_BY)
        .is_some_and(|by| by == export::MANAGED_BY_MESH)
        && !mutant::is(Mutant::ImportsRepublished)
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
