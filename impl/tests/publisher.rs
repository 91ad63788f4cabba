//! The publisher on a real API server and a real etcd.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tombolo::{
    kvstore::{KvStore, config::EtcdConfig, etcd::EtcdStore},
    mesh::publisher::{self, Metrics, Options, View, records::Publishing},
    operator::{crds, leadership::Tenure},
};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::{
    names::ClusterName,
    wire::key::{Resource, canary_key, service_exports_prefix, services_prefix},
};
use tombolo_testbed::{Cluster, Component, PodOptions, Testbed, eventually};

/// How long a condition may take on a busy machine.
const BUDGET: Duration = Duration::from_mins(1);

/// A publisher in this process, at work on one cluster.
struct Running {
    name: ClusterName,
    store: EtcdStore,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), publisher::Error>>,
}

impl Running {
    fn start(cluster: &Cluster) -> Result<Self> {
        let name = ClusterName::try_from(cluster.name())?;
        let store = EtcdStore::new(EtcdConfig::from_urls(&[cluster.mesh_etcd_endpoint()?])?);
        let options = Options {
            publishing: Publishing {
                cluster: name.clone(),
                id: cluster.id().try_into()?,
                default_global_namespace: true,
            },
            max_connected_clusters: 255,
            lease_ttl: Duration::from_mins(1),
            metrics: Metrics::default(),
            view: View::default(),
            gate: None,
        };
        let cancel = CancellationToken::new();
        let run = publisher::run(cluster.client(), store.clone(), options, cancel.clone());
        Ok(Self {
            name,
            store,
            cancel,
            task: tokio::spawn(run),
        })
    }

    async fn stop(self) -> Result<()> {
        self.cancel.cancel();
        Ok(self.task.await??)
    }

    fn service(&self, namespace: &str, name: &str) -> String {
        format!("{}{namespace}/{name}", services_prefix(&self.name, false))
    }

    fn export(&self, namespace: &str, name: &str) -> String {
        format!(
            "{}{namespace}/{name}",
            service_exports_prefix(&self.name, false)
        )
    }

    fn canary(&self, resource: Resource) -> String {
        canary_key(&self.name, resource, false)
    }

    async fn value(&self, key: &str) -> Option<String> {
        let entry = self.store.get(key).await.ok()?.entry?;
        String::from_utf8(entry.value).ok()
    }

    /// Waits until a key holds a text that contains all of these.
    async fn holds(&self, key: &str, texts: &[&str]) -> Result<()> {
        eventually(BUDGET, &format!("{key} holds {texts:?}"), async || {
            let value = self.value(key).await.unwrap_or_default();
            if !value.is_empty() && texts.iter().all(|text| value.contains(text)) {
                return Ok(());
            }
            Err(value)
        })
        .await?;
        Ok(())
    }

    async fn is_gone(&self, key: &str) -> Result<()> {
        eventually(BUDGET, &format!("{key} is gone"), async || {
            match self.store.get(key).await {
                Ok(read) if read.entry.is_none() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        Ok(())
    }
}

fn parsed<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// A global Service `web` with one ready pod; returns the pod's first address.
async fn create_service(cluster: &Cluster, namespace: &str) -> Result<String> {
    let service: Service = parsed(json!({
        "metadata": {"name": "web", "annotations": {"service.cilium.io/global": "true"}},
        "spec": {
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    }))?;
    let api = Api::<Service>::namespaced(cluster.client(), namespace);
    api.create(&PostParams::default(), &service).await?;
    create_pod(cluster, namespace, "web-0").await
}

async fn create_pod(cluster: &Cluster, namespace: &str, name: &str) -> Result<String> {
    let options = PodOptions::default().tcp("http", 8080);
    let pod = cluster
        .fake_pod(namespace, name, &[("app", "web")], options)
        .await?;
    let ip = pod.ips().first().context("a pod has an address")?;
    Ok(ip.to_string())
}

async fn create_export(cluster: &Cluster, namespace: &str) -> Result<()> {
    let export: ServiceExport = parsed(json!({"metadata": {"name": "web"}}))?;
    let api = Api::<ServiceExport>::namespaced(cluster.client(), namespace);
    api.create(&PostParams::default(), &export).await?;
    Ok(())
}

async fn annotate(cluster: &Cluster, namespace: &str, annotations: Value) -> Result<()> {
    let api = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client());
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    api.patch(namespace, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

#[tokio::test]
async fn services_are_published_before_the_kind_of_exports_exists_and_exports_after() -> Result<()>
{
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let namespace = cluster.namespace().await?;
    let address = create_service(cluster, &namespace).await?;
    let running = Running::start(cluster)?;
    let (service, export) = (
        running.service(&namespace, "web"),
        running.export(&namespace, "web"),
    );

    running
        .holds(
            &service,
            &[&address, r#""http":{"Protocol":"TCP","Port":8080}"#],
        )
        .await?;
    running
        .holds(&running.canary(Resource::Services), &[])
        .await?;
    assert_eq!(
        running
            .value(&running.canary(Resource::ServiceExports))
            .await,
        None
    );

    crds::install(&cluster.client(), &Tenure::sole()).await?;
    create_export(cluster, &namespace).await?;
    running
        .holds(&export, &[r#""type":"ClusterSetIP""#, r#""port":80"#])
        .await?;
    running
        .holds(&running.canary(Resource::ServiceExports), &[])
        .await?;

    let second = create_pod(cluster, &namespace, "web-1").await?;
    running.holds(&service, &[&address, &second]).await?;
    annotate(
        cluster,
        &namespace,
        json!({"clustermesh.cilium.io/global": "false"}),
    )
    .await?;
    running.is_gone(&service).await?;
    running.is_gone(&export).await?;
    annotate(
        cluster,
        &namespace,
        json!({"clustermesh.cilium.io/global": null}),
    )
    .await?;
    running.holds(&service, &[&second]).await?;
    running.holds(&export, &[]).await?;
    running.stop().await
}

#[tokio::test]
async fn an_api_server_that_is_away_withdraws_nothing() -> Result<()> {
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    crds::install(&cluster.client(), &Tenure::sole()).await?;
    let namespace = cluster.namespace().await?;
    let address = create_service(cluster, &namespace).await?;
    create_export(cluster, &namespace).await?;
    let running = Running::start(cluster)?;
    let (service, export) = (
        running.service(&namespace, "web"),
        running.export(&namespace, "web"),
    );
    running.holds(&service, &[&address]).await?;
    running
        .holds(&running.canary(Resource::ServiceExports), &[])
        .await?;
    let before = all_records(&running).await?;

    cluster.kill9(Component::ApiServer)?;
    running.stop().await?;
    let running = Running::start(cluster)?;
    eventually(BUDGET, "the next life took everything over", async || {
        let read = running
            .store
            .get(&service)
            .await
            .map_err(|error| error.to_string())?;
        let lease = read.entry.and_then(|entry| entry.lease);
        (lease != before[&service].1)
            .then_some(())
            .ok_or_else(|| format!("{lease:?}"))
    })
    .await?;
    let during = all_records(&running).await?;
    let values = |records: &Records| -> Vec<Vec<u8>> {
        records.values().map(|(value, _)| value.clone()).collect()
    };
    assert_eq!(values(&during), values(&before));

    cluster.restart(Component::ApiServer).await?;
    let exports = Api::<ServiceExport>::namespaced(cluster.client(), &namespace);
    exports.delete("web", &DeleteParams::default()).await?;
    running.is_gone(&export).await?;
    running.holds(&service, &[&address]).await?;
    running.stop().await
}

type Records = BTreeMap<String, (Vec<u8>, Option<tombolo::kvstore::LeaseId>)>;

async fn all_records(running: &Running) -> Result<Records> {
    let mut records = Records::new();
    for prefix in [
        services_prefix(&running.name, false),
        service_exports_prefix(&running.name, false),
    ] {
        let listing = running.store.list(&prefix).await?;
        let entries = listing.entries.into_values();
        records.extend(entries.map(|entry| (entry.key, (entry.value, entry.lease))));
    }
    Ok(records)
}
