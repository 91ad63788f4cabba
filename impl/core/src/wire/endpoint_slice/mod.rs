//! `endpointslices` records: an EndpointSlice of a global service, with the conditions of its endpoints. STABLE. Cilium 1.20
//! and later, `ClusterEndpointSlice`.
//!
//! The value is a protobuf message in a zstd frame. Writers differ in how they compress: equal means the same message.

mod frame;
mod message;

use std::{collections::BTreeMap, net::IpAddr};

pub use self::frame::MAX_MESSAGE_BYTES;
use super::{Error, check_names, clip, key, rules};
use crate::{
    names::{ClusterId, ClusterName, DNS_LABEL_MAX, Namespace, PortName},
    service::{IpFamily, Protocol},
};

/// An EndpointSlice of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEndpointSlice {
    /// The cluster that has the slice.
    pub cluster: ClusterName,
    /// Its numeric id.
    pub cluster_id: ClusterId,
    /// Namespace of the slice and of its Service.
    pub namespace: Namespace,
    /// Name of the slice. Its Service is in the label `kubernetes.io/service-name`.
    pub name: String,
    /// Labels of the slice.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the slice.
    pub annotations: BTreeMap<String, String>,
    /// Family of all its addresses.
    pub family: IpFamily,
    /// Its endpoints, also those that are not ready.
    pub endpoints: Vec<SliceEndpoint>,
    /// Ports of every endpoint.
    pub ports: Vec<SlicePort>,
}

/// An endpoint of a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its addresses; Kubernetes looks at the first.
    pub addresses: Vec<IpAddr>,
    /// Whether it takes new connections; absent counts as yes.
    pub ready: Option<bool>,
    /// Whether it answers at all; absent counts as yes.
    pub serving: Option<bool>,
    /// Whether it is about to end; absent counts as no.
    pub terminating: Option<bool>,
    /// Its host name.
    pub hostname: Option<String>,
    /// The node that it is on.
    pub node: Option<String>,
    /// The zone that it is in.
    pub zone: Option<String>,
    /// The zones that it is meant for, if it has hints.
    pub for_zones: Option<Vec<String>>,
}

/// A port of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// Its name; empty for an unnamed port.
    pub name: PortName,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number; absent means every port.
    pub port: Option<u16>,
    /// Its application protocol, if stated.
    pub app_protocol: Option<String>,
}

/// Key and value of a slice.
pub fn encode(slice: &ClusterEndpointSlice) -> (String, Vec<u8>) {
    let key = key::endpoint_slice_key(&slice.cluster, &slice.namespace, &slice.name);
    (key, frame::pack(&encode_message(slice)))
}

/// The message of a slice, not yet compressed. Equal slices have equal messages.
pub fn encode_message(slice: &ClusterEndpointSlice) -> Vec<u8> {
    let entries = |map: &BTreeMap<String, String>| {
        let entry = |(key, value): (&String, &String)| message::Entry {
            key: Some(key.clone()),
            value: Some(value.clone()),
        };
        map.iter().map(entry).collect()
    };
    let message = message::Slice {
        cluster: Some(slice.cluster.to_string()),
        cluster_id: Some(slice.cluster_id.get()),
        namespace: Some(slice.namespace.to_string()),
        name: Some(slice.name.clone()),
        labels: entries(&slice.labels),
        annotations: entries(&slice.annotations),
        address_type: Some(slice.family.as_str().to_owned()),
        endpoints: slice.endpoints.iter().map(encode_endpoint).collect(),
        ports: slice.ports.iter().map(encode_port).collect(),
    };
    prost::Message::encode_to_vec(&message)
}

fn encode_endpoint(endpoint: &SliceEndpoint) -> message::Endpoint {
    let hints = |zones: &Vec<String>| message::Hints {
        for_zones: zones
            .iter()
            .map(|name| message::ForZone {
                name: Some(name.clone()),
            })
            .collect(),
    };
    message::Endpoint {
        addresses: endpoint.addresses.iter().map(IpAddr::to_string).collect(),
        conditions: Some(message::Conditions {
            ready: endpoint.ready,
            serving: endpoint.serving,
            terminating: endpoint.terminating,
        }),
        hostname: endpoint.hostname.clone(),
        node_name: endpoint.node.clone(),
        zone: endpoint.zone.clone(),
        hints: endpoint.for_zones.as_ref().map(hints),
    }
}

fn encode_port(port: &SlicePort) -> message::Port {
    message::Port {
        name: Some(port.name.as_str().to_owned()),
        protocol: Some(port.protocol.as_str().to_owned()),
        number: port.port.map(i32::from),
        app_protocol: port.app_protocol.clone(),
    }
}

/// Reads a slice of `cluster` from the value of its key; `key_suffix` is the key after the cluster's prefix.
///
/// Checks what Cilium's readers check, in their order and with their words. A part that the API server would refuse is left
/// out and named in `dropped`: an endpoint without a usable address, a port, a host name, a node, a zone.
///
/// ```
/// use tombolo_core::wire::endpoint_slice::decode;
/// let error = decode(&"paris".try_into().unwrap(), "shop/cart-x", b"{}", &mut Vec::new()).unwrap_err();
/// assert_eq!(error.reason(), "InvalidFrame");
/// ```
pub fn decode(
    cluster: &ClusterName,
    key_suffix: &str,
    bytes: &[u8],
    dropped: &mut Vec<Error>,
) -> Result<ClusterEndpointSlice, Error> {
    let message = message::decode(&frame::unpack(bytes)?)?;
    let [got_cluster, namespace, name] =
        [&message.cluster, &message.namespace, &message.name].map(|it| text(it.as_ref()));
    for (what, text) in [
        ("cluster", got_cluster),
        ("namespace", namespace),
        ("name", name),
    ] {
        if text.is_empty() {
            return Err(Error::Unset(what));
        }
    }
    let family = IpFamily::parse(text(message.address_type.as_ref())).ok_or(Error::AddressType)?;
    let endpoints = read_endpoints(&message.endpoints, family, dropped)?;
    let full = format!("{namespace}/{name}");
    check_names(cluster, key_suffix, got_cluster, ("namespaced name", &full))?;
    if !rules::is_subdomain(name) {
        return Err(rules::broken("name", name, "expected a DNS subdomain"));
    }
    let map = |entries: &[message::Entry]| {
        let entry = |entry: &message::Entry| {
            (
                text(entry.key.as_ref()).to_owned(),
                text(entry.value.as_ref()).to_owned(),
            )
        };
        entries.iter().map(entry).collect()
    };
    Ok(ClusterEndpointSlice {
        cluster: cluster.clone(),
        cluster_id: read_cluster_id(message.cluster_id)?,
        namespace: namespace.try_into()?,
        name: name.to_owned(),
        labels: map(&message.labels),
        annotations: map(&message.annotations),
        family,
        endpoints,
        ports: read_ports(&message.ports, dropped),
    })
}

/// A value with this message, which need not be one.
pub fn pack(message: &[u8]) -> Vec<u8> {
    frame::pack(message)
}

/// The message in a value, not yet read: what has to be equal for two values to say the same.
pub fn unpack(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    frame::unpack(bytes)
}

fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}

fn read_cluster_id(id: Option<u32>) -> Result<ClusterId, Error> {
    match id {
        None | Some(0) => Err(Error::ReservedClusterId(0)),
        Some(id) => Ok(ClusterId::try_from(id)?),
    }
}

fn read_endpoints(
    endpoints: &[message::Endpoint],
    family: IpFamily,
    dropped: &mut Vec<Error>,
) -> Result<Vec<SliceEndpoint>, Error> {
    let mut read = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let addresses = read_addresses(&endpoint.addresses, family, dropped)?;
        if addresses.is_empty() && !endpoint.addresses.is_empty() {
            continue;
        }
        let conditions = endpoint.conditions.unwrap_or_default();
        let hints = endpoint.hints.as_ref().map(|hints| {
            let zones = hints.for_zones.iter().map(|zone| text(zone.name.as_ref()));
            zones
                .filter(|zone| kept("zones", zone, is_zone(zone), ZONE_RULE, dropped))
                .map(str::to_owned)
                .collect()
        });
        read.push(SliceEndpoint {
            addresses,
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
            hostname: read_part(
                "hostnames",
                endpoint.hostname.as_ref(),
                is_label,
                LABEL_RULE,
                dropped,
            ),
            node: read_part(
                "nodeName",
                endpoint.node_name.as_ref(),
                rules::is_subdomain,
                "expected a DNS subdomain",
                dropped,
            ),
            zone: read_part("zones", endpoint.zone.as_ref(), is_zone, ZONE_RULE, dropped),
            for_zones: hints,
        });
    }
    Ok(read)
}

const LABEL_RULE: &str = "expected an RFC 1123 label";
const ZONE_RULE: &str = "expected a zone name: a label value that is not empty";

fn is_label(text: &str) -> bool {
    rules::is_dns_label(text, DNS_LABEL_MAX)
}

fn is_zone(text: &str) -> bool {
    !text.is_empty() && rules::is_label_value(text)
}

/// A text that is there and follows its rule.
fn read_part(
    field: &'static str,
    value: Option<&String>,
    follows: impl Fn(&str) -> bool,
    rule: &'static str,
    dropped: &mut Vec<Error>,
) -> Option<String> {
    let value = value.filter(|value| !value.is_empty())?;
    kept(field, value, follows(value), rule, dropped).then(|| value.clone())
}

fn kept(
    field: &'static str,
    value: &str,
    follows: bool,
    rule: &'static str,
    dropped: &mut Vec<Error>,
) -> bool {
    if !follows {
        dropped.push(rules::broken(field, value, rule));
    }
    follows
}

fn read_addresses(
    addresses: &[String],
    family: IpFamily,
    dropped: &mut Vec<Error>,
) -> Result<Vec<IpAddr>, Error> {
    let mut read = Vec::with_capacity(addresses.len());
    for text in addresses {
        let address = text
            .parse()
            .ok()
            .filter(|&address| IpFamily::of(address) == family)
            .ok_or_else(|| Error::EndpointAddress {
                family,
                address: clip(text),
            })?;
        match rules::check_endpoint_address("endpoints", address) {
            Ok(()) => read.push(address),
            Err(error) => dropped.push(error),
        }
    }
    Ok(read)
}

fn read_ports(ports: &[message::Port], dropped: &mut Vec<Error>) -> Vec<SlicePort> {
    let mut read = Vec::with_capacity(ports.len());
    for port in ports {
        match read_port(port) {
            Ok(port) => read.push(port),
            Err(error) => dropped.push(error),
        }
    }
    read
}

fn read_port(port: &message::Port) -> Result<SlicePort, Error> {
    let protocol = match text(port.protocol.as_ref()) {
        "" => Protocol::Tcp,
        text => Protocol::parse(text)
            .ok_or_else(|| rules::broken("ports.protocol", text, "expected TCP, UDP or SCTP"))?,
    };
    let number = port.number.map(|number| {
        let port = u16::try_from(number).ok().filter(|&port| port > 0);
        port.ok_or_else(|| {
            let rule = "expected a port from 1 to 65535";
            rules::broken("ports.port", &number.to_string(), rule)
        })
    });
    let app_protocol = port.app_protocol.as_ref().filter(|text| !text.is_empty());
    if let Some(text) = app_protocol {
        rules::check_qualified_name("ports.appProtocol", text)?;
    }
    Ok(SlicePort {
        name: PortName::try_from(text(port.name.as_ref()))?,
        protocol,
        port: number.transpose()?,
        app_protocol: app_protocol.cloned(),
    })
}

#[cfg(test)]
#[path = "../endpoint_slice_tests.rs"]
mod tests;
