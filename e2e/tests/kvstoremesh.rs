//! B's operator reads what A exports from B's own mesh etcd, where B's mesh role copies it.
//!
//! Scenarios run one at a time, on the same two clusters as long as they pass.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::{
    records::{EXPORTS, Records},
    scenarios::{self, Scenario},
    scene::{Holding, SETTLE, Scene},
};
use tombolo_testbed::{Cluster, Component, Role, Testbed, eventually};

/// The peer.
const A: usize = 0;
/// The cluster that copies.
const B: usize = 1;

/// Prefix of the copies of exports.
const COPIES: &str = "cilium/cache/serviceexports/v1";

/// What A exports, alone or with B.
const OF_PEER: [&str; 2] = ["both", "of-peer"];

fn main() {
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "an_export_arrives_by_way_of_the_copy",
        Box::new(|t| Box::pin(an_export_arrives(t))),
    );
    add(
        "the_peers_store_is_killed",
        Box::new(|t| Box::pin(peer_store_is_killed(t))),
    );
    add(
        "the_peers_store_comes_back_empty",
        Box::new(|t| Box::pin(peer_store_comes_back_empty(t))),
    );
    add(
        "the_copier_is_killed_while_exports_end",
        Box::new(|t| Box::pin(copier_is_killed(t))),
    );
    add("the_peer_lies", Box::new(|t| Box::pin(peer_lies(t))));
    add(
        "the_own_store_comes_back_empty",
        Box::new(|t| Box::pin(own_store_comes_back_empty(t))),
    );
    add(
        "the_peer_is_taken_out",
        Box::new(|t| Box::pin(peer_is_taken_out(t))),
    );
    scenarios::main(all, || Box::pin(start()));
}

/// A reads B directly; B reads A from its own store.
async fn start() -> Result<Testbed> {
    let testbed = Testbed::start(2).await?;
    let (a, b) = (testbed.cluster(A), testbed.cluster(B));
    a.write_peer(b.name(), &b.mesh_etcd_endpoint()?)?;
    b.write_peer(a.name(), &b.mesh_etcd_endpoint()?)?;
    for role in [Role::Mesh, Role::Operator] {
        a.start_role(role, &[]).await?;
    }
    name_peer(b, a)?;
    let directory = format!("--clustermesh-config={}", copied_peers(b)?.display());
    b.start_role(Role::Mesh, &[&directory]).await?;
    b.start_role(Role::Operator, &[]).await?;
    Ok(testbed)
}

/// The directory of the peers that a cluster's mesh role copies.
fn copied_peers(cluster: &Cluster) -> Result<PathBuf> {
    let directory = cluster.peers_directory()?.with_file_name("copied-peers");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn name_peer(cluster: &Cluster, peer: &Cluster) -> Result<()> {
    let (file, endpoint) = (
        copied_peers(cluster)?.join(peer.name()),
        peer.mesh_etcd_endpoint()?,
    );
    let new = file.with_file_name(".new");
    fs::write(&new, format!("endpoints:\n- {endpoint}\n"))?;
    Ok(fs::rename(new, file)?)
}

/// A scene with an import from both clusters and one from A only, and what B holds of them.
async fn prepare(testbed: &Testbed) -> Result<(Scene<'_>, Holding)> {
    let exports = [(B, "both"), (A, "both"), (A, "of-peer")];
    let scene = Scene::with_exports(testbed, &exports).await?;
    let holding = scene.holding(B, &OF_PEER).await?;
    Ok((scene, holding))
}

/// The copies of A's exports in B's store.
async fn copies(scene: &Scene<'_>, testbed: &Testbed) -> Result<BTreeSet<String>> {
    let mut records = Records::of(testbed.cluster(B)).await?;
    let prefix = format!(
        "{COPIES}/{}/{}/",
        testbed.cluster(A).name(),
        scene.namespace()
    );
    records.keys(&prefix).await
}

async fn an_export_arrives(testbed: &Testbed) -> Result<()> {
    let (mut scene, _) = prepare(testbed).await?;
    ensure!(copies(&scene, testbed).await? == OF_PEER.map(str::to_owned).into());

    scene.add_pod(A, "of-peer", "second").await?;
    scene.unexport(A, "both").await?;
    scene
        .settled()
        .await
        .context("after a pod came and an export ended")?;

    ensure!(copies(&scene, testbed).await? == ["of-peer".to_owned()].into());
    Ok(())
}

async fn peer_store_is_killed(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(A).kill9(Component::MeshEtcd)?;
    scene.export(B, "local").await?;
    scene
        .import_settled(B, "local")
        .await
        .context("local work goes on")?;
    scene.keeps(&holding).await?;
    scene.unexport(A, "of-peer").await?;
    testbed.cluster(A).restart(Component::MeshEtcd).await?;

    scene
        .settled()
        .await
        .context("after the peer's store is back")
}

async fn peer_store_comes_back_empty(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(A).kill9(Component::Mesh)?;
    testbed
        .cluster(A)
        .wipe_and_restart(Component::MeshEtcd)
        .await?;
    scene
        .keeps(&holding)
        .await
        .context("while the store is empty")?;
    scene.unexport(A, "of-peer").await?;
    testbed.cluster(A).restart(Component::Mesh).await?;

    scene.settled().await.context("after the refill")
}

async fn copier_is_killed(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(B).kill9(Component::Mesh)?;
    scene.unexport(A, "of-peer").await?;
    scene.export(A, "meanwhile").await?;
    scene.keeps(&holding).await.context("nobody copies")?;
    testbed.cluster(B).restart(Component::Mesh).await?;

    scene.settled().await.context("after the copier is back")
}

/// A record of another cluster under the peer's prefix: copied as it is, and refused by who reads it.
async fn peer_lies(testbed: &Testbed) -> Result<()> {
    let (mut scene, _) = prepare(testbed).await?;
    let (a, namespace) = (
        testbed.cluster(A).name().to_owned(),
        scene.namespace().to_owned(),
    );
    let key = |prefix: &str| format!("{prefix}/{a}/{namespace}/lie");
    let lie = format!(
        r#"{{"cluster":"z","name":"lie","namespace":"{namespace}","exportCreationTimestamp":"2026-03-04T09:10:11Z","ports":[{{"name":"http","protocol":"TCP","port":80}}],"type":"ClusterSetIP","sessionAffinity":"None"}}"#
    );
    // The peer's own publisher would delete what it does not know.
    testbed.cluster(A).kill9(Component::Mesh)?;
    let mut of_a = Records::of(testbed.cluster(A)).await?;
    of_a.put(&key(EXPORTS), &lie).await?;

    let mut of_b = Records::of(testbed.cluster(B)).await?;
    eventually(SETTLE, "the lie to be copied as it is", async || {
        let values = of_b.values(&key(COPIES)).await;
        match values.map_err(|error| format!("{error:#}"))? {
            values if values == [lie.clone()] => Ok(()),
            values => Err(format!("{values:?}")),
        }
    })
    .await?;
    let logs = testbed.cluster(B).logs()?;
    let log = logs
        .get(&Component::Operator)
        .context("the operator has a log")?;
    let copy = key(COPIES);
    eventually(
        SETTLE,
        "B's operator to refuse the lie and name it",
        async || {
            let text = fs::read_to_string(log).map_err(|error| error.to_string())?;
            let told =
                |line: &str| line.contains(&copy) && line.contains("unexpected cluster name");
            text.lines()
                .any(told)
                .then_some(())
                .ok_or_else(|| "not told".to_owned())
        },
    )
    .await?;
    scene
        .import_settled(B, "lie")
        .await
        .context("there is no import of it")?;
    testbed.cluster(A).restart(Component::Mesh).await?;
    scene.export(A, "after").await?;

    scene.settled().await.context("the rest works")?;
    eventually(SETTLE, "the lie to go as its source does", async || {
        let left = copies(&scene, testbed)
            .await
            .map_err(|error| format!("{error:#}"))?;
        if left.contains("lie") {
            Err(format!("{left:?}"))
        } else {
            Ok(())
        }
    })
    .await?;
    Ok(())
}

/// B's store loses the copies, and with them the lock: the mesh role ends with an error and is started again.
async fn own_store_comes_back_empty(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;
    let b = testbed.cluster(B);

    b.wipe_and_restart(Component::MeshEtcd).await?;
    scene
        .keeps(&holding)
        .await
        .context("while the store is empty")?;
    let logs = b.logs()?;
    let log = logs
        .get(&Component::Mesh)
        .context("the mesh role has a log")?;
    eventually(SETTLE, "the mesh role to end and say why", async || {
        let text = fs::read_to_string(log).map_err(|error| error.to_string())?;
        let told = |line: &str| line.starts_with("tombolo: ") && line.contains("kvstoremesh-lock");
        text.lines()
            .any(told)
            .then_some(())
            .ok_or_else(|| "not told".to_owned())
    })
    .await?;
    scene.unexport(A, "of-peer").await?;
    b.restart(Component::Mesh).await?;

    scene.settled().await.context("after the refill")
}

/// Nobody begins to read A in B any more, while who reads already goes on for the grace.
async fn peer_is_taken_out(testbed: &Testbed) -> Result<()> {
    let (scene, holding) = prepare(testbed).await?;
    let (a, b) = (testbed.cluster(A), testbed.cluster(B));
    let config = format!("cilium/cluster-config/{}", a.name());

    fs::remove_file(copied_peers(b)?.join(a.name()))?;
    let mut records = Records::of(b).await?;
    eventually(SETTLE, "the peer's cluster-config to go", async || {
        let left = records
            .keys(&config)
            .await
            .map_err(|error| format!("{error:#}"))?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await?;
    scene.keeps(&holding).await?;
    ensure!(copies(&scene, testbed).await? == OF_PEER.map(str::to_owned).into());
    name_peer(b, a)?;

    let mut scene = scene;
    scene.unexport(A, "of-peer").await?;
    scene.settled().await.context("after the peer is back")
}
