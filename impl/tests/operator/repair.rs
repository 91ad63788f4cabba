//! Objects that are deleted and made again, and objects of ours that somebody edits.

use anyhow::{Context, Result};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Resource, ResourceExt, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_testbed::eventually;

use crate::{
    fake_peers::{export_from, service_from},
    world::{BUDGET, Operator, World, cluster_ip, condition, shared},
};

const SERVICE: &str = "{metadata: {name: web}, spec: {ports: [{name: http, port: 80}]}}";
const EXPORT: &str = "{metadata: {name: web}, spec: {exportedLabels: {team: pay}}}";
const SLICE: &str = "
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.9.0.1]}]
";
const LOCAL: &[&str] = &["10.9.0.1"];
const REMOTE: &[&str] = &["10.1.0.1"];

/// `web`, exported here and by `east`, with an endpoint in each.
struct Web {
    world: World,
    operator: &'static Operator,
    derived: String,
}

impl Web {
    async fn new() -> Result<Self> {
        let (world, operator) = shared().await?;
        let name = world.name("web");
        operator.peers.export(export_from("east", &name));
        operator
            .peers
            .serve(service_from("east", &name.derived(), REMOTE));
        world.create::<Service>(SERVICE).await?;
        world.create::<EndpointSlice>(SLICE).await?;
        world.create::<ServiceExport>(EXPORT).await?;
        let derived = name.derived().name.to_string();
        let web = Self {
            world,
            operator,
            derived,
        };
        web.expect_whole().await?;
        Ok(web)
    }

    async fn expect_clusters(&self, expected: &[&str]) -> Result<ServiceImport> {
        let is = |import: &ServiceImport| {
            let status = import.status.clone().unwrap_or_default();
            let clusters = status.clusters.unwrap_or_default();
            clusters
                .iter()
                .map(|row| row.cluster.as_str())
                .eq(expected.iter().copied())
                && condition(import).as_deref() == Some("Ready")
        };
        let what = format!("{expected:?} export it");
        self.world.expect("web", &what, is).await
    }

    async fn expect_local(&self, addresses: &[&str]) -> Result<Vec<EndpointSlice>> {
        self.world
            .expect_addresses(&self.derived, keys::MANAGED_BY_MIRROR, addresses)
            .await
    }

    async fn expect_remote(&self, addresses: &[&str]) -> Result<Vec<EndpointSlice>> {
        self.world
            .expect_addresses(&self.derived, keys::MANAGED_BY_MESH, addresses)
            .await
    }

    async fn expect_valid(&self, reason: &str) -> Result<()> {
        let is = |export: &ServiceExport| {
            let status = export.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition.type_ == "Valid" && condition.reason == reason)
        };
        self.world
            .expect("web", &format!("Valid: {reason}"), is)
            .await?;
        Ok(())
    }

    /// Import, derived Service and slices are all there and agree.
    async fn expect_whole(&self) -> Result<()> {
        self.expect_valid("Valid").await?;
        self.expect_clusters(&["a", "east"]).await?;
        self.expect_local(LOCAL).await?;
        self.expect_remote(REMOTE).await?;
        eventually(
            BUDGET,
            "the import has the IP of its derived Service, which it owns",
            async || {
                let (import, service) = self.pair().await.map_err(|error| error.to_string())?;
                let ips = import.spec.ips.clone().unwrap_or_default();
                let owners = service.owner_references();
                let agree = cluster_ip(&service).as_slice() == ips
                    && owners
                        .iter()
                        .any(|owner| Some(&owner.uid) == import.uid().as_ref());
                agree
                    .then_some(())
                    .ok_or_else(|| format!("{ips:?} {service:?}"))
            },
        )
        .await?;
        Ok(())
    }

    async fn pair(&self) -> Result<(ServiceImport, Service)> {
        let import = self.world.api::<ServiceImport>().get("web").await?;
        let service = self.world.api::<Service>().get(&self.derived).await?;
        Ok((import, service))
    }

    /// Deletes an object of ours, and waits until there is another in its place.
    async fn lose<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let before = self.world.api::<K>().get(name).await?.uid();
        self.world.delete::<K>(name).await?;
        let another =
            |object: &K| object.uid() != before && object.meta().deletion_timestamp.is_none();
        self.world
            .expect(name, "it was made again", another)
            .await?;
        self.expect_whole().await
    }

    /// Edits an object of ours, and waits until it says what it said before.
    async fn edit<K>(&self, name: &str, patch: Value) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let facts = |object: &K| {
            let mut facts = json!(object);
            let metadata = facts["metadata"]
                .as_object_mut()
                .cloned()
                .unwrap_or_default();
            let said = ["labels", "annotations", "ownerReferences"];
            facts["metadata"] = json!(said.map(|key| metadata.get(key).cloned()));
            facts
        };
        let before = facts(&self.world.api::<K>().get(name).await?);
        let edited = self.world.merge::<K>(name, patch.clone()).await?;
        anyhow::ensure!(facts(&edited) != before, "{patch} changes nothing");
        let restored = |object: &K| facts(object) == before;
        self.world
            .expect(
                name,
                &format!("{} {name} is as before {patch}", K::kind(&())),
                restored,
            )
            .await
            .with_context(|| format!("it was {before}"))?;
        self.expect_whole().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_deletes_takes_its_part_away_and_brings_it_back() -> Result<()> {
    let web = Web::new().await?;
    let world = &web.world;

    world.delete::<Service>("web").await?;
    web.expect_valid("NoService").await?;
    web.expect_clusters(&["east"]).await?;
    web.expect_local(&[]).await?;
    world.create::<Service>(SERVICE).await?;
    web.expect_whole().await?;

    world.delete::<ServiceExport>("web").await?;
    web.expect_clusters(&["east"]).await?;
    web.expect_local(&[]).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    web.expect_whole().await?;

    world.delete::<EndpointSlice>("web-1").await?;
    web.expect_local(&[]).await?;
    world.create::<EndpointSlice>(SLICE).await?;
    web.expect_whole().await?;

    let name = world.name("web");
    web.operator.peers.withdraw("east", &name);
    web.expect_clusters(&["a"]).await?;
    web.operator.peers.export(export_from("east", &name));
    web.expect_whole().await?;

    web.operator.peers.unserve("east", &name.derived());
    web.expect_remote(&[]).await?;
    web.operator
        .peers
        .serve(service_from("east", &name.derived(), REMOTE));
    web.expect_whole().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ours_is_made_again_when_somebody_deletes_it() -> Result<()> {
    let web = Web::new().await?;
    let mirrored = web.expect_local(LOCAL).await?[0].name_any();
    let remote = web.expect_remote(REMOTE).await?[0].name_any();

    web.lose::<EndpointSlice>(&mirrored).await?;
    web.lose::<EndpointSlice>(&remote).await?;
    web.lose::<Service>(&web.derived).await?;
    web.lose::<ServiceImport>("web").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ours_is_put_right_when_somebody_edits_it() -> Result<()> {
    let web = Web::new().await?;
    let mirrored = web.expect_local(LOCAL).await?[0].name_any();
    let remote = web.expect_remote(REMOTE).await?[0].name_any();

    for patch in [
        json!({ "metadata": { "labels": { "stray": "1", "team": "x" }, "annotations": { "stray": "1", keys::GLOBAL: "false" } } }),
        json!({ "metadata": { "labels": { keys::SERVICE_NAME: null }, "annotations": { keys::DERIVED_SERVICE: null } } }),
        json!({ "metadata": { "ownerReferences": [] } }),
        json!({ "spec": { "selector": { "app": "other" } } }),
        json!({ "spec": { "ports": [{ "name": "other", "port": 81 }] } }),
        json!({ "spec": { "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose" } }),
        // As long as these stand, the API server refuses every other type.
        json!({ "metadata": { "annotations": { "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8" } },
                "spec": { "type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local" } }),
    ] {
        web.edit::<Service>(&web.derived, patch).await?;
    }
    for slice in [&mirrored, &remote] {
        for patch in [
            json!({ "metadata": { "labels": { "stray": "1", keys::SOURCE_CLUSTER: "west" } } }),
            json!({ "metadata": { "annotations": { keys::LOCAL_SLICE: "other" } } }),
            json!({ "metadata": { "labels": { keys::MANAGED_BY: null, keys::KUBERNETES_SERVICE_NAME: "other" } } }),
            json!({ "metadata": { "ownerReferences": [] } }),
            json!({ "endpoints": [{ "addresses": ["10.66.0.1"] }] }),
            json!({ "ports": [] }),
        ] {
            web.edit::<EndpointSlice>(slice, patch).await?;
        }
    }
    for patch in [
        json!({ "spec": { "ips": ["192.0.2.1"], "type": "Headless" } }),
        json!({ "spec": { "ports": [], "sessionAffinity": "ClientIP" } }),
        json!({ "metadata": { "annotations": { keys::DERIVED_SERVICE: "other", keys::SUPPORTED_IP_FAMILIES: "" } } }),
    ] {
        web.edit::<ServiceImport>("web", patch).await?;
    }
    Ok(())
}
