//! What two clusters of a mesh have to agree on. Pure.

use ipnet::IpNet;

use super::{
    facts::{Card, Networks},
    networks,
    refusal::Refusal,
};

/// What speaks against a mesh of these two; `by_service_networks` when one is reached by addresses of its Services.
pub(super) fn between(a: &Card, b: &Card, by_service_networks: bool) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let (name_a, name_b) = (a.cluster.to_string(), b.cluster.to_string());
    if a.id == b.id {
        refusals.push(Refusal::SameId {
            a: name_a.clone(),
            b: name_b.clone(),
            id: a.id,
        });
    }
    if a.max_clusters != b.max_clusters {
        refusals.push(Refusal::MaxClusters {
            a: name_a.clone(),
            of_a: a.max_clusters,
            b: name_b.clone(),
            of_b: b.max_clusters,
        });
    }
    if let (Some(of_a), Some(of_b)) = (minor(&a.version), minor(&b.version))
        && (of_a.0 != of_b.0 || of_a.1.abs_diff(of_b.1) > 1)
    {
        refusals.push(Refusal::Versions {
            a: name_a,
            of_a: a.version.clone(),
            b: name_b,
            of_b: b.version.clone(),
        });
    }
    refusals.extend(overlaps(a, b, by_service_networks));
    refusals
}

/// What speaks against one cluster in any mesh.
pub(super) fn alone(card: &Card) -> Option<Refusal> {
    (card.id == 0 || card.id > card.max_clusters).then(|| Refusal::Id {
        cluster: card.cluster.to_string(),
        id: card.id,
        max: card.max_clusters,
    })
}

/// Major and minor of a version.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

const PODS: &str = "pod network";
const SERVICES: &str = "service network";

/// One kind of network of a cluster.
type Pick = fn(&Networks) -> &Vec<IpNet>;

fn overlaps(a: &Card, b: &Card, by_service_networks: bool) -> Vec<Refusal> {
    let pods = "a pod would take the other's address for its own";
    let services = "packets to pods would go to the own Services";
    let reached = "the store would be looked for among the own Services";
    let of_pods: (Pick, _) = (|networks| &networks.pods, PODS);
    let of_services: (Pick, _) = (|networks| &networks.services, SERVICES);
    let mut pairs = vec![
        (of_pods, of_pods, pods),
        (of_pods, of_services, services),
        (of_services, of_pods, services),
    ];
    if by_service_networks {
        pairs.push((of_services, of_services, reached));
    }
    let told = |what: &str, card: &Card, net: IpNet| format!("{what} of {} ({net})", card.cluster);
    let found = pairs.into_iter().filter_map(|(of_a, of_b, why)| {
        let (net_a, net_b) = networks::overlap((of_a.0)(&a.networks), (of_b.0)(&b.networks))?;
        Some(Refusal::Overlap {
            one: told(of_a.1, a, net_a),
            other: told(of_b.1, b, net_b),
            why,
        })
    });
    found.collect()
}
