//! `nodes` records: a node with its addresses and pod networks. STABLE. Cilium, `nodeTypes.Node`.
//!
//! Tombolo writes none of its own; it reads and copies those of its peers.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{
    Error, MAX_ENTRIES, check_names,
    cluster_service::read_cluster_id,
    go_json::{self, Object},
    ip,
    json::{self, Json, Members},
    key, rules,
};
use crate::names::{ClusterId, ClusterName};

/// A node of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The cluster that has the node.
    pub cluster: ClusterName,
    /// Its numeric id.
    pub cluster_id: ClusterId,
    /// Name of the node, unique in its cluster.
    pub name: String,
    /// Its addresses, in the order of the node.
    pub addresses: Vec<NodeAddress>,
    /// The networks that its pods get IPv4 addresses from.
    pub ipv4: PodNetworks,
    /// The networks that its pods get IPv6 addresses from.
    pub ipv6: PodNetworks,
    /// What made the record, for instance `custom-resource`.
    pub source: String,
    /// Index of the IPsec key; 0 without encryption.
    pub encryption_key: u8,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the node.
    pub annotations: BTreeMap<String, String>,
    /// Public WireGuard key; empty without.
    pub wireguard_public_key: String,
    /// Identity of the node's boot; empty when it is not told.
    pub boot_id: String,
}

/// An address of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// What it is for, for instance `InternalIP` or `CiliumInternalIP`.
    pub kind: String,
    /// The address.
    pub ip: Option<IpAddr>,
}

/// What a node has of one IP family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodNetworks {
    /// The first network of its pods.
    pub primary: Option<IpNet>,
    /// The others.
    pub secondary: Vec<IpNet>,
    /// Address of the health endpoint.
    pub health: Option<IpAddr>,
    /// Address of the Ingress listener.
    pub ingress: Option<IpAddr>,
}

/// Key and value of a node.
pub fn encode(node: &Node) -> (String, Vec<u8>) {
    let mut out = String::with_capacity(1024);
    go_json::object(&mut out, |record| {
        record.text("Name", &node.name);
        record.text("Cluster", node.cluster.as_str());
        if node.addresses.is_empty() {
            record.literal("IPAddresses", "null");
        } else {
            record.list("IPAddresses", &node.addresses, |out, address| {
                go_json::object(out, |object| {
                    object.text("Type", &address.kind);
                    optional_ip(object, "IP", address.ip);
                });
            });
        }
        networks(
            record,
            "IPv4AllocCIDR",
            "IPv4SecondaryAllocCIDRs",
            &node.ipv4,
        );
        networks(
            record,
            "IPv6AllocCIDR",
            "IPv6SecondaryAllocCIDRs",
            &node.ipv6,
        );
        optional_ip(record, "IPv4HealthIP", node.ipv4.health);
        optional_ip(record, "IPv6HealthIP", node.ipv6.health);
        optional_ip(record, "IPv4IngressIP", node.ipv4.ingress);
        optional_ip(record, "IPv6IngressIP", node.ipv6.ingress);
        record.literal("ClusterID", node.cluster_id);
        record.text("Source", &node.source);
        record.literal("EncryptionKey", node.encryption_key);
        map_or_null(record, "Labels", &node.labels);
        map_or_null(record, "Annotations", &node.annotations);
        record.text("WireguardPubKey", &node.wireguard_public_key);
        record.text("BootID", &node.boot_id);
    });
    (key::node_key(&node.cluster, &node.name), out.into_bytes())
}

fn optional_ip(record: &mut Object<'_>, name: &str, ip: Option<IpAddr>) {
    record.text(name, &ip.map(|ip| ip.to_string()).unwrap_or_default());
}

fn map_or_null(record: &mut Object<'_>, name: &str, map: &BTreeMap<String, String>) {
    if map.is_empty() {
        record.literal(name, "null");
    } else {
        record.map(name, map);
    }
}

fn networks(record: &mut Object<'_>, primary: &str, secondary: &str, networks: &PodNetworks) {
    match networks.primary {
        Some(network) => encode_network(record.member(primary), network),
        None => record.literal(primary, "null"),
    }
    if networks.secondary.is_empty() {
        record.literal(secondary, "null");
    } else {
        record.list(secondary, &networks.secondary, |out, network| {
            encode_network(out, *network);
        });
    }
}

fn encode_network(out: &mut String, network: IpNet) {
    go_json::object(out, |object| {
        object.text("IP", &network.addr().to_string());
        object.text("Mask", &ip::mask_text(network.addr(), network.prefix_len()));
    });
}

/// Reads a node of `cluster` from the value of its key; `key_suffix` is the key after the cluster's prefix.
///
/// ```
/// use tombolo_core::wire::node::decode;
/// let value = br#"{"Name":"w1","Cluster":"paris","ClusterID":7,"IPv4AllocCIDR":"10.20.1.0/24"}"#;
/// let node = decode(&"paris".try_into().unwrap(), "w1", value).unwrap();
/// assert_eq!(node.ipv4.primary.unwrap().to_string(), "10.20.1.0/24");
/// ```
pub fn decode(cluster: &ClusterName, key_suffix: &str, bytes: &[u8]) -> Result<Node, Error> {
    let json = json::parse(bytes)?;
    let record = json.members("the value")?;
    let text = |name| record.text(name).map(str::to_owned);
    let (got_cluster, name) = (record.text("Cluster")?, record.text("Name")?);
    for (what, text) in [("cluster", got_cluster), ("name", name)] {
        if text.is_empty() {
            return Err(Error::Unset(what));
        }
    }
    check_names(cluster, key_suffix, got_cluster, ("name", name))?;
    let addresses = record.list("IPAddresses", MAX_ENTRIES)?;
    Ok(Node {
        cluster: cluster.clone(),
        cluster_id: read_cluster_id(record)?,
        name: name.to_owned(),
        addresses: addresses
            .iter()
            .map(read_address)
            .collect::<Result<_, _>>()?,
        ipv4: PodNetworks {
            primary: read_network(record.get("IPv4AllocCIDR"), "IPv4AllocCIDR")?,
            secondary: read_networks(record, "IPv4SecondaryAllocCIDRs")?,
            health: rules::optional_ip(record.text("IPv4HealthIP")?)?,
            ingress: rules::optional_ip(record.text("IPv4IngressIP")?)?,
        },
        ipv6: PodNetworks {
            primary: read_network(record.get("IPv6AllocCIDR"), "IPv6AllocCIDR")?,
            secondary: read_networks(record, "IPv6SecondaryAllocCIDRs")?,
            health: rules::optional_ip(record.text("IPv6HealthIP")?)?,
            ingress: rules::optional_ip(record.text("IPv6IngressIP")?)?,
        },
        source: text("Source")?,
        encryption_key: record.unsigned("EncryptionKey")?,
        labels: json::text_map(record.get("Labels"), "Labels")?,
        annotations: json::text_map(record.get("Annotations"), "Annotations")?,
        wireguard_public_key: text("WireguardPubKey")?,
        boot_id: text("BootID")?,
    })
}

fn read_address(value: &Json<'_>) -> Result<NodeAddress, Error> {
    let members = value.members("IPAddresses")?;
    Ok(NodeAddress {
        kind: members.text("Type")?.to_owned(),
        ip: rules::optional_ip(members.text("IP")?)?,
    })
}

fn read_networks(record: Members<'_>, field: &'static str) -> Result<Vec<IpNet>, Error> {
    let items = record.list(field, MAX_ENTRIES)?.iter();
    items
        .filter_map(|item| read_network(Some(item), field).transpose())
        .collect()
}

/// A network: an object of address and mask, as all versions so far write it, or a text, as later ones will.
fn read_network(value: Option<&Json<'_>>, field: &'static str) -> Result<Option<IpNet>, Error> {
    match value {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) if text.is_empty() => Ok(None),
        Some(Json::Text(text)) => {
            let rule = "expected an address, '/' and the length of its prefix";
            let network = text.parse();
            network
                .map(Some)
                .map_err(|_| rules::broken(field, text, rule))
        }
        Some(value) => {
            let members = value.members(field)?;
            let Some(address) = rules::optional_ip(members.text("IP")?)? else {
                return Ok(None);
            };
            let mask = members.get("Mask").unwrap_or(&Json::Null);
            let length = ip::prefix_length(mask, field, address)?;
            let network = IpNet::new(address, length);
            Ok(Some(network.expect(
                "invariant: a mask is at most as long as its address",
            )))
        }
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
