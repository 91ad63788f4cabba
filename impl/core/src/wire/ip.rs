//! `ip` records: which security identity an address has. STABLE. Cilium, `IPIdentityPair`.
//!
//! Tombolo writes none of its own; it reads and copies those of its peers.

use std::net::IpAddr;

use data_encoding::BASE64;

use super::{
    Error, MAX_PORTS, clip, go_json,
    json::{self, Json, Members},
    key, rules,
};
use crate::{names::PortName, service::Protocol};

/// The identity of an address, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpIdentity {
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix when it stands for a network; absent for a pod.
    pub prefix_length: Option<u8>,
    /// The node that has the address: the end of the tunnel to it.
    pub host: Option<IpAddr>,
    /// Its numeric identity.
    pub identity: u32,
    /// Index of the IPsec key; 0 without encryption.
    pub encryption_key: u8,
    /// Not in use; kept.
    pub metadata: String,
    /// Namespace of the pod; empty for what is none.
    pub namespace: String,
    /// Name of the pod; empty for what is none.
    pub pod: String,
    /// Service account of the pod; empty when it is not told (Cilium up to 1.16).
    pub service_account: String,
    /// Named ports of the pod, by name in what Cilium writes.
    pub named_ports: Vec<NamedPort>,
}

/// A port of a pod that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPort {
    /// Its name.
    pub name: PortName,
    /// Its number, 1 to 65535.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// Key and value of an address's identity.
pub fn encode(entry: &IpIdentity) -> (String, Vec<u8>) {
    let mut out = String::with_capacity(256);
    go_json::object(&mut out, |record| {
        record.text("IP", &entry.ip.to_string());
        match entry.prefix_length {
            Some(length) => record.text("Mask", &mask_text(entry.ip, length)),
            None => record.literal("Mask", "null"),
        }
        let host = entry.host.map(|host| host.to_string());
        record.text("HostIP", &host.unwrap_or_default());
        record.literal("ID", entry.identity);
        record.literal("Key", entry.encryption_key);
        record.text("Metadata", &entry.metadata);
        for (name, text) in [
            ("K8sNamespace", &entry.namespace),
            ("K8sPodName", &entry.pod),
            ("K8sServiceAccount", &entry.service_account),
        ] {
            if !text.is_empty() {
                record.text(name, text);
            }
        }
        if !entry.named_ports.is_empty() {
            record.list("NamedPorts", &entry.named_ports, |out, port| {
                go_json::object(out, |object| {
                    object.text("Name", port.name.as_str());
                    object.literal("Port", port.port);
                    object.text("Protocol", port.protocol.as_str());
                });
            });
        }
    });
    (key::ip_key(&suffix(entry)), out.into_bytes())
}

/// The key after the prefix: the address, and the prefix length if there is one.
fn suffix(entry: &IpIdentity) -> String {
    entry.prefix_length.map_or_else(
        || entry.ip.to_string(),
        |length| format!("{}/{length}", entry.ip),
    )
}

/// Reads the identity of an address; `key_suffix` is the key after the prefix.
///
/// A named port that no reader can use is left out and named in `dropped`, as in Cilium. Whether the identity is one that the
/// cluster may give is for who uses identities.
///
/// ```
/// use tombolo_core::wire::ip::decode;
/// let value = br#"{"IP":"10.20.1.17","HostIP":"192.0.2.31","ID":461234}"#;
/// let cart = decode("10.20.1.17", value, &mut Vec::new()).unwrap();
/// assert_eq!(cart.identity, 461_234);
/// ```
pub fn decode(
    key_suffix: &str,
    bytes: &[u8],
    dropped: &mut Vec<Error>,
) -> Result<IpIdentity, Error> {
    let json = json::parse(bytes)?;
    let record = json.members("the value")?;
    let mismatch = |got: &str| Error::IpKeyMismatch {
        expected: clip(key_suffix),
        got: clip(got),
    };
    let ip = rules::optional_ip(record.text("IP")?)?.ok_or_else(|| mismatch("<nil>"))?;
    let entry = IpIdentity {
        ip,
        prefix_length: read_mask(record, ip)?,
        host: rules::optional_ip(record.text("HostIP")?)?,
        identity: record.unsigned("ID")?,
        encryption_key: record.unsigned("Key")?,
        metadata: record.text("Metadata")?.to_owned(),
        namespace: record.text("K8sNamespace")?.to_owned(),
        pod: record.text("K8sPodName")?.to_owned(),
        service_account: record.text("K8sServiceAccount")?.to_owned(),
        named_ports: read_named_ports(record, dropped)?,
    };
    let got = suffix(&entry);
    if got == key_suffix {
        Ok(entry)
    } else {
        Err(mismatch(&got))
    }
}

fn mask(ip: IpAddr, length: u8) -> Vec<u8> {
    let bytes = if ip.is_ipv4() { 4 } else { 16 };
    let ones = |index: u8| length.saturating_sub(8 * index).min(8);
    (0..bytes)
        .map(|index| !(0xff_u8.checked_shr(ones(index).into()).unwrap_or(0)))
        .collect()
}

/// The mask of a network, in bytes; `null` or missing for a pod.
fn read_mask(record: Members<'_>, ip: IpAddr) -> Result<Option<u8>, Error> {
    record
        .get("Mask")
        .map(|value| prefix_length(value, "Mask", ip))
        .transpose()
}

/// The length of the prefix that a mask in base64 stands for. It has to fit its address.
pub(super) fn prefix_length(
    value: &Json<'_>,
    field: &'static str,
    ip: IpAddr,
) -> Result<u8, Error> {
    let text = value.text(field)?;
    let max: u8 = if ip.is_ipv4() { 32 } else { 128 };
    BASE64
        .decode(text.as_bytes())
        .ok()
        .and_then(|bytes| (0..=max).find(|&length| mask(ip, length) == bytes))
        .ok_or_else(|| rules::broken(field, text, "expected the bytes of a mask, in base64"))
}

/// The mask of a prefix in base64.
pub(super) fn mask_text(ip: IpAddr, length: u8) -> String {
    BASE64.encode(&mask(ip, length))
}

fn read_named_ports(
    record: Members<'_>,
    dropped: &mut Vec<Error>,
) -> Result<Vec<NamedPort>, Error> {
    let mut ports = Vec::new();
    for item in record.list("NamedPorts", MAX_PORTS)? {
        let members = item.members("NamedPorts")?;
        let (name, protocol) = (members.text("Name")?, members.text("Protocol")?);
        match named_port(name, members.unsigned("Port")?, protocol) {
            Ok(port) => ports.push(port),
            Err(error) => dropped.push(error),
        }
    }
    Ok(ports)
}

fn named_port(name: &str, port: u16, protocol: &str) -> Result<NamedPort, Error> {
    if name.is_empty() {
        return Err(rules::broken("NamedPorts.Name", name, "expected a name"));
    }
    if port == 0 {
        let rule = "expected a port from 1 to 65535";
        return Err(rules::broken("NamedPorts.Port", "0", rule));
    }
    Ok(NamedPort {
        name: PortName::try_from(name)?,
        port,
        protocol: Protocol::parse(protocol).ok_or_else(|| {
            rules::broken("NamedPorts.Protocol", protocol, "expected TCP, UDP or SCTP")
        })?,
    })
}

#[cfg(test)]
#[path = "ip_tests.rs"]
mod tests;
