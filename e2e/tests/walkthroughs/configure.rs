//! `tombolo dns configure` on a real CoreDNS that knows nothing of the ClusterSet: from there to answers, and back.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, rbac::v1::ClusterRole};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tombolo_testbed::{Cluster, ExecOutput, Testbed, eventually, tombolo};

use super::pods::{BUDGET, CLUSTERSET, resolve, start_client};

/// As kubeadm writes it, with what the CoreDNS of provider `local` has of plugins: not `reload`, so that it is restarted.
const STOCK: &str = "\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 5
    }
    cache 30
}
";

pub(crate) async fn from_nothing(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);
    let namespace = cluster.namespace().await?;
    start_client(cluster, &namespace).await?;
    let before = knows_nothing(cluster).await?;
    let version = format!("dns-version.{CLUSTERSET}");
    eventually(BUDGET, "the zone is gone", async || {
        // Without the plugin forward CoreDNS says SERVFAIL to names of other zones.
        match resolve(cluster, &namespace, &version).await {
            Ok(Some(it)) => Err(format!("{it:?}")),
            Ok(None) | Err(_) => Ok(()),
        }
    })
    .await?;
    let binary = tombolo().await?;
    let pods = deployments(cluster).get("coredns").await?;
    let pods = pods.spec.replicas.unwrap_or(1);

    let check = run(cluster, &binary, &["--check"]).await?;
    ensure!(
        check.code == Some(1) && check.stderr.contains("may not list and watch"),
        "{check:?}"
    );
    let done = run(cluster, &binary, &[]).await?;
    ensure!(done.code == Some(0), "{done:?}");
    ensure!(done.stdout.contains("restarted CoreDNS"), "{done:?}");
    ensure!(
        done.stdout.contains(&format!(
            "all pods of CoreDNS ({pods}) answer in clusterset.local"
        )),
        "{done:?}"
    );
    let check = run(cluster, &binary, &["--check"]).await?;
    ensure!(check.code == Some(0), "{check:?}");

    let undone = run(cluster, &binary, &["--undo"]).await?;
    ensure!(undone.code == Some(0), "{undone:?}");
    ensure!(
        undone
            .stdout
            .contains(&format!("no pod of CoreDNS ({pods} asked) serves")),
        "{undone:?}"
    );
    let configs = Api::<ConfigMap>::namespaced(cluster.client(), "kube-system");
    let data = configs.get("coredns").await?.data.unwrap_or_default();
    ensure!(data["Corefile"] == STOCK, "{data:?}");

    // As it was for the others.
    restore(cluster, &before).await
}

/// Takes zone and right from CoreDNS; gives what it had.
async fn knows_nothing(cluster: &Cluster) -> Result<[Value; 2]> {
    let configs = Api::<ConfigMap>::namespaced(cluster.client(), "kube-system");
    let roles = Api::<ClusterRole>::all(cluster.client());
    let data = configs.get("coredns").await?.data;
    let granted = roles.get("system:coredns").await?.rules;
    let granted = serde_json::to_value(granted)?;
    let kept = granted.as_array().context("rules")?.iter();
    let kept: Vec<_> = kept
        .filter(|it| it["apiGroups"] != json!(["multicluster.x-k8s.io"]))
        .collect();
    let stock = [
        json!({ "data": { "Corefile": STOCK } }),
        json!({ "rules": kept }),
    ];
    restore(cluster, &stock).await?;
    Ok([json!({ "data": data }), json!({ "rules": granted })])
}

/// Writes Corefile and rights, and restarts CoreDNS, which may not look for changes by itself.
async fn restore(cluster: &Cluster, [config, role]: &[Value; 2]) -> Result<()> {
    let merge = PatchParams::default();
    let roles = Api::<ClusterRole>::all(cluster.client());
    roles
        .patch("system:coredns", &merge, &Patch::Merge(role))
        .await?;
    let configs = Api::<ConfigMap>::namespaced(cluster.client(), "kube-system");
    configs
        .patch("coredns", &merge, &Patch::Merge(config))
        .await?;
    let deployments = deployments(cluster);
    deployments.restart("coredns").await?;
    eventually(BUDGET, "CoreDNS is rolled out", async || {
        let deployment = deployments
            .get("coredns")
            .await
            .map_err(|it| it.to_string())?;
        let wanted = deployment.spec.replicas.or(Some(1));
        let status = deployment.status.unwrap_or_default();
        let seen = status.observed_generation >= deployment.metadata.generation;
        let done = seen
            && status.updated_replicas == wanted
            && status.replicas == wanted
            && status.available_replicas == wanted;
        done.then_some(()).ok_or_else(|| format!("{status:?}"))
    })
    .await?;
    Ok(())
}

fn deployments(cluster: &Cluster) -> Api<Deployment> {
    Api::namespaced(cluster.client(), "kube-system")
}

/// Runs the command from where the API server is reached.
async fn run(cluster: &Cluster, binary: &Path, flags: &[&str]) -> Result<ExecOutput> {
    let kubeconfig = cluster.kubeconfig()?.display().to_string();
    let command = ["dns", "configure", "--kubeconfig", &kubeconfig];
    Ok(cluster.run(binary, &[&command[..], flags].concat()).await?)
}
