//! Finds Tombolo's processes in a cluster and asks them through the API server's pod proxy.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::gather::{Asked, Target};

/// Label of every pod of Tombolo.
pub(super) const SELECTOR: &str = "app.kubernetes.io/name=tombolo";

/// Port of the health endpoint, where a pod does not name one.
const DEFAULT_PORT: i32 = 9879;

/// A page of a pod's health endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) port: i32,
    /// Why it cannot be asked; none when it can.
    pub(super) phase: Option<String>,
}

/// Every health endpoint of every pod of Tombolo, by namespace and name. A pod that has ended well is none.
pub(super) async fn find(client: &Client, within: Duration) -> Result<Vec<Place>, String> {
    let api: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().labels(SELECTOR);
    let listed = tokio::time::timeout(within, api.list(&params)).await;
    let listed = listed.map_err(|_| format!("no answer within {within:?}"))?;
    let pods = listed.map_err(|error| error.to_string())?;
    Ok(pods.items.iter().flat_map(places).collect())
}

/// The health endpoints of a pod: the ports whose names begin with `health`, else the default.
fn places(pod: &Pod) -> Vec<Place> {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase == Some("Succeeded") {
        return Vec::new();
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.filter(|port| {
        let name = port.name.as_deref().unwrap_or_default();
        name.starts_with("health")
    });
    let mut numbers: Vec<_> = named.map(|port| port.container_port).collect();
    if numbers.is_empty() {
        numbers.push(DEFAULT_PORT);
    }
    let place = |port| Place {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        port,
        phase: (phase != Some("Running"))
            .then(|| format!("the pod is {}", phase.unwrap_or("of an unknown phase"))),
    };
    numbers.into_iter().map(place).collect()
}

/// Asks a pod.
pub(super) async fn ask(client: &Client, place: &Place, nonce: &str, within: Duration) -> Asked {
    let target = Target::Pod(place.clone());
    if let Some(phase) = &place.phase {
        return Asked::failed(target, phase.clone());
    }
    let Place {
        namespace,
        pod,
        port,
        ..
    } = place;
    let path =
        format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/v1/status?nonce={nonce}");
    let request = http::Request::get(path).header("cache-control", "no-cache");
    let request = match request.body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Asked::failed(target, error.to_string()),
    };
    match tokio::time::timeout(within, client.request_text(request)).await {
        Ok(Ok(text)) => Asked::parse(target, &text, nonce),
        Ok(Err(error)) => Asked::failed(target, error.to_string()),
        Err(_) => Asked::failed(target, format!("no answer within {within:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(yaml: &str) -> Pod {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn ports(pod: &Pod) -> Vec<i32> {
        places(pod).iter().map(|place| place.port).collect()
    }

    #[test]
    fn ports_that_are_named_health_are_asked_else_the_default() {
        let named = pod("
metadata: {name: mesh-0, namespace: mesh}
spec:
  containers:
  - {name: etcd, ports: [{containerPort: 2379, name: client}]}
  - {name: mesh, ports: [{containerPort: 9880, name: health}]}
  - {name: kvstoremesh, ports: [{containerPort: 9881, name: health-kvm}]}
status: {phase: Running}
");
        let unnamed = pod("
metadata: {name: operator-0, namespace: mesh}
spec: {containers: [{name: operator}]}
status: {phase: Running}
");

        assert_eq!(ports(&named), [9880, 9881]);
        assert_eq!(ports(&unnamed), [9879]);
    }

    #[test]
    fn a_pod_that_does_not_run_is_unknown_and_one_that_ended_well_is_left_out() {
        let phase = |phase: &str| {
            pod(&format!(
                "metadata: {{name: a, namespace: b}}\nspec: {{containers: []}}\nstatus: {{phase: {phase}}}"
            ))
        };

        let pending = places(&phase("Pending"));
        assert_eq!(pending[0].phase.as_deref(), Some("the pod is Pending"));
        assert_eq!(places(&phase("Running"))[0].phase, None);
        assert!(places(&phase("Succeeded")).is_empty());
    }
}
