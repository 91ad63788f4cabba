//! What is known of a cluster that is to be connected. Types only; `gather` fills them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use ipnet::IpNet;
use tombolo_core::names::ClusterName;

use super::exposure::Exposure;
use crate::certificate::Certificate;

/// Who a cluster is: what its peers have to agree with. An invitation carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    /// Name in the mesh.
    pub(super) cluster: ClusterName,
    /// Id in the mesh.
    pub(super) id: u32,
    /// Largest id of the mesh: 255 or 511.
    pub(super) max_clusters: u32,
    /// Version of Tombolo; empty when the installation does not say.
    pub(super) version: String,
    /// Networks of its pods and Services.
    pub(super) networks: Networks,
}

/// Networks of a cluster, as far as they could be found out. An empty list is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Networks {
    /// Of its pods.
    pub(super) pods: Vec<IpNet>,
    /// Of its Services.
    pub(super) services: Vec<IpNet>,
}

/// One cluster with an installation.
#[derive(Debug, Clone)]
pub(super) struct Site {
    /// Its context, as the user calls it.
    pub(super) context: String,
    /// Namespace of the installation.
    pub(super) namespace: String,
    /// Its Helm release, for advice.
    pub(super) release: String,
    /// Version of Kubernetes.
    pub(super) kubernetes: String,
    /// Who it is.
    pub(super) card: Card,
    /// What it publishes with; none when it publishes nothing.
    pub(super) publisher: Option<Publisher>,
    /// How its operator reads peers; none when it imports nothing.
    pub(super) importer: Option<Importer>,
    /// The certificate that it shows to peers with the same authority.
    pub(super) shown: Option<Certified>,
    /// Its nodes.
    pub(super) nodes: Vec<Node>,
    /// The objects that tell its processes of peers.
    pub(super) held: Held,
    /// What could not be found out, and why it matters.
    pub(super) unknown: Vec<String>,
}

/// The mesh role of a cluster and its etcd.
#[derive(Debug, Clone)]
pub(super) struct Publisher {
    /// Whether peers have users of their own in the etcd.
    pub(super) users: bool,
    /// Whether it copies peers into the own etcd.
    pub(super) copies: bool,
    /// Labels of its pods.
    pub(super) selector: BTreeMap<String, String>,
    /// Certificate of the etcd, and whom the etcd trusts.
    pub(super) server: Option<Certified>,
    /// The authority that can sign for peers; without its key there is none.
    pub(super) authority: Option<Authority>,
    /// The Service of the chart.
    pub(super) service: Option<Exposed>,
    /// The Service that an earlier `connect` made.
    pub(super) own_service: Option<Exposed>,
    /// Whether somebody else has made a Service of that name.
    pub(super) service_taken: bool,
}

/// How an operator reads its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Importer {
    /// In the own etcd, where the mesh role copies them.
    OwnStore {
        /// Its URL.
        endpoint: String,
    },
    /// In the etcds of the peers.
    Peers,
}

/// A certificate, and the authorities beside it.
#[derive(Debug, Clone)]
pub(super) struct Certified {
    /// The certificate, then those between it and its authority.
    pub(super) chain: Vec<Certificate>,
    /// Authorities that its holder trusts.
    pub(super) trusted: Vec<Certificate>,
}

/// Certificate and key of an authority, PEM.
#[derive(Clone)]
pub(super) struct Authority {
    /// Its certificate.
    pub(super) certificate: Vec<u8>,
    /// Its key. Never leaves this program.
    pub(super) key: Vec<u8>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A Service by which an etcd can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exposed {
    /// Its name.
    pub(super) name: String,
    /// uid and resourceVersion.
    pub(super) version: (String, String),
    /// Its type; none of a type that cannot be used.
    pub(super) kind: Option<Exposure>,
    /// Addresses inside of the cluster.
    pub(super) cluster_ips: Vec<IpAddr>,
    /// Its port.
    pub(super) port: u16,
    /// Its port on each node.
    pub(super) node_port: Option<u16>,
    /// Addresses of its load balancer.
    pub(super) ingress_ips: Vec<IpAddr>,
    /// Host names of its load balancer.
    pub(super) ingress_names: Vec<String>,
    /// Whether readers stay with one replica.
    pub(super) affinity: bool,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its name.
    pub(super) name: String,
    /// Whether it is ready and stays.
    pub(super) ready: bool,
    /// `InternalIP`s.
    pub(super) internal: Vec<IpAddr>,
    /// `ExternalIP`s.
    pub(super) external: Vec<IpAddr>,
}

/// Objects that tell processes of peers; none where there is no such object.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// Secret of the mesh role.
    pub(super) mesh: Option<Object>,
    /// Secret of the operator.
    pub(super) operator: Option<Object>,
    /// ConfigMap with the users.
    pub(super) users: Option<Object>,
    /// Names of the ServiceImports, by the clusters that they come from.
    pub(super) imports: BTreeMap<String, BTreeSet<String>>,
}

/// A Secret or ConfigMap with data.
#[derive(Clone, Default)]
pub(super) struct Object {
    /// uid and resourceVersion.
    pub(super) version: (String, String),
    /// Helm release that it is of.
    pub(super) release: Option<String>,
    /// Whether `connect` made it.
    pub(super) ours: bool,
    /// Peers that an annotation says `connect` wrote.
    pub(super) noted: BTreeSet<String>,
    /// The data.
    pub(super) data: BTreeMap<String, Vec<u8>>,
    /// Field managers of each key.
    pub(super) managers: BTreeMap<String, BTreeSet<String>>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("keys", &self.data.keys())
            .finish_non_exhaustive()
    }
}

impl Site {
    /// What to call it in messages.
    pub(super) fn name(&self) -> &str {
        self.card.cluster.as_str()
    }
}
