//! How the etcd of a cluster is reached from other clusters. Pure.

use std::{fmt, net::IpAddr};

use clap::ValueEnum;
use serde::Serialize;

use super::{
    facts::{Exposed, Node, Publisher, Site},
    refusal::Refusal,
};

/// Domain under which every server certificate has the cluster's name. Cilium.
pub(super) const DOMAIN: &str = "mesh.cilium.io";

/// Nodes by which a NodePort is reached: enough that one can go.
const NODES_MAX: usize = 3;

/// The Service that `connect` makes where the chart's is of another type.
pub(super) const OWN_SERVICE: &str = "tombolo-connect";

/// How an etcd is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Exposure {
    /// By the addresses of its Service inside of the cluster, to which there have to be routes.
    ClusterIp,
    /// By a port on nodes.
    NodePort,
    /// By the addresses of a load balancer.
    LoadBalancer,
}

impl Exposure {
    /// The type of such a Service.
    pub(super) fn service_type(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Where an etcd is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    /// The name that its certificate has.
    pub(super) host: String,
    /// Addresses to connect to as that name; with none, DNS says.
    pub(super) ips: Vec<IpAddr>,
    /// The port.
    pub(super) port: u16,
    /// By what, for people.
    pub(super) by: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ips.is_empty() {
            return write!(f, "{}:{} ({})", self.host, self.port, self.by);
        }
        let ips: Vec<_> = self.ips.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} port {} as {} ({})",
            ips.join(", "),
            self.port,
            self.host,
            self.by
        )
    }
}

/// Whether it is known how to reach an etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is.
    Known(Endpoint),
    /// A Service has to be made, or changed, first.
    Make(Exposure),
    /// A load balancer has no address yet.
    Waiting {
        /// Name of the Service.
        service: String,
    },
}

/// What the user says about one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// How it should be reached.
    pub(super) exposure: Option<Exposure>,
    /// Where it is reached, whatever its Services say: hosts or IPs with one port.
    pub(super) endpoint: Option<Given>,
}

/// An address that the user gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// IPs.
    Ips(Vec<IpAddr>, u16),
    /// A host name.
    Host(String, u16),
}

/// How to reach the etcd of a cluster; `before` are the addresses by which a peer does so by now.
pub(super) fn reach(
    site: &Site,
    publisher: &Publisher,
    wish: &Wish,
    before: &[IpAddr],
) -> Result<Reach, Refusal> {
    if let Some(given) = &wish.endpoint {
        return of_given(site, given).map(Reach::Known);
    }
    let chart = publisher.service.as_ref();
    let own = publisher.own_service.as_ref();
    let kind = match (wish.exposure, own, chart) {
        (Some(wanted), _, _) => wanted,
        (
            None,
            Some(Exposed {
                kind: Some(kind), ..
            }),
            _,
        ) => *kind,
        (None, _, Some(service)) => match service.kind {
            Some(kind @ (Exposure::NodePort | Exposure::LoadBalancer)) => kind,
            Some(Exposure::ClusterIp) | None => return Err(not_exposed(site)),
        },
        (None, _, None) => return Err(not_exposed(site)),
    };
    let serves = |service: &&Exposed| match kind {
        Exposure::ClusterIp => !service.cluster_ips.is_empty(),
        Exposure::NodePort => service.node_port.is_some(),
        Exposure::LoadBalancer => service.kind == Some(kind),
    };
    let Some(service) = chart.into_iter().chain(own).find(serves) else {
        return Ok(Reach::Make(kind));
    };
    by_service(site, service, kind, before)
}

fn by_service(
    site: &Site,
    service: &Exposed,
    kind: Exposure,
    before: &[IpAddr],
) -> Result<Reach, Refusal> {
    let by = format!("{} of Service {}", kind.service_type(), service.name);
    let known = |ips: Vec<IpAddr>, port| Endpoint {
        host: format!("{}.{DOMAIN}", site.card.cluster),
        ips,
        port,
        by: by.clone(),
    };
    let endpoint = match kind {
        Exposure::ClusterIp => known(service.cluster_ips.clone(), service.port),
        Exposure::NodePort => {
            let ips = node_ips(&site.nodes, before);
            if ips.is_empty() {
                return Err(Refusal::NoNodes {
                    context: site.context.clone(),
                });
            }
            known(ips, service.node_port.unwrap_or_default())
        }
        Exposure::LoadBalancer if !service.ingress_ips.is_empty() => {
            known(service.ingress_ips.clone(), service.port)
        }
        Exposure::LoadBalancer => match service.ingress_names.first() {
            Some(name) => Endpoint {
                host: name.clone(),
                ..known(Vec::new(), service.port)
            },
            None => {
                return Ok(Reach::Waiting {
                    service: service.name.clone(),
                });
            }
        },
    };
    named(site, endpoint).map(Reach::Known)
}

fn of_given(site: &Site, given: &Given) -> Result<Endpoint, Refusal> {
    let by = "--endpoint".to_owned();
    let endpoint = match given {
        Given::Ips(ips, port) => Endpoint {
            host: format!("{}.{DOMAIN}", site.card.cluster),
            ips: ips.clone(),
            port: *port,
            by,
        },
        Given::Host(host, port) => Endpoint {
            host: host.clone(),
            ips: Vec::new(),
            port: *port,
            by,
        },
    };
    named(site, endpoint)
}

/// The endpoint, if the certificate of the etcd has its name.
fn named(site: &Site, endpoint: Endpoint) -> Result<Endpoint, Refusal> {
    let server = site.publisher.as_ref().and_then(|it| it.server.as_ref());
    let first = server.and_then(|it| it.chain.first());
    match first {
        Some(certificate) if !certificate.names.iter().any(|it| fits(it, &endpoint.host)) => {
            Err(Refusal::ServerName {
                context: site.context.clone(),
                release: site.release.clone(),
                host: endpoint.host,
                names: certificate.names.join(", "),
            })
        }
        Some(_) | None => Ok(endpoint),
    }
}

/// Whether a name of a certificate, whose first label may be `*`, is for a host.
fn fits(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    let (Some(domain), Some((_, rest))) = (name.strip_prefix("*."), host.split_once('.')) else {
        return false;
    };
    domain.eq_ignore_ascii_case(rest)
}

/// Addresses of some nodes: those of before that are still there, then others that are ready, by name. Internal addresses first:
/// pods of the clusters have to reach each other anyway, so the nodes' networks are joined.
fn node_ips(nodes: &[Node], before: &[IpAddr]) -> Vec<IpAddr> {
    let all = |node: &Node, ip: &IpAddr| node.internal.contains(ip) || node.external.contains(ip);
    let kept = before
        .iter()
        .filter(|ip| nodes.iter().any(|node| all(node, ip)));
    let mut ips: Vec<IpAddr> = kept.copied().collect();
    let mut ready: Vec<_> = nodes.iter().filter(|node| node.ready).collect();
    ready.sort_by(|a, b| a.name.cmp(&b.name));
    for node in ready {
        if ips.iter().any(|ip| all(node, ip)) {
            continue;
        }
        ips.extend(node.internal.first().or(node.external.first()));
    }
    ips.truncate(NODES_MAX.max(kept_len(&ips, before)));
    ips
}

fn kept_len(ips: &[IpAddr], before: &[IpAddr]) -> usize {
    ips.iter().filter(|ip| before.contains(ip)).count()
}

fn not_exposed(site: &Site) -> Refusal {
    Refusal::NotExposed {
        context: site.context.clone(),
        release: site.release.clone(),
        namespace: site.namespace.clone(),
    }
}
