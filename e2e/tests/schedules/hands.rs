//! Hands that reach into stores and objects.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Namespace, discovery::v1::EndpointSlice};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tombolo_e2e::{
    records::{Records, SERVICES},
    scene::{SETTLE, Scene},
};
use tombolo_testbed::{Component, Role, Testbed, eventually};

use crate::{A, B};

/// How many exports there are when the store is emptied, so that writing them again takes a while.
const EXPORTS: usize = 60;
/// How often the store is emptied.
const TIMES: usize = 3;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Somebody deletes every key of B's store at once, canaries included, while its publisher is at work.
pub(crate) async fn empty_the_store(testbed: &Testbed) -> Result<()> {
    let mut scene = Scene::new(testbed).await?;
    let names: Vec<_> = (0..EXPORTS).map(|n| format!("web-{n}")).collect();
    for name in &names {
        scene.export(B, name).await?;
    }
    scene
        .settled()
        .await
        .context("before the store is emptied")?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let holding = scene.holding(A, &names).await?;
    let mut records = Records::of(testbed.cluster(B)).await?;

    let empty = async {
        for _ in 0..TIMES {
            let deleted = records.delete("cilium/").await?;
            ensure!(deleted > 2, "{deleted} keys");
            let what = "the publisher to write everything again";
            eventually(SETTLE, what, async || {
                let mut records = Records::of(testbed.cluster(B))
                    .await
                    .map_err(|error| format!("{error:#}"))?;
                let keys = records
                    .keys("cilium/")
                    .await
                    .map_err(|error| format!("{error:#}"))?;
                if i64::try_from(keys.len()).is_ok_and(|keys| keys >= deleted) {
                    Ok(())
                } else {
                    Err(format!("{} keys of {deleted}", keys.len()))
                }
            })
            .await?;
        }
        Ok(())
    };
    tokio::try_join!(empty, scene.keeps(&holding))?;
    scene.keeps(&holding).await.context("after the last time")?;

    scene.unexport(B, names[0]).await?;
    scene.settled().await.context("deletions still get through")
}

/// A's namespace is deleted and made anew while B exports into it.
pub(crate) async fn make_a_namespace_anew(testbed: &Testbed) -> Result<()> {
    let scene = Scene::with_exports(testbed, &[(B, "web")]).await?;
    let namespaces: Api<Namespace> = Api::all(testbed.cluster(A).client());

    namespaces
        .delete(scene.namespace(), &DeleteParams::default())
        .await?;
    let what = "the namespace to be gone";
    eventually(SETTLE, what, async || {
        match namespaces.get_opt(scene.namespace()).await {
            Ok(None) => Ok(()),
            Ok(Some(namespace)) => Err(format!("{:?}", namespace.status)),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    testbed
        .cluster(A)
        .create_namespace(scene.namespace())
        .await?;

    scene
        .settled()
        .await
        .context("after the namespace is there again")
}

/// With A's operator dead, somebody changes labels of the slices that it wrote for B's endpoints: A never publishes them.
pub(crate) async fn change_labels_of_slices(testbed: &Testbed) -> Result<()> {
    let mut scene = Scene::with_exports(testbed, &[(B, "web"), (A, "web")]).await?;
    let slices: Api<EndpointSlice> = scene.api(A);
    let imported = ListParams::default().labels(&format!(
        "{MANAGED_BY}=endpointslice-mesh-controller.cilium.io"
    ));
    let of_b = slices.list(&imported).await?.items;
    ensure!(!of_b.is_empty(), "A has no slice of B's endpoints");
    let addresses: Vec<_> = of_b
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .flat_map(|endpoint| endpoint.addresses.clone())
        .collect();

    testbed.cluster(A).kill9(Role::Operator)?;
    for manager in [json!(null), json!("somebody")] {
        for slice in &of_b {
            let patch = json!({"metadata": {"labels": {MANAGED_BY: manager}}});
            slices
                .patch(
                    &slice.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(patch),
                )
                .await?;
        }
        // A change that comes after is published, and B's endpoints are not.
        let pod = if manager.is_null() { "second" } else { "third" };
        let pods = scene.add_pod(A, "web", pod).await;
        pods?;
        testbed.cluster(A).restart(Component::Operator).await?;
        scene.settled().await.context("the operator mends them")?;
        not_published(testbed, &scene, &addresses).await?;
        testbed.cluster(A).kill9(Role::Operator)?;
    }
    testbed.cluster(A).restart(Component::Operator).await?;
    scene.settled().await.context("at the end")
}

async fn not_published(testbed: &Testbed, scene: &Scene<'_>, addresses: &[String]) -> Result<()> {
    let mut records = Records::of(testbed.cluster(A)).await?;
    let prefix = format!("{SERVICES}/a/{}/", scene.namespace());
    for value in records.values(&prefix).await? {
        let published = addresses
            .iter()
            .find(|address| value.contains(&format!("\"{address}\"")));
        ensure!(
            published.is_none(),
            "{published:?} is published by A: {value}"
        );
    }
    Ok(())
}
