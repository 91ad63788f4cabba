//! What every controller reads: the caches of this cluster's objects and what the peers say.
//!
//! Reading only, never waiting: a reconcile begins with values from here and ends with a write through
//! [`apply`](crate::operator::apply).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Resource, ResourceExt};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_core::{
    export::{ExportVerdict, evaluate, namespace_is_global},
    merge::{Merged, merge},
    mutant::{self, Mutant},
    names::{ClusterName, NamespacedName},
    service::{ExportSpec, IpFamily},
};
use tracing::warn;

use crate::{
    cluster::{cache::Cache, facts},
    mesh::peers::RecordKind,
    operator::{apply::Writer, remote::Remote},
};

/// The caches of this cluster's objects.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Namespaces.
    pub namespaces: Cache<Namespace>,
    /// Services.
    pub services: Cache<Service>,
    /// ServiceExports.
    pub exports: Cache<ServiceExport>,
    /// ServiceImports.
    pub imports: Cache<ServiceImport>,
    /// EndpointSlices, indexed by [`slice_index`].
    pub slices: Cache<EndpointSlice>,
}

impl Caches {
    /// Empty caches.
    pub fn new() -> Self {
        Self {
            namespaces: Cache::unindexed(),
            services: Cache::unindexed(),
            exports: Cache::unindexed(),
            imports: Cache::unindexed(),
            slices: Cache::new(slice_index),
        }
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

/// The Service that an EndpointSlice belongs to: its controller, or the one that its label names.
///
/// The controller comes first so that a slice of ours is found again after somebody has changed its labels.
pub fn slice_index(slice: &EndpointSlice) -> Option<String> {
    let owners = slice.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.kind == "Service");
    let controller = controllers.find(|owner| owner.controller == Some(true));
    let label = slice.labels().get(keys::KUBERNETES_SERVICE_NAME);
    controller.map(|owner| &owner.name).or(label).cloned()
}

/// What all clusters together export under one name, as this cluster sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Whether the namespace is global here.
    pub namespace_global: bool,
    /// What becomes of this cluster's own export. A refused one counts as absent.
    pub verdict: ExportVerdict,
    /// The merge of all exports; none when nobody exports.
    pub merged: Option<Merged>,
}

/// Everything that controllers share.
pub struct Context {
    /// This cluster's objects.
    pub caches: Caches,
    /// The peers.
    pub remote: Arc<dyn Remote>,
    /// The hand that writes.
    pub writer: Writer,
    /// This cluster.
    pub cluster: ClusterName,
    /// Whether namespaces without annotation are global.
    pub default_global: bool,
    /// The families that this cluster can serve.
    pub families: BTreeSet<IpFamily>,
}

impl View {
    /// The view of `cluster` on its own objects of a name and the exports of its peers.
    pub fn of(
        cluster: &ClusterName,
        namespace_global: bool,
        service: Option<&Service>,
        export: Option<&ServiceExport>,
        mut exports: Vec<ExportSpec>,
    ) -> Self {
        let verdict = verdict(cluster, namespace_global, service, export);
        exports.retain(|export| export.cluster != *cluster);
        if let ExportVerdict::Exported(own) = &verdict {
            exports.push((**own).clone());
        }
        if mutant::is(Mutant::ImportNeedsExport) && matches!(verdict, ExportVerdict::Refused(_)) {
            exports.clear();
        }
        let mut merged = merge(&exports);
        if let (true, Some(merged)) = (mutant::is(Mutant::OwnClusterUnlisted), &mut merged) {
            merged.clusters.remove(cluster);
        }
        Self {
            namespace_global,
            verdict,
            merged,
        }
    }
}

/// What becomes of a cluster's own export. An object that cannot be understood counts as absent.
fn verdict(
    cluster: &ClusterName,
    namespace_global: bool,
    service: Option<&Service>,
    export: Option<&ServiceExport>,
) -> ExportVerdict {
    let export = export.and_then(|export| understood(facts::service_export(export)));
    let service = service.filter(|_| export.is_some());
    let service = service.and_then(|service| understood(facts::service(service)));
    evaluate(cluster, namespace_global, service.as_ref(), export.as_ref())
}

impl Context {
    /// Whether a namespace is global; none when there is no such namespace.
    pub fn namespace_gate(&self, name: &NamespacedName) -> Option<bool> {
        self.gate_of(name.namespace.as_str())
    }

    /// Whether the namespace of this name is global; none when there is no such namespace.
    pub fn gate_of(&self, namespace: &str) -> Option<bool> {
        let namespace = self.caches.namespaces.get("", namespace)?;
        let annotation = namespace.annotations().get(keys::NAMESPACE_GLOBAL);
        Some(namespace_is_global(
            annotation.map(String::as_str),
            self.default_global,
        ))
    }

    /// Whether the namespace of this name is being deleted: nothing can be made in it any more.
    pub fn is_terminating(&self, name: &NamespacedName) -> bool {
        let namespace = self.caches.namespaces.get("", name.namespace.as_str());
        namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    /// The Service of a name.
    pub fn service(&self, name: &NamespacedName) -> Option<Arc<Service>> {
        let services = &self.caches.services;
        services.get(name.namespace.as_str(), name.name.as_str())
    }

    /// The ServiceExport of a name.
    pub fn export(&self, name: &NamespacedName) -> Option<Arc<ServiceExport>> {
        let exports = &self.caches.exports;
        exports.get(name.namespace.as_str(), name.name.as_str())
    }

    /// The ServiceImport of a name.
    pub fn import(&self, name: &NamespacedName) -> Option<Arc<ServiceImport>> {
        let imports = &self.caches.imports;
        imports.get(name.namespace.as_str(), name.name.as_str())
    }

    /// The EndpointSlices of a Service.
    pub fn slices(&self, service: &NamespacedName) -> Vec<Arc<EndpointSlice>> {
        let slices = &self.caches.slices;
        slices.indexed(service.namespace.as_str(), service.name.as_str())
    }

    /// What becomes of this cluster's own export of a name. An object that cannot be understood counts as absent.
    pub fn verdict(&self, name: &NamespacedName, namespace_global: bool) -> ExportVerdict {
        let (service, export) = (self.service(name), self.export(name));
        verdict(
            &self.cluster,
            namespace_global,
            service.as_deref(),
            export.as_deref(),
        )
    }

    /// What all clusters together export under a name; none when there is no such namespace here.
    pub fn view(&self, name: &NamespacedName) -> Option<View> {
        Some(View::of(
            &self.cluster,
            self.namespace_gate(name)?,
            self.service(name).as_deref(),
            self.export(name).as_deref(),
            self.remote.exports(name),
        ))
    }

    /// The clusters that back the import of a name according to its status, but whose export is not known: they are still loading,
    /// or the record of it was not taken.
    pub fn held(
        &self,
        name: &NamespacedName,
        import: Option<&ServiceImport>,
        view: &View,
    ) -> BTreeSet<ClusterName> {
        let status = import.and_then(|import| import.status.as_ref());
        let clusters = status.and_then(|status| status.clusters.as_ref());
        let names = clusters
            .into_iter()
            .flatten()
            .map(|row| row.cluster.as_str());
        names
            .filter_map(|cluster| ClusterName::try_from(cluster).ok())
            .filter(|cluster| *cluster != self.cluster)
            .filter(|cluster| {
                view.merged
                    .as_ref()
                    .is_none_or(|merged| !merged.clusters.contains(cluster))
            })
            .filter(|cluster| !self.remote.may_remove(cluster, RecordKind::Exports, name))
            .collect()
    }
}

fn understood<T>(facts: Result<T, facts::Error>) -> Option<T> {
    facts
        .inspect_err(|error| warn!(%error, "an object counts as absent"))
        .ok()
}

/// The reference that makes an object live and die with its controller; none for an owner that is not stored yet.
pub fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> Option<Vec<OwnerReference>> {
    let mut reference = owner.controller_owner_ref(&())?;
    reference.block_owner_deletion = Some(true);
    Some(vec![reference])
}

/// A map with the values of an optional one.
pub fn owned(map: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    map.cloned().unwrap_or_default()
}
