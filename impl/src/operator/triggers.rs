//! Which names become dirty by which change. The queues hold names, never objects: the work reads current state.
//!
//! A change that takes something away goes first: whoever sends traffic to an endpoint that is gone should know before others
//! learn of endpoints that have come.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Resource, ResourceExt};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_core::names::NamespacedName;

use crate::{
    cluster::cache::{Difference, ObjectKey},
    mesh::peers::{Dirty, RecordKind},
    operator::{
        apply::Controller,
        context::{Caches, Context, slice_index},
    },
    queue::Queue,
};

/// One queue per controller.
#[derive(Debug, Clone, Default)]
pub struct Queues {
    /// Names of imports.
    pub service_import: Queue<NamespacedName>,
    /// Names of exports.
    pub service_export: Queue<NamespacedName>,
    /// Names of imports, not of derived Services.
    pub derived_service: Queue<NamespacedName>,
    /// Names of exported Services.
    pub endpoint_slice_mirror: Queue<NamespacedName>,
    /// Names of global and derived Services.
    pub endpoint_slice_sync: Queue<NamespacedName>,
    /// ServiceExports with names that no Service can have.
    pub misnamed_exports: Queue<ObjectKey>,
}

impl Queues {
    /// Empty queues.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a peer says of a service changed.
    pub fn remote(&self, dirty: &Dirty) {
        match dirty.kind {
            RecordKind::Exports => self.exports_changed(&dirty.name, dirty.lost),
            RecordKind::Services => mark(&self.endpoint_slice_sync, &dirty.name, dirty.lost),
        }
    }

    fn exports_changed(&self, name: &NamespacedName, lost: bool) {
        mark(&self.service_import, name, lost);
        mark(&self.service_export, name, lost);
    }

    /// Marks everything dirty. For what changes the meaning of silence: a peer was synced, added or removed.
    pub fn everything_changed(&self, ctx: &Context) {
        for name in all_names(ctx) {
            self.add_everywhere(&name);
        }
        self.misnamed_changed(ctx, |_| true);
    }

    fn misnamed_changed(&self, ctx: &Context, concerns: impl Fn(&ServiceExport) -> bool) {
        for export in ctx.caches.exports.all() {
            if name_of(&*export).is_none() && concerns(&export) {
                self.misnamed_exports.add(key_of(&*export));
            }
        }
    }

    /// Hands out nothing until [`Self::resume`]; names are still collected.
    pub fn hold(&self) {
        for (_, queue) in self.all() {
            queue.hold();
        }
        self.misnamed_exports.hold();
    }

    /// Hands out names again.
    pub fn resume(&self) {
        for (_, queue) in self.all() {
            queue.resume();
        }
        self.misnamed_exports.resume();
    }

    /// Queues of names by controller. The CRDs have none.
    pub fn all(&self) -> [(Controller, &Queue<NamespacedName>); 5] {
        [
            (Controller::ServiceImport, &self.service_import),
            (Controller::ServiceExport, &self.service_export),
            (Controller::DerivedService, &self.derived_service),
            (Controller::EndpointSliceMirror, &self.endpoint_slice_mirror),
            (Controller::EndpointSliceSync, &self.endpoint_slice_sync),
        ]
    }

    /// A Namespace changed: all names in it, when it is new, gone, another of the same name, or its annotation flipped.
    pub fn namespace(&self, difference: &Difference<'_, Namespace>, ctx: &Context) {
        let gate = |namespace: &Namespace| {
            let annotation = namespace.annotations().get(keys::NAMESPACE_GLOBAL).cloned();
            (namespace.uid(), annotation)
        };
        if difference.old.map(gate) == difference.new.map(gate) {
            return;
        }
        let namespace = difference.new.or(difference.old).map(ResourceExt::name_any);
        let within = |name: &NamespacedName| Some(name.namespace.as_str()) == namespace.as_deref();
        for name in all_names(ctx).iter().filter(|name| within(name)) {
            self.add_everywhere(name);
        }
        self.misnamed_changed(ctx, |export| export.namespace() == namespace);
    }

    /// A Service changed: an exported one, a global one, a derived one, or none of these.
    pub fn service(&self, difference: &Difference<'_, Service>) {
        let lost = difference.new.is_none();
        for service in sides(difference) {
            if let Some(name) = name_of(service) {
                self.exports_changed(&name, lost);
                mark(&self.endpoint_slice_mirror, &name, lost);
                mark(&self.endpoint_slice_sync, &name, lost);
            }
            if let Some(import) = import_of(service) {
                self.derived_service.add(import.clone());
                mark(&self.endpoint_slice_mirror, &import, lost);
            }
        }
    }

    /// A ServiceExport changed. When only its status did, nothing depends on it but that status.
    pub fn export(&self, difference: &Difference<'_, ServiceExport>) {
        let Some(export) = sides(difference).next() else {
            return;
        };
        match name_of(export) {
            Some(name) if is_status_only(difference) => self.service_export.add(name),
            Some(name) => {
                let lost = difference.new.is_none();
                self.exports_changed(&name, lost);
                mark(&self.endpoint_slice_mirror, &name, lost);
            }
            None => self.misnamed_exports.add(key_of(export)),
        }
    }

    /// A ServiceImport changed. The derived Service does not depend on its status.
    pub fn import(&self, difference: &Difference<'_, ServiceImport>) {
        if let Some(name) = sides(difference).next().and_then(name_of) {
            if !is_status_only(difference) {
                mark(&self.derived_service, &name, difference.new.is_none());
            }
            self.service_import.add(name);
        }
    }

    /// An EndpointSlice changed: one of a local Service, or one of ours that somebody may have tampered with.
    pub fn slice(&self, difference: &Difference<'_, EndpointSlice>, caches: &Caches) {
        let lost = loses_endpoints(difference);
        for slice in sides(difference) {
            let services = [
                slice.labels().get(keys::KUBERNETES_SERVICE_NAME).cloned(),
                slice_index(slice),
            ];
            for service in services.into_iter().flatten() {
                let namespace = slice.namespace().unwrap_or_default();
                self.slice_of(&namespace, &service, (slice, lost), caches);
            }
        }
    }

    fn slice_of(
        &self,
        namespace: &str,
        service: &str,
        (slice, lost): (&EndpointSlice, bool),
        caches: &Caches,
    ) {
        let Ok(name) = NamespacedName::parse(namespace, service) else {
            return;
        };
        match slice.labels().get(keys::MANAGED_BY).map(String::as_str) {
            Some(keys::MANAGED_BY_MESH) => self.endpoint_slice_sync.add(name),
            Some(keys::MANAGED_BY_MIRROR) => {
                let derived = caches.services.get(namespace, service);
                let import = derived.as_deref().and_then(import_of);
                self.endpoint_slice_mirror.add(import.unwrap_or(name));
            }
            Some(_) => self.endpoint_slice_mirror.add(name),
            None => {
                let derived = caches.services.get(namespace, service);
                let import = derived.as_deref().and_then(import_of);
                let mirrored = import.unwrap_or_else(|| name.clone());
                mark(&self.endpoint_slice_mirror, &mirrored, lost);
                self.endpoint_slice_sync.add(name);
            }
        }
    }

    fn add_everywhere(&self, name: &NamespacedName) {
        for (_, queue) in self.all() {
            queue.add(name.clone());
        }
    }
}

/// Adds a name to a queue, in front when something of it was lost.
fn mark(queue: &Queue<NamespacedName>, name: &NamespacedName, lost: bool) {
    if lost {
        queue.add_first(name.clone());
    } else {
        queue.add(name.clone());
    }
}

/// Whether an address that traffic could go to is gone from a slice, or is not ready any more.
fn loses_endpoints(difference: &Difference<'_, EndpointSlice>) -> bool {
    let ready = |slice: &EndpointSlice| -> BTreeSet<String> {
        let endpoints = slice.endpoints.iter().flatten();
        let ready = endpoints.filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.and_then(|conditions| conditions.ready) != Some(false)
        });
        ready
            .flat_map(|endpoint| endpoint.addresses.clone())
            .collect()
    };
    let [old, new] = [difference.old, difference.new].map(|slice| slice.map(ready));
    !old.unwrap_or_default().is_subset(&new.unwrap_or_default())
}

/// Every name that any controller may have to do with.
fn all_names(ctx: &Context) -> Vec<NamespacedName> {
    let mut names: Vec<_> = ctx.remote.names().into_iter().collect();
    let caches = &ctx.caches;
    names.extend(
        caches
            .exports
            .all()
            .iter()
            .map(Arc::as_ref)
            .filter_map(name_of),
    );
    names.extend(
        caches
            .imports
            .all()
            .iter()
            .map(Arc::as_ref)
            .filter_map(name_of),
    );
    names.extend(
        caches
            .services
            .all()
            .iter()
            .map(Arc::as_ref)
            .filter_map(name_of),
    );
    names.sort();
    names.dedup();
    names
}

fn sides<'a, K>(difference: &Difference<'a, K>) -> impl Iterator<Item = &'a K> {
    difference.new.into_iter().chain(difference.old)
}

/// Whether nothing but the status of an object changed. The API server counts changes of all else but labels, annotations
/// and references in the generation.
fn is_status_only<K: Resource<DynamicType = ()>>(difference: &Difference<'_, K>) -> bool {
    let rest = |object: &K| {
        let mut metadata = object.meta().clone();
        metadata.resource_version = None;
        metadata.managed_fields = None;
        metadata
    };
    match (difference.old, difference.new) {
        (Some(old), Some(new)) => old.meta().generation.is_some() && rest(old) == rest(new),
        (None, _) | (_, None) => false,
    }
}

/// Name of an object; none when no Service can have it.
fn name_of<K: Resource<DynamicType = ()>>(object: &K) -> Option<NamespacedName> {
    let namespace = object.namespace()?;
    NamespacedName::parse(&namespace, &object.name_any()).ok()
}

fn key_of<K: Resource<DynamicType = ()>>(object: &K) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The import that a Service is derived from: its owner, or else what its label says.
fn import_of(service: &Service) -> Option<NamespacedName> {
    let mut owners = service.owner_references().iter();
    let owner = owners.find(|owner| owner.kind == ServiceImport::kind(&()));
    let label = service.labels().get(keys::SERVICE_NAME);
    let import = owner.map(|owner| &owner.name).or(label)?;
    NamespacedName::parse(&service.namespace()?, import).ok()
}

#[cfg(test)]
#[path = "triggers_tests.rs"]
mod tests;
