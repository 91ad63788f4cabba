//! What the statuses of exports and imports say, and when their times move.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ResourceQuota, Service},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_core::names::NamespacedName;

use crate::{
    fake_peers::{FakePeers, export_from},
    world::{World, shared},
};

const SERVICE: &str = "{metadata: {name: web}, spec: {ports: [{name: http, port: 80}]}}";
const EXPORT: &str = "{metadata: {name: web}, spec: {exportedLabels: {team: pay}}}";

/// A time at which no test ran.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn of_export(export: &ServiceExport, kind: &str) -> Option<Condition> {
    let conditions = export.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind);
    found.cloned()
}

fn of_import(import: &ServiceImport) -> Option<Condition> {
    let conditions = import.status.as_ref()?.conditions.as_ref()?;
    conditions.first().cloned()
}

async fn expect_conflict(world: &World, status: &str, part: &str) -> Result<Condition> {
    let what = format!("Conflict is {status}: …{part}…");
    let says = |export: &ServiceExport| {
        let found = of_export(export, "Conflict");
        found.is_some_and(|found| found.status == status && found.message.contains(part))
    };
    let export = world.expect("web", &what, says).await?;
    of_export(&export, "Conflict").context("there is one")
}

/// Waits until a time that is written now would be another one: times in conditions have whole seconds.
async fn second_after(time: &Time) -> Result<()> {
    let next = time.0.as_second() + 1;
    tombolo_testbed::eventually(Duration::from_secs(5), "the next second", async || {
        let now = Timestamp::now();
        if now.as_second() > next {
            Ok(())
        } else {
            Err(now.to_string())
        }
    })
    .await?;
    Ok(())
}

fn export_with_port(peers: &FakePeers, name: &NamespacedName, port: u16) {
    let mut export = export_from("east", name);
    export.ports[0].port = port;
    peers.export(export);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_message_leaves_the_time_of_a_condition_and_a_new_status_moves_it() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    world.create::<Service>(SERVICE).await?;
    export_with_port(&operator.peers, &name, 8000);
    world.create::<ServiceExport>(EXPORT).await?;
    let conflict = expect_conflict(&world, "True", "8000").await?;
    second_after(&conflict.last_transition_time).await?;

    export_with_port(&operator.peers, &name, 9000);

    let reworded = expect_conflict(&world, "True", "9000").await?;
    assert_ne!(reworded.message, conflict.message);
    assert_eq!(reworded.last_transition_time, conflict.last_transition_time);

    export_with_port(&operator.peers, &name, 80);

    let solved = expect_conflict(&world, "False", "").await?;
    assert_eq!(solved.reason, "NoConflicts");
    assert!(
        solved.last_transition_time.0 > conflict.last_transition_time.0,
        "{solved:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_names_its_clusters_in_order_whoever_came_first() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    for cluster in ["west", "east", "north"] {
        operator.peers.export(export_from(cluster, &name));
        world.expect_ready("web").await?;
    }
    world.create::<Service>(SERVICE).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    let clusters = |import: &ServiceImport| -> Vec<String> {
        let status = import.status.clone().unwrap_or_default();
        let clusters = status.clusters.unwrap_or_default().into_iter();
        clusters.map(|row| row.cluster).collect()
    };

    let all = |import: &ServiceImport| clusters(import) == ["a", "east", "north", "west"];
    world.expect("web", "all clusters, sorted", all).await?;

    operator.peers.withdraw("north", &name);

    let fewer = |import: &ServiceImport| clusters(import) == ["a", "east", "west"];
    world.expect("web", "all but north, sorted", fewer).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_are_said_to_be_absent_where_there_are_none() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let expect = async |present: &str, reason: &str| {
        let what = format!("{reason}, slices {present}");
        let is = |import: &ServiceImport| {
            let status = import.status.clone().unwrap_or_default();
            status.endpoint_slice_objects.as_deref() == Some(present)
                && of_import(import).is_some_and(|ready| ready.reason == reason)
        };
        world.expect("web", &what, is).await
    };
    operator.peers.export(export_from("east", &name));
    expect("Present", "Ready").await?;

    let mut withheld = export_from("east", &name);
    withheld
        .annotations
        .insert(keys::SYNC_ENDPOINT_SLICES.to_owned(), "false".to_owned());
    operator.peers.export(withheld);
    expect("Absent", "Ready").await?;

    operator.peers.export(export_from("east", &name));
    expect("Present", "Ready").await?;

    world.gate("false").await?;
    expect("Absent", "NamespaceNotGlobal").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_somebody_else_has_the_name_of_the_derived_service_nothing_is_promised() -> Result<()>
{
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let foreign = format!(
        "{{metadata: {{name: {}}}, spec: {{ports: [{{port: 1}}]}}}}",
        name.derived().name
    );
    world.create::<Service>(&foreign).await?;

    operator.peers.export(export_from("east", &name));

    let is = |import: &ServiceImport| {
        let status = import.status.clone().unwrap_or_default();
        status.endpoint_slice_objects.as_deref() == Some("Absent")
            && of_import(import).is_some_and(|ready| ready.reason == "Pending")
    };
    world.expect("web", "pending, without slices", is).await?;
    world
        .expect_event(name.derived().name.as_str(), "DerivedServiceNameTaken")
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_other_controllers_say_survives_and_stray_labels_do_not() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    world.expect_ready("web").await?;
    let status = json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "status": { "conditions": [{
            "type": "example.com/Seen", "status": "True", "reason": "Seen", "message": "",
            "lastTransitionTime": LONG_AGO,
        }] },
    });
    let params = PatchParams::apply("example").force();
    let api = world.api::<ServiceImport>();
    api.patch_status("web", &params, &Patch::Apply(status))
        .await?;
    let patch = json!({ "metadata": {
        "finalizers": ["example.com/hold"], "labels": { "stray": "1" }, "annotations": { "stray": "1" }
    } });
    world.merge::<ServiceImport>("web", patch).await?;

    // Spec and status change.
    export_with_port(&operator.peers, &name, 8000);
    operator.peers.export(export_from("west", &name));

    let is = |import: &ServiceImport| {
        let status = import.status.clone().unwrap_or_default();
        status.clusters.is_some_and(|clusters| clusters.len() == 2)
            && import
                .metadata
                .labels
                .as_ref()
                .is_none_or(|labels| !labels.contains_key("stray"))
            && import
                .metadata
                .annotations
                .as_ref()
                .is_some_and(|all| !all.contains_key("stray"))
            && import.spec.ports[0].port == 8000
    };
    let import = world
        .expect("web", "both export it, strays are gone", is)
        .await?;
    let conditions = import
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    let kinds: Vec<_> = conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert!(kinds.contains(&"example.com/Seen"), "{kinds:?}");
    assert!(kinds.contains(&"Ready"), "{kinds:?}");
    assert_eq!(
        import.metadata.finalizers,
        Some(vec!["example.com/hold".to_owned()])
    );

    // The user's finalizer holds the object, not the operator.
    operator.peers.withdraw("east", &name);
    operator.peers.withdraw("west", &name);
    let leaving = |import: &ServiceImport| import.metadata.deletion_timestamp.is_some();
    world
        .expect("web", "the import is being deleted", leaving)
        .await?;
    let patch = json!({ "metadata": { "finalizers": null } });
    world.merge::<ServiceImport>("web", patch).await?;
    world.expect_gone::<ServiceImport>("web").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_whose_derived_service_is_refused_says_why_until_it_is_not() -> Result<()> {
    let (world, operator) = shared().await?;
    // Nobody may make another Service.
    world
        .create::<ResourceQuota>("{metadata: {name: none}, spec: {hard: {services: '0'}}}")
        .await?;
    let counted = |quota: &ResourceQuota| {
        let status = quota.status.as_ref();
        status.is_some_and(|status| status.used.is_some())
    };
    world.expect("none", "the quota counts", counted).await?;

    operator
        .peers
        .export(export_from("east", &world.name("web")));

    world.expect_event("web", "DerivedServiceRefused").await?;
    let pending =
        |import: &ServiceImport| of_import(import).is_some_and(|it| it.reason == "Pending");
    world.expect("web", "it waits", pending).await?;
    world.delete::<ResourceQuota>("none").await?;
    world.expect_ready("web").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_being_deleted_and_held_by_a_finalizer_offers_nothing() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    world.expect_ready("web").await?;
    let finalizers = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    let held: ServiceImport = world.merge("web", finalizers).await?;

    world.delete::<ServiceImport>("web").await?;

    let nothing = |import: &ServiceImport| {
        let status = import.status.clone().unwrap_or_default();
        import.metadata.deletion_timestamp.is_some()
            && import.spec.ips.is_none()
            && status.endpoint_slice_objects.as_deref() == Some("Absent")
            && of_import(import).is_some_and(|ready| ready.reason == "Pending")
    };
    world.expect("web", "it offers nothing", nothing).await?;
    world
        .expect_gone::<Service>(name.derived().name.as_str())
        .await?;
    let finalizers = json!({ "metadata": { "finalizers": null } });
    world.merge::<ServiceImport>("web", finalizers).await?;
    let import = world.expect_ready("web").await?;
    anyhow::ensure!(import.uid() != held.uid(), "it is the same");
    Ok(())
}
