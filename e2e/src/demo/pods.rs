//! Pods of the demo: fake ones beside control planes alone; on nodes real ones, which answer, and one in each cluster that asks.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;
use tombolo_testbed::{CLIENT_IMAGE, Cluster, FakePod, PodOptions, SERVER_IMAGE, eventually};

use super::story::{NAMESPACE, PATIENCE, SERVICE};

/// The pod that asks.
const CLIENT: &str = "client";

/// Says which pod it is to whoever asks. While the file is there the pod is ready.
const SERVER: &str =
    r"touch /tmp/ready; exec socat TCP6-LISTEN:8080,fork,reuseaddr,ipv6only=0 SYSTEM:'echo $POD'";

/// A pod behind the Service.
pub(super) enum Server<'t> {
    /// Nothing runs.
    Fake(Box<FakePod<'t>>),
    /// It answers.
    Real {
        /// Where it is.
        cluster: &'t Cluster,
        /// Its name.
        name: String,
    },
}

impl<'t> Server<'t> {
    /// Adds one; a real one if pods run there, which is not ready yet.
    pub(super) async fn start(cluster: &'t Cluster, name: &str, runs: bool) -> Result<Self> {
        if !runs {
            let (labels, options) = ([("app", SERVICE)], PodOptions::default());
            let pod = cluster.fake_pod(NAMESPACE, name, &labels, options).await?;
            return Ok(Self::Fake(Box::new(pod)));
        }
        let ready = ["test", "-e", "/tmp/ready"];
        let said = format!("{name} of {}", cluster.name());
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": SERVICE } },
            "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "server",
                "image": SERVER_IMAGE,
                "command": ["/bin/sh", "-c", SERVER],
                "env": [{ "name": "POD", "value": said }],
                "readinessProbe": { "exec": { "command": ready }, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10 },
            }]},
        }))?;
        let pods = Api::<Pod>::namespaced(cluster.client(), NAMESPACE);
        // No pod is taken before the namespace has its ServiceAccount.
        eventually(PATIENCE, "the pod to be taken", async || {
            match pods.create(&PostParams::default(), &pod).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                other => other.map(drop).map_err(|error| error.to_string()),
            }
        })
        .await?;
        Ok(Self::Real {
            cluster,
            name: name.to_owned(),
        })
    }

    /// Has it say that it is ready, or not.
    pub(super) async fn set_ready(&self, ready: bool) -> Result<()> {
        match self {
            Self::Fake(pod) => pod.set_ready(ready).await?,
            Self::Real { cluster, name } => {
                let program = if ready { "touch" } else { "rm" };
                let command = [program, "/tmp/ready"];
                let output = cluster.exec(NAMESPACE, name, &command).await?;
                output.success().map_err(anyhow::Error::msg)?;
            }
        }
        Ok(())
    }
}

/// Starts the pod that asks, and waits until it is ready.
pub(super) async fn start_client(cluster: &Cluster) -> Result<()> {
    let script = "exec sleep 100000";
    cluster
        .start_pod(NAMESPACE, CLIENT, CLIENT_IMAGE, script)
        .await?;
    Ok(())
}

/// Name of the Service in the ClusterSet's zone.
pub(super) fn name() -> String {
    format!("{SERVICE}.{NAMESPACE}.svc.clusterset.local")
}

/// Asks the Service by its name in the ClusterSet so many times; who answered how often. Silence counts for nobody.
pub(super) async fn ask(cluster: &Cluster, times: usize) -> Result<BTreeMap<String, usize>> {
    let script = format!(
        "i=0; while [ $i -lt {times} ]; do nc -w 2 {} 80 </dev/null; i=$((i+1)); done; true",
        name()
    );
    let command = ["sh", "-c", &script];
    let output = cluster.exec(NAMESPACE, CLIENT, &command).await?;
    let text = output.success().map_err(anyhow::Error::msg)?;
    let mut answers = BTreeMap::new();
    for line in text.lines() {
        *answers.entry(line.to_owned()).or_default() += 1;
    }
    Ok(answers)
}
