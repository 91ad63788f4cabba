//! `services` records: a global service of one cluster with its backends. STABLE. Cilium, `ClusterService`.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    Error, MAX_ADDRESSES, MAX_PORTS,
    go_json::{self, Object},
    json::{self, Json, Members},
    key, rules,
    service_export::checked_name,
};
use crate::{
    names::{ClusterId, ClusterName, DNS_LABEL_MAX, PortName},
    service::{BackendZone, ClusterService, L4Port, Protocol},
};

type Ports = BTreeMap<PortName, L4Port>;

/// Key and value of a service.
pub fn encode(service: &ClusterService) -> (String, Vec<u8>) {
    let mut out = String::with_capacity(512 + 160 * service.backends.len());
    go_json::object(&mut out, |record| {
        record.text("cluster", service.cluster.as_str());
        record.text("namespace", service.name.namespace.as_str());
        record.text("name", service.name.name.as_str());
        by_address(record, "frontends", &service.frontends, encode_ports);
        by_address(record, "backends", &service.backends, encode_ports);
        if !service.hostnames.is_empty() {
            by_address(record, "hostnames", &service.hostnames, |out, hostname| {
                go_json::string(out, hostname);
            });
        }
        if !service.zones.is_empty() {
            by_address(record, "zones", &service.zones, encode_zone);
        }
        record.map("labels", &service.labels);
        record.map("selector", &service.selector);
        record.literal("includeExternal", true);
        record.literal("shared", service.shared);
        record.literal("clusterID", service.cluster_id);
    });
    let key = key::service_key(&service.cluster, &service.name);
    (key, out.into_bytes())
}

/// Writes a map by address. Go sorts the keys as strings, so 10.0.0.10 comes before 10.0.0.9.
fn by_address<T>(
    record: &mut Object<'_>,
    name: &str,
    map: &BTreeMap<IpAddr, T>,
    write: impl Fn(&mut String, &T),
) {
    let mut entries: Vec<_> = map
        .iter()
        .map(|(ip, value)| (ip.to_string(), value))
        .collect();
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    record.object(name, |object| {
        for (address, value) in entries {
            write(object.member(&address), value);
        }
    });
}

fn encode_ports(out: &mut String, ports: &Ports) {
    go_json::object(out, |object| {
        for (name, port) in ports {
            object.object(name.as_str(), |l4| {
                l4.text("Protocol", port.protocol.as_str());
                l4.literal("Port", port.port);
            });
        }
    });
}

fn encode_zone(out: &mut String, zone: &BackendZone) {
    go_json::object(out, |object| {
        object.text("zone", &zone.zone);
        object.list("forZones", &zone.for_zones, |out, name| {
            go_json::object(out, |item| item.text("name", name));
        });
    });
}

/// Reads a service of `cluster` from the value of its key; `key_suffix` is the key after the cluster's prefix.
///
/// Checks what Cilium's readers check, in their order and with their words. A part that the API server would refuse in an
/// EndpointSlice is left out, so that it cannot block the other endpoints, and named in `dropped`: a port, a host name, a
/// zone, an address. A record with `shared: false` is returned as such; it counts as deleted.
///
/// ```
/// use tombolo_core::wire::cluster_service::decode;
/// let value = br#"{"cluster":"paris","namespace":"shop","name":"cart","shared":true,"clusterID":7,
///     "backends":{"10.0.0.1":{"http":{"Protocol":"TCP","Port":8080}},"127.0.0.1":{}}}"#;
/// let mut dropped = Vec::new();
/// let cart = decode(&"paris".try_into().unwrap(), "shop/cart", value, &mut dropped).unwrap();
/// assert_eq!(cart.backends.len(), 1);
/// assert_eq!(dropped.len(), 1);
/// ```
pub fn decode(
    cluster: &ClusterName,
    key_suffix: &str,
    bytes: &[u8],
    dropped: &mut Vec<Error>,
) -> Result<ClusterService, Error> {
    let json = json::parse(bytes)?;
    let record = json.members("the value")?;
    let names @ [got_cluster, namespace, name] = [
        record.text("cluster")?,
        record.text("namespace")?,
        record.text("name")?,
    ];
    for (what, text) in ["cluster", "namespace", "name"].into_iter().zip(names) {
        if text.is_empty() {
            return Err(Error::Unset(what));
        }
    }
    let cluster_id = read_cluster_id(record)?;
    let frontends = read_ports_by_address(record, "frontends", dropped)?;
    let mut backends = read_ports_by_address(record, "backends", dropped)?;
    let name = checked_name(cluster, key_suffix, got_cluster, (namespace, name))?;
    backends
        .retain(|&address, _| keep(rules::check_endpoint_address("backends", address), dropped));
    Ok(ClusterService {
        cluster: cluster.clone(),
        cluster_id,
        name,
        hostnames: read_hostnames(record, &backends, dropped)?,
        zones: read_zones(record, &backends, dropped)?,
        frontends,
        backends,
        labels: json::text_map(record.get("labels"), "labels")?,
        selector: json::text_map(record.get("selector"), "selector")?,
        shared: record.boolean("shared")?,
    })
}

/// Checks that a record carries the id that its cluster announced.
pub fn check_cluster_id(service: &ClusterService, expected: ClusterId) -> Result<(), Error> {
    let got = service.cluster_id;
    if got == expected {
        return Ok(());
    }
    Err(Error::ClusterId {
        got: got.get(),
        expected: expected.get(),
    })
}

pub(super) fn read_cluster_id(record: Members<'_>) -> Result<ClusterId, Error> {
    let id = record.integer("clusterID")?.unwrap_or(0);
    parse_cluster_id("clusterID", id)
}

pub(super) fn parse_cluster_id(field: &'static str, id: i64) -> Result<ClusterId, Error> {
    if id == 0 {
        return Err(Error::ReservedClusterId(id));
    }
    let id = u32::try_from(id).map_err(|_| Error::Type {
        field,
        expected: "a number from 1 to 511",
    })?;
    Ok(ClusterId::try_from(id)?)
}

fn read_ports_by_address(
    record: Members<'_>,
    field: &'static str,
    dropped: &mut Vec<Error>,
) -> Result<BTreeMap<IpAddr, Ports>, Error> {
    let members = record.members(field)?.at_most(MAX_ADDRESSES, field)?;
    let mut addresses = BTreeMap::new();
    for (address, value) in members.iter() {
        let address = rules::parse_address(address)?;
        let members = value.members(field)?.at_most(MAX_PORTS, field)?;
        let mut ports = Ports::new();
        let mut bad = false;
        for (name, value) in members.iter() {
            match read_port(field, name, value)? {
                Ok((name, port)) => {
                    ports.insert(name, port);
                }
                Err(error) => {
                    bad = true;
                    dropped.push(error);
                }
            }
        }
        if !(bad && ports.is_empty()) {
            addresses.insert(address, ports);
        }
    }
    Ok(addresses)
}

/// The outer error refuses the record, the inner one only this port.
fn read_port(
    field: &'static str,
    name: &str,
    value: &Json<'_>,
) -> Result<Result<(PortName, L4Port), Error>, Error> {
    let members = value.members(field)?;
    let protocol = members.text("Protocol")?;
    let number = members.integer("Port")?.unwrap_or(0);
    let port = u16::try_from(number).map_err(|_| Error::Type {
        field: "Port",
        expected: "a number from 0 to 65535",
    })?;
    let name = match PortName::try_from(name) {
        Ok(name) => name,
        Err(error) => return Ok(Err(error.into())),
    };
    let Some(protocol) = Protocol::parse(protocol) else {
        let rule = "expected TCP, UDP or SCTP";
        return Ok(Err(rules::broken("Protocol", protocol, rule)));
    };
    if port == 0 {
        return Ok(Err(rules::broken(
            "Port",
            "0",
            "expected a port from 1 to 65535",
        )));
    }
    Ok(Ok((name, L4Port { protocol, port })))
}

fn read_hostnames(
    record: Members<'_>,
    backends: &BTreeMap<IpAddr, Ports>,
    dropped: &mut Vec<Error>,
) -> Result<BTreeMap<IpAddr, String>, Error> {
    let members = record
        .members("hostnames")?
        .at_most(MAX_ADDRESSES, "hostnames")?;
    let mut hostnames = BTreeMap::new();
    for (address, value) in members.iter() {
        let hostname = value.text("hostnames")?;
        let Some(address) = known_backend(address, backends) else {
            continue;
        };
        if rules::is_dns_label(hostname, DNS_LABEL_MAX) {
            hostnames.insert(address, hostname.to_owned());
        } else if !hostname.is_empty() {
            dropped.push(rules::broken(
                "hostnames",
                hostname,
                "expected an RFC 1123 label",
            ));
        }
    }
    Ok(hostnames)
}

fn read_zones(
    record: Members<'_>,
    backends: &BTreeMap<IpAddr, Ports>,
    dropped: &mut Vec<Error>,
) -> Result<BTreeMap<IpAddr, BackendZone>, Error> {
    let members = record.members("zones")?.at_most(MAX_ADDRESSES, "zones")?;
    let mut zones = BTreeMap::new();
    for (address, value) in members.iter() {
        let value = value.members("zones")?;
        let zone = value.text("zone")?;
        let mut for_zones = Vec::new();
        for item in value.list("forZones", MAX_PORTS)? {
            let name = item.members("forZones")?.text("name")?;
            if keep(check_zone(name), dropped) {
                for_zones.push(name.to_owned());
            }
        }
        let Some(address) = known_backend(address, backends) else {
            continue;
        };
        if keep(check_zone(zone), dropped) {
            let zone = zone.to_owned();
            zones.insert(address, BackendZone { zone, for_zones });
        }
    }
    Ok(zones)
}

/// A host name or zone of an address that is no backend says nothing.
fn known_backend(address: &str, backends: &BTreeMap<IpAddr, Ports>) -> Option<IpAddr> {
    let address = address.parse().ok()?;
    backends.contains_key(&address).then_some(address)
}

fn check_zone(zone: &str) -> Result<(), Error> {
    if !zone.is_empty() && rules::is_label_value(zone) {
        return Ok(());
    }
    Err(rules::broken(
        "zones",
        zone,
        "expected a zone name: a label value that is not empty",
    ))
}

fn keep(check: Result<(), Error>, dropped: &mut Vec<Error>) -> bool {
    match check {
        Ok(()) => true,
        Err(error) => {
            dropped.push(error);
            false
        }
    }
}

#[cfg(test)]
#[path = "cluster_service_tests.rs"]
mod tests;
