//! What the walk-throughs apply and type: manifests, and commands in a pod that asks.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::StatefulSet,
        core::v1::{Pod, Service},
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tombolo_api::v1beta1::{ServiceExport, ServiceExportSpec};
use tombolo_testbed::{CLIENT_IMAGE, Cluster, SERVER_IMAGE, eventually};

/// Longest wait for pods to start, and for names and traffic to follow what was written.
pub(crate) const BUDGET: Duration = Duration::from_mins(1);

/// How many answers in a row show who answers. A wrong server beside the right one is not among so many once in a million.
const ENOUGH: usize = 20;

/// Zone of the ClusterSet.
pub(crate) const CLUSTERSET: &str = "clusterset.local";

/// The pod that asks.
const CLIENT: &str = "client";

/// A set of pods that a shell script runs in; each is ready while `/tmp/ready` is there.
pub(crate) struct Servers<'a> {
    /// Name of the StatefulSet and its Service.
    pub(crate) name: &'a str,
    /// How many.
    pub(crate) replicas: usize,
    /// What they run.
    pub(crate) script: &'a str,
}

/// Starts the pod that asks.
pub(crate) async fn start_client(cluster: &Cluster, namespace: &str) -> Result<()> {
    let script = "exec sleep 100000";
    cluster
        .start_pod(namespace, CLIENT, CLIENT_IMAGE, script)
        .await?;
    Ok(())
}

/// Starts servers and waits until all are ready.
pub(crate) async fn start(
    cluster: &Cluster,
    namespace: &str,
    servers: &Servers<'_>,
) -> Result<Vec<Pod>> {
    let Servers {
        name,
        replicas,
        script,
    } = servers;
    let set = json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
                    "name": "server",
                    "image": SERVER_IMAGE,
                    "command": ["/bin/sh", "-c", format!("touch /tmp/ready; {script}")],
                    "readinessProbe": {
                        "exec": { "command": ["test", "-e", "/tmp/ready"] },
                        "periodSeconds": 1,
                        "failureThreshold": 1,
                    "timeoutSeconds": 10,
                    },
                }]},
            },
        },
    });
    create::<StatefulSet>(cluster, namespace, set).await?;
    let pods = Api::<Pod>::namespaced(cluster.client(), namespace);
    let selector = ListParams::default().labels(&format!("app={name}"));
    let what = format!("{replicas} ready pods of {name}");
    let ready = eventually(BUDGET, &what, async || {
        let pods = pods
            .list(&selector)
            .await
            .map_err(|it| it.to_string())?
            .items;
        let ready = pods.iter().filter(|it| is_ready(it)).count();
        let all = ready == *replicas;
        all.then_some(pods)
            .ok_or_else(|| format!("{ready} of them"))
    });
    Ok(ready.await?)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|it| it.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The addresses of pods.
pub(crate) fn addresses(pods: &[Pod]) -> BTreeSet<IpAddr> {
    let ips = pods
        .iter()
        .flat_map(|it| it.status.iter().flat_map(|it| it.pod_ips.iter().flatten()));
    ips.filter_map(|it| it.ip.parse().ok()).collect()
}

/// Has a pod say that it is ready, or not.
pub(crate) async fn turn(cluster: &Cluster, pod: &Pod, ready: bool) -> Result<()> {
    let program = if ready { "touch" } else { "rm" };
    let namespace = pod.namespace().context("a namespace")?;
    let output = cluster
        .exec(&namespace, &pod.name_any(), &[program, "/tmp/ready"])
        .await?;
    output.success().map_err(anyhow::Error::msg)?;
    Ok(())
}

/// Creates a Service and, under its name, a ServiceExport.
pub(crate) async fn export(cluster: &Cluster, namespace: &str, service: Value) -> Result<()> {
    let name = service["metadata"]["name"]
        .as_str()
        .context("a name")?
        .to_owned();
    create::<Service>(cluster, namespace, service).await?;
    let exports = Api::namespaced(cluster.client(), namespace);
    let export = ServiceExport::new(&name, ServiceExportSpec::default());
    exports.create(&PostParams::default(), &export).await?;
    Ok(())
}

async fn create<K>(cluster: &Cluster, namespace: &str, object: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    let api = Api::<K>::namespaced(cluster.client(), namespace);
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// What is answered at a port of a host, asked from the cluster's client.
pub(crate) async fn ask(
    cluster: &Cluster,
    namespace: &str,
    host: &str,
    port: u16,
) -> Result<String, String> {
    let script = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {host} {port}");
    let output = cluster
        .exec(namespace, CLIENT, &["sh", "-c", &script])
        .await;
    output
        .map_err(|it| it.to_string())?
        .success()
        .map(str::to_owned)
}

/// Asks until these answers, each at least once, and no others come in a row.
pub(crate) async fn answered(
    cluster: &Cluster,
    namespace: &str,
    (host, port): (&str, u16),
    wanted: &[&str],
) -> Result<()> {
    let wanted: BTreeSet<_> = wanted.iter().map(|&it| it.to_owned()).collect();
    let what = format!(
        "{host}:{port} is answered by {wanted:?} in {}",
        cluster.name()
    );
    eventually(BUDGET, &what, async || {
        let mut seen = BTreeSet::new();
        for _ in 0..ENOUGH.max(6 * wanted.len()) {
            seen.insert(ask(cluster, namespace, host, port).await?);
        }
        let same = seen == wanted;
        same.then_some(()).ok_or_else(|| format!("{seen:?}"))
    })
    .await?;
    Ok(())
}

/// The addresses of a name, of both families, by nslookup: the lines `Address:` that follow a line `Name:`. None: no such name.
pub(crate) async fn resolve(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeSet<IpAddr>>, String> {
    let command = ["nslookup", &format!("{name}.")];
    let output = cluster.exec(namespace, CLIENT, &command).await;
    let output = output.map_err(|it| it.to_string())?;
    if output.stdout.contains("NXDOMAIN") {
        return Ok(None);
    }
    let text = output.success()?;
    let answers = text.lines().skip_while(|it| !it.starts_with("Name:"));
    let addresses = answers.filter_map(|it| it.strip_prefix("Address:"));
    let parsed = addresses.map(|it| it.trim().parse().map_err(|_| format!("address {it:?}")));
    parsed.collect::<Result<_, _>>().map(Some)
}

/// Waits until a name has exactly these addresses; none: until it does not exist.
pub(crate) async fn resolves(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    wanted: Option<&BTreeSet<IpAddr>>,
) -> Result<()> {
    let what = format!("{name} is {wanted:?} in {}", cluster.name());
    eventually(BUDGET, &what, async || {
        let seen = resolve(cluster, namespace, name).await?;
        let same = seen.as_ref() == wanted;
        same.then_some(()).ok_or_else(|| format!("{seen:?}"))
    })
    .await?;
    Ok(())
}
