//! What two clusters with nodes do: pods, Services, DNS, and faults of the network between them.

use std::{collections::BTreeSet, net::IpAddr};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{ListParams, LogParams, PostParams},
};
use serde_json::json;
use tombolo_testbed::{Component, Testbed, ZONE_LABEL, eventually};

use super::pods::{BUDGET, TCP, UDP, ask, client, reaches, server, service};

/// Each cluster has a ready dual-stack node in its own zone, and its own way to program Services.
pub(crate) async fn ready(bed: &Testbed) -> Result<()> {
    for cluster in bed.clusters() {
        let nodes = Api::<Node>::all(cluster.client());
        let node = nodes.get(&cluster.node()?).await?;
        let labels = node.metadata.labels.unwrap_or_default();
        let zone = format!("zone-{}", cluster.name());
        ensure!(labels.get(ZONE_LABEL) == Some(&zone), "{labels:?}");
        let spec = node.spec.context("a spec")?;
        let ranges = spec.pod_cidrs.unwrap_or_default();
        let number = 127 + cluster.id();
        let expected = [
            format!("10.{number}.0.0/24"),
            format!("fd00:{number}::/112"),
        ];
        ensure!(ranges == expected, "{ranges:?}");
        let addresses = node.status.context("a status")?.addresses;
        let addresses = addresses.into_iter().flatten();
        let internal = addresses.filter(|it| it.type_ == "InternalIP").count();
        ensure!(internal == 2, "an address of each family");
    }
    let tables = bed.cluster(0).on_node("nft", &["list", "tables"]).await?;
    ensure!(tables.stdout.contains("ip6 kube-proxy"), "{tables:?}");
    let rules = bed.cluster(1).on_node("iptables-save", &[]).await?;
    ensure!(rules.stdout.contains("KUBE-SERVICES"), "{rules:?}");
    Ok(())
}

/// Output, standard error and exit code come back, and no process of a pod sees those of the machine.
pub(crate) async fn exec(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);
    let namespace = cluster.namespace().await?;
    client(cluster, &namespace, "shell").await?;

    let script = "echo out; echo err >&2; exit 7";
    let output = cluster
        .exec(&namespace, "shell", &["sh", "-c", script])
        .await?;
    let absent = cluster.exec(&namespace, "nobody", &["true"]).await?;
    let tools = "nslookup -version 2>&1; nc -h 2>&1; socat -V";
    let tools = cluster
        .exec(&namespace, "shell", &["sh", "-c", tools])
        .await?;

    ensure!(output.code == Some(7), "{output:?}");
    ensure!(output.stdout == "out\n", "{output:?}");
    ensure!(output.stderr.starts_with("err\n"), "{output:?}");
    ensure!(absent.stderr.contains("\"nobody\" not found"), "{absent:?}");
    for part in ["nslookup 9.", "OpenBSD netcat", "socat version 1."] {
        ensure!(tools.stdout.contains(part), "{part} in {tools:?}");
    }
    Ok(())
}

/// By IPv4 and IPv6, in both directions.
pub(crate) async fn pod_to_pod(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    for (from, to) in [(a, b), (b, a)] {
        let name = format!("server-{}", to.name());
        let servers = server(to, &namespace, &name).await?;
        let own = client(from, &namespace, "client").await?;
        for ip in &servers {
            let target = (family(ip), &*ip.to_string(), TCP);
            reaches(from, &namespace, "client", target, &name).await?;
        }
        ensure!(own.len() == 2 && servers.len() == 2, "{own:?} {servers:?}");
    }
    Ok(())
}

/// In each cluster: by name and by address, IPv4 and IPv6, TCP and UDP.
pub(crate) async fn services(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    for cluster in bed.clusters() {
        server(cluster, &namespace, "web").await?;
        client(cluster, &namespace, "client").await?;
        let ips = service(cluster, &namespace, "web").await?;
        ensure!(ips.len() == 2, "{ips:?}");
        let name = format!("web.{namespace}.svc.cluster.local");
        for port in [TCP, UDP] {
            for (family, ip) in ["-4", "-6"].into_iter().zip(&ips) {
                for host in [ip, &name] {
                    let target = (family, host.as_str(), port);
                    reaches(cluster, &namespace, "client", target, "web").await?;
                }
            }
        }
    }
    Ok(())
}

/// Pods lose each other and no API server is lost; all is well at once when it is undone.
pub(crate) async fn cut_and_heal(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    let ips = server(b, &namespace, "server").await?;
    client(a, &namespace, "client").await?;
    client(b, &namespace, "client").await?;
    for ip in &ips {
        let target = (family(ip), &*ip.to_string(), TCP);
        reaches(a, &namespace, "client", target, "server").await?;
    }

    a.cut_pods(b).await?;
    // Twice is as once.
    a.cut_pods(b).await?;

    for ip in &ips {
        let target = (family(ip), &*ip.to_string(), TCP);
        let cut = ask(a, &namespace, "client", target).await;
        ensure!(cut.is_err(), "{ip} answered {cut:?}");
        reaches(b, &namespace, "client", target, "server").await?;
    }
    let api = b.api_server_address()?.to_string();
    let api = api.replace(':', " ");
    let nc = format!("nc -z -w 1 {api}");
    eventually(BUDGET, "the API server of b from a pod of a", async || {
        let between = a.exec(&namespace, "client", &["sh", "-c", &nc]).await;
        between.map_err(|it| it.to_string())?.success().map(drop)
    })
    .await?;

    a.heal_pods(b).await?;

    for ip in &ips {
        let target = (family(ip), &*ip.to_string(), TCP);
        reaches(a, &namespace, "client", target, "server").await?;
    }
    Ok(())
}

/// The node loses the others, and this test still reaches its API server.
pub(crate) async fn isolate_and_rejoin(bed: &Testbed) -> Result<()> {
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    let api = b.api_server_address()?.ip().to_string();
    let ping = async || {
        let socat = format!("TCP:{api}:6443,connect-timeout=1");
        let output = a.on_node("socat", &["-u", "OPEN:/dev/null", &socat]).await;
        output.map_err(|it| it.to_string())?.success().map(drop)
    };
    eventually(BUDGET, "the API server of b from a", ping).await?;

    b.isolate().await?;

    ensure!(ping().await.is_err(), "b still answers a");
    let nodes = Api::<Node>::all(b.client());
    ensure!(nodes.list(&ListParams::default()).await?.items.len() == 1);

    b.rejoin().await?;

    eventually(BUDGET, "the API server of b from a", ping).await?;
    Ok(())
}

/// Faults of the processes of a node work as those of a control plane; pods go on meanwhile.
pub(crate) async fn kubelet_comes_back(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(1);
    let namespace = cluster.namespace().await?;
    let ips = server(cluster, &namespace, "server").await?;
    let before = cluster.pids()?;

    cluster.kill9(Component::Kubelet)?;

    ensure!(!cluster.pids()?.contains_key(&Component::Kubelet));
    let ip = ips.first().context("an address")?.to_string();
    let socat = format!("TCP:{ip}:{TCP},connect-timeout=1");
    eventually(BUDGET, "an answer of the pod", async || {
        let answer = cluster.on_node("socat", &["-u", &socat, "-"]).await;
        let answer = answer.map_err(|it| it.to_string())?;
        let same = answer.success() == Ok("server");
        same.then_some(()).ok_or_else(|| format!("{answer:?}"))
    })
    .await?;

    cluster.restart(Component::Kubelet).await?;

    client(cluster, &namespace, "client").await?;
    let after = cluster.pids()?;
    let expected = BTreeSet::from([
        Component::Etcd,
        Component::ApiServer,
        Component::ControllerManager,
        Component::Scheduler,
        Component::Containerd,
        Component::Kubelet,
        Component::KubeProxy,
        Component::MeshEtcd,
    ]);
    ensure!(after.keys().copied().collect::<BTreeSet<_>>() == expected);
    ensure!(before[&Component::Kubelet] != after[&Component::Kubelet]);
    Ok(())
}

/// Tombolo's own image runs in a pod that forbids root.
pub(crate) async fn tombolo(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);
    let namespace = cluster.namespace().await?;
    let image = cluster.load_tombolo().await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "tombolo" },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": { "runAsNonRoot": true },
            "containers": [{ "name": "main", "image": image, "args": ["--version"] }],
        },
    }))?;
    let api = Api::<Pod>::namespaced(cluster.client(), &namespace);

    api.create(&PostParams::default(), &pod).await?;

    eventually(BUDGET, "a pod that succeeded", async || {
        let pod = api.get("tombolo").await.map_err(|it| it.to_string())?;
        let status = pod.status.unwrap_or_default();
        let ended = status.phase.as_deref() == Some("Succeeded");
        ended.then_some(()).ok_or_else(|| format!("{status:?}"))
    })
    .await?;
    let log = api.logs("tombolo", &LogParams::default()).await?;
    ensure!(log.starts_with("tombolo "), "{log}");
    Ok(())
}

fn family(ip: &IpAddr) -> &'static str {
    if ip.is_ipv4() { "-4" } else { "-6" }
}
