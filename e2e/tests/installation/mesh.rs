//! Two clusters with the chart each, their pods' processes started as a kubelet would.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Pod, Secret, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tombolo_e2e::{
    chart::{Helm, Installation, Site, helm::NAMESPACE, site::etcd_address},
    scene::{SETTLE, Scene},
    view::conditions,
};
use tombolo_testbed::{Role, Testbed, eventually};

use super::{A, B};

/// Time for the API server's controllers to make pods of Deployments.
const PODS: Duration = Duration::from_mins(1);

pub(crate) async fn of_two_installations(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, None).await?;
    let authority = a.release.api::<Secret>().get("tombolo-ca").await?;
    let b = install(testbed, &helm, B, Some(authority)).await?;
    for site in [&a, &b] {
        pods_are_admitted(site).await?;
        site.start_etcd().await?;
    }
    // A mesh role waits for the definitions that the operators install, its peer's too.
    tokio::try_join!(
        a.start_mesh(),
        b.start_mesh(),
        a.start_operator(),
        b.start_operator(),
    )?;

    let mut scene = Scene::new(testbed).await?;
    scene.export(A, "web").await?;
    scene.export(B, "shop").await?;
    for (cluster, name) in [(A, "web"), (A, "shop"), (B, "web"), (B, "shop")] {
        scene.import_settled(cluster, name).await?;
    }
    for (cluster, name) in [(A, "web"), (B, "shop")] {
        let what = format!("the export {name} to be valid");
        eventually(SETTLE, &what, async || {
            let objects = scene.objects(cluster).await;
            let view = objects.map_err(|error| format!("{error:#}"))?;
            let seen = view.view(BTreeSet::new()).exports.remove(name);
            if seen == Some(conditions("True", "False")) {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await?;
    }
    scene.add_pod(A, "web", "second").await?;
    scene.import_settled(B, "web").await?;
    tells_in_an_event(&a, scene.namespace()).await?;
    scene.unexport(A, "web").await?;
    scene.import_gone(B, "web").await?;
    for site in [&a, &b] {
        site.is_well().await?;
        nothing_was_forbidden(site)?;
        accounts_read_no_secrets(site).await?;
    }
    Ok(())
}

/// Installs the chart in one of the clusters, with the other as its peer.
async fn install<'t>(
    testbed: &'t Testbed,
    helm: &'t Helm,
    index: usize,
    authority: Option<Secret>,
) -> Result<Site<'t>> {
    let cluster = testbed.cluster(index);
    let release = Installation::prepare(helm, cluster).await?;
    let shared = authority.is_some();
    if let Some(mut secret) = authority {
        // As `kubectl get -o yaml | kubectl create` gives it over.
        secret.metadata.uid = None;
        secret.metadata.resource_version = None;
        secret.metadata.managed_fields = None;
        let created = release.api().create(&PostParams::default(), &secret).await;
        created.context("the authority is copied")?;
    }
    let peer = testbed.cluster(1 - index);
    let (name, id) = (cluster.name(), cluster.id());
    let (other, port_of_other) = (peer.name(), etcd_address(peer)?.port());
    let notes = release.install(&format!(
        "cluster: {{name: {name}, id: {id}}}\nclustermesh:\n  config:\n    clusters: \
         [{{name: {other}, ips: [127.0.0.1], port: {port_of_other}}}]\n  \
         apiserver: {{tls: {{authMode: cluster}}}}\n"
    ))?;
    ensure!(notes.contains(&format!("Peers:\n\n  {other}\n")), "{notes}");
    let site = Site::of(testbed, release)?;
    ensure!(site.manifests.get("Secret", "tombolo-ca").is_some() || shared);
    Ok(site)
}

/// The namespace takes only pods that can do no harm.
async fn pods_are_admitted(site: &Site<'_>) -> Result<()> {
    let pods = site.release.api::<Pod>();
    eventually(PODS, "the pods of both roles to be made", async || {
        let params = ListParams::default().labels("app.kubernetes.io/name=tombolo");
        let listed = pods
            .list(&params)
            .await
            .map_err(|error| error.to_string())?;
        let names: Vec<_> = listed.iter().map(ResourceExt::name_any).collect();
        let count = |role: &str| names.iter().filter(|name| name.contains(role)).count();
        if (count("operator"), count("mesh")) == (2, 1) {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await?;
    Ok(())
}

/// An Event is made about a Service that no endpoints of peers are written for.
async fn tells_in_an_event(site: &Site<'_>, namespace: &str) -> Result<()> {
    let service = serde_json::from_value(json!({
        "metadata": {"name": "withheld", "annotations": {
            "service.cilium.io/global": "true",
            "service.cilium.io/global-sync-endpoint-slices": "false",
        }},
        "spec": {"ports": [{"port": 80}]},
    }))?;
    let client = site.cluster().client();
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    services.create(&PostParams::default(), &service).await?;
    let events: Api<Event> = Api::namespaced(client, namespace);
    eventually(SETTLE, "an Event about the Service", async || {
        let listed = events.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let reasons: Vec<_> = listed.iter().map(|event| event.reason.clone()).collect();
        let told = reasons
            .iter()
            .any(|it| it.as_deref() == Some("RemoteEndpointsWithheld"));
        told.then_some(()).ok_or_else(|| format!("{reasons:?}"))
    })
    .await?;
    Ok(())
}

fn nothing_was_forbidden(site: &Site<'_>) -> Result<()> {
    for (component, log) in site.cluster().logs()? {
        if ![Role::Mesh, Role::Operator]
            .map(Into::into)
            .contains(&component)
        {
            continue;
        }
        let text = fs::read_to_string(&log)?;
        ensure!(text.lines().count() > 3, "{component} logs");
        let told = text
            .lines()
            .find(|line| line.to_lowercase().contains("forbidden"));
        ensure!(told.is_none(), "{component}: {told:?}");
    }
    Ok(())
}

async fn accounts_read_no_secrets(site: &Site<'_>) -> Result<()> {
    for name in ["tombolo-operator", "tombolo-mesh"] {
        let client = site.account(name).await?.client;
        for namespace in ["kube-system", "default", NAMESPACE] {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            let (listed, read) = (
                secrets.list(&ListParams::default()).await.map(drop),
                secrets.get("tombolo-ca").await.map(drop),
            );
            for answer in [listed, read] {
                ensure!(is_forbidden(&answer), "{name} in {namespace}: {answer:?}");
            }
        }
        let everywhere: Api<Secret> = Api::all(client);
        let answer = everywhere.list(&ListParams::default()).await.map(drop);
        ensure!(is_forbidden(&answer), "{name}: {answer:?}");
    }
    Ok(())
}

fn is_forbidden(answer: &Result<(), kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
}
