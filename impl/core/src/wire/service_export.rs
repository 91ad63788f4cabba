//! `serviceexports` records: what one cluster exports under one name. STABLE. Cilium, `MCSAPIServiceSpec`.
//!
//! Labels and annotations are written in both spellings, as Cilium 1.19 and 1.20 do; readers up to 1.18 know only the
//! capitalised one. Of a record with both, the lower-case one counts unless it is empty.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    Error, MAX_PORTS, canary, check_names, clip, go_json,
    json::{self, Json, Members},
    key, rules,
};
use crate::{
    names::{ClusterName, NamespacedName, PortName},
    service::{
        ExportSpec, ImportType, InternalTrafficPolicy, IpFamily, Protocol, ServicePort,
        SessionAffinity, TrafficDistribution,
    },
};

/// Longest session affinity, in seconds: one day. Kubernetes, `MaxClientIPServiceAffinitySeconds`.
const AFFINITY_MAX_SECONDS: i64 = 86_400;

/// Key and value of an export. The creation time is written in whole seconds, as Kubernetes keeps it.
pub fn encode(spec: &ExportSpec) -> (String, Vec<u8>) {
    let mut out = String::with_capacity(512);
    go_json::object(&mut out, |record| {
        record.text("cluster", spec.cluster.as_str());
        record.text("name", spec.name.name.as_str());
        record.text("namespace", spec.name.namespace.as_str());
        record.map_unless_empty("annotations", &spec.annotations);
        record.map_unless_empty("labels", &spec.labels);
        record.map_unless_empty("Labels", &spec.labels);
        record.map_unless_empty("Annotations", &spec.annotations);
        record.text("exportCreationTimestamp", &canary::seconds(spec.created_at));
        record.list("ports", &spec.ports, encode_port);
        record.text("type", spec.import_type.as_str());
        record.text("sessionAffinity", spec.session_affinity.as_str());
        if let Some(seconds) = spec.session_affinity_timeout_seconds {
            record.object("sessionAffinityConfig", |config| {
                config.object("clientIP", |ip| ip.literal("timeoutSeconds", seconds));
            });
        }
        if !spec.ip_families.is_empty() {
            record.list("ipFamilies", &spec.ip_families, |out, family| {
                go_json::string(out, family.as_str());
            });
        }
        if let Some(policy) = spec.internal_traffic_policy {
            record.text("internalTrafficPolicy", policy.as_str());
        }
        if let Some(distribution) = spec.traffic_distribution {
            record.text("trafficDistribution", distribution.as_str());
        }
    });
    let key = key::service_export_key(&spec.cluster, &spec.name);
    (key, out.into_bytes())
}

fn encode_port(out: &mut String, port: &ServicePort) {
    go_json::object(out, |object| {
        if !port.name.is_unnamed() {
            object.text("name", port.name.as_str());
        }
        object.text("protocol", port.protocol.as_str());
        if let Some(protocol) = &port.app_protocol {
            object.text("appProtocol", protocol);
        }
        object.literal("port", port.port);
    });
}

/// Reads an export of `cluster` from the value of its key; `key_suffix` is the key after the cluster's prefix.
///
/// Checks what Cilium's readers check, in their order and with their words, then what would make the importer's objects
/// invalid. Unknown IP families are left out as long as a known one remains.
///
/// ```
/// use tombolo_core::wire::service_export::decode;
/// let error = decode(&"paris".try_into().unwrap(), "shop/cart", b"{}").unwrap_err();
/// assert_eq!(error.to_string(), "cluster is unset");
/// ```
pub fn decode(cluster: &ClusterName, key_suffix: &str, bytes: &[u8]) -> Result<ExportSpec, Error> {
    let json = json::parse(bytes)?;
    let record = json.members("the value")?;
    let raw = Raw::read(record)?;
    let checked = raw.check()?;
    let name = checked_name(cluster, key_suffix, raw.cluster, (raw.namespace, raw.name))?;
    check_importable(&raw, checked.import_type)?;
    Ok(ExportSpec {
        cluster: cluster.clone(),
        name,
        created_at: checked.created_at,
        labels: raw.labels,
        annotations: raw.annotations,
        ports: raw.ports,
        import_type: checked.import_type,
        session_affinity: checked.session_affinity,
        session_affinity_timeout_seconds: raw.timeout,
        ip_families: raw.ip_families,
        internal_traffic_policy: checked.internal_traffic_policy,
        traffic_distribution: checked.traffic_distribution,
    })
}

/// Checks that a record names the cluster it came from and the service of its key.
pub(super) fn checked_name(
    cluster: &ClusterName,
    key_suffix: &str,
    got_cluster: &str,
    (namespace, name): (&str, &str),
) -> Result<NamespacedName, Error> {
    let full = format!("{namespace}/{name}");
    check_names(cluster, key_suffix, got_cluster, ("namespaced name", &full))?;
    Ok(NamespacedName::parse(namespace, name)?)
}

/// The record with its JSON types checked.
struct Raw<'a> {
    cluster: &'a str,
    namespace: &'a str,
    name: &'a str,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    created_at: Option<Timestamp>,
    ports: Vec<ServicePort>,
    import_type: &'a str,
    session_affinity: &'a str,
    timeout: Option<i32>,
    ip_families: Vec<IpFamily>,
    internal_traffic_policy: Option<&'a str>,
    traffic_distribution: Option<&'a str>,
}

/// The members that Cilium's readers check.
struct Checked {
    created_at: Timestamp,
    import_type: ImportType,
    session_affinity: SessionAffinity,
    internal_traffic_policy: Option<InternalTrafficPolicy>,
    traffic_distribution: Option<TrafficDistribution>,
}

impl<'a> Raw<'a> {
    fn read(record: Members<'a>) -> Result<Self, Error> {
        let text = |name| record.get(name).map(|value| value.text(name)).transpose();
        Ok(Self {
            cluster: record.text("cluster")?,
            namespace: record.text("namespace")?,
            name: record.text("name")?,
            labels: spelled_twice(record, "labels", "Labels")?,
            annotations: spelled_twice(record, "annotations", "Annotations")?,
            created_at: read_time(record)?,
            ports: record
                .list("ports", MAX_PORTS)?
                .iter()
                .map(read_port)
                .collect::<Result<_, _>>()?,
            import_type: record.text("type")?,
            session_affinity: record.text("sessionAffinity")?,
            timeout: read_timeout(record)?,
            ip_families: read_families(record)?,
            internal_traffic_policy: text("internalTrafficPolicy")?,
            traffic_distribution: text("trafficDistribution")?,
        })
    }

    fn check(&self) -> Result<Checked, Error> {
        for (what, text) in [
            ("cluster", self.cluster),
            ("namespace", self.namespace),
            ("name", self.name),
        ] {
            if text.is_empty() {
                return Err(Error::Unset(what));
            }
        }
        Ok(Checked {
            created_at: self
                .created_at
                .ok_or(Error::Unset("exportCreationTimestamp"))?,
            import_type: known("type", self.import_type, ImportType::parse)?,
            session_affinity: known(
                "session affinity",
                self.session_affinity,
                SessionAffinity::parse,
            )?,
            internal_traffic_policy: self
                .internal_traffic_policy
                .map(|text| {
                    known(
                        "internal traffic policy",
                        text,
                        InternalTrafficPolicy::parse,
                    )
                })
                .transpose()?,
            traffic_distribution: self
                .traffic_distribution
                .map(|text| known("traffic distribution", text, TrafficDistribution::parse))
                .transpose()?,
        })
    }
}

fn known<T>(
    what: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, Error> {
    parse(text).ok_or_else(|| Error::Unknown {
        what,
        value: clip(text),
    })
}

fn spelled_twice(
    record: Members<'_>,
    name: &'static str,
    legacy: &'static str,
) -> Result<BTreeMap<String, String>, Error> {
    let current = json::text_map(record.get_other_than(name, legacy), name)?;
    let older = json::text_map(record.get_exact(legacy), legacy)?;
    Ok(if current.is_empty() { older } else { current })
}

/// The creation time; Go's zero time counts as none.
fn read_time(record: Members<'_>) -> Result<Option<Timestamp>, Error> {
    let field = "exportCreationTimestamp";
    let Some(value) = record.get(field) else {
        return Ok(None);
    };
    let time: Timestamp = value.text(field)?.parse().map_err(|_| Error::Type {
        field,
        expected: "an RFC 3339 time",
    })?;
    let zero = canary::seconds(time) == "0001-01-01T00:00:00Z";
    Ok((!zero).then_some(time))
}

fn read_timeout(record: Members<'_>) -> Result<Option<i32>, Error> {
    let config = record.members("sessionAffinityConfig")?;
    let seconds = config.members("clientIP")?.integer("timeoutSeconds")?;
    seconds
        .map(|seconds| {
            if !(1..=AFFINITY_MAX_SECONDS).contains(&seconds) {
                let rule = "expected 1 to 86400 seconds";
                return Err(rules::broken("timeoutSeconds", &seconds.to_string(), rule));
            }
            i32::try_from(seconds).map_err(|_| Error::Type {
                field: "timeoutSeconds",
                expected: "a 32-bit number",
            })
        })
        .transpose()
}

fn read_families(record: Members<'_>) -> Result<Vec<IpFamily>, Error> {
    let listed = record.list("ipFamilies", MAX_PORTS)?;
    let mut families = Vec::new();
    for value in listed {
        if let Some(family) = IpFamily::parse(value.text("ipFamilies")?)
            && !families.contains(&family)
        {
            families.push(family);
        }
    }
    match (listed.first(), families.is_empty()) {
        (Some(first), true) => Err(rules::broken(
            "ipFamilies",
            first.text("ipFamilies")?,
            "expected at least one of IPv4 and IPv6",
        )),
        _ => Ok(families),
    }
}

fn read_port(value: &Json<'_>) -> Result<ServicePort, Error> {
    let port = value.members("ports")?;
    let protocol = match port.text("protocol")? {
        "" => Protocol::Tcp,
        text => Protocol::parse(text)
            .ok_or_else(|| rules::broken("ports.protocol", text, "expected TCP, UDP or SCTP"))?,
    };
    let app_protocol = Some(port.text("appProtocol")?).filter(|text| !text.is_empty());
    if let Some(text) = app_protocol {
        rules::check_qualified_name("ports.appProtocol", text)?;
    }
    Ok(ServicePort {
        name: PortName::try_from(port.text("name")?)?,
        protocol,
        app_protocol: app_protocol.map(str::to_owned),
        port: read_port_number(port.integer("port")?)?,
    })
}

fn read_port_number(number: Option<i64>) -> Result<u16, Error> {
    let number = number.unwrap_or(0);
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => {
            let rule = "expected a port from 1 to 65535";
            Err(rules::broken("ports.port", &number.to_string(), rule))
        }
    }
}

/// Refuses what the API server would refuse in the importer's objects.
fn check_importable(raw: &Raw<'_>, import_type: ImportType) -> Result<(), Error> {
    if raw.ports.is_empty() && import_type == ImportType::ClusterSetIp {
        let rule = "a service of type ClusterSetIP needs at least one port";
        return Err(rules::broken("ports", "", rule));
    }
    let named = raw.ports.iter().any(|port| !port.name.is_unnamed());
    if named && raw.ports.iter().any(|port| port.name.is_unnamed()) {
        let rule = "with several ports, every port needs a name";
        return Err(rules::broken("ports.name", "", rule));
    }
    rules::check_labels(&raw.labels)?;
    rules::check_annotations(&raw.annotations)
}

#[cfg(test)]
#[path = "service_export_tests.rs"]
mod tests;
