//! A mesh role that copies its peers: well only with copies that are complete, seen, and hang on leases that live.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use etcd_client::Client;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;
use tombolo_testbed::{Cluster, Component, Role, Testbed, eventually};

use crate::{BEHIND, BUDGET, findings, never_well, status, until_well};

/// A peer whose store is written by hand.
const ROME: &str = "rome";

/// After how long without its store a mesh role may lose the lock of the copies, and end: the lock lives for 25 s, and was prolonged
/// within a third of that before.
const LOCK_MAY_BE_LOST: Duration = Duration::from_secs(15);

/// What it publishes; canaries by the kind that they are of.
const CONFIG: &str = r#"{"id":77,"capabilities":{"syncedCanaries":true,"maxConnectedClusters":255,"serviceExportsEnabled":true}}"#;
const KINDS: [&str; 6] = [
    "services/v1",
    "serviceexports/v1",
    "endpointslices/v1",
    "nodes/v1",
    "identities/v1",
    "ip/v1",
];

fn canary(kind: &str) -> String {
    format!("cilium/synced/{ROME}/cilium/state/{kind}")
}

/// The copy of a peer, as the mesh role tells.
fn copy_of(json: &Value, peer: &str) -> Value {
    let copies = &json["processes"][0]["answer"]["copies"]["peers"];
    let mut copies = copies.as_array().into_iter().flatten();
    let found = copies.find(|copy| copy["cluster"] == peer);
    found.cloned().unwrap_or_default()
}

/// Makes a store of `rome`, a peer of the cluster, in which one canary is missing.
async fn join(cluster: &Cluster, without: &str) -> Result<Client> {
    cluster.start_second_mesh_etcd().await?;
    let endpoint = cluster.second_mesh_etcd_endpoint()?;
    let mut store = Client::connect([&endpoint], None).await?;
    let config = format!("cilium/cluster-config/{ROME}");
    store.put(config, CONFIG, None).await?;
    store
        .put("cilium/.heartbeat", "2026-11-30T12:00:00Z", None)
        .await?;
    for kind in KINDS.iter().filter(|kind| **kind != without) {
        store
            .put(canary(kind), "2026-11-30T12:00:00Z", None)
            .await?;
    }
    cluster.write_peer(ROME, &endpoint)?;
    Ok(store)
}

/// Writes the heartbeat of `rome`, until dropped.
fn keep_beating(store: &Client) -> AbortOnDropHandle<()> {
    let mut store = store.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        for beat in 0.. {
            let _ = store
                .put("cilium/.heartbeat", format!("beat {beat}"), None)
                .await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_never_well_without_their_canaries_nor_while_the_own_store_hangs() -> Result<()>
{
    let testbed = Testbed::start(1).await?;
    let a = testbed.cluster(0);
    let mut rome = join(a, "nodes/v1").await?;
    let _beating = keep_beating(&rome);
    let peers = format!("--clustermesh-config={}", a.peers_directory()?.display());
    let patience = "--per-cluster-ready-timeout=1s";
    a.start_role(Role::Mesh, &[&peers, patience, "--global-ready-timeout=2s"])
        .await?;
    let mesh = [Role::Mesh];

    // The peer's canary of nodes is missing, so there is none for the copy.
    eventually(BUDGET, "all other canaries stand", async || {
        let seen = status(a, &mesh)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let copy = copy_of(&seen.1, ROME);
        let canaries = copy["canaries"].as_array().map_or(0, Vec::len);
        if canaries == KINDS.len() - 1 {
            Ok(())
        } else {
            Err(seen.1.to_string())
        }
    })
    .await?;
    let code = never_well(a, &mesh, 3).await?;
    let (_, json) = status(a, &mesh).await?;
    ensure!(code == BEHIND, "{json}");
    let told = findings(&json);
    ensure!(
        told.iter()
            .any(|it| it.contains("no canary stands for nodes")),
        "{told:?}"
    );
    rome.put(canary("nodes/v1"), "2026-11-30T12:00:00Z", None)
        .await?;
    until_well(a, &mesh).await?;

    // A canary that is taken away from the peer while its copy stands.
    rome.delete(canary("services/v1"), None).await?;
    eventually(BUDGET, "the loss is told", async || {
        let (code, json) = status(a, &mesh)
            .await
            .map_err(|error| format!("{error:#}"))?;
        if code == 0 {
            Err(json.to_string())
        } else {
            Ok(())
        }
    })
    .await?;
    never_well(a, &mesh, 3).await?;
    rome.put(canary("services/v1"), "2026-11-30T12:00:01Z", None)
        .await?;
    until_well(a, &mesh).await?;

    never_well_while_the_own_store_hangs(a, &mut rome).await
}

/// The own store hangs while something is to be copied.
async fn never_well_while_the_own_store_hangs(a: &Cluster, rome: &mut Client) -> Result<()> {
    let mesh = [Role::Mesh];
    let paused = Instant::now();
    a.pause(Component::MeshEtcd)?;
    let key = format!("cilium/state/nodes/v1/{ROME}/node-1");
    rome.put(key, "{}", None).await?;
    let answer = status(a, &mesh).await;
    a.resume(Component::MeshEtcd)?;
    if paused.elapsed() > LOCK_MAY_BE_LOST {
        a.restart(Role::Mesh).await?;
    }
    let (code, json) = answer?;
    let told = findings(&json);
    ensure!(
        code != 0 && told.iter().any(|it| it.contains("copies: ")),
        "{told:?}"
    );
    until_well(a, &mesh).await?;
    let mut own = Client::connect([a.mesh_etcd_endpoint()?], None).await?;
    let copy = own
        .get(format!("cilium/cache/nodes/v1/{ROME}/node-1"), None)
        .await?;
    copy.kvs()
        .first()
        .context("it is well, and the record is not copied")?;
    Ok(())
}
