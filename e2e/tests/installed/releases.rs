//! Upgrades, rollbacks and uninstalls while clients of both clusters send.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
        discovery::v1::EndpointSlice,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};
use tombolo_e2e::{
    chart::Installation,
    installed::{AUTHORITY, Mesh, objects, values},
    traffic::{self, Traffic, sample},
};
use tombolo_testbed::eventually;

use super::{A, B};

pub(crate) async fn upgraded_and_rolled_back(mesh: &Mesh) -> Result<()> {
    let traffic = mesh.traffic().await?;
    let begin = traffic::now()?;
    let first = mesh.release(A).await?.revision()?;
    for index in [A, B] {
        let release = mesh.release(index).await?;
        let before = uids(&release).await?;
        release.change(&values::that_roll("upgraded"))?;
        mesh.is_well_in(index).await?;
        let after = uids(&release).await?;
        ensure!(
            before.is_disjoint(&after),
            "every pod is another: {after:?}"
        );
    }
    // What was exported before is still imported, and new exports pass from the new pods to the new pods.
    for (index, pod) in [(A, "later-a"), (B, "later-b")] {
        traffic.add(index, pod).await?;
    }
    let release = mesh.release(A).await?;
    let before = uids(&release).await?;
    release.rollback(first)?;
    mesh.is_well().await?;
    let after = uids(&release).await?;
    ensure!(
        before.is_disjoint(&after),
        "every pod is another: {after:?}"
    );
    for index in [A, B] {
        traffic.goes_on(index, 20).await?;
        let samples = traffic.samples(index).await?;
        let samples = sample::since(&samples, begin);
        traffic::all_answered(&format!("cluster {index}"), samples, 100)?;
        println!(
            "cluster {index}: {} requests during upgrades and a rollback, none failed, the slowest took {:?}",
            samples.len(),
            sample::slowest(samples)
        );
    }
    traffic.end().await
}

pub(crate) async fn uninstalled(mesh: &Mesh) -> Result<()> {
    let traffic = mesh.traffic().await?;
    let begin = traffic::now()?;
    let release = mesh.release(A).await?;
    let derived = derived(&release, &traffic).await?;
    let values = release.values()?;
    let authority = release.api::<Secret>().get(AUTHORITY).await?.data;

    release.uninstall()?;
    eventually(traffic::BUDGET, "the pods to be gone", async || {
        let pods = objects::pods(&release).await.map_err(|it| it.to_string())?;
        pods.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{} pods", pods.len()))
    })
    .await?;

    nothing_is_left_but_the_authority(&release).await?;
    let left = self::derived(&release, &traffic).await?;
    ensure!(left == derived, "{left:?} is left of {derived:?}");
    exports_and_imports_are_there(&release, &traffic).await?;
    for index in [A, B] {
        traffic.goes_on(index, 20).await?;
    }
    release.install(&values)?;
    mesh.is_well().await?;
    let again = release.api::<Secret>().get(AUTHORITY).await?.data;
    ensure!(again == authority, "the authority is found again");
    traffic.add(B, "later-b").await?;
    for index in [A, B] {
        let samples = traffic.samples(index).await?;
        let samples = sample::since(&samples, begin);
        traffic::all_answered(&format!("cluster {index}"), samples, 100)?;
    }
    traffic.end().await
}

/// Of the release's namespace and its label everything is gone; the Secret of the authority stays.
async fn nothing_is_left_but_the_authority(release: &Installation<'_>) -> Result<()> {
    let mut left = labelled::<Deployment>(release.api()).await?;
    left.extend(labelled::<Pod>(release.api()).await?);
    left.extend(labelled::<Service>(release.api()).await?);
    left.extend(labelled::<ConfigMap>(release.api()).await?);
    left.extend(labelled::<ServiceAccount>(release.api()).await?);
    left.extend(labelled::<Role>(release.api()).await?);
    left.extend(labelled::<Secret>(release.api()).await?);
    let client = release.cluster().client();
    left.extend(labelled::<ClusterRole>(Api::all(client.clone())).await?);
    left.extend(labelled::<ClusterRoleBinding>(Api::all(client)).await?);
    ensure!(left == [AUTHORITY], "{left:?}");
    Ok(())
}

async fn labelled<K>(api: Api<K>) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let parameters = ListParams::default().labels(objects::LABEL);
    let listed = api.list(&parameters).await?;
    Ok(listed.iter().map(ResourceExt::name_any).collect())
}

/// Derived Services and their slices in the namespace of the traffic, by uid.
async fn derived(release: &Installation<'_>, traffic: &Traffic) -> Result<BTreeSet<String>> {
    let client = release.cluster().client();
    let services = Api::<Service>::namespaced(client.clone(), traffic.namespace());
    let services = services.list(&ListParams::default()).await?;
    let slices = Api::<EndpointSlice>::namespaced(client, traffic.namespace());
    let imported = ListParams::default().labels("multicluster.kubernetes.io/service-name");
    let slices = slices.list(&imported).await?;
    let services = services
        .iter()
        .filter(|it| it.name_any().starts_with("derived-"));
    let mut uids: BTreeSet<_> = services.filter_map(ResourceExt::uid).collect();
    ensure!(uids.len() == 1, "one derived Service: {uids:?}");
    uids.extend(slices.iter().filter_map(ResourceExt::uid));
    ensure!(uids.len() > 2, "slices of both clusters: {uids:?}");
    Ok(uids)
}

async fn exports_and_imports_are_there(
    release: &Installation<'_>,
    traffic: &Traffic,
) -> Result<()> {
    let client = release.cluster().client();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for name in ["serviceexports", "serviceimports"] {
        let name = format!("{name}.multicluster.x-k8s.io");
        definitions.get(&name).await?;
    }
    let exports = Api::<ServiceExport>::namespaced(client.clone(), traffic.namespace());
    exports.get(traffic::SERVICE).await?;
    let imports = Api::<ServiceImport>::namespaced(client, traffic.namespace());
    imports.get(traffic::SERVICE).await?;
    Ok(())
}

async fn uids(release: &Installation<'_>) -> Result<BTreeSet<String>> {
    let pods = objects::pods(release).await?;
    Ok(pods.iter().filter_map(ResourceExt::uid).collect())
}
