//! Steady traffic through the mesh: an exported Service with a pod in each cluster, and in each cluster a client that opens
//! several new connections per second to the addresses of the import.
//!
//! Servers say their names, so a client's log tells which pod answered which request. Clients run in pods, and write their
//! times in a clock that all share, so nothing of the harness is in the way of a request, nor has to be up for it.

pub mod sample;

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tombolo_api::v1beta1::{ServiceExport, ServiceExportSpec, ServiceImport};
use tombolo_testbed::{CLIENT_IMAGE, Cluster, SERVER_IMAGE, Testbed, eventually};

use self::sample::{Sample, Uptime};

/// Name of the Service, and label of its pods.
pub const SERVICE: &str = "web";
/// Longest wait for traffic to follow what was written.
pub const BUDGET: Duration = Duration::from_mins(2);
/// Name of the client's pod.
const CLIENT: &str = "client";

/// Says its host name to whoever asks.
const SERVER: &str =
    "exec socat TCP6-LISTEN:8080,fork,reuseaddr,ipv6only=0,backlog=128 SYSTEM:hostname";

/// Asks each address about four times per second, each in a loop of its own, and writes a line for each request. `-w` is the time
/// for a connection, and for an answer then.
const ASK: &str = "ask() { while :; do read -r begin _ </proc/uptime; \
                   answer=$(nc -w 10 \"$1\" 80 </dev/null 2>&1); code=$?; \
                   read -r end _ </proc/uptime; \
                   echo \"$begin $end $1 $code $answer\"; sleep 0.2; done; }; ";

/// How many requests show who is in rotation: with three pods behind an address, that one is not asked in any of them
/// has a chance of one in 25,000.
const ENOUGH: usize = 25;

/// An exported Service and its clients.
pub struct Traffic {
    testbed: Arc<Testbed>,
    namespace: String,
}

impl Traffic {
    /// Exports the Service from all clusters, with one pod in each, and starts a client in each; waits until all pods answer
    /// all clients over both families.
    pub async fn start(testbed: Arc<Testbed>) -> Result<Self> {
        let namespace = testbed.namespace().await?;
        let traffic = Self { testbed, namespace };
        let testbed = &traffic.testbed;
        for index in 0..testbed.clusters().len() {
            traffic.export(index).await?;
        }
        let pods: Vec<_> = testbed.clusters().iter().map(pod_of).collect();
        for (cluster, pod) in testbed.clusters().iter().zip(&pods) {
            traffic.start_server(cluster, pod).await?;
        }
        let clients = testbed.clusters().iter();
        try_join_all(clients.map(|cluster| traffic.start_client(cluster))).await?;
        for pod in &pods {
            traffic.answers_everywhere(pod).await?;
        }
        Ok(traffic)
    }

    /// Namespace of all of it.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Adds a pod to the Service of a cluster, and waits until it answers all clients.
    pub async fn add(&self, cluster: usize, pod: &str) -> Result<()> {
        self.start_server(self.testbed.cluster(cluster), pod)
            .await?;
        self.answers_everywhere(pod).await
    }

    /// Takes a pod out of the Service by its label. It answers on, so whoever still sends to it is seen, and no request fails
    /// for it. A pod that is being deleted would do as well inside its cluster, but not for peers: as long as it serves it is in
    /// the mesh's records, which have no word for its state.
    pub async fn retire(&self, cluster: usize, pod: &str) -> Result<()> {
        let cluster = self.testbed.cluster(cluster);
        let pods = Api::<Pod>::namespaced(cluster.client(), &self.namespace);
        let labels = json!({ "metadata": { "labels": { "app": "retired" } } });
        let patched = pods
            .patch(pod, &PatchParams::default(), &Patch::Merge(labels))
            .await;
        patched.with_context(|| format!("take {pod} of {} out", cluster.name()))?;
        Ok(())
    }

    /// Deletes a pod at once.
    pub async fn remove(&self, cluster: usize, pod: &str) -> Result<()> {
        let cluster = self.testbed.cluster(cluster);
        let pods = Api::<Pod>::namespaced(cluster.client(), &self.namespace);
        let parameters = DeleteParams::default().grace_period(0);
        let deleted = pods.delete(pod, &parameters).await;
        deleted.with_context(|| format!("delete {pod} of {}", cluster.name()))?;
        Ok(())
    }

    /// All requests of the client of a cluster.
    pub async fn samples(&self, cluster: usize) -> Result<Vec<Sample>> {
        let cluster = self.testbed.cluster(cluster);
        let pods = Api::<Pod>::namespaced(cluster.client(), &self.namespace);
        let log = pods.logs(CLIENT, &LogParams::default()).await?;
        Ok(Sample::parse_all(&log))
    }

    /// Waits until this pod has not answered any of the last requests of any client; gives the time of its last answer for
    /// each.
    pub async fn is_gone(&self, pod: &str) -> Result<Vec<Option<Uptime>>> {
        let gone = (0..self.testbed.clusters().len()).map(async |index| {
            let begin = now()?;
            let what = format!("{pod} is out of the rotation of cluster {index}");
            let seen = eventually(BUDGET, &what, async || {
                let samples = self.samples(index).await.map_err(|it| format!("{it:#}"))?;
                let last = &samples[samples.len().saturating_sub(ENOUGH)..];
                let later = sample::since(&samples, begin).len();
                match sample::last_answer(last, pod) {
                    None if last.len() == ENOUGH && later > 0 => {
                        Ok(sample::last_answer(&samples, pod))
                    }
                    seen => Err(format!("last answer at {seen:?}")),
                }
            });
            anyhow::Ok(seen.await?)
        });
        try_join_all(gone).await
    }

    /// Waits until the client of a cluster has ended this many requests from now on.
    pub async fn goes_on(&self, cluster: usize, requests: usize) -> Result<()> {
        let begin = now()?;
        let what = format!("{requests} more requests in cluster {cluster}");
        eventually(BUDGET, &what, async || {
            let samples = self.samples(cluster).await;
            let samples = samples.map_err(|it| format!("{it:#}"))?;
            let count = sample::since(&samples, begin).len();
            (count >= requests).then_some(()).ok_or(count.to_string())
        })
        .await?;
        Ok(())
    }

    /// Deletes all of it, without waiting for the namespace to be gone.
    pub async fn end(self) -> Result<()> {
        for cluster in self.testbed.clusters() {
            let exports = Api::<ServiceExport>::namespaced(cluster.client(), &self.namespace);
            exports.delete(SERVICE, &DeleteParams::default()).await?;
            let pods = Api::<Pod>::namespaced(cluster.client(), &self.namespace);
            let now = DeleteParams::default().grace_period(0);
            pods.delete_collection(&now, &ListParams::default()).await?;
        }
        Ok(())
    }

    async fn export(&self, index: usize) -> Result<()> {
        let cluster = self.testbed.cluster(index);
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": SERVICE },
            "spec": {
                "ipFamilyPolicy": "RequireDualStack",
                "selector": { "app": SERVICE },
                "ports": [{ "name": "tcp", "port": 80, "targetPort": 8080 }],
            },
        }))?;
        let create = PostParams::default();
        let services = Api::namespaced(cluster.client(), &self.namespace);
        services.create(&create, &service).await?;
        let exports = Api::namespaced(cluster.client(), &self.namespace);
        let export = ServiceExport::new(SERVICE, ServiceExportSpec::default());
        exports.create(&create, &export).await?;
        Ok(())
    }

    async fn start_server(&self, cluster: &Cluster, pod: &str) -> Result<()> {
        // Ready means that it listens: else it would be sent requests before.
        let probe =
            json!({ "tcpSocket": { "port": 8080 }, "periodSeconds": 1, "timeoutSeconds": 5 });
        let container = json!({ "image": SERVER_IMAGE, "readinessProbe": probe });
        self.start_pod(cluster, (pod, SERVICE), container, SERVER)
            .await
    }

    async fn start_client(&self, cluster: &Cluster) -> Result<()> {
        let imports = Api::<ServiceImport>::namespaced(cluster.client(), &self.namespace);
        let what = format!("an import with two addresses in {}", cluster.name());
        let ips = eventually(BUDGET, &what, async || {
            let import = imports.get_opt(SERVICE).await;
            let import = import.map_err(|it| it.to_string())?;
            let ips = import.and_then(|it| it.spec.ips).unwrap_or_default();
            let both = ips.len() == 2;
            both.then_some(ips.clone())
                .ok_or_else(|| format!("{ips:?}"))
        });
        let loops: Vec<_> = ips.await?.iter().map(|ip| format!("ask {ip} &")).collect();
        let script = format!("{ASK}{} wait", loops.join(" "));
        let container = json!({ "image": CLIENT_IMAGE });
        self.start_pod(cluster, (CLIENT, CLIENT), container, &script)
            .await
    }

    /// Starts a pod with this name and label `app`, and waits until it is ready.
    async fn start_pod(
        &self,
        cluster: &Cluster,
        (name, app): (&str, &str),
        mut container: Value,
        script: &str,
    ) -> Result<()> {
        container["name"] = json!("main");
        container["command"] = json!(["/bin/sh", "-c", script]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": app } },
            "spec": { "containers": [container] },
        }))?;
        let pods = Api::<Pod>::namespaced(cluster.client(), &self.namespace);
        pods.create(&PostParams::default(), &pod).await?;
        let what = format!("pod {name} of {} is ready", cluster.name());
        eventually(BUDGET, &what, async || {
            let pod = pods.get(name).await.map_err(|it| it.to_string())?;
            is_ready(&pod)
                .then_some(())
                .ok_or_else(|| format!("{:?}", pod.status))
        })
        .await?;
        Ok(())
    }

    async fn answers_everywhere(&self, pod: &str) -> Result<()> {
        for (index, cluster) in self.testbed.clusters().iter().enumerate() {
            let begin = now()?;
            let what = format!(
                "{pod} answers the client of {} over both families",
                cluster.name()
            );
            eventually(BUDGET, &what, async || {
                let samples = self.samples(index).await.map_err(|it| format!("{it:#}"))?;
                let own: Vec<_> = sample::since(&samples, begin)
                    .iter()
                    .filter(|it| it.answer == pod)
                    .collect();
                let both = [false, true]
                    .iter()
                    .all(|v6| own.iter().any(|it| it.host.contains(':') == *v6));
                both.then_some(()).ok_or_else(|| {
                    format!("{:?}", samples.iter().rev().take(4).collect::<Vec<_>>())
                })
            })
            .await?;
        }
        Ok(())
    }
}

/// The pod that every cluster has from the beginning.
pub fn pod_of(cluster: &Cluster) -> String {
    format!("{SERVICE}-{}", cluster.name())
}

/// The time, in the clock of the clients.
pub fn now() -> Result<Uptime> {
    let text = fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    let word = text.split(' ').next().unwrap_or_default();
    sample::uptime(word).with_context(|| format!("/proc/uptime: {text}"))
}

/// Fails when one of these requests was not answered, and when there are fewer than `least`.
pub fn all_answered(whose: &str, samples: &[Sample], least: usize) -> Result<()> {
    let failed = sample::failures(samples);
    ensure!(
        failed.is_empty(),
        "{} of {} requests of {whose} failed, the first of them: {:?}",
        failed.len(),
        samples.len(),
        &failed[..failed.len().min(3)]
    );
    let count = samples.len();
    ensure!(
        count >= least,
        "{whose} made {count} requests only, {least} were expected"
    );
    Ok(())
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|it| it.type_ == "Ready" && it.status == "True")
}
