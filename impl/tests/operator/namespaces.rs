//! Namespaces that are missing, made, deleted, and let in or kept out of the mesh; names at their limits.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, ResourceExt, api::DeleteParams};
use tombolo::operator::{crds, leadership::Tenure};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_testbed::{Testbed, eventually};

use crate::{
    fake_peers::{export_from, service_from},
    restart::SECOND_CLUSTER,
    world::{Operator, World, condition, shared},
};

const SERVICE: &str = "{metadata: {name: web}, spec: {ports: [{name: http, port: 80}]}}";
const EXPORT: &str = "{metadata: {name: web}}";

async fn expect_valid(world: &World, reason: &str) -> Result<ServiceExport> {
    let is = |export: &ServiceExport| {
        let status = export.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let mut valid = conditions
            .iter()
            .filter(|condition| condition.type_ == "Valid");
        valid.any(|condition| condition.reason == reason)
    };
    world.expect("web", &format!("Valid: {reason}"), is).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_waits_for_its_namespace_and_comes_back_with_it() -> Result<()> {
    let (mut world, operator) = shared().await?;
    let cluster = Testbed::shared().await?.cluster(0);
    world.namespace = format!("{}-later", world.namespace);
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    operator
        .peers
        .serve(service_from("east", &name.derived(), &["10.1.0.1"]));
    let derived = name.derived().name.to_string();
    let namespaces: Api<Namespace> = Api::all(world.client.clone());

    let expect_imported = async || -> Result<()> {
        world.expect_ready("web").await?;
        world
            .expect_addresses(&derived, keys::MANAGED_BY_MESH, &["10.1.0.1"])
            .await?;
        Ok(())
    };

    cluster.create_namespace(&world.namespace).await?;
    expect_imported().await?;

    namespaces
        .delete(&world.namespace, &DeleteParams::default())
        .await?;
    eventually(
        Duration::from_mins(1),
        "the namespace is gone",
        async || match namespaces.get_opt(&world.namespace).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;

    cluster.create_namespace(&world.namespace).await?;
    expect_imported().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_follows_the_gate_of_its_namespace() -> Result<()> {
    let (world, _) = shared().await?;
    world.create::<Service>(SERVICE).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    world.expect_ready("web").await?;

    for no in ["false", "yes", ""] {
        world.gate(no).await?;
        let export = expect_valid(&world, "NamespaceNotGlobal").await?;
        let conditions = export
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        assert!(
            conditions
                .iter()
                .all(|condition| condition.type_ != "Conflict"),
            "{conditions:?}"
        );
        world.expect_gone::<ServiceImport>("web").await?;

        world.gate("TRUE").await?;
        expect_valid(&world, "Valid").await?;
        world.expect_ready("web").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_for_namespaces_may_differ_from_one_start_to_the_next() -> Result<()> {
    let _alone = SECOND_CLUSTER.lock().await;
    let cluster = Testbed::shared().await?.cluster(1);
    let world = World::new(cluster).await?;
    let name = world.name("imported");
    crds::install(&world.client, &Tenure::sole()).await?;
    world.create::<Service>(SERVICE).await?;
    world.create::<ServiceExport>(EXPORT).await?;

    for default_global in [false, true, false] {
        let operator = Operator::start_with(cluster, default_global, |peers| {
            peers.export(export_from("east", &name));
        })?;

        if default_global {
            expect_valid(&world, "Valid").await?;
            world.expect_ready("web").await?;
            world.expect_ready("imported").await?;
        } else {
            expect_valid(&world, "NamespaceNotGlobal").await?;
            world.expect_gone::<ServiceImport>("web").await?;
            let is = |import: &ServiceImport| {
                condition(import).as_deref() == Some("NamespaceNotGlobal")
                    && import.spec.ips.is_none()
            };
            world.expect("imported", "it is not let in", is).await?;
            world
                .expect_gone::<Service>(name.derived().name.as_str())
                .await?;
        }
        operator.stop();
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_may_be_as_long_as_kubernetes_allows() -> Result<()> {
    let (mut world, operator) = shared().await?;
    let cluster = Testbed::shared().await?.cluster(0);
    world.namespace = format!("{:n<63}", world.namespace);
    cluster.create_namespace(&world.namespace).await?;
    let (service, peer, slice) = ("s".repeat(63), "p".repeat(32), "l".repeat(253));
    let name = world.name(&service);
    let derived = name.derived().name.to_string();
    world.create::<Service>(&format!(
        "{{metadata: {{name: {service}, annotations: {{{}: 'true'}}}}, spec: {{ports: [{{name: http, port: 80}}]}}}}",
        keys::GLOBAL
    ))
    .await?;
    world.create::<EndpointSlice>(&format!(
        "{{metadata: {{name: {slice}, labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
         ports: [{{name: http, port: 8080}}], endpoints: [{{addresses: [10.9.0.1]}}]}}"
    ))
    .await?;

    world
        .create::<ServiceExport>(&format!("{{metadata: {{name: {service}}}}}"))
        .await?;
    operator.peers.export(export_from(&peer, &name));
    operator
        .peers
        .serve(service_from(&peer, &name, &["10.1.0.1"]));
    operator
        .peers
        .serve(service_from(&peer, &name.derived(), &["10.1.0.2"]));

    let import = world.expect_ready(&service).await?;
    world
        .expect_addresses(&service, keys::MANAGED_BY_MESH, &["10.1.0.1"])
        .await?;
    world
        .expect_addresses(&derived, keys::MANAGED_BY_MESH, &["10.1.0.2"])
        .await?;
    let mirrored = world
        .expect_addresses(&derived, keys::MANAGED_BY_MIRROR, &["10.9.0.1"])
        .await?;
    assert_eq!(mirrored[0].annotations()[keys::LOCAL_SLICE], slice);
    assert_eq!(import.name_any(), service);

    // It is found again, and goes.
    world.delete::<ServiceExport>(&service).await?;
    world
        .expect_addresses(&derived, keys::MANAGED_BY_MIRROR, &[])
        .await?;
    operator.peers.withdraw(&peer, &name);
    world.expect_gone::<ServiceImport>(&service).await?;
    world
        .expect_addresses(&service, keys::MANAGED_BY_MESH, &["10.1.0.1"])
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_names_in_two_namespaces_have_nothing_to_do_with_each_other() -> Result<()> {
    let (world, operator) = shared().await?;
    let (other, _) = shared().await?;
    for world in [&world, &other] {
        operator
            .peers
            .export(export_from("east", &world.name("web")));
        world.expect_ready("web").await?;
    }
    let before: ServiceImport = other.api().get("web").await?;

    operator.peers.withdraw("east", &world.name("web"));

    world.expect_gone::<ServiceImport>("web").await?;
    let after: ServiceImport = other.api().get("web").await?;
    assert_eq!(after.resource_version(), before.resource_version());
    other.expect_ready("web").await?;
    Ok(())
}
