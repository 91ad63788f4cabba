//! A pod of one cluster reaches what the other exports, by address and by name, and no more when pods are cut apart.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use tombolo_api::v1beta1::{ServiceExport, ServiceExportSpec, ServiceImport};
use tombolo_testbed::{CLIENT_IMAGE, Cluster, SERVER_IMAGE, Testbed, eventually};

/// Longest wait for traffic to follow what was written.
const BUDGET: Duration = Duration::from_mins(1);

/// Says its host name to whoever asks.
const SERVER: &str = "exec socat TCP6-LISTEN:8080,fork,reuseaddr,ipv6only=0 SYSTEM:hostname";

pub(crate) async fn reached(testbed: &Testbed) -> Result<()> {
    let namespace = testbed.namespace().await?;
    let [a, b] = [testbed.cluster(0), testbed.cluster(1)];
    export(a, &namespace, "pod-of-a").await?;
    b.start_pod(&namespace, "client", CLIENT_IMAGE, "exec sleep 100000")
        .await?;
    let mut hosts = import_ips(b, &namespace).await?;
    hosts.push(format!("web.{namespace}.svc.clusterset.local"));

    for host in &hosts {
        answered_by(b, &namespace, host, &["pod-of-a"]).await?;
    }

    // Behind one address are the pods of both, once both export.
    export(b, &namespace, "pod-of-b").await?;
    for host in &hosts {
        answered_by(b, &namespace, host, &["pod-of-a", "pod-of-b"]).await?;
    }

    // Pods that cannot be reached are not known to be dead: the mesh still reads the peer.
    b.cut_pods(a).await?;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(b.client(), &namespace);
    let now = DeleteParams::default().grace_period(0);
    pods.delete("pod-of-b", &now).await?;
    silent(b, &namespace, &hosts[0]).await?;
    b.heal_pods(a).await?;
    for host in &hosts {
        answered_by(b, &namespace, host, &["pod-of-a"]).await?;
    }
    Ok(())
}

/// A Service with one pod, exported.
async fn export(cluster: &Cluster, namespace: &str, pod: &str) -> Result<()> {
    cluster
        .start_pod(namespace, pod, SERVER_IMAGE, SERVER)
        .await?;
    let service: Service = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "web" },
        "spec": {
            "ipFamilyPolicy": "RequireDualStack",
            "selector": { "app": pod },
            "ports": [{ "name": "tcp", "port": 80, "targetPort": 8080 }],
        },
    }))?;
    let services = Api::namespaced(cluster.client(), namespace);
    services.create(&PostParams::default(), &service).await?;
    let exports = Api::namespaced(cluster.client(), namespace);
    let export = ServiceExport::new("web", ServiceExportSpec::default());
    exports.create(&PostParams::default(), &export).await?;
    Ok(())
}

/// The addresses of the import, of both families.
async fn import_ips(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let imports = Api::<ServiceImport>::namespaced(cluster.client(), namespace);
    let ips = eventually(BUDGET, "an import with two addresses", async || {
        let import = imports.get_opt("web").await.map_err(|it| it.to_string())?;
        let ips = import.and_then(|it| it.spec.ips).unwrap_or_default();
        let both = ips.len() == 2;
        both.then_some(ips.clone())
            .ok_or_else(|| format!("{ips:?}"))
    });
    ips.await.context("of b")
}

/// Asks until each of these pods has answered, and no other has since.
async fn answered_by(cluster: &Cluster, namespace: &str, host: &str, pods: &[&str]) -> Result<()> {
    let expected: BTreeSet<_> = pods.iter().map(|&it| it.to_owned()).collect();
    let what = format!("{host} is answered by {pods:?}");
    eventually(BUDGET, &what, async || {
        let mut answers = BTreeSet::new();
        for _ in 0..8 {
            answers.insert(ask(cluster, namespace, host).await?);
        }
        let right = answers == expected;
        right.then_some(()).ok_or_else(|| format!("{answers:?}"))
    })
    .await?;
    Ok(())
}

async fn silent(cluster: &Cluster, namespace: &str, host: &str) -> Result<()> {
    eventually(BUDGET, "no answer while pods are cut apart", async || {
        ask(cluster, namespace, host).await.map_or(Ok(()), Err)
    })
    .await?;
    let again = ask(cluster, namespace, host).await;
    ensure!(again.is_err(), "{again:?}");
    Ok(())
}

/// What the pod behind a host says, asked from the client's pod.
async fn ask(cluster: &Cluster, namespace: &str, host: &str) -> Result<String, String> {
    let script = format!("nc -w 2 {host} 80 </dev/null");
    let command = ["sh", "-c", &script];
    let output = cluster.exec(namespace, "client", &command).await;
    output
        .map_err(|it| it.to_string())?
        .success()
        .map(str::to_owned)
}
