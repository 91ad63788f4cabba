//! The ServiceExport controller: tells each ServiceExport of this cluster what became of it.
//!
//! Owns the status of ServiceExports, nothing else; whether a service is exported is decided where it is published, by the
//! same function.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as ApiCondition;
use serde_json::{Value, json};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::{
    conditions::{ConditionType, ExportOutcome, Status, export_conditions},
    export::{ExportVerdict, Refusal},
    mutant::{self, Mutant},
    names::{ClusterName, NamespacedName},
};

use crate::{
    cluster::cache::ObjectKey,
    operator::{
        apply::{self, Controller},
        conditions,
        context::{Context, View},
    },
};

const CONTROLLER: Controller = Controller::ServiceExport;
const CONDITIONS: [&str; 3] = ["Valid", "Ready", "Conflict"];

/// Brings the status of one ServiceExport up to date.
pub async fn reconcile(name: &NamespacedName, ctx: &Context) -> Result<(), apply::Error> {
    let (Some(export), Some(view)) = (ctx.export(name), ctx.view(name)) else {
        return Ok(());
    };
    let some_held = !ctx
        .held(name, ctx.import(name).as_deref(), &view)
        .is_empty();
    let desired = build(&view, &export, some_held, Timestamp::now());
    write(&export, &desired, ctx).await
}

/// Tells a ServiceExport with a name that no Service can have that it has no Service.
pub async fn refuse((namespace, name): &ObjectKey, ctx: &Context) -> Result<(), apply::Error> {
    let export = ctx.caches.exports.get(namespace, name);
    let (Some(export), Some(global)) = (export, ctx.gate_of(namespace)) else {
        return Ok(());
    };
    let refusal = if global {
        Refusal::NoService
    } else {
        Refusal::NamespaceNotGlobal
    };
    let conditions = export_conditions(ExportOutcome::Refused(refusal));
    let desired = conditions::with_times(&conditions, present(&export), Timestamp::now());
    write(&export, &desired, ctx).await
}

async fn write(
    export: &ServiceExport,
    desired: &[ApiCondition],
    ctx: &Context,
) -> Result<(), apply::Error> {
    if is_same(desired, export) {
        return Ok(());
    }
    let strays = |applied: &ServiceExport| strays(desired, applied);
    let status = json!({ "conditions": desired });
    let before = ctx.caches.exports.before_write();
    let written = ctx
        .writer
        .apply_status(CONTROLLER, export, &status, strays)
        .await?;
    ctx.caches.exports.learn(before, written);
    Ok(())
}

/// The conditions that a ServiceExport should have.
///
/// While some cluster that takes part is still loading, a conflict that was reported stays: that it is not seen means nothing.
pub fn build(
    view: &View,
    export: &ServiceExport,
    some_held: bool,
    now: Timestamp,
) -> Vec<ApiCondition> {
    let before = present(export);
    let conflicts = view
        .merged
        .as_ref()
        .map(|merged| merged.conflicts.as_slice());
    let outcome = match &view.verdict {
        ExportVerdict::Refused(refusal) => ExportOutcome::Refused(*refusal),
        ExportVerdict::Exported(own)
            if mutant::is(Mutant::ConflictOnYoungerOnly) && is_oldest(view, &own.cluster) =>
        {
            ExportOutcome::Merged(&[])
        }
        ExportVerdict::Exported(_) => ExportOutcome::Merged(conflicts.unwrap_or_default()),
    };
    let mut desired = conditions::with_times(&export_conditions(outcome), before, now);
    if some_held || mutant::is(Mutant::ConflictStays) {
        for condition in &mut desired {
            let reported = before.iter().find(|before| {
                before.type_ == condition.type_ && before.status == Status::True.as_str()
            });
            if condition.type_ == ConditionType::Conflict.as_str()
                && let Some(reported) = reported
            {
                reported.clone_into(condition);
            }
        }
    }
    desired
}

fn is_oldest(view: &View, cluster: &ClusterName) -> bool {
    let oldest = view.merged.as_ref().map(|merged| &merged.oldest);
    oldest == Some(cluster)
}

fn present(export: &ServiceExport) -> &[ApiCondition] {
    let status = export.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default()
}

fn is_same(desired: &[ApiCondition], export: &ServiceExport) -> bool {
    conditions::same(desired, present(export), &CONDITIONS)
}

fn strays(desired: &[ApiCondition], applied: &ServiceExport) -> Option<Value> {
    (!is_same(desired, applied)).then(|| {
        let whole = conditions::whole(desired, present(applied), &CONDITIONS);
        json!({ "status": { "conditions": whole } })
    })
}

#[cfg(test)]
#[path = "service_export_tests.rs"]
mod tests;
