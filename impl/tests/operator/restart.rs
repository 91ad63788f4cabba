//! An operator that begins anew: it must not take silence for deletion.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::{
    api::core::v1::Service,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tombolo::{
    mesh::peers::RecordKind,
    operator::{crds, leadership::Tenure},
};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_testbed::{Testbed, stays_for};

use crate::{
    fake_peers::{export_from, service_from},
    world::{Operator, World},
};

const MESH: &str = keys::MANAGED_BY_MESH;

/// The second cluster: its tests need operators of their own, and so run one after the other.
pub(crate) static SECOND_CLUSTER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn what_a_loading_peer_backs_stays_until_it_is_synced() -> Result<()> {
    let _alone = SECOND_CLUSTER.lock().await;
    let cluster = Testbed::shared().await?.cluster(1);
    let world = World::new(cluster).await?;
    let (kept, shared) = (world.name("kept"), world.name("shared"));
    let derived = kept.derived().name.to_string();
    let first = Operator::start(cluster, |peers| {
        peers.export(export_from("east", &kept));
        peers.serve(service_from("east", &kept.derived(), &["10.1.0.1"]));
        peers.export(export_from("east", &shared));
        peers.export(export_from("west", &shared));
    })?;
    let before = world.expect_ready("kept").await?;
    let shared_before = world.expect_ready("shared").await?;
    world
        .expect_addresses(&derived, MESH, &["10.1.0.1"])
        .await?;
    first.stop();

    // East cannot be reached; west exports less than before, and this cluster exports something new.
    let second = Operator::start(cluster, |peers| {
        peers.set_loading(&["east"]);
        let mut less = export_from("west", &shared);
        less.labels.clear();
        peers.export(less);
    })?;
    world
        .create::<Service>("{metadata: {name: own}, spec: {ports: [{port: 80}]}}")
        .await?;
    world
        .create::<ServiceExport>("{metadata: {name: own}}")
        .await?;
    world.expect_ready("own").await?;

    stays_for(
        Duration::from_secs(2),
        "what east backs is untouched",
        async || {
            for (name, before) in [("kept", &before), ("shared", &shared_before)] {
                let now: ServiceImport = world
                    .api()
                    .get(name)
                    .await
                    .map_err(|error| error.to_string())?;
                if now.metadata.resource_version != before.metadata.resource_version {
                    return Err(format!("{now:?}"));
                }
            }
            let slices = world
                .slices(&derived)
                .await
                .map_err(|error| error.to_string())?;
            (slices.len() == 1)
                .then_some(())
                .ok_or_else(|| format!("{slices:?}"))
        },
    )
    .await?;

    second.peers.set_loading(&[]);

    world.expect_gone::<ServiceImport>("kept").await?;
    let only_west = |import: &ServiceImport| {
        let clusters = import
            .status
            .clone()
            .unwrap_or_default()
            .clusters
            .unwrap_or_default();
        clusters.len() == 1 && clusters[0].cluster == "west" && import.labels().is_empty()
    };
    let after = world
        .expect("shared", "only west backs it", only_west)
        .await?;
    assert_eq!(after.spec.ips, shared_before.spec.ips);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_record_that_is_refused_was_about_stays_and_the_rest_goes() -> Result<()> {
    let _alone = SECOND_CLUSTER.lock().await;
    let cluster = Testbed::shared().await?.cluster(1);
    let world = World::new(cluster).await?;
    let (bad, gone) = (world.name("bad"), world.name("gone"));
    let derived = bad.derived().name.to_string();
    let first = Operator::start(cluster, |peers| {
        for (name, address) in [(&bad, "10.1.0.1"), (&gone, "10.1.0.2")] {
            peers.export(export_from("east", name));
            peers.serve(service_from("east", &name.derived(), &[address]));
        }
    })?;
    let before = world.expect_ready("bad").await?;
    world.expect_ready("gone").await?;
    let slices = world
        .expect_addresses(&derived, MESH, &["10.1.0.1"])
        .await?;
    first.stop();

    // East was read completely. What it says of one name now nobody can understand, and of the other it says nothing.
    let second = Operator::start(cluster, |peers| {
        peers.refuse("east", RecordKind::Exports, &bad);
        peers.refuse("east", RecordKind::Services, &bad.derived());
    })?;
    world.expect_gone::<ServiceImport>("gone").await?;
    world
        .expect_gone::<Service>(gone.derived().name.as_str())
        .await?;
    second.settled().await?;

    let after: ServiceImport = world.api().get("bad").await?;
    assert_eq!(after.resource_version(), before.resource_version());
    assert_eq!(world.slices(&derived).await?, slices);

    second
        .peers
        .delete_refused("east", RecordKind::Services, &bad.derived());
    world.expect_addresses(&derived, MESH, &[]).await?;
    world.expect_ready("bad").await?;
    second
        .peers
        .delete_refused("east", RecordKind::Exports, &bad);
    world.expect_gone::<ServiceImport>("bad").await?;
    world.expect_gone::<Service>(&derived).await
}

#[tokio::test(flavor = "multi_thread")]
async fn older_definitions_are_updated_and_newer_ones_stay() -> Result<()> {
    let _alone = SECOND_CLUSTER.lock().await;
    let client = Testbed::shared().await?.cluster(1).client();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "serviceimports.multicluster.x-k8s.io";
    crds::install(&client, &Tenure::sole()).await?;
    let relabel = async |release: &str, revision: &str| {
        let patch = json!({ "metadata": { "labels": { keys::CRD_RELEASE: release, keys::CRD_REVISION: revision } } });
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    let release = async || {
        api.get(name)
            .await
            .map(|crd| crd.labels()[keys::CRD_RELEASE].clone())
    };

    relabel("v0.4.1", "7").await?;
    crds::install(&client, &Tenure::sole()).await?;
    assert_eq!(release().await?, "v0.5.2");

    let newer = relabel("v0.6.0", "0").await?;
    crds::install(&client, &Tenure::sole()).await?;
    let after = api.get(name).await?;
    assert_eq!(
        after.metadata.resource_version,
        newer.metadata.resource_version
    );

    relabel("v0.5.2", "0").await?;
    Ok(())
}
