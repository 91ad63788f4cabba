//! Pods and Services of these tests.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::PostParams};
use serde_json::json;
use tombolo_testbed::{CLIENT_IMAGE, Cluster, SERVER_IMAGE, eventually};

/// Longest wait for a pod, or for kube-proxy and CoreDNS to see a Service.
pub(crate) const BUDGET: Duration = Duration::from_mins(1);

/// Ports of a server: its name over TCP and over UDP.
pub(crate) const TCP: u16 = 8080;
pub(crate) const UDP: u16 = 8081;

/// Says its host name to whoever asks.
const SERVER: &str = "socat UDP6-LISTEN:8081,fork,reuseaddr,ipv6only=0 SYSTEM:hostname & \
                      exec socat TCP6-LISTEN:8080,fork,reuseaddr,ipv6only=0 SYSTEM:hostname";

/// A pod that serves; gives its addresses, IPv4 first.
pub(crate) async fn server(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<IpAddr>> {
    let started = cluster.start_pod(namespace, name, SERVER_IMAGE, SERVER);
    Ok(started.await?)
}

/// A pod to run commands in.
pub(crate) async fn client(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<IpAddr>> {
    let script = "exec sleep 100000";
    let started = cluster.start_pod(namespace, name, CLIENT_IMAGE, script);
    Ok(started.await?)
}

/// A Service in front of the pod with the same name; gives its addresses.
pub(crate) async fn service(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<String>> {
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "ipFamilyPolicy": "RequireDualStack",
            "ipFamilies": ["IPv4", "IPv6"],
            "selector": { "app": name },
            "ports": [
                { "name": "tcp", "protocol": "TCP", "port": TCP },
                { "name": "udp", "protocol": "UDP", "port": UDP },
            ],
        },
    }))?;
    let api = Api::namespaced(cluster.client(), namespace);
    let created = api.create(&PostParams::default(), &service).await?;
    let spec = created.spec.context("a spec")?;
    spec.cluster_ips.context("addresses of a Service")
}

/// What a server says when it is asked from a client's pod. `family` is `-4` or `-6`.
pub(crate) async fn ask(
    cluster: &Cluster,
    namespace: &str,
    client: &str,
    (family, host, port): (&str, &str, u16),
) -> Result<String, String> {
    let udp = if port == UDP { "-u " } else { "" };
    let script = format!("echo hi | nc {udp}-w 1 {family} {host} {port}");
    let command = ["sh", "-c", &script];
    let output = cluster.exec(namespace, client, &command).await;
    let output = output.map_err(|it| it.to_string())?;
    output.success().map(str::to_owned)
}

/// Asks until the server with this name answers.
pub(crate) async fn reaches(
    cluster: &Cluster,
    namespace: &str,
    client: &str,
    target: (&str, &str, u16),
    server: &str,
) -> Result<()> {
    let what = format!("{target:?} answers {client} of {}", cluster.name());
    eventually(BUDGET, &what, async || {
        match ask(cluster, namespace, client, target).await? {
            answer if answer == server => Ok(()),
            answer => Err(format!("it said {answer:?}")),
        }
    })
    .await?;
    Ok(())
}
