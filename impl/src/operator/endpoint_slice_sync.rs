//! The sync: EndpointSlices of the endpoints that peers have for a global or derived Service of this cluster.
//!
//! They carry the manager label that tells every exporter, Cilium's too, that they were imported. Endpoints of a peer leave
//! only when the peer says so: while it is loading, or its record is one that was not taken, its slices stay as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};
use kube::{ResourceExt, api::ObjectMeta};
use tombolo_api::keys;
use tombolo_core::{
    export::is_global,
    mutant::{self, Mutant},
    names::{ClusterName, NamespacedName, PortName, short_hash},
    service::{ClusterService, IpFamily, L4Port},
};

use crate::{
    mesh::peers::RecordKind,
    operator::{
        apply::{self, Announcement, Controller},
        context::{Context, controlled_by},
        endpoint_slice_mirror::families_of,
        slices::{self, Managed},
    },
};

const CONTROLLER: Controller = Controller::EndpointSliceSync;

/// Most endpoints of one slice. Cilium's `--clustermesh-endpoints-per-slice`.
pub const ENDPOINTS_PER_SLICE: usize = 100;

/// Brings the slices of remote endpoints of one Service in line with what the peers have.
pub async fn reconcile(name: &NamespacedName, ctx: &Context) -> Result<(), apply::Error> {
    let service = ctx.service(name);
    let mut actual = ctx.slices(name);
    actual.retain(|slice| slices::is_managed(slice, keys::MANAGED_BY_MESH));
    let mut desired = BTreeMap::new();
    if let Some(service) = service.filter(|service| is_eligible(service)) {
        if opts_out(service.annotations()) {
            ctx.writer
                .announce(CONTROLLER, &*service, &withheld())
                .await;
        } else {
            let remote = remote(name, ctx);
            actual.retain(|slice| !is_held(slice, name, &remote, ctx));
            desired = build(&service, &remote, &actual);
        }
    }
    let others = |slice: &str| ctx.caches.slices.get(name.namespace.as_str(), slice);
    let writes = Managed { desired, actual }.writes(others);
    slices::carry_out(writes, CONTROLLER, ctx).await
}

/// Whether annotations say explicitly that no remote endpoints are to be written as slices.
pub fn opts_out(annotations: &BTreeMap<String, String>) -> bool {
    let value = annotations.get(keys::SYNC_ENDPOINT_SLICES);
    value.is_some_and(|value| value.eq_ignore_ascii_case("false"))
}

/// Whether an import with these annotations has slices of all endpoints, if it has any endpoints.
pub fn has_slices(annotations: &BTreeMap<String, String>) -> bool {
    !opts_out(annotations) && !mutant::is(Mutant::SlicesDenied)
}

/// Whether a Service gets slices of remote endpoints, unless it opts out: it is global.
pub fn is_eligible(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let external = spec.is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"));
    is_global(service.annotations()) && !external && service.metadata.deletion_timestamp.is_none()
}

fn remote(name: &NamespacedName, ctx: &Context) -> Vec<ClusterService> {
    let mut remote = ctx.remote.services(name);
    remote.retain(|service| service.shared && service.cluster != ctx.cluster);
    remote
}

/// Whether a slice is of a peer of whose service nothing is known: it is loading, or the record was not taken.
fn is_held(
    slice: &EndpointSlice,
    name: &NamespacedName,
    remote: &[ClusterService],
    ctx: &Context,
) -> bool {
    let known = |cluster| remote.iter().any(|service| service.cluster == cluster);
    let may_remove =
        |source: &ClusterName| ctx.remote.may_remove(source, RecordKind::Services, name);
    sources(slice)
        .into_iter()
        .any(|source| source != ctx.cluster && !may_remove(&source) && !known(source))
}

/// The clusters that a slice of ours may be of: what its label says, which somebody may have changed, and the nodes of its
/// endpoints, which are named after their cluster.
fn sources(slice: &EndpointSlice) -> BTreeSet<ClusterName> {
    let label = slice.labels().get(keys::SOURCE_CLUSTER);
    let endpoints = slice.endpoints.iter().flatten();
    let nodes = endpoints.filter_map(|endpoint| endpoint.node_name.as_ref());
    let names = label.into_iter().chain(nodes);
    names
        .filter_map(|name| ClusterName::try_from(name.as_str()).ok())
        .collect()
}

/// What the endpoints of one slice have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    family: IpFamily,
    ports: Vec<(PortName, L4Port)>,
}

/// The slices of remote endpoints of a Service, by name. `actual` tells which endpoint is in which slice already.
pub fn build(
    service: &Service,
    remote: &[ClusterService],
    actual: &[Arc<EndpointSlice>],
) -> BTreeMap<String, EndpointSlice> {
    let families = families_of(service);
    let mut built = BTreeMap::new();
    for peer in remote {
        for (group, addresses) in groups(peer, &families) {
            let named = |index| name_of(service, peer, &group, index);
            for (index, packed) in pack(&addresses, &placed(actual, &addresses, named)) {
                let name = named(index);
                let slice = build_one(name.clone(), service, peer, &group, &packed);
                built.insert(name, slice);
            }
        }
    }
    built
}

/// The backends of a peer by family and ports: a slice has one list of ports, and pods of one Service may differ in them.
fn groups(peer: &ClusterService, families: &[String]) -> BTreeMap<Group, BTreeSet<IpAddr>> {
    let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (&address, ports) in &peer.backends {
        let group = Group {
            family: IpFamily::of(address),
            ports: ports.iter().map(|(name, &l4)| (name.clone(), l4)).collect(),
        };
        if families
            .iter()
            .any(|family| family == group.family.as_str())
        {
            groups.entry(group).or_default().insert(address);
        }
    }
    groups
}

/// Name of the slice number `index` of a group: of Service, cluster, and a hash of all that tells it from others.
fn name_of(service: &Service, peer: &ClusterService, group: &Group, index: usize) -> String {
    let service = service.name_any();
    let mut text = format!("{service}\n{}\n{}\n{index}", peer.cluster, group.family);
    for (name, l4) in &group.ports {
        text.extend(["\n", name.as_str(), " ", l4.protocol.as_str(), " "]);
        text.push_str(&l4.port.to_string());
    }
    format!("{service}-{}-{}", peer.cluster, short_hash(&text))
}

/// Which endpoint is in which slice of a group, as of now.
fn placed(
    actual: &[Arc<EndpointSlice>],
    addresses: &BTreeSet<IpAddr>,
    named: impl Fn(usize) -> String,
) -> BTreeMap<usize, BTreeSet<IpAddr>> {
    let last = actual.len() + addresses.len() / ENDPOINTS_PER_SLICE;
    let by_name: BTreeMap<_, _> = actual
        .iter()
        .map(|slice| (slice.name_any(), slice))
        .collect();
    let content = |index| {
        let slice = by_name.get(&named(index))?;
        let endpoints = slice.endpoints.iter().flatten();
        let texts = endpoints.flat_map(|endpoint| &endpoint.addresses);
        Some((index, texts.filter_map(|text| text.parse().ok()).collect()))
    };
    (0..=last).filter_map(content).collect()
}

/// Packs endpoints into slices by number: each stays where it is, the others go into the first slice with room.
fn pack(
    addresses: &BTreeSet<IpAddr>,
    placed: &BTreeMap<usize, BTreeSet<IpAddr>>,
) -> BTreeMap<usize, BTreeSet<IpAddr>> {
    let mut homeless = addresses.clone();
    let mut packed: BTreeMap<usize, BTreeSet<IpAddr>> = BTreeMap::new();
    for (&index, present) in placed {
        let staying: BTreeSet<_> = present
            .intersection(&homeless)
            .take(ENDPOINTS_PER_SLICE)
            .copied()
            .collect();
        homeless.retain(|address| !staying.contains(address));
        packed.insert(index, staying);
    }
    let mut index = 0;
    for address in homeless {
        while packed.entry(index).or_default().len() >= ENDPOINTS_PER_SLICE {
            index += 1;
        }
        packed.entry(index).or_default().insert(address);
    }
    packed.retain(|_, addresses| !addresses.is_empty());
    packed
}

fn build_one(
    name: String,
    service: &Service,
    peer: &ClusterService,
    group: &Group,
    addresses: &BTreeSet<IpAddr>,
) -> EndpointSlice {
    let ports = group.ports.iter().map(|(name, l4)| EndpointPort {
        name: Some(name.to_string()),
        protocol: Some(l4.protocol.to_string()),
        port: Some(i32::from(l4.port)),
        app_protocol: None,
    });
    EndpointSlice {
        metadata: ObjectMeta {
            namespace: service.namespace(),
            name: Some(name),
            labels: Some(labels(service, peer)),
            owner_references: controlled_by(service),
            ..ObjectMeta::default()
        },
        address_type: group.family.to_string(),
        endpoints: Some(
            addresses
                .iter()
                .map(|&address| endpoint(peer, address))
                .collect(),
        ),
        ports: Some(ports.collect()),
    }
}

fn labels(service: &Service, peer: &ClusterService) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.remove(keys::HEADLESS);
    for (key, value) in [
        (keys::KUBERNETES_SERVICE_NAME, service.name_any()),
        (keys::MANAGED_BY, keys::MANAGED_BY_MESH.to_owned()),
        (keys::SOURCE_CLUSTER, peer.cluster.to_string()),
    ] {
        labels.insert(key.to_owned(), value);
    }
    let spec = service.spec.as_ref();
    if spec.is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None")) {
        labels.insert(keys::HEADLESS.to_owned(), String::new());
    }
    slices::mutate(&mut labels);
    labels
}

/// An endpoint as Cilium writes it: node and zone are the cluster, so that topology prefers whole clusters.
fn endpoint(peer: &ClusterService, address: IpAddr) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        hostname: peer.hostnames.get(&address).cloned(),
        node_name: Some(peer.cluster.to_string()),
        zone: Some(peer.cluster.to_string()),
        ..Endpoint::default()
    }
}

fn withheld() -> Announcement {
    Announcement {
        warning: false,
        reason: "RemoteEndpointsWithheld",
        action: "SyncEndpointSlices",
        note: format!(
            "Annotation {} is \"false\": endpoints of other clusters are not written, and this Service does not reach them. Remove the annotation to reach them.",
            keys::SYNC_ENDPOINT_SLICES
        ),
    }
}

#[cfg(test)]
#[path = "endpoint_slice_sync_tests.rs"]
mod tests;
