//! The mirror: EndpointSlices of an exported Service, copied to its derived Service.
//!
//! So the derived Service reaches the pods of this cluster, and the publisher sends them to the peers as backends of a global
//! service of the derived name, as Cilium does. Endpoints that are not ready are copied too. It must never copy a slice that
//! a mesh controller made.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Service, ServicePort},
    discovery::v1::{EndpointPort, EndpointSlice},
};
use kube::{ResourceExt, api::ObjectMeta};
use tombolo_api::keys;
use tombolo_core::{
    export::ExportVerdict,
    families,
    mutant::{self, Mutant},
    names::{ClusterName, NamespacedName, short_hash},
};

use crate::{
    cluster::facts,
    operator::{
        apply::{self, Controller},
        context::{Context, controlled_by},
        slices::{self, Managed},
    },
};

const CONTROLLER: Controller = Controller::EndpointSliceMirror;

/// Longest part of a local slice's name that a mirrored one takes over, in bytes. Cilium 1.20.
const SUFFIX_MAX: usize = 40;

/// Longest value of a label, in bytes. Kubernetes.
const LABEL_VALUE_MAX: usize = 63;

/// What the mirrored slices of one Service rest on.
#[derive(Debug)]
pub struct Observed<'a> {
    /// This cluster.
    pub cluster: &'a ClusterName,
    /// The exported Service.
    pub service: &'a Service,
    /// Its derived Service.
    pub derived: &'a Service,
    /// All EndpointSlices of the exported Service.
    pub local: &'a [Arc<EndpointSlice>],
}

/// Brings the mirrored slices of one Service in line with its own.
pub async fn reconcile(name: &NamespacedName, ctx: &Context) -> Result<(), apply::Error> {
    let derived = ctx.service(&name.derived());
    let desired = match (exported(name, ctx), &derived) {
        (Some(service), Some(derived)) => build(&Observed {
            cluster: &ctx.cluster,
            service: &service,
            derived,
            local: &ctx.slices(name),
        }),
        (None, _) | (_, None) => BTreeMap::new(),
    };
    let mut actual = ctx.slices(&name.derived());
    actual.retain(|slice| slices::is_managed(slice, keys::MANAGED_BY_MIRROR));
    let others = |slice: &str| ctx.caches.slices.get(name.namespace.as_str(), slice);
    let writes = Managed { desired, actual }.writes(others);
    slices::carry_out(writes, CONTROLLER, ctx).await
}

/// The Service of a name, if it is exported.
fn exported(name: &NamespacedName, ctx: &Context) -> Option<Arc<Service>> {
    let namespace_global = ctx.namespace_gate(name)?;
    match ctx.verdict(name, namespace_global) {
        ExportVerdict::Exported(_) => ctx.service(name),
        ExportVerdict::Refused(_) if mutant::is(Mutant::UnexportedServes) => ctx.service(name),
        ExportVerdict::Refused(_) => None,
    }
}

/// The mirrored slices, by name.
pub fn build(observed: &Observed<'_>) -> BTreeMap<String, EndpointSlice> {
    let mut mirrored = BTreeMap::new();
    for local in observed
        .local
        .iter()
        .filter(|slice| is_source(slice, observed))
    {
        let ports = kept_ports(local, observed);
        if ports.is_empty() && !has_endpoints_without_ports(local) {
            continue;
        }
        let mut name = mirrored_name(local, observed);
        if mirrored.contains_key(&name) {
            name = format!(
                "{}-{}",
                observed.derived.name_any(),
                short_hash(&local.name_any())
            );
        }
        mirrored.insert(name.clone(), build_one(name, local, ports, observed));
    }
    mirrored
}

/// Whether a slice is the exported Service's own, of a family that this cluster serves, and not made by a mesh controller.
fn is_source(slice: &EndpointSlice, observed: &Observed<'_>) -> bool {
    let manager = slice.labels().get(keys::MANAGED_BY).map(String::as_str);
    let made_here = [Some(keys::MANAGED_BY_MESH), Some(keys::MANAGED_BY_MIRROR)].contains(&manager);
    let service = slice.labels().get(keys::KUBERNETES_SERVICE_NAME);
    !made_here
        && !facts::is_of_another_cluster(slice.labels(), observed.cluster)
        && slice.metadata.deletion_timestamp.is_none()
        && service == Some(&observed.service.name_any())
        && families_of(observed.derived).contains(&slice.address_type)
}

/// The families of a Service: what its annotation says this cluster serves, or else its own.
pub fn families_of(service: &Service) -> Vec<String> {
    let annotation = service.annotations().get(keys::SUPPORTED_IP_FAMILIES);
    if let Some(families) = annotation.and_then(|text| families::from_annotation(text)) {
        return families.iter().map(ToString::to_string).collect();
    }
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.ip_families.clone())
        .unwrap_or_default()
}

/// Whether a slice names endpoints and no port at all, as those of a headless Service without ports do.
fn has_endpoints_without_ports(slice: &EndpointSlice) -> bool {
    let is_empty = |ports: Option<usize>| ports.is_none_or(|count| count == 0);
    is_empty(slice.ports.as_ref().map(Vec::len))
        && !is_empty(slice.endpoints.as_ref().map(Vec::len))
}

/// The ports of a slice that the derived Service has too: by name, with equal number and protocol in both Services. A port
/// that lost a conflict must not get traffic here (`KEP-1645#146`).
fn kept_ports(slice: &EndpointSlice, observed: &Observed<'_>) -> Vec<EndpointPort> {
    let agreed = |port: &&EndpointPort| {
        let name = port.name.as_deref().unwrap_or_default();
        let own = port_named(observed.service, name);
        let derived = port_named(observed.derived, name);
        let same = |own: &ServicePort, derived: &ServicePort| {
            own.port == derived.port && protocol(own) == protocol(derived)
        };
        matches!((own, derived), (Some(own), Some(derived)) if same(own, derived) || mutant::is(Mutant::LoserServes))
    };
    slice
        .ports
        .iter()
        .flatten()
        .filter(agreed)
        .cloned()
        .collect()
}

fn port_named<'a>(service: &'a Service, name: &str) -> Option<&'a ServicePort> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    ports
        .iter()
        .find(|port| port.name.as_deref().unwrap_or_default() == name)
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

fn build_one(
    name: String,
    local: &EndpointSlice,
    ports: Vec<EndpointPort>,
    observed: &Observed<'_>,
) -> EndpointSlice {
    let derived = observed.derived;
    let mut labels = derived.labels().clone();
    let mut annotations = BTreeMap::new();
    for (key, value) in [
        (keys::SERVICE_NAME, observed.service.name_any()),
        (keys::KUBERNETES_SERVICE_NAME, derived.name_any()),
        (keys::SOURCE_CLUSTER, observed.cluster.to_string()),
        (keys::MANAGED_BY, keys::MANAGED_BY_MIRROR.to_owned()),
    ] {
        labels.insert(key.to_owned(), value);
    }
    slices::mutate(&mut labels);
    let link = local.name_any();
    let links = if link.len() <= LABEL_VALUE_MAX {
        &mut labels
    } else {
        &mut annotations
    };
    links.insert(keys::LOCAL_SLICE.to_owned(), link);
    EndpointSlice {
        metadata: ObjectMeta {
            namespace: derived.namespace(),
            name: Some(name),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: controlled_by(derived),
            ..ObjectMeta::default()
        },
        address_type: local.address_type.clone(),
        endpoints: Some(local.endpoints.clone().unwrap_or_default()),
        ports: Some(ports),
    }
}

/// Name of a mirrored slice: the derived Service's, and what the local slice's has beyond its Service's. Cilium 1.20.
fn mirrored_name(local: &EndpointSlice, observed: &Observed<'_>) -> String {
    let name = local.name_any();
    let service = observed.service.name_any();
    let suffix = name.strip_prefix(&service).unwrap_or(&name);
    let start = suffix.len().saturating_sub(SUFFIX_MAX);
    let suffix = suffix[start..].trim_start_matches(['-', '.']);
    let mirrored = format!("{}-{suffix}", observed.derived.name_any());
    mirrored.trim_end_matches('-').to_owned()
}

#[cfg(test)]
#[path = "endpoint_slice_mirror_tests.rs"]
mod tests;
