//! Builders and recorded objects for the tests of the operator.

use std::{collections::BTreeMap, fs, path::PathBuf};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_core::{
    export::{evaluate, namespace_is_global},
    merge::merge,
    names::{ClusterName, NamespacedName},
    service::{ClusterService, ExportSpec},
    wire::{cluster_service, key, service_export},
};

use crate::{cluster::facts, operator::context::View};

/// An object from YAML.
pub(super) fn object<K: DeserializeOwned>(yaml: &str) -> K {
    serde_saphyr::from_str(yaml).unwrap()
}

pub(super) fn cluster(name: &str) -> ClusterName {
    name.try_into().unwrap()
}

pub(super) fn named(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::parse(namespace, name).unwrap()
}

/// What a cluster held and what its peer had published, as recorded of Cilium 1.20.2.
pub(super) struct Recorded {
    pub(super) cluster: ClusterName,
    pub(super) namespace: String,
    pub(super) namespace_global: bool,
    pub(super) imports: Vec<ServiceImport>,
    pub(super) exports: Vec<ServiceExport>,
    pub(super) services: Vec<Service>,
    pub(super) slices: Vec<EndpointSlice>,
    pub(super) remote_exports: Vec<ExportSpec>,
    pub(super) remote_services: Vec<ClusterService>,
}

impl Recorded {
    /// The state of `own`, c1 or c2, after a step of a scenario.
    pub(super) fn of(scenario: &str, step: usize, own: &str) -> Self {
        let peer = if own == "c1" { "c2" } else { "c1" };
        let objects = documents(scenario, &format!("after-{step}-{own}-objects.yaml"));
        let (remote_exports, remote_services) = records(scenario, step, peer);
        Self {
            cluster: cluster(own),
            namespace: scenario.to_owned(),
            namespace_global: gate(scenario, step, own),
            imports: of_kind(&objects, "ServiceImport"),
            exports: of_kind(&objects, "ServiceExport"),
            services: of_kind(&objects, "Service"),
            slices: of_kind(&objects, "EndpointSlice"),
            remote_exports,
            remote_services,
        }
    }

    pub(super) fn service(&self, name: &str) -> Option<&Service> {
        self.services
            .iter()
            .find(|service| service.name_any() == name)
    }

    /// The slices of one Service and one manager.
    pub(super) fn slices_of(&self, service: &str, manager: &str) -> Vec<EndpointSlice> {
        let label = |slice: &EndpointSlice, key: &str| slice.labels().get(key).cloned();
        let mut slices = self.slices.clone();
        slices.retain(|slice| {
            label(slice, keys::KUBERNETES_SERVICE_NAME).as_deref() == Some(service)
                && label(slice, keys::MANAGED_BY).as_deref() == Some(manager)
        });
        slices
    }

    /// Every name that some cluster exports.
    pub(super) fn exported_names(&self) -> Vec<NamespacedName> {
        let own = self
            .exports
            .iter()
            .map(|export| named(&self.namespace, &export.name_any()));
        let remote = self.remote_exports.iter().map(|export| export.name.clone());
        let mut names: Vec<_> = own.chain(remote).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(super) fn view(&self, name: &NamespacedName) -> View {
        let is = |found: &str| found == name.name.as_str();
        let service = self.service(name.name.as_str());
        let service = service.map(|service| facts::service(service).unwrap());
        let export = self.exports.iter().find(|export| is(&export.name_any()));
        let export = export.map(|export| facts::service_export(export).unwrap());
        let verdict = evaluate(
            &self.cluster,
            self.namespace_global,
            service.as_ref(),
            export.as_ref(),
        );
        let mut exports = self.remote_exports.clone();
        exports.retain(|export| export.name == *name);
        if let tombolo_core::export::ExportVerdict::Exported(own) = &verdict {
            exports.push((**own).clone());
        }
        View {
            namespace_global: self.namespace_global,
            verdict,
            merged: merge(&exports),
        }
    }
}

fn file(scenario: &str, name: &str) -> PathBuf {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/core/fixtures/cilium-1.20.2");
    PathBuf::from(fixtures).join(scenario).join(name)
}

fn documents(scenario: &str, name: &str) -> Vec<Value> {
    let path = file(scenario, name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_saphyr::from_multiple(&text).unwrap()
}

fn of_kind<K: DeserializeOwned>(documents: &[Value], kind: &str) -> Vec<K> {
    let documents = documents.iter().filter(|document| document["kind"] == kind);
    documents
        .map(|document| serde_json::from_value(document.clone()).unwrap())
        .collect()
}

/// Whether the namespace was global after a step: the last Namespace that was applied says so.
fn gate(scenario: &str, step: usize, own: &str) -> bool {
    let mut global = true;
    for step in 1..=step {
        let name = format!("{step}-{own}.yaml");
        if !file(scenario, &name).exists() {
            continue;
        }
        for document in documents(scenario, &name) {
            if document["kind"] == "Namespace" {
                let annotation =
                    document["metadata"]["annotations"][keys::NAMESPACE_GLOBAL].as_str();
                global = namespace_is_global(annotation, true);
            }
        }
    }
    global
}

fn records(scenario: &str, step: usize, peer: &str) -> (Vec<ExportSpec>, Vec<ClusterService>) {
    let path = file(scenario, &format!("after-{step}-{peer}-records.json"));
    let records: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let peer = cluster(peer);
    let texts: BTreeMap<_, _> = records
        .iter()
        .filter_map(|record| Some((record["key"].as_str()?, record["value"].as_str()?)))
        .collect();
    let under = |prefix: String| {
        let found = texts.iter();
        found
            .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), *value)))
            .collect::<Vec<_>>()
    };
    let exports = under(key::service_exports_prefix(&peer, false));
    let services = under(key::services_prefix(&peer, false));
    (
        exports
            .iter()
            .map(|(suffix, value)| service_export::decode(&peer, suffix, value.as_bytes()).unwrap())
            .collect(),
        services
            .iter()
            .map(|(suffix, value)| {
                let mut dropped = Vec::new();
                cluster_service::decode(&peer, suffix, value.as_bytes(), &mut dropped).unwrap()
            })
            .collect(),
    )
}
