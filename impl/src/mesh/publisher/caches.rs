//! The objects that the publisher reads, and which names a change of one makes dirty.

use std::collections::BTreeSet;

use futures::future::join;
use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, ResourceExt};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::names::ClusterName;

use super::records::{Observed, Publishing};
use crate::{
    cluster::{
        cache::{Cache, Cached, Difference},
        facts,
    },
    queue::Queue,
};

/// Caches of the four kinds.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    pub(super) services: Cache<Service>,
    pub(super) exports: Cache<ServiceExport>,
    pub(super) slices: Cache<EndpointSlice>,
    pub(super) namespaces: Cache<Namespace>,
    default_global: bool,
    cluster: ClusterName,
}

impl Caches {
    /// Empty caches.
    pub(super) fn new(publishing: &Publishing) -> Self {
        Self {
            services: Cache::unindexed(),
            exports: Cache::unindexed(),
            slices: Cache::new(facts::service_of),
            namespaces: Cache::unindexed(),
            default_global: publishing.default_global_namespace,
            cluster: publishing.cluster.clone(),
        }
    }

    /// Lists and watches for ever. A kind that does not exist yet is retried like any other failure.
    pub(super) async fn run(&self, client: Client, dirty: &Queue<String>) {
        let services = self
            .services
            .run(Api::all(client.clone()), |change| on_named(&change, dirty));
        let exports = self
            .exports
            .run(Api::all(client.clone()), |change| on_named(&change, dirty));
        let slices = self
            .slices
            .run(Api::all(client.clone()), |change| on_slice(&change, dirty));
        let namespaces = self
            .namespaces
            .run(Api::all(client), |change| self.on_namespace(&change, dirty));
        join(join(services, exports), join(slices, namespaces)).await;
    }

    /// The objects of one name, without slices that the mesh made.
    pub(super) fn observe(&self, suffix: &str) -> Observed {
        let Some((namespace, name)) = suffix.split_once('/') else {
            return Observed::default();
        };
        let mut slices = self.slices.indexed(namespace, name);
        slices.retain(|slice| {
            !facts::is_imported(slice.labels())
                && !facts::is_of_another_cluster(slice.labels(), &self.cluster)
        });
        Observed {
            namespace: self.namespaces.get("", namespace),
            service: self.services.get(namespace, name),
            export: self.exports.get(namespace, name),
            slices,
        }
    }

    /// Every name that has a Service or a ServiceExport.
    pub(super) fn suffixes(&self) -> BTreeSet<String> {
        let services = self.services.all();
        let exports = self.exports.all();
        let services = services.iter().map(|object| suffix_of(object.as_ref()));
        services
            .chain(exports.iter().map(|object| suffix_of(object.as_ref())))
            .collect()
    }

    /// Waits until everything is known that `services` records are made of.
    pub(super) async fn services_synced(&self) {
        self.services.synced().await;
        self.slices.synced().await;
        self.namespaces.synced().await;
    }

    /// Waits until everything is known that `serviceexports` records are made of.
    pub(super) async fn exports_synced(&self) {
        self.exports.synced().await;
        self.services.synced().await;
        self.namespaces.synced().await;
    }

    /// A namespace matters when its gate opens or shuts; then all its names do.
    pub(super) fn on_namespace(&self, change: &Difference<'_, Namespace>, dirty: &Queue<String>) {
        let global = |object| facts::namespace_is_global(object, self.default_global);
        if global(change.old) == global(change.new) {
            return;
        }
        let Some(namespace) = change.new.or(change.old).map(ResourceExt::name_any) else {
            return;
        };
        for service in self.services.in_namespace(&namespace) {
            dirty.add(suffix_of(service.as_ref()));
        }
        for export in self.exports.in_namespace(&namespace) {
            dirty.add(suffix_of(export.as_ref()));
        }
    }
}

/// A Service or ServiceExport matters for its own name.
pub(super) fn on_named<K: Cached>(change: &Difference<'_, K>, dirty: &Queue<String>) {
    if let Some(object) = change.new.or(change.old) {
        dirty.add(suffix_of(object));
    }
}

/// A slice matters for the Service it belongs to, before and after, unless the mesh made it.
pub(super) fn on_slice(change: &Difference<'_, EndpointSlice>, dirty: &Queue<String>) {
    for slice in [change.old, change.new].into_iter().flatten() {
        if facts::is_imported(slice.labels()) {
            continue;
        }
        if let Some(name) = facts::service_of(slice) {
            let namespace = slice.namespace().unwrap_or_default();
            dirty.add(format!("{namespace}/{name}"));
        }
    }
}

fn suffix_of(object: &impl ResourceExt) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{namespace}/{}", object.name_any())
}
