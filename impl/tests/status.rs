//! `tombolo status` and `/metrics` of real roles: green only with proof, never when a store or a reader hangs.

use std::{process::Output, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tombolo_testbed::{Cluster, Component, Role, Testbed, eventually};

/// How long a condition may take on a busy machine.
const BUDGET: Duration = Duration::from_mins(2);

const PROBLEM: i32 = 3;
const UNKNOWN: i32 = 4;

/// Runs `tombolo status` with these arguments.
async fn run(arguments: &[String]) -> Result<Output> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command
        .arg("status")
        .args(arguments)
        .env_remove("KUBECONFIG");
    Ok(command.output().await?)
}

/// Arguments that ask these roles of a cluster.
fn at(cluster: &Cluster, roles: &[Role]) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    for role in roles {
        arguments.push("--address".to_owned());
        arguments.push(format!("http://{}", cluster.role_address(*role)?));
    }
    Ok(arguments)
}

/// The exit code, and what was written as JSON.
async fn status(cluster: &Cluster, roles: &[Role]) -> Result<(i32, Value)> {
    let mut arguments = at(cluster, roles)?;
    arguments.extend(["-o".to_owned(), "json".to_owned()]);
    let output = run(&arguments).await?;
    let code = output.status.code().context("it was killed")?;
    let text = String::from_utf8(output.stdout)?;
    let json = serde_json::from_str(&text)
        .with_context(|| format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((code, json))
}

async fn until_well(cluster: &Cluster, roles: &[Role]) -> Result<()> {
    eventually(BUDGET, "everything is well", async || {
        match status(cluster, roles).await {
            Ok((0, _)) => Ok(()),
            Ok((code, json)) => Err(format!("{code}: {}", json["findings"])),
            Err(error) => Err(format!("{error:#}")),
        }
    })
    .await?;
    Ok(())
}

/// Asks again and again for a while, while something hangs: it must never be well; the last exit code.
async fn never_well(cluster: &Cluster, roles: &[Role], times: usize) -> Result<i32> {
    let mut last = 0;
    for time in 0..times {
        let (code, json) = status(cluster, roles).await?;
        ensure!(code != 0, "well at look {time}: {json}");
        ensure!(json["verdict"] != "Well", "{json}");
        last = code;
    }
    Ok(last)
}

const BOTH: [Role; 2] = [Role::Mesh, Role::Operator];

#[tokio::test(flavor = "multi_thread")]
async fn a_store_or_a_process_that_hangs_is_never_well() -> Result<()> {
    let testbed = Testbed::start(2).await?;
    testbed.start_mesh().await?;
    let (a, b) = (testbed.cluster(0), testbed.cluster(1));
    until_well(a, &BOTH).await?;

    // The store of the peer: connections stay open, and nobody answers.
    b.pause(Component::MeshEtcd)?;
    let code = never_well(a, &[Role::Operator], 6).await?;
    ensure!(code == UNKNOWN || code == PROBLEM, "{code}");
    b.resume(Component::MeshEtcd)?;
    until_well(a, &BOTH).await?;

    // The own store.
    a.pause(Component::MeshEtcd)?;
    never_well(a, &[Role::Mesh], 3).await?;
    a.resume(Component::MeshEtcd)?;
    until_well(a, &BOTH).await?;

    // The process.
    a.pause(Role::Operator)?;
    let arguments = at(a, &[Role::Operator])?;
    let output = run(&[arguments, vec!["--timeout".to_owned(), "2s".to_owned()]].concat()).await?;
    a.resume(Role::Operator)?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(UNKNOWN), "{text}");
    ensure!(
        text.starts_with("UNKNOWN: ") && text.contains("no answer within"),
        "{text}"
    );
    until_well(a, &BOTH).await?;

    shapes_are_ciliums(a).await?;

    // The mesh role that copies peers knows them too.
    let peers = format!("--clustermesh-config={}", a.peers_directory()?.display());
    a.start_role(Role::Mesh, &[&peers]).await?;
    until_well(a, &BOTH).await?;
    let (_, json) = status(a, &[Role::Mesh]).await?;
    let peer = &json["processes"][0]["answer"]["peers"]["peers"][0]["status"];
    ensure!(peer["cluster"] == "b" && peer["state"] == "Ready", "{json}");
    documented_metrics_exist(a).await
}

/// `/v1/cluster` has the members that Cilium's has, and `/readyz` a check for each peer.
async fn shapes_are_ciliums(a: &Cluster) -> Result<()> {
    let page = a.role_page(Role::Operator, "/v1/cluster").await?;
    let clusters: Value = serde_json::from_str(&page)?;
    let expected = json!({
        "name": "b", "ready": true, "connected": true, "last-failure": null, "num-failures": null, "status": null,
        "synced": {"endpoints": true, "identities": true, "nodes": true, "services": true, "service-exports": true},
        "config": {"required": true, "retrieved": true, "cluster-id": 2, "sync-canaries": true, "service-exports-enabled": true},
    });
    let mut found = clusters[0].clone();
    for member in ["last-failure", "num-failures", "status"] {
        found[member] = Value::Null;
    }
    ensure!(found == expected, "{clusters}");
    let verbose = a.role_page(Role::Operator, "/readyz?verbose").await?;
    for line in ["[+]controllers ok", "[+]peer/b ok", "readyz check passed"] {
        ensure!(
            verbose.lines().any(|found| found == line),
            "{line} is not in {verbose}"
        );
    }
    Ok(())
}

/// Names of the metrics of a page.
fn names(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split_once(' '))
}

/// Every metric of the guide is in an answer of the role it is said to be in, and the other way round.
async fn documented_metrics_exist(a: &Cluster) -> Result<()> {
    let guide = include_str!("../../docs/guide/metrics.md");
    for (role, word) in [(Role::Operator, "operator"), (Role::Mesh, "mesh")] {
        let page = a.role_page(role, "/metrics").await?;
        let found: std::collections::BTreeSet<_> = names(&page)
            .map(|(name, kind)| {
                let total = if kind == "counter" { "_total" } else { "" };
                (format!("{name}{total}"), kind.to_owned())
            })
            .collect();
        let documented: std::collections::BTreeSet<_> = rows(guide)
            .filter(|row| row[3].split(", ").any(|of| of == word))
            .map(|row| (row[0].trim_matches('`').to_owned(), row[1].to_owned()))
            .collect();
        let missing: Vec<_> = documented.difference(&found).collect();
        let unknown: Vec<_> = found.difference(&documented).collect();
        ensure!(
            missing.is_empty() && unknown.is_empty(),
            "{word}: documented and not there: {missing:?}; there and not documented: {unknown:?}"
        );
    }
    Ok(())
}

/// The rows of the tables of metrics: name, type, labels, roles, meaning.
fn rows(guide: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = guide.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_pods_are_asked_and_those_that_do_not_answer_are_unknown() -> Result<()>
{
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let kubeconfig = cluster.kubeconfig()?.display().to_string();
    let arguments = ["--kubeconfig".to_owned(), kubeconfig];

    let nobody = run(&arguments).await?;
    let text = String::from_utf8(nobody.stdout)?;
    ensure!(nobody.status.code() == Some(UNKNOWN), "{text}");
    ensure!(
        text.contains("no pod has the label app.kubernetes.io/name=tombolo"),
        "{text}"
    );

    let namespace = cluster.namespace().await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "operator-0", "labels": {"app.kubernetes.io/name": "tombolo"}},
        "spec": {"containers": [{"name": "operator", "image": "tombolo", "ports": [{"name": "health", "containerPort": 9879}]}]},
    }))?;
    let api = Api::<Pod>::namespaced(cluster.client(), &namespace);
    api.create(&PostParams::default(), &pod).await?;
    let running = Patch::Merge(json!({"status": {"phase": "Running", "podIP": "127.0.0.1"}}));
    api.patch_status("operator-0", &PatchParams::default(), &running)
        .await?;

    let silent = run(&arguments).await?;
    let text = String::from_utf8(silent.stdout)?;
    ensure!(silent.status.code() == Some(UNKNOWN), "{text}");
    ensure!(
        text.contains(&format!("{namespace}/operator-0:9879: no answer")),
        "{text}"
    );
    ensure!(text.contains("no operator has answered"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_address_without_a_process_is_unknown_and_a_bad_one_is_bad_input() -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    drop(listener);

    let nobody = run(&["--address".to_owned(), address]).await?;
    let bad = run(&["--address".to_owned(), "ftp://x".to_owned()]).await?;

    ensure!(nobody.status.code() == Some(UNKNOWN), "{nobody:?}");
    ensure!(bad.status.code() == Some(2), "{bad:?}");
    ensure!(String::from_utf8(bad.stderr)?.contains("expected http://HOST:PORT"));
    Ok(())
}
