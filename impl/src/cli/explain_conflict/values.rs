//! The values that clusters disagree on, in words, and where a user finds them.

use std::collections::BTreeMap;

use tombolo_core::{
    merge::{ConflictReason, Merged},
    service::{ExportSpec, InternalTrafficPolicy, IpFamily, ServicePort},
};

/// Kind of the object and path of the field that a conflict is about.
pub(super) fn field_of(reason: ConflictReason) -> (&'static str, &'static str) {
    match reason {
        ConflictReason::Port => ("Service", "spec.ports"),
        ConflictReason::Type => ("Service", "spec.clusterIP"),
        ConflictReason::SessionAffinity => ("Service", "spec.sessionAffinity"),
        ConflictReason::SessionAffinityConfig => (
            "Service",
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        ),
        ConflictReason::Labels => ("ServiceExport", "spec.exportedLabels"),
        ConflictReason::Annotations => ("ServiceExport", "spec.exportedAnnotations"),
        ConflictReason::InternalTrafficPolicy => ("Service", "spec.internalTrafficPolicy"),
        ConflictReason::TrafficDistribution => ("Service", "spec.trafficDistribution"),
        ConflictReason::IpFamily => ("Service", "spec.ipFamilies"),
    }
}

/// What an export says about the matter of a conflict.
pub(super) fn value_of(reason: ConflictReason, export: &ExportSpec) -> String {
    match reason {
        ConflictReason::Port => ports(&export.ports),
        ConflictReason::Type => export.import_type.to_string(),
        ConflictReason::SessionAffinity => export.session_affinity.to_string(),
        ConflictReason::SessionAffinityConfig => seconds(export.session_affinity_timeout_seconds),
        ConflictReason::Labels => map(&export.labels),
        ConflictReason::Annotations => map(&export.annotations),
        ConflictReason::InternalTrafficPolicy => policy(export.internal_traffic_policy),
        ConflictReason::TrafficDistribution => or_none(export.traffic_distribution),
        ConflictReason::IpFamily => families(&export.ip_families),
    }
}

/// What the ServiceImport says about the matter of a conflict.
pub(super) fn used(reason: ConflictReason, merged: &Merged) -> String {
    match reason {
        ConflictReason::Port => ports(&merged.ports),
        ConflictReason::Type => merged.import_type.to_string(),
        ConflictReason::SessionAffinity => merged.session_affinity.to_string(),
        ConflictReason::SessionAffinityConfig => seconds(merged.session_affinity_timeout_seconds),
        ConflictReason::Labels => map(&merged.labels),
        ConflictReason::Annotations => map(&merged.annotations),
        ConflictReason::InternalTrafficPolicy => policy(merged.internal_traffic_policy),
        ConflictReason::TrafficDistribution => or_none(merged.traffic_distribution),
        ConflictReason::IpFamily => families(merged.ip_families.as_deref().unwrap_or_default()),
    }
}

/// `http 80/TCP, dns 53/UDP`.
pub(super) fn ports(ports: &[ServicePort]) -> String {
    let port = |port: &ServicePort| {
        let name = if port.name.is_unnamed() {
            "(unnamed)"
        } else {
            port.name.as_str()
        };
        let speaks = port.app_protocol.as_deref().filter(|it| !it.is_empty());
        let speaks = speaks.map_or_else(String::new, |it| format!(" (appProtocol {it})"));
        format!("{name} {}/{}{speaks}", port.port, port.protocol)
    };
    list(ports.iter().map(port))
}

/// A time-out in seconds.
pub(super) fn seconds(seconds: Option<i32>) -> String {
    seconds.map_or_else(|| "none".to_owned(), |seconds| format!("{seconds} s"))
}

/// `app=web, tier=front`.
pub(super) fn map(map: &BTreeMap<String, String>) -> String {
    list(map.iter().map(|(key, value)| format!("{key}={value}")))
}

fn policy(policy: Option<InternalTrafficPolicy>) -> String {
    policy.map_or_else(
        || format!("none, that is {}", InternalTrafficPolicy::Cluster),
        |policy| policy.to_string(),
    )
}

/// `IPv4, IPv6`.
pub(super) fn families(families: &[IpFamily]) -> String {
    list(families.iter().map(ToString::to_string))
}

/// The value, or `none`.
pub(super) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn list(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}
