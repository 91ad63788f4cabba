//! What peers export, imported.

use anyhow::Result;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use serde_json::json;
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_core::service::ImportType;

use crate::{
    fake_peers::{export_from, service_from},
    world::{cluster_ip, condition, shared},
};

const MESH: &str = keys::MANAGED_BY_MESH;

#[tokio::test(flavor = "multi_thread")]
async fn an_export_becomes_an_import_with_an_ip_and_slices_and_goes_again() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();

    operator.peers.export(export_from("east", &name));
    operator.peers.serve(service_from(
        "east",
        &name.derived(),
        &["10.1.0.1", "10.1.0.2"],
    ));

    let import = world.expect_ready("web").await?;
    let service: Service = world.api().get(&derived).await?;
    let slices = world
        .expect_addresses(&derived, MESH, &["10.1.0.1", "10.1.0.2"])
        .await?;
    let status = import.status.clone().unwrap_or_default();
    assert_eq!(import.labels()["team"], "pay");
    assert_eq!(import.annotations()[keys::DERIVED_SERVICE], derived);
    assert_eq!(
        import.spec.ips.clone().unwrap_or_default(),
        [cluster_ip(&service).unwrap_or_default()]
    );
    assert_eq!(status.endpoint_slice_objects.as_deref(), Some("Present"));
    assert_eq!(status.clusters.unwrap_or_default()[0].cluster, "east");
    assert_eq!(
        service.owner_references()[0].uid,
        import.uid().unwrap_or_default()
    );
    assert_eq!(slices[0].labels()[keys::SERVICE_NAME], "web");
    assert_eq!(slices[0].labels()[keys::SOURCE_CLUSTER], "east");
    assert_eq!(
        slices[0].owner_references()[0].uid,
        service.uid().unwrap_or_default()
    );

    operator.peers.withdraw("east", &name);

    world.expect_gone::<ServiceImport>("web").await?;
    world.expect_gone::<Service>(&derived).await?;
    world
        .expect_gone::<EndpointSlice>(&slices[0].name_any())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_set_on_an_import_is_taken_off_and_its_ip_stays() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    let before = world.expect_ready("web").await?;

    let patch = json!({
        "metadata": { "labels": { "foreign": "1", "team": "other" }, "annotations": { "foreign": "1" } },
        "spec": { "trafficDistribution": "PreferClose", "ports": [], "ips": ["192.0.2.1"] },
    });
    world.merge::<ServiceImport>("web", patch).await?;

    let is = |import: &ServiceImport| {
        import.spec == before.spec
            && import.labels() == before.labels()
            && import.annotations() == before.annotations()
    };
    world.expect("web", "the import is as before", is).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_a_user_made_is_left_alone_until_somebody_exports_its_name() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let yaml = "{metadata: {name: web, labels: {foreign: '1'}}, spec: {type: Headless, ports: [{port: 1}], trafficDistribution: x}}";
    let made: ServiceImport = world.create(yaml).await?;
    // Another name, and a full pass: the operator has looked at the import in between.
    operator
        .peers
        .export(export_from("east", &world.name("other")));
    operator.peers.set_loading(&[]);
    world.expect_ready("other").await?;

    let before: ServiceImport = world.api().get("web").await?;
    assert_eq!(before.resource_version(), made.resource_version());
    let derived = world
        .api::<Service>()
        .get_opt(name.derived().name.as_str())
        .await?;
    assert_eq!(derived, None);

    operator.peers.export(export_from("east", &name));

    let import = world.expect_ready("web").await?;
    assert_eq!(import.uid(), made.uid());
    assert_eq!(import.spec.type_, "ClusterSetIP");
    assert_eq!(import.spec.traffic_distribution, None);
    assert_eq!(import.labels().get("foreign"), None);

    operator.peers.withdraw("east", &name);

    world.expect_gone::<ServiceImport>("web").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_changes_makes_the_derived_service_anew() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();
    operator.peers.export(export_from("east", &name));
    world.expect_ready("web").await?;

    let mut headless = export_from("east", &name);
    headless.import_type = ImportType::Headless;
    operator.peers.export(headless);

    let is = |service: &Service| cluster_ip(service).as_deref() == Some("None");
    world
        .expect(&derived, "the derived Service is headless", is)
        .await?;
    let no_ips = |import: &ServiceImport| import.spec.ips.is_none();
    world.expect("web", "the import has no IPs", no_ips).await?;

    operator.peers.export(export_from("east", &name));

    let has_ip = |import: &ServiceImport| {
        let ips = import.spec.ips.clone().unwrap_or_default();
        ips.len() == 1 && condition(import).as_deref() == Some("Ready")
    };
    world.expect("web", "the import has an IP", has_ip).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_not_global_has_imports_without_service_and_ips() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    world.expect_ready("web").await?;
    world.gate("false").await?;

    let stopped = |import: &ServiceImport| {
        condition(import).as_deref() == Some("NamespaceNotGlobal")
            && import.spec.ips.is_none()
            && !import.annotations().contains_key(keys::DERIVED_SERVICE)
    };
    world
        .expect("web", "the import is not ready and has no IPs", stopped)
        .await?;
    world
        .expect_gone::<Service>(name.derived().name.as_str())
        .await?;

    world.gate("true").await?;

    let import = world.expect_ready("web").await?;
    assert_eq!(import.spec.ips.map(|ips| ips.len()), Some(1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_somebody_else_with_a_derived_name_is_left_alone() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();
    let yaml = format!(
        "{{metadata: {{name: {derived}}}, spec: {{ports: [{{port: 1}}], selector: {{app: x}}}}}}"
    );
    let foreign: Service = world.create(&yaml).await?;

    operator.peers.export(export_from("east", &name));

    world
        .expect_event(&derived, "DerivedServiceNameTaken")
        .await?;
    let after: Service = world.api().get(&derived).await?;
    assert_eq!(
        after.metadata.resource_version,
        foreign.metadata.resource_version
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_service_gets_slices_of_remote_endpoints_unless_it_opts_out() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    operator
        .peers
        .serve(service_from("east", &name, &["10.1.0.1"]));
    operator
        .peers
        .serve(service_from("west", &name, &["10.2.0.1"]));
    let yaml = format!(
        "{{metadata: {{name: web, annotations: {{{}: 'true'}}}}, spec: {{ports: [{{name: http, port: 80}}]}}}}",
        keys::GLOBAL
    );

    world.create::<Service>(&yaml).await?;

    world
        .expect_addresses("web", MESH, &["10.1.0.1", "10.2.0.1"])
        .await?;

    operator
        .peers
        .serve(service_from("east", &name, &["10.1.0.2"]));

    world
        .expect_addresses("web", MESH, &["10.1.0.2", "10.2.0.1"])
        .await?;

    let patch = json!({ "metadata": { "annotations": { keys::SYNC_ENDPOINT_SLICES: "false" } } });
    world.merge::<Service>("web", patch).await?;

    world.expect_addresses("web", MESH, &[]).await?;
    world.expect_event("web", "RemoteEndpointsWithheld").await
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_that_were_tampered_with_are_mended() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();
    operator.peers.export(export_from("east", &name));
    operator
        .peers
        .serve(service_from("east", &name.derived(), &["10.1.0.1"]));
    let before = world
        .expect_addresses(&derived, MESH, &["10.1.0.1"])
        .await?
        .remove(0);

    let patch = json!({
        "metadata": { "labels": { keys::KUBERNETES_SERVICE_NAME: "other", keys::MANAGED_BY: null, "foreign": "1" } },
        "endpoints": [],
    });
    world
        .merge::<EndpointSlice>(&before.name_any(), patch)
        .await?;

    let is = |slice: &EndpointSlice| {
        slice.labels() == before.labels() && slice.endpoints == before.endpoints
    };
    world
        .expect(&before.name_any(), "the slice is as before", is)
        .await?;
    Ok(())
}
