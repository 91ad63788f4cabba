//! An operator that has nothing to do does nothing, and what it does it does with few writes.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_testbed::{Testbed, stays_for};

use crate::{
    fake_peers::{export_from, service_from},
    world::{Counts, Operator, World},
};

const SERVICE: &str = "{metadata: {name: web}, spec: {ports: [{name: http, port: 80}]}}";
const EXPORT: &str = "{metadata: {name: web}}";

/// Events of each kind that must cause no write.
const EVENTS: usize = 10;

/// A cluster of its own, since any other test would make writes; the tests that use it run one after the other.
pub(crate) async fn alone() -> Result<(MutexGuard<'static, ()>, World, &'static Operator)> {
    static TURN: Mutex<()> = Mutex::const_new(());
    static TESTBED: OnceCell<Testbed> = OnceCell::const_new();
    static OPERATOR: OnceCell<Operator> = OnceCell::const_new();
    let turn = TURN.lock().await;
    let testbed = TESTBED.get_or_try_init(|| Testbed::start(1)).await?;
    let cluster = testbed.cluster(0);
    let operator = OPERATOR
        .get_or_try_init(async || Operator::start(cluster, |_| {}))
        .await?;
    Ok((turn, World::new(cluster).await?, operator))
}

fn slice(address: &str) -> String {
    format!(
        "{{metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}, addressType: IPv4, \
         ports: [{{name: http, port: 8080}}], endpoints: [{{addresses: ['{address}']}}]}}"
    )
}

/// `web`, exported here and by `east`, with an endpoint in both.
async fn exported_twice(world: &World, operator: &Operator) -> Result<Counts> {
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    operator.peers.serve(service_from(
        "east",
        &name.derived(),
        &["10.1.0.1", "fd00:1::1"],
    ));
    world.create::<Service>(SERVICE).await?;
    world.create::<EndpointSlice>(&slice("10.9.0.1")).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    let both = |import: &ServiceImport| {
        let status = import.status.clone().unwrap_or_default();
        status.clusters.is_some_and(|clusters| clusters.len() == 2)
    };
    world.expect("web", "both clusters export it", both).await?;
    let derived = name.derived().name.to_string();
    for (manager, address) in [
        (keys::MANAGED_BY_MESH, "10.1.0.1"),
        (keys::MANAGED_BY_MIRROR, "10.9.0.1"),
    ] {
        world
            .expect_addresses(&derived, manager, &[address])
            .await?;
    }
    operator.settled().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pass_over_what_is_as_it_should_be_writes_nothing() -> Result<()> {
    let (_turn, world, operator) = alone().await?;
    let before = exported_twice(&world, operator).await?;

    operator.peers.set_loading(&[]);

    let done = operator.settled().await?.since(&before);
    assert!(done.all_reconciles() >= 5, "{done:?}");
    assert_eq!(done.all_writes(), 0, "{done:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_effect_cause_no_write() -> Result<()> {
    let (_turn, world, operator) = alone().await?;
    let before = exported_twice(&world, operator).await?;

    unrelated_events(&world, operator, EVENTS).await?;

    let done = operator.settled().await?.since(&before);
    println!("{EVENTS} times 6 events without effect: {done:?}");
    assert!(done.all_reconciles() >= EVENTS, "{done:?}");
    assert_eq!(done.all_writes(), 0, "{done:?}");
    Ok(())
}

/// Changes everything about `web` that has no effect, `times` times.
async fn unrelated_events(world: &World, operator: &Operator, times: usize) -> Result<()> {
    let name = world.name("web");
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    for turn in 0..times {
        let labelled = json!({ "metadata": { "labels": { "turn": turn.to_string() } } });
        let annotated = json!({ "metadata": { "annotations": { "turn": turn.to_string() } } });
        world.merge::<Service>("web", labelled.clone()).await?;
        world
            .merge::<ServiceExport>("web", annotated.clone())
            .await?;
        world
            .merge::<EndpointSlice>("web-1", annotated.clone())
            .await?;
        let params = PatchParams::default();
        namespaces
            .patch(&world.namespace, &params, &Patch::Merge(annotated))
            .await?;
        say_something_foreign(world, turn).await?;
        operator.peers.export(export_from("east", &name));
        operator.peers.serve(service_from(
            "east",
            &name.derived(),
            &["10.1.0.1", "fd00:1::1"],
        ));
    }
    Ok(())
}

/// Another controller gives the ServiceExport a condition of its own.
async fn say_something_foreign(world: &World, turn: usize) -> Result<()> {
    let status = json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceExport",
        "status": { "conditions": [{
            "type": "example.com/Seen", "status": "True", "reason": "Seen", "message": turn.to_string(),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] },
    });
    let api = world.api::<ServiceExport>();
    let params = PatchParams::apply("example").force();
    api.patch_status("web", &params, &Patch::Apply(status))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_costs_few_reconciles_and_no_more_writes_than_it_must() -> Result<()> {
    let (_turn, world, operator) = alone().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();
    let fresh = operator.settled().await?;

    // Import, its status twice, derived Service, IPs.
    operator.peers.export(export_from("east", &name));
    world.expect_ready("web").await?;
    let settled = operator.settled().await?;
    expect_cost("peer's export created", &settled.since(&fresh), 5);

    operator
        .peers
        .serve(service_from("east", &name.derived(), &["10.1.0.1"]));
    world
        .expect_addresses(&derived, keys::MANAGED_BY_MESH, &["10.1.0.1"])
        .await?;
    let served = operator.settled().await?;
    expect_cost("peer's first endpoint", &served.since(&settled), 1);

    world.create::<Service>(SERVICE).await?;
    world.create::<EndpointSlice>(&slice("10.9.0.1")).await?;
    let before = operator.settled().await?;
    assert_eq!(before.since(&served).all_writes(), 0, "nothing is exported");

    // The first export here: import status, export status, mirrored slice; labels of the two differ.
    world.create::<ServiceExport>(EXPORT).await?;
    let exported = operator.settled().await?;
    expect_cost("export created", &exported.since(&before), 3);

    let patch = json!({ "spec": { "ports": [
        { "name": "http", "port": 80 }, { "name": "metrics", "port": 9090 }
    ] } });
    world.merge::<Service>("web", patch).await?;
    let added = operator.settled().await?;
    // Import, derived Service, export status.
    expect_cost("port added", &added.since(&exported), 3);

    let patch =
        json!({ "endpoints": [{ "addresses": ["10.9.0.1"] }, { "addresses": ["10.9.0.2"] }] });
    world.merge::<EndpointSlice>("web-1", patch).await?;
    let local = operator.settled().await?;
    expect_cost("local endpoint added", &local.since(&added), 1);

    operator.peers.serve(service_from(
        "east",
        &name.derived(),
        &["10.1.0.1", "10.1.0.2"],
    ));
    let remote = operator.settled().await?;
    expect_cost("remote endpoint added", &remote.since(&local), 1);
    Ok(())
}

/// Names of which each is exported while its Service changes.
const NAMES: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_just_written_is_not_written_again_before_the_watch_tells_of_it() -> Result<()> {
    let (_turn, world, operator) = alone().await?;
    let names: Vec<_> = (0..NAMES).map(|turn| format!("web{turn}")).collect();
    for name in &names {
        let renamed = |yaml: &str| yaml.replace("web", name);
        world.create::<Service>(&renamed(SERVICE)).await?;
        let slice = renamed(&slice("10.9.0.1"));
        world.create::<EndpointSlice>(&slice).await?;
    }
    let before = operator.settled().await?;
    let exported = names.iter().map(async |name| {
        let export = EXPORT.replace("web", name);
        world.create::<ServiceExport>(&export).await?;
        let derived = world.name(name).derived().name.to_string();
        // Each of these makes the controllers look again, some while they are writing.
        for turn in 0..EVENTS {
            let labelled = json!({ "metadata": { "labels": { "turn": turn.to_string() } } });
            world.merge::<Service>(name, labelled).await?;
        }
        world
            .expect_addresses(&derived, keys::MANAGED_BY_MIRROR, &["10.9.0.1"])
            .await
    });

    futures::future::try_join_all(exported).await?;

    let done = operator.settled().await?.since(&before);
    println!("{NAMES} exports of changing Services: {done:?}");
    for write in [
        ("endpoint-slice-mirror", "apply"),
        ("service-import", "apply"),
        ("service-export", "status"),
    ] {
        assert_eq!(done.writes.get(&write), Some(&NAMES), "{write:?}: {done:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_somebody_keeps_from_ending_is_not_looked_at_again_and_again() -> Result<()>
{
    let (_turn, world, operator) = alone().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();
    operator.peers.export(export_from("east", &name));
    world.expect_ready("web").await?;
    let held = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    world.merge::<Service>(&derived, held).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let params = DeleteParams::default();
    namespaces.delete(&world.namespace, &params).await?;
    world.expect_gone::<ServiceImport>("web").await?;
    let leaving = |service: &Service| service.metadata.deletion_timestamp.is_some();
    world.expect(&derived, "it is held", leaving).await?;

    let rest = operator.settled().await?;

    // Longer than the first five delays between retries.
    let at_rest = stays_for(Duration::from_secs(2), "nothing is done", async || {
        let done = operator.counts().since(&rest);
        (done == Counts::default())
            .then_some(())
            .ok_or_else(|| format!("{done:?}"))
    });
    let at_rest = at_rest.await;
    let released = json!({ "metadata": { "finalizers": null } });
    world.merge::<Service>(&derived, released).await?;
    // Others count too: nothing may be left to do while the namespace goes.
    operator.peers.withdraw("east", &name);
    operator.settled().await?;
    at_rest?;
    Ok(())
}

fn expect_cost(event: &str, done: &Counts, writes: usize) {
    let (reconciles, written) = (done.all_reconciles(), done.all_writes());
    println!("{event}: {reconciles} reconciles, {written} writes: {done:?}");
    // A write may be repeated, without effect, when one watch tells of a change before another tells of what came of it.
    assert!(written <= 2 * writes, "{event}: {done:?}");
    assert!(reconciles <= 32, "{event}: {done:?}");
}
