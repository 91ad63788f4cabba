//! EndpointSlices that a controller manages: which of them differ from what they should be, and the writes that follow.
//!
//! Only slices of one manager are ever changed or deleted; one of somebody else that has the name of ours is left alone.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use kube::ResourceExt;
use serde_json::{Value, json};
use tombolo_api::keys;
use tombolo_core::{
    diff::{Actual, Change, Desired, diff},
    mutant::{self, Mutant},
};
use tracing::error;

use crate::operator::{
    apply::{self, Announcement, Controller},
    context::Context,
};

/// The slices that a controller has of one Service, and those that it should have.
#[derive(Debug)]
pub struct Managed {
    /// Those that it should have, by name.
    pub desired: BTreeMap<String, EndpointSlice>,
    /// Those that it has.
    pub actual: Vec<Arc<EndpointSlice>>,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Make it, or change it into this.
    Apply(Box<EndpointSlice>),
    /// Its address type differs, which cannot be changed: make it anew.
    Replace(Arc<EndpointSlice>, Box<EndpointSlice>),
    /// It is not needed any more.
    Delete(Arc<EndpointSlice>),
    /// Somebody else's slice has the name.
    Clash(Arc<EndpointSlice>),
}

impl Managed {
    /// The writes that are needed; none when all is as it should be. What is added comes before what goes.
    ///
    /// `others` finds a slice that is not among the actual ones by name.
    pub fn writes(&self, others: impl Fn(&str) -> Option<Arc<EndpointSlice>>) -> Vec<Write> {
        let owned = |slice: &EndpointSlice| (slice.name_any(), Owned::of(slice));
        let wanted: BTreeMap<_, _> = self.desired.values().map(owned).collect();
        let present: BTreeMap<_, _> = self.actual.iter().map(|slice| owned(slice)).collect();
        let known = |name: &str| self.actual.iter().find(|slice| slice.name_any() == name);
        let mut applied = Vec::new();
        let mut deleted = Vec::new();
        for (name, change) in diff(Desired(&wanted), Actual(&present)) {
            let desired = self.desired.get(name).cloned().map(Box::new);
            match (change, desired, known(name)) {
                (Change::Create(_), Some(desired), _) => match others(name) {
                    // It came after the actual ones were looked up.
                    Some(other) if is_twin(&other, &desired) => {}
                    Some(other) if is_orphan(&other, &desired) => {
                        applied.push(update(&other, desired));
                    }
                    Some(other) => applied.push(Write::Clash(other)),
                    None => applied.push(Write::Apply(desired)),
                },
                (Change::Update { .. }, Some(desired), Some(actual)) => {
                    applied.push(update(actual, desired));
                }
                (Change::Delete(_), _, Some(actual)) => {
                    deleted.push(Write::Delete(Arc::clone(actual)));
                }
                (Change::Create(_) | Change::Update { .. } | Change::Delete(_), _, _) => {}
            }
        }
        applied.extend(deleted);
        applied
    }
}

/// Carries the writes out; each is tried, and the first failure is returned.
pub async fn carry_out(
    writes: Vec<Write>,
    controller: Controller,
    ctx: &Context,
) -> Result<(), apply::Error> {
    let mut outcome = Ok(());
    for write in writes {
        outcome = outcome.and(carry_out_one(write, controller, ctx).await);
    }
    outcome
}

async fn carry_out_one(
    write: Write,
    controller: Controller,
    ctx: &Context,
) -> Result<(), apply::Error> {
    match write {
        Write::Apply(desired) => apply_one(&desired, controller, ctx).await,
        Write::Replace(actual, desired) => {
            ctx.writer.delete(controller, &*actual).await?;
            apply_one(&desired, controller, ctx).await
        }
        Write::Delete(actual) => ctx.writer.delete(controller, &*actual).await,
        Write::Clash(other) => {
            error!(slice = %other.name_any(), "an EndpointSlice that is not ours has the name of one of ours; rename it");
            ctx.writer.announce(controller, &*other, &clash()).await;
            Ok(())
        }
    }
}

async fn apply_one(
    desired: &EndpointSlice,
    controller: Controller,
    ctx: &Context,
) -> Result<(), apply::Error> {
    let strays = |applied: &EndpointSlice| strays(desired, applied);
    let before = ctx.caches.slices.before_write();
    let applied = ctx.writer.apply(controller, desired, strays).await?;
    ctx.caches.slices.learn(before, applied);
    Ok(())
}

/// Marks a slice wrongly, in mutants that do; otherwise nothing.
pub fn mutate(labels: &mut BTreeMap<String, String>) {
    if mutant::is(Mutant::SlicesOfLocalService)
        && let Some(local) = labels.get(keys::SERVICE_NAME).cloned()
    {
        labels.insert(keys::KUBERNETES_SERVICE_NAME.to_owned(), local);
    }
    if mutant::is(Mutant::GroupPrefixOnLabels) {
        for key in [keys::SERVICE_NAME, keys::SOURCE_CLUSTER] {
            if let Some(value) = labels.remove(key) {
                let wrong = key.replace("multicluster.kubernetes.io", "multicluster.x-k8s.io");
                labels.insert(wrong, value);
            }
        }
    }
}

/// Whether a slice says that it is this manager's.
pub fn is_managed(slice: &EndpointSlice, manager: &str) -> bool {
    slice
        .labels()
        .get(keys::MANAGED_BY)
        .is_some_and(|label| label == manager)
}

/// Whether a slice is the one that this controller made of the same Service. What is wrong with it, an event tells.
fn is_twin(slice: &EndpointSlice, desired: &EndpointSlice) -> bool {
    let manager = |slice: &EndpointSlice| slice.labels().get(keys::MANAGED_BY).cloned();
    manager(slice) == manager(desired) && has_controller_of(slice, desired)
}

/// Whether a slice was ours: it is controlled by the Service that controls ours, and does not say that our other controller
/// manages it. Whatever else it says, somebody has changed it: nobody makes slices of our names for that Service.
fn is_orphan(slice: &EndpointSlice, desired: &EndpointSlice) -> bool {
    let others =
        [keys::MANAGED_BY_MESH, keys::MANAGED_BY_MIRROR].map(|manager| is_managed(slice, manager));
    !others.contains(&true) && has_controller_of(slice, desired)
}

fn has_controller_of(slice: &EndpointSlice, desired: &EndpointSlice) -> bool {
    let controller = |slice: &EndpointSlice| {
        let mut owners = slice.owner_references().iter();
        let controller = owners.find(|owner| owner.controller == Some(true));
        controller.map(|owner| owner.uid.clone())
    };
    controller(slice).is_some() && controller(slice) == controller(desired)
}

fn update(actual: &Arc<EndpointSlice>, mut desired: Box<EndpointSlice>) -> Write {
    if actual.address_type == desired.address_type {
        desired.metadata.uid = actual.uid();
        Write::Apply(desired)
    } else {
        Write::Replace(Arc::clone(actual), desired)
    }
}

/// What of a slice is ours to say, in a form that can be compared.
#[derive(Debug, PartialEq)]
struct Owned {
    labels: BTreeMap<String, String>,
    owner_uids: Vec<String>,
    link: Option<String>,
    address_type: String,
    endpoints: Vec<Endpoint>,
    ports: Vec<EndpointPort>,
}

impl Owned {
    fn of(slice: &EndpointSlice) -> Self {
        let owners = slice
            .owner_references()
            .iter()
            .map(|owner| owner.uid.clone());
        let ports = slice.ports.iter().flatten().cloned();
        Self {
            labels: slice.labels().clone(),
            owner_uids: owners.collect(),
            link: slice.annotations().get(keys::LOCAL_SLICE).cloned(),
            address_type: slice.address_type.clone(),
            endpoints: slice.endpoints.clone().unwrap_or_default(),
            ports: ports.map(with_defaults).collect(),
        }
    }
}

/// A port as the API server completes it.
fn with_defaults(mut port: EndpointPort) -> EndpointPort {
    port.name.get_or_insert_default();
    port.protocol.get_or_insert_with(|| "TCP".to_owned());
    port
}

fn strays(desired: &EndpointSlice, actual: &EndpointSlice) -> Option<Value> {
    let mut patch = json!({});
    for key in actual
        .labels()
        .keys()
        .filter(|key| !desired.labels().contains_key(*key))
    {
        patch["metadata"]["labels"][key] = Value::Null;
    }
    let (wanted, present) = (Owned::of(desired), Owned::of(actual));
    if wanted.link.is_none() && present.link.is_some() {
        patch["metadata"]["annotations"][keys::LOCAL_SLICE] = Value::Null;
    }
    if wanted.owner_uids != present.owner_uids {
        patch["metadata"]["ownerReferences"] = json!(desired.owner_references());
    }
    (patch != json!({})).then_some(patch)
}

fn clash() -> Announcement {
    Announcement {
        warning: true,
        reason: "EndpointSliceNameTaken",
        action: "WriteEndpointSlice",
        note: "This EndpointSlice has a name that Tombolo needs but is not managed by it; it is left alone, and some endpoints of other clusters are missing. Rename it.".to_owned(),
    }
}

#[cfg(test)]
#[path = "slices_tests.rs"]
mod tests;
