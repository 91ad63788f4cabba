//! The definitions of ServiceExport and ServiceImport while the operator runs.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tombolo::operator::{crds, leadership::Tenure};
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_testbed::{Testbed, eventually};

use crate::{
    fake_peers::export_from,
    restart::SECOND_CLUSTER,
    world::{BUDGET, Operator, World},
};

const IMPORTS: &str = "serviceimports.multicluster.x-k8s.io";
const EXPORTS: &str = "serviceexports.multicluster.x-k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_are_deleted_come_back_and_so_do_the_imports() -> Result<()> {
    let _alone = SECOND_CLUSTER.lock().await;
    let cluster = Testbed::shared().await?.cluster(1);
    let world = World::new(cluster).await?;
    let operator = Operator::start(cluster, |peers| {
        peers.export(export_from("east", &world.name("web")));
    })?;
    let before = world.expect_ready("web").await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());

    for name in [IMPORTS, EXPORTS] {
        definitions.delete(name, &DeleteParams::default()).await?;
    }

    let another = |import: &ServiceImport| {
        let ready = crate::world::condition(import).as_deref() == Some("Ready");
        ready && import.uid() != before.uid()
    };
    world
        .expect("web", "the import is there again, and ready", another)
        .await?;
    eventually(BUDGET, "both definitions are there", async || {
        let listed = definitions
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let names: Vec<_> = listed.items.iter().map(ResourceExt::name_any).collect();
        let both = [IMPORTS, EXPORTS]
            .iter()
            .all(|name| names.iter().any(|found| found == name));
        both.then_some(()).ok_or_else(|| format!("{names:?}"))
    })
    .await?;
    operator.stop();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_edited_is_put_right_and_a_good_one_is_not_written() -> Result<()> {
    let _alone = SECOND_CLUSTER.lock().await;
    let cluster = Testbed::shared().await?.cluster(1);
    let client = cluster.client();
    crds::install(&client, &Tenure::sole()).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let installed = definitions.get(IMPORTS).await?;
    crds::install(&client, &Tenure::sole()).await?;
    let again = definitions.get(IMPORTS).await?;
    assert_eq!(again.resource_version(), installed.resource_version());
    let world = World::new(cluster).await?;
    let operator = Operator::start(cluster, |peers| {
        peers.export(export_from("east", &world.name("web")));
    })?;
    world.expect_ready("web").await?;

    let mut edited = installed.spec.clone();
    edited.versions[0].served = false;
    let patch = json!({ "spec": edited, "metadata": { "labels": { keys::CRD_REVISION: null } } });
    definitions
        .patch(IMPORTS, &PatchParams::default(), &Patch::Merge(patch))
        .await?;

    eventually(BUDGET, "the definition is as before", async || {
        let found = definitions
            .get(IMPORTS)
            .await
            .map_err(|error| error.to_string())?;
        let same = found.spec == installed.spec && found.labels() == installed.labels();
        same.then_some(())
            .ok_or_else(|| format!("{:?} {:?}", found.labels(), found.spec))
    })
    .await?;
    operator.stop();
    Ok(())
}
