//! A store or a process that hangs, and what real roles show.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tombolo_testbed::{Cluster, Component, Role, Testbed};

use crate::{BOTH, PROBLEM, UNKNOWN, at, never_well, run, status, until_well};

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
    let guide = include_str!("../../../docs/guide/metrics.md");
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
