//! The status of a ServiceImport: who exports it, whether it can be used here, and whether there are slices for it.
//!
//! Written only when it says something new.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use tombolo_api::{
    keys,
    v1beta1::{ClusterStatus, ServiceImport, ServiceImportStatus},
};
use tombolo_core::{conditions::import_condition, families, service::IpFamily};

use super::{CONTROLLER, Observed};
use crate::operator::{apply, conditions, context::Context, endpoint_slice_sync::has_slices};

const CONDITIONS: [&str; 1] = ["Ready"];

/// Brings the status of `import` up to date.
pub(super) async fn update(
    observed: &Observed<'_>,
    import: &ServiceImport,
    ctx: &Context,
) -> Result<(), apply::Error> {
    let desired = build_status(observed, import, Timestamp::now());
    if is_same_status(&desired, import.status.as_ref()) {
        return Ok(());
    }
    let strays = |applied: &ServiceImport| status_strays(&desired, applied);
    let before = ctx.caches.imports.before_write();
    let written = ctx
        .writer
        .apply_status(CONTROLLER, import, &desired, strays)
        .await?;
    ctx.caches.imports.learn(before, written);
    Ok(())
}

/// The status that an import should have.
pub fn build_status(
    observed: &Observed<'_>,
    import: &ServiceImport,
    now: Timestamp,
) -> ServiceImportStatus {
    let merged = observed
        .view
        .merged
        .iter()
        .flat_map(|merged| &merged.clusters);
    let clusters: BTreeSet<_> = merged.chain(&observed.held).collect();
    let supported = supported_families(import);
    let derived = import.annotations().contains_key(keys::DERIVED_SERVICE);
    let served = derived && observed.view.namespace_global && !supported.is_empty();
    let ready = import_condition(observed.view.namespace_global, &supported, derived);
    let before = import
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    ServiceImportStatus {
        endpoint_slice_objects: Some(slices_exist(import, served).to_owned()),
        clusters: Some(
            clusters
                .into_iter()
                .map(|cluster| ClusterStatus {
                    cluster: cluster.to_string(),
                })
                .collect(),
        ),
        conditions: Some(conditions::with_times(
            &[ready],
            before.unwrap_or_default(),
            now,
        )),
    }
}

fn supported_families(import: &ServiceImport) -> Vec<IpFamily> {
    let annotation = import.annotations().get(keys::SUPPORTED_IP_FAMILIES);
    annotation
        .and_then(|text| families::from_annotation(text))
        .unwrap_or_default()
}

/// Whether EndpointSlices hold all endpoints of the import (`KEP-1645#39`).
///
/// The derived Service gets slices of all endpoints, so they exist when it does. With the annotation that opts out there are
/// at most slices of local endpoints; whoever took these for the whole would miss clusters, so that counts as absent.
fn slices_exist(import: &ServiceImport, derived: bool) -> &'static str {
    if derived && has_slices(import.annotations()) {
        "Present"
    } else {
        "Absent"
    }
}

pub(super) fn is_same_status(
    desired: &ServiceImportStatus,
    actual: Option<&ServiceImportStatus>,
) -> bool {
    let Some(actual) = actual else {
        return false;
    };
    let (wanted, present) = (desired.conditions.as_deref(), actual.conditions.as_deref());
    desired.clusters == actual.clusters
        && desired.endpoint_slice_objects == actual.endpoint_slice_objects
        && conditions::same(
            wanted.unwrap_or_default(),
            present.unwrap_or_default(),
            &CONDITIONS,
        )
}

fn status_strays(desired: &ServiceImportStatus, actual: &ServiceImport) -> Option<Value> {
    if is_same_status(desired, actual.status.as_ref()) {
        return None;
    }
    let present = actual
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let wanted = desired.conditions.as_deref().unwrap_or_default();
    Some(json!({ "status": {
        "clusters": desired.clusters,
        "conditions": conditions::whole(wanted, present.unwrap_or_default(), &CONDITIONS),
    }}))
}
