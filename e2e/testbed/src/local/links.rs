//! Faults of the network between clusters: pods cut from pods, and a node cut from all others.

use std::{net::IpAddr, path::Path};

use super::{LocalCluster, node::link_name};
use crate::{Error, api::Network, command::Invocation};

impl LocalCluster {
    /// Drops what pods of the two clusters send to each other, on this node. Both API servers, and what runs on the nodes
    /// themselves, still reach each other.
    pub(crate) async fn cut_pods(&self, other: &Self) -> Result<(), Error> {
        let table = table_name(&other.plane.name);
        let rules = cut(&table, other.plane.network);
        self.nft(&["-f", "-"], &rules).await
    }

    /// Undoes [`Self::cut_pods`].
    pub(crate) async fn heal_pods(&self, other: &Self) -> Result<(), Error> {
        let table = table_name(&other.plane.name);
        self.nft(&["delete", "table", "inet", &table], "").await
    }

    /// Drops what pods of this cluster send to a TCP port of the other's node, and the answers, on this node.
    pub(crate) async fn cut_port(&self, other: &Self, port: u16) -> Result<(), Error> {
        let table = port_table_name(&other.plane.name, port);
        let (v4, v6) = other.plane.network.node();
        let rules = cut_port(&table, [v4.into(), v6.into()], port);
        self.nft(&["-f", "-"], &rules).await
    }

    /// Undoes [`Self::cut_port`].
    pub(crate) async fn heal_port(&self, other: &Self, port: u16) -> Result<(), Error> {
        let table = port_table_name(&other.plane.name, port);
        self.nft(&["delete", "table", "inet", &table], "").await
    }

    async fn nft(&self, arguments: &[&str], input: &str) -> Result<(), Error> {
        let nft = self.ground.assets.program("nft");
        self.command(&nft, arguments).input(input).succeed().await?;
        Ok(())
    }

    /// Takes the link of this node down or up, as seen by all other nodes. This process still reaches its API server.
    pub(crate) async fn set_link(&self, up: bool) -> Result<(), Error> {
        let link = link_name(&self.plane.name);
        let state = if up { "up" } else { "down" };
        let ip = self.ground.assets.program("ip");
        self.in_hub(&ip, &["link", "set", &link, state])
            .succeed()
            .await?;
        Ok(())
    }

    fn in_hub(&self, program: &Path, arguments: &[&str]) -> Invocation {
        Invocation::new(&self.ground.hub.enter(), program, arguments)
    }
}

/// Name of the table that cuts pods of this cluster off.
pub(crate) fn table_name(other: &str) -> String {
    format!("tombolo-cut-{other}")
}

/// Name of the table that cuts pods of this cluster off from a port of another's node.
pub(crate) fn port_table_name(other: &str, port: u16) -> String {
    format!("tombolo-cut-{other}-{port}")
}

/// Drops what is forwarded to and from a port of another cluster's node, which has an address of each family, IPv4 first.
/// Replaces a table that exists.
pub(crate) fn cut_port(table: &str, [v4, v6]: [IpAddr; 2], port: u16) -> String {
    format!(
        "add table inet {table}
delete table inet {table}
table inet {table} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    ip daddr {v4} tcp dport {port} drop
    ip saddr {v4} tcp sport {port} drop
    ip6 daddr {v6} tcp dport {port} drop
    ip6 saddr {v6} tcp sport {port} drop
  }}
}}
"
    )
}

/// Drops packets from and to the pods of another cluster where they are forwarded, before and after Services are
/// translated: the hook is behind the translation of destinations. Replaces a table that exists.
pub(crate) fn cut(table: &str, other: Network) -> String {
    let [v4, v6] = other.pod_ranges();
    format!(
        "add table inet {table}
delete table inet {table}
table inet {table} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    ip saddr {v4} drop
    ip daddr {v4} drop
    ip6 saddr {v6} drop
    ip6 daddr {v6} drop
  }}
}}
"
    )
}
