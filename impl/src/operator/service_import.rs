//! The ServiceImport controller: one import for each name that some cluster exports.
//!
//! Owns labels, annotations and the spec of an import except `spec.ips` and the annotation that names the derived Service,
//! which belong to [`derived_service`](crate::operator::derived_service). It must never drop what a peer contributes as long
//! as that peer was not read completely, or its record was not taken.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ClientIPConfig, SessionAffinityConfig};
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use tombolo_api::{
    keys,
    v1beta1::{ServiceImport, ServiceImportSpec, ServicePort},
};
use tombolo_core::{
    families,
    merge::Merged,
    names::{ClusterName, NamespacedName},
    service::IpFamily,
};
use tracing::info;

use crate::{
    mesh::peers::RecordKind,
    operator::{
        apply::{self, Controller},
        context::{Context, View, owned},
    },
};

mod status;

pub use status::build_status;

const CONTROLLER: Controller = Controller::ServiceImport;

/// What the decision about one import rests on.
#[derive(Debug)]
pub struct Observed<'a> {
    /// Namespace and name.
    pub name: &'a NamespacedName,
    /// What all clusters export under the name.
    pub view: &'a View,
    /// The import as it is.
    pub actual: Option<&'a ServiceImport>,
    /// Clusters that back the import according to its status, and are still loading or say something that was not taken.
    pub held: BTreeSet<ClusterName>,
    /// Whether that is so of any peer.
    pub any_loading: bool,
    /// The families that this cluster can serve.
    pub enabled: &'a BTreeSet<IpFamily>,
}

/// What to do about one import.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nobody exports it and there is none, or who exports it is not known yet.
    Leave,
    /// Nobody exports it any more.
    Delete,
    /// It should be this.
    Apply(Box<ServiceImport>),
}

/// Brings one import in line with what the clusters export.
pub async fn reconcile(name: &NamespacedName, ctx: &Context) -> Result<(), apply::Error> {
    let Some(view) = ctx.view(name) else {
        return Ok(());
    };
    let actual = ctx.import(name);
    let observed = observe(name, &view, actual.as_deref(), ctx);
    let import = match (decide(&observed), observed.actual) {
        (Decision::Apply(desired), Some(actual)) if is_same(&desired, actual) => actual.clone(),
        (Decision::Apply(desired), _) => {
            let strays = |applied: &ServiceImport| strays(&desired, applied);
            let before = ctx.caches.imports.before_write();
            let applied = ctx.writer.apply(CONTROLLER, &*desired, strays).await?;
            ctx.caches.imports.learn(before, applied.clone());
            applied
        }
        (Decision::Delete, Some(actual)) => {
            info!("no cluster exports it any more: removing the ServiceImport");
            return ctx.writer.delete(CONTROLLER, actual).await;
        }
        // What is known of its clusters is still told, and what is left of one that somebody's finalizer holds.
        (Decision::Leave, Some(actual)) if !observed.held.is_empty() || is_leaving(actual) => {
            actual.clone()
        }
        (Decision::Delete | Decision::Leave, _) => return Ok(()),
    };
    status::update(&observed, &import, ctx).await
}

/// Whether an import is as it should be, or there is rightly none.
///
/// Whoever builds on an import waits for that: what somebody has set on it for a moment must not cost it its virtual IP.
pub fn is_settled(name: &NamespacedName, ctx: &Context) -> bool {
    let Some(view) = ctx.view(name) else {
        return true;
    };
    let actual = ctx.import(name);
    let observed = observe(name, &view, actual.as_deref(), ctx);
    match (decide(&observed), observed.actual) {
        (Decision::Apply(desired), Some(actual)) => is_same(&desired, actual),
        (Decision::Apply(_) | Decision::Delete, _) => false,
        (Decision::Leave, _) => true,
    }
}

fn observe<'a>(
    name: &'a NamespacedName,
    view: &'a View,
    actual: Option<&'a ServiceImport>,
    ctx: &'a Context,
) -> Observed<'a> {
    Observed {
        name,
        view,
        actual,
        held: ctx.held(name, actual, view),
        any_loading: !ctx.remote.all_telling(RecordKind::Exports, name),
        enabled: &ctx.families,
    }
}

/// Decides what an import should be.
///
/// With clusters held (see [`Observed::held`]) nobody knows whose export is the oldest: the import stays as it is, and only
/// ports that clash with none of its own are added. An import that never got a status is not deleted while a peer is loading,
/// and one that no controller made is never deleted.
pub fn decide(observed: &Observed<'_>) -> Decision {
    if observed.actual.is_some_and(is_leaving) {
        return Decision::Leave;
    }
    let Some(merged) = &observed.view.merged else {
        let backed = observed.actual.is_some_and(has_clusters);
        let may_be_backed = !observed.held.is_empty() || (!backed && observed.any_loading);
        return match observed.actual {
            Some(import) if !may_be_backed && is_ours(import) => Decision::Delete,
            Some(_) | None => Decision::Leave,
        };
    };
    let mut desired = build(observed.name, merged, observed.enabled);
    if let Some(actual) = observed.actual {
        desired.metadata.uid = actual.uid();
        if !observed.held.is_empty() {
            hold(&mut desired, actual);
        }
    }
    Decision::Apply(Box::new(desired))
}

/// The import that a merge makes, without the fields of other controllers.
pub fn build(
    name: &NamespacedName,
    merged: &Merged,
    enabled: &BTreeSet<IpFamily>,
) -> ServiceImport {
    let supported = families::supported(merged.ip_families.as_deref(), enabled);
    let mut annotations = merged.annotations.clone();
    annotations.remove(keys::DERIVED_SERVICE);
    annotations.insert(
        keys::SUPPORTED_IP_FAMILIES.to_owned(),
        families::to_annotation(&supported),
    );
    let metadata = ObjectMeta {
        namespace: Some(name.namespace.to_string()),
        name: Some(name.name.to_string()),
        labels: Some(merged.labels.clone()).filter(|labels| !labels.is_empty()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    ServiceImport {
        metadata,
        spec: build_spec(merged),
        status: None,
    }
}

fn build_spec(merged: &Merged) -> ServiceImportSpec {
    let timeout = merged.session_affinity_timeout_seconds;
    let families = merged.ip_families.as_ref();
    ServiceImportSpec {
        ports: merged.ports.iter().map(build_port).collect(),
        ips: None,
        type_: merged.import_type.to_string(),
        session_affinity: Some(merged.session_affinity.to_string()),
        session_affinity_config: timeout.map(|seconds| SessionAffinityConfig {
            client_ip: Some(ClientIPConfig {
                timeout_seconds: Some(seconds),
            }),
        }),
        ip_families: families.map(|all| all.iter().map(ToString::to_string).collect()),
        internal_traffic_policy: merged
            .internal_traffic_policy
            .map(|policy| policy.to_string()),
        traffic_distribution: merged.traffic_distribution.map(|value| value.to_string()),
    }
}

fn build_port(port: &tombolo_core::service::ServicePort) -> ServicePort {
    ServicePort {
        name: (!port.name.is_unnamed()).then(|| port.name.to_string()),
        protocol: Some(port.protocol.to_string()),
        app_protocol: port.app_protocol.clone(),
        port: i32::from(port.port),
    }
}

/// Makes `desired` what the import is, and keeps of it only additional ports that clash with none.
fn hold(desired: &mut ServiceImport, actual: &ServiceImport) {
    let added = std::mem::take(&mut desired.spec.ports);
    desired.metadata.labels.clone_from(&actual.metadata.labels);
    desired
        .metadata
        .annotations
        .clone_from(&actual.metadata.annotations);
    if let Some(annotations) = &mut desired.metadata.annotations {
        annotations.remove(keys::DERIVED_SERVICE);
    }
    desired.spec = ServiceImportSpec {
        ips: None,
        ..actual.spec.clone()
    };
    for port in added {
        let clashes = |held: &ServicePort| {
            held.name == port.name || (held.protocol == port.protocol && held.port == port.port)
        };
        if !desired.spec.ports.iter().any(clashes) {
            desired.spec.ports.push(port);
        }
    }
}

/// Whether a controller of the mesh, Tombolo or Cilium, made an import or took it over.
///
/// It annotates an import in the write that makes it, and clusters stand in a status, which users do not write. An import
/// with neither was made by a user, and is left alone as long as nobody exports its name.
pub fn is_ours(import: &ServiceImport) -> bool {
    let annotations = [keys::SUPPORTED_IP_FAMILIES, keys::DERIVED_SERVICE];
    let mut annotated = annotations
        .iter()
        .map(|key| import.annotations().contains_key(*key));
    annotated.any(|annotated| annotated) || has_clusters(import)
}

fn is_leaving(import: &ServiceImport) -> bool {
    import.metadata.deletion_timestamp.is_some()
}

fn has_clusters(import: &ServiceImport) -> bool {
    let status = import.status.as_ref();
    let clusters = status.and_then(|status| status.clusters.as_ref());
    clusters.is_some_and(|clusters| !clusters.is_empty())
}

/// The annotations of an import that are this controller's.
fn own_annotations(import: &ServiceImport) -> BTreeMap<String, String> {
    let mut annotations = owned(import.metadata.annotations.as_ref());
    annotations.remove(keys::DERIVED_SERVICE);
    annotations
}

fn own_spec(import: &ServiceImport) -> ServiceImportSpec {
    ServiceImportSpec {
        ips: None,
        ..import.spec.clone()
    }
}

fn is_same(desired: &ServiceImport, actual: &ServiceImport) -> bool {
    owned(desired.metadata.labels.as_ref()) == owned(actual.metadata.labels.as_ref())
        && own_annotations(desired) == own_annotations(actual)
        && own_spec(desired) == own_spec(actual)
}

/// A patch that removes what others have set on the import and nobody should have; none when there is nothing.
fn strays(desired: &ServiceImport, actual: &ServiceImport) -> Option<Value> {
    let mut patch = json!({});
    let labels = owned(desired.metadata.labels.as_ref());
    for key in actual
        .labels()
        .keys()
        .filter(|key| !labels.contains_key(*key))
    {
        patch["metadata"]["labels"][key] = Value::Null;
    }
    let annotations = own_annotations(desired);
    for key in own_annotations(actual)
        .keys()
        .filter(|key| !annotations.contains_key(*key))
    {
        patch["metadata"]["annotations"][key] = Value::Null;
    }
    let (wanted, present) = (json!(own_spec(desired)), json!(own_spec(actual)));
    for field in present
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys())
    {
        if wanted.get(field).is_none() {
            patch["spec"][field] = Value::Null;
        }
    }
    (patch != json!({})).then_some(patch)
}

#[cfg(test)]
#[path = "service_import_tests.rs"]
mod tests;
