//! What this cluster exports itself.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{ResourceExt, api::DeleteParams};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_testbed::{PodOptions, Testbed};

use crate::{
    fake_peers::export_from,
    world::{World, shared},
};

const WEB: &str = "
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
";
const EXPORT: &str = "{metadata: {name: web}}";

fn conditions(export: &ServiceExport) -> Vec<(String, String)> {
    let status = export.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default().into_iter();
    conditions
        .map(|condition| (condition.type_, condition.reason))
        .collect()
}

async fn expect_conditions(world: &World, expected: &[(&str, &str)]) -> Result<ServiceExport> {
    let is = |export: &ServiceExport| {
        let found = conditions(export);
        found.len() == expected.len()
            && expected
                .iter()
                .all(|(kind, reason)| found.contains(&((*kind).to_owned(), (*reason).to_owned())))
    };
    world
        .expect("web", &format!("the conditions are {expected:?}"), is)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_mirrors_its_pods_ready_or_not_to_the_derived_service() -> Result<()> {
    let (world, _) = shared().await?;
    let cluster = Testbed::shared().await?.cluster(0);
    let derived = world.name("web").derived().name.to_string();
    world.create::<Service>(WEB).await?;
    let options = || PodOptions::default().tcp("http", 8080);
    let ready = cluster
        .fake_pod(&world.namespace, "a", &[("app", "web")], options())
        .await?;
    let other = cluster
        .fake_pod(
            &world.namespace,
            "b",
            &[("app", "web")],
            options().unready(),
        )
        .await?;

    world.create::<ServiceExport>(EXPORT).await?;

    world.expect_ready("web").await?;
    let v4 = |ips: &[std::net::IpAddr]| ips.iter().find(|ip| ip.is_ipv4()).map(ToString::to_string);
    let expected = [
        v4(ready.ips()).unwrap_or_default(),
        v4(other.ips()).unwrap_or_default(),
    ];
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    let slices = world
        .expect_addresses(&derived, keys::MANAGED_BY_MIRROR, &expected)
        .await?;
    assert_eq!(slices[0].labels()[keys::SOURCE_CLUSTER], cluster.name());
    assert!(slices[0].labels().contains_key(keys::LOCAL_SLICE));

    // One that is deleted comes back.
    let name = slices[0].name_any();
    world
        .api::<EndpointSlice>()
        .delete(&name, &DeleteParams::default())
        .await?;
    world
        .expect_addresses(&derived, keys::MANAGED_BY_MIRROR, &expected)
        .await?;

    world
        .api::<ServiceExport>()
        .delete("web", &DeleteParams::default())
        .await?;

    world.expect_gone::<ServiceImport>("web").await?;
    world.expect_gone::<Service>(&derived).await?;
    world.expect_gone::<EndpointSlice>(&name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_conditions_of_an_export_follow_its_service_and_the_other_clusters() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");

    world.create::<ServiceExport>(EXPORT).await?;
    expect_conditions(&world, &[("Valid", "NoService"), ("Ready", "Pending")]).await?;

    world.create::<Service>(WEB).await?;
    let valid = [("Valid", "Valid"), ("Ready", "Ready")];
    expect_conditions(&world, &[valid[0], valid[1], ("Conflict", "NoConflicts")]).await?;

    let mut other = export_from("east", &name);
    other.labels.clear();
    other.ports[0].port = 8000;
    operator.peers.export(other);
    let conflict =
        expect_conditions(&world, &[valid[0], valid[1], ("Conflict", "PortConflict")]).await?;

    operator.peers.withdraw("east", &name);
    expect_conditions(&world, &[valid[0], valid[1], ("Conflict", "NoConflicts")]).await?;

    world
        .api::<Service>()
        .delete("web", &DeleteParams::default())
        .await?;
    expect_conditions(&world, &[("Valid", "NoService"), ("Ready", "Pending")]).await?;
    assert!(conflict.uid().is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_export_does_not_stop_what_others_export() -> Result<()> {
    let (world, operator) = shared().await?;

    world.create::<ServiceExport>(EXPORT).await?;
    operator
        .peers
        .export(export_from("east", &world.name("web")));

    let import = world.expect_ready("web").await?;
    let clusters = import
        .status
        .and_then(|status| status.clusters)
        .unwrap_or_default();
    assert_eq!(
        clusters
            .iter()
            .map(|row| row.cluster.as_str())
            .collect::<Vec<_>>(),
        ["east"]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_being_deleted_ends_without_resistance() -> Result<()> {
    let (world, operator) = shared().await?;
    operator
        .peers
        .export(export_from("east", &world.name("web")));
    world.expect_ready("web").await?;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.client.clone());

    namespaces
        .delete(&world.namespace, &DeleteParams::default())
        .await?;

    tombolo_testbed::eventually(
        Duration::from_mins(1),
        "the namespace is gone",
        async || match namespaces.get_opt(&world.namespace).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;
    Ok(())
}
