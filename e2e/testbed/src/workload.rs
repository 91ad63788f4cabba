//! Real pods, for clusters that have nodes.

use std::{net::IpAddr, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{Cluster, Error, LocalError, eventually};

/// An image with `socat` and a shell, which provider `local` has; the upstream conformance suite's servers run it.
pub const SERVER_IMAGE: &str = "alpine/socat:1.7.4.4";

/// An image with `nc` and `nslookup`, which provider `local` has; the upstream conformance suite's clients run it.
pub const CLIENT_IMAGE: &str = "nicolaka/netshoot:v0.15";

/// Longest wait for a pod. On an idle machine it takes about a second.
const READY_BUDGET: Duration = Duration::from_mins(2);

impl Cluster {
    /// Runs a shell script in a pod of its own, labelled `app` with its name, and waits until the pod is ready; gives its
    /// addresses.
    pub async fn start_pod(
        &self,
        namespace: &str,
        name: &str,
        image: &str,
        script: &str,
    ) -> Result<Vec<IpAddr>, Error> {
        self.nodes("run pods")?;
        let failed = |action: String| move |error| self.api_error(action, error);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": name } },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main",
                    "image": image,
                    "command": ["/bin/sh", "-c", script],
                }],
            },
        }))
        .expect("invariant: this is a pod");
        let api = Api::<Pod>::namespaced(self.client(), namespace);
        let created = api.create(&PostParams::default(), &pod).await;
        created.map_err(failed(format!("create pod {namespace}/{name}")))?;
        let what = format!("pod {namespace}/{name} is ready");
        let ips = eventually(READY_BUDGET, &what, async || {
            let pod = api.get(name).await.map_err(|it| it.to_string())?;
            ready_addresses(&pod)
        });
        ips.await.map_err(|source| {
            LocalError::NotReady {
                cluster: self.name().to_owned(),
                source,
            }
            .into()
        })
    }
}

fn ready_addresses(pod: &Pod) -> Result<Vec<IpAddr>, String> {
    let status = pod.status.as_ref().ok_or("no status")?;
    let conditions = status.conditions.iter().flatten();
    let is_ready = |type_: &str, status: &str| type_ == "Ready" && status == "True";
    if conditions.clone().any(|it| is_ready(&it.type_, &it.status)) {
        let ips = status.pod_ips.iter().flatten();
        ips.map(|it| it.ip.parse().map_err(|_| format!("{it:?}")))
            .collect()
    } else {
        let conditions: Vec<_> = conditions.collect();
        Err(format!("{conditions:?} {:?}", status.container_statuses))
    }
}
