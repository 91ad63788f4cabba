//! Why clusters are not connected: each reason names the cluster, what is wrong and what to do.

use thiserror::Error;

/// A reason not to connect clusters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(in crate::cli) enum Refusal {
    /// Both have one name.
    #[error(
        "{a} and {b} are both called {cluster}; names are unique in a mesh; install one of them anew with another cluster.name"
    )]
    SameName {
        /// One.
        a: String,
        /// The other.
        b: String,
        /// The name.
        cluster: String,
    },
    /// Both have one id.
    #[error(
        "{a} and {b} both have id {id}; ids are unique in a mesh; change one: helm upgrade ... --set cluster.id=N"
    )]
    SameId {
        /// One.
        a: String,
        /// The other.
        b: String,
        /// The id.
        id: u32,
    },
    /// An id is too large.
    #[error(
        "{cluster}: id {id}: expected 1 to {max} (maxConnectedClusters); change it: helm upgrade ... --set cluster.id=N"
    )]
    Id {
        /// The cluster.
        cluster: String,
        /// Its id.
        id: u32,
        /// The largest.
        max: u32,
    },
    /// Meshes of different size.
    #[error(
        "maxConnectedClusters: {a} has {of_a}, {b} has {of_b}; it has to be the same in all clusters; set clustermesh.maxConnectedClusters to one value"
    )]
    MaxClusters {
        /// One.
        a: String,
        /// Of it.
        of_a: u32,
        /// The other.
        b: String,
        /// Of it.
        of_b: u32,
    },
    /// Versions that are not meant for each other.
    #[error(
        "versions: {a} runs Tombolo {of_a}, {b} runs {of_b}; at most one minor version lies between clusters of a mesh; upgrade the older one, or --force"
    )]
    Versions {
        /// One.
        a: String,
        /// Of it.
        of_a: String,
        /// The other.
        b: String,
        /// Of it.
        of_b: String,
    },
    /// Packets would go astray.
    #[error(
        "networks: {one} and {other} overlap; {why}; number one of the clusters anew, or --force if these networks are not in use"
    )]
    Overlap {
        /// One, with its cluster.
        one: String,
        /// The other.
        other: String,
        /// What would happen.
        why: &'static str,
    },
    /// Neither reads the other.
    #[error(
        "{a} and {b}: neither imports what the other publishes; one needs operator.enabled, and the other clustermesh.useAPIServer"
    )]
    Nothing {
        /// One.
        a: String,
        /// The other.
        b: String,
    },
    /// Helm has the peers.
    #[error(
        "{cluster}: its peers are in the values of Helm release {release} ({kind} {name}); {advice}"
    )]
    Helm {
        /// The cluster.
        cluster: String,
        /// The release.
        release: String,
        /// Kind of the object.
        kind: &'static str,
        /// The object.
        name: String,
        /// What to do there.
        advice: String,
    },
    /// Helm has the objects of peers, though there are none.
    #[error(
        "{cluster}: {kind} {name} is of Helm release {release}, which lists no peers: that is a chart from before `tombolo connect`; upgrade the release first"
    )]
    OldChart {
        /// The cluster.
        cluster: String,
        /// The release.
        release: String,
        /// Kind of the object.
        kind: &'static str,
        /// The object.
        name: String,
    },
    /// Somebody else has a key.
    #[error(
        "{cluster}: {kind} {name}: key {key} is there with another content and belongs to {managers}; have it removed there, or write the peer there"
    )]
    Foreign {
        /// The cluster.
        cluster: String,
        /// Kind of the object.
        kind: &'static str,
        /// The object.
        name: String,
        /// The key.
        key: String,
        /// Whose it is.
        managers: String,
    },
    /// The list of users cannot be edited.
    #[error(
        "{cluster}: ConfigMap {name}: users.yaml {problem}; expected users: [{{name: remote-PEER, role: remote}}]; correct it"
    )]
    Users {
        /// The cluster.
        cluster: String,
        /// The object.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// No way in from outside.
    #[error(
        "{context}: Service {namespace}/clustermesh-apiserver: not reachable from other clusters as it is; pass --exposure {context}=node-port or load-balancer, {context}=cluster-ip when there are routes to it, or --endpoint {context}=HOST:PORT; or change it: helm upgrade {release} ... --set clustermesh.apiserver.service.type=NodePort"
    )]
    NotExposed {
        /// The context.
        context: String,
        /// The Helm release.
        release: String,
        /// The namespace.
        namespace: String,
    },
    /// Somebody else has a Service of the name.
    #[error(
        "{cluster}: Service {name} is there, and not made by tombolo connect; give it another name, or pass --endpoint"
    )]
    ServiceTaken {
        /// The cluster.
        cluster: String,
        /// The Service.
        name: &'static str,
    },
    /// No node is known.
    #[error(
        "{context}: no node has an address that is known, and its Service is a NodePort; check that this user may list nodes, or pass --endpoint {context}=HOST:PORT"
    )]
    NoNodes {
        /// The context.
        context: String,
    },
    /// The certificate is for others.
    #[error(
        "{context}: the certificate of its etcd is not for {host}, but for {names}; add it: helm upgrade {release} ... --set 'clustermesh.apiserver.tls.server.extraDnsNames={{{host}}}', or pass --endpoint {context}=IP:PORT"
    )]
    ServerName {
        /// The context.
        context: String,
        /// The Helm release.
        release: String,
        /// The name.
        host: String,
        /// Whom it is for.
        names: String,
    },
    /// No certificate can be made.
    #[error(
        "{context}: no certificate for {user} can be made: {problem}; put the authority of its etcd, ca.crt and ca.key, into Secret {namespace}/tombolo-ca, or let both clusters have one authority"
    )]
    NoAuthority {
        /// The context.
        context: String,
        /// Its namespace.
        namespace: String,
        /// Whom the certificate is for.
        user: String,
        /// Why not.
        problem: String,
    },
    /// The etcd shows a certificate that nothing vouches for.
    #[error(
        "{context}: the certificate of its etcd {problem}; renew the Secret of clustermesh.apiserver.tls.server"
    )]
    Server {
        /// The context.
        context: String,
        /// What is wrong.
        problem: String,
    },
    /// An invitation is for somebody else.
    #[error(
        "the invitation is for {expected}, and context {context} is {cluster}; name the context of {expected}, or ask for another invitation"
    )]
    NotInvited {
        /// Whom it is for.
        expected: String,
        /// The context.
        context: String,
        /// Who that is.
        cluster: String,
    },
}

impl Refusal {
    /// Whether `--force` goes on all the same: what was found out may be wrong, or does no harm yet.
    pub(super) fn is_lifted_by_force(&self) -> bool {
        matches!(self, Self::Versions { .. } | Self::Overlap { .. })
    }
}
