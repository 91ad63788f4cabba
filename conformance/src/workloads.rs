//! Pods that run: one to ask from in every cluster, and servers behind the Service. They need nodes that run images.
//!
//! The images are those of the upstream suite, so that clusters that were prepared for it need nothing more.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::{
    case::{Failure, Outcome},
    context::Context,
    expect::Seen,
    objects::HELLO,
};

/// The pod that asks.
pub const REQUEST: &str = "request";

/// Image of the pod that asks: nc, as of OpenBSD.
const REQUEST_IMAGE: &str = "nicolaka/netshoot:v0.15";

/// Image of servers: socat and a shell.
const SERVER_IMAGE: &str = "alpine/socat:1.7.4.4";

/// Says which pod it is to whoever asks, after the question was read (what is left unread makes a reset of the end), on ports 42 of TCP and UDP and on 43 of both, in each family that the pod has. While the
/// file is there the pod is ready.
const SERVER: &str = r#"
touch /tmp/ready
case "$POD_IPS" in
*:*) tcp=TCP6 udp=UDP6 more=,ipv6only=0 ;;
*) tcp=TCP4 udp=UDP4 more= ;;
esac
for port in 42 43; do
    socat "$tcp-LISTEN:$port,fork,reuseaddr$more" "SYSTEM:read line; echo $port pod ip \$POD_IP" &
    socat "$udp-LISTEN:$port,fork,reuseaddr$more" "SYSTEM:read line; echo $port pod ip \$POD_IP" &
done
wait
"#;

/// A server pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Its addresses; by the first it calls itself.
    pub addresses: Vec<IpAddr>,
}

impl Context {
    /// Makes the namespace everywhere, and in it the pods that ask; waits until commands run in them.
    pub async fn prepare(&self) -> Outcome {
        self.create_namespace(self.everywhere()).await?;
        try_join_all(self.everywhere().map(|cluster| self.start_request(cluster))).await?;
        Ok(())
    }

    async fn start_request(&self, cluster: usize) -> Outcome {
        let spec = json!({
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": REQUEST,
                "image": REQUEST_IMAGE,
                "command": ["/bin/sh", "-c", "exec sleep 100000"],
            }],
        });
        let pod = json!({ "metadata": { "name": REQUEST }, "spec": spec });
        let pod: Pod = serde_json::from_value(pod).expect("invariant: this is a pod");
        self.accepted("create the request pod", cluster, &pod)
            .await?;
        // Which shows that commands can be run at all: a case must not take their failure for silence.
        self.started(
            "commands run in the request pod",
            cluster,
            "`echo ready`",
            || async move {
                let command = ["echo", "ready"];
                let output = self
                    .exec((cluster, REQUEST), &command, Duration::ZERO)
                    .await?;
                if output.success && output.stdout == b"ready\n" {
                    return Ok(());
                }
                Err(format!("{output:?}").into())
            },
        )
        .await
    }

    /// Starts so many servers behind the Service, in no order; waits until they are ready.
    pub async fn start_servers(
        &self,
        cluster: usize,
        replicas: usize,
    ) -> Result<Vec<Server>, Failure> {
        let deployment = json!({
            "metadata": { "name": HELLO },
            "spec": { "replicas": replicas, "selector": labels(), "template": template() },
        });
        let deployment: Deployment =
            serde_json::from_value(deployment).expect("invariant: this is a Deployment");
        self.create("create the Deployment", cluster, &deployment)
            .await?;
        self.servers(cluster, replicas).await
    }

    /// The same with host names, for a headless Service.
    pub async fn start_named_servers(
        &self,
        cluster: usize,
        replicas: usize,
    ) -> Result<Vec<Server>, Failure> {
        let set = json!({
            "metadata": { "name": HELLO },
            "spec": {
                "replicas": replicas,
                "serviceName": HELLO,
                "podManagementPolicy": "Parallel",
                "selector": labels(),
                "template": template(),
            },
        });
        let set: StatefulSet =
            serde_json::from_value(set).expect("invariant: this is a StatefulSet");
        self.create("create the StatefulSet", cluster, &set).await?;
        self.servers(cluster, replicas).await
    }

    /// Waits for so many servers that are ready.
    async fn servers(&self, cluster: usize, replicas: usize) -> Result<Vec<Server>, Failure> {
        let expected = format!("{replicas} ready pods of the Service");
        self.started("the servers start", cluster, &expected, || async move {
            let servers = self.ready_servers(cluster).await?;
            if servers.len() == replicas {
                return Ok(servers);
            }
            Err(format!("{} of them", servers.len()).into())
        })
        .await
    }

    async fn ready_servers(&self, cluster: usize) -> Result<Vec<Server>, Seen> {
        let selector = ListParams::default().labels(&format!("app={HELLO}"));
        let pods = self.api::<Pod>(cluster).list(&selector).await?.items;
        let servers = pods.into_iter().filter_map(|pod| {
            let status = pod.status?;
            let mut conditions = status.conditions.into_iter().flatten();
            let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
            let addresses = status.pod_ips.into_iter().flatten();
            ready.then_some(Server {
                name: pod.metadata.name?,
                addresses: addresses.filter_map(|it| it.ip.parse().ok()).collect(),
            })
        });
        Ok(servers.collect())
    }

    /// Has a server say that it is ready, or not.
    pub async fn turn(&self, cluster: usize, server: &Server, ready: bool) -> Outcome {
        let change = if ready { "touch" } else { "rm -f" };
        let change = &format!("{change} /tmp/ready");
        let expected = format!("`{change}` to be run");
        let step = "a server changes";
        // Either may be done twice, when it was not heard of that it was done.
        self.started(step, cluster, &expected, || async move {
            let pod = (cluster, server.name.as_str());
            let command = ["/bin/sh", "-c", change];
            let output = self.exec(pod, &command, Duration::ZERO).await?;
            let done = output.success;
            done.then_some(())
                .ok_or_else(|| format!("{output:?}").into())
        })
        .await
    }

    /// Deletes all servers of a cluster.
    pub async fn delete_servers(&self, cluster: usize) -> Outcome {
        let deployments = self.api::<Deployment>(cluster);
        let deleted = deployments.delete(HELLO, &DeleteParams::background()).await;
        deleted.map(|_| ()).map_err(|error| {
            let step = "delete the Deployment";
            let failure = self.failure(step, cluster, "it to be deleted", error.to_string());
            failure.of_set_up()
        })
    }

    /// Creates a pod as soon as the namespace has its service account.
    pub(crate) async fn accepted(&self, step: &'static str, cluster: usize, pod: &Pod) -> Outcome {
        let pods = self.api::<Pod>(cluster);
        let pods = &pods;
        self.started(step, cluster, "the pod to be accepted", || async move {
            match pods.create(&kube::api::PostParams::default(), pod).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Waits for pods to start, or commands in them, which says nothing about the implementation when it fails.
    pub(crate) async fn started<T, F, Fut>(
        &self,
        step: &'static str,
        cluster: usize,
        expected: &str,
        probe: F,
    ) -> Result<T, Failure>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Seen>>,
    {
        let pace = (self.budgets.poll, self.budgets.start);
        let waited = self.until_within(pace, step, (cluster, expected), probe);
        waited.await.map_err(Failure::of_set_up)
    }
}

fn labels() -> Value {
    json!({ "matchLabels": { "app": HELLO } })
}

fn template() -> Value {
    let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
    json!({
        "metadata": { "labels": { "app": HELLO } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "server",
                "image": SERVER_IMAGE,
                "command": ["/bin/sh", "-c", SERVER],
                "env": [
                    { "name": "POD_IP", "valueFrom": field("status.podIP") },
                    { "name": "POD_IPS", "valueFrom": field("status.podIPs") },
                ],
                "readinessProbe": {
                    "exec": { "command": ["test", "-e", "/tmp/ready"] },
                    "periodSeconds": 1,
                    "failureThreshold": 1,
                    "timeoutSeconds": 10,
                },
            }],
        },
    })
}

/// The addresses of servers that are of a family.
pub fn addresses(servers: &[Server], family: &str) -> BTreeSet<IpAddr> {
    let all = servers.iter().flat_map(|it| &it.addresses);
    all.filter(|it| crate::lookup::is_of(family, it))
        .copied()
        .collect()
}
