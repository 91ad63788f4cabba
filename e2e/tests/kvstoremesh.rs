//! B's operator reads what A exports from B's own mesh etcd, where B's mesh role copies it.
//!
//! Scenarios run one at a time, on the same two clusters as long as they pass.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::{
    hand_written::HandWritten,
    records::{EXPORTS, Records},
    scenarios::{self, Scenario},
    scene::{Holding, SETTLE, Scene},
};
use tombolo_testbed::{Cluster, Component, Forwarder, Role, Testbed, eventually};

/// The peer.
const A: usize = 0;
/// The cluster that copies.
const B: usize = 1;

/// How long the own store may stand still at most: the lock of the copies lives for 25 s, was prolonged within a third of that
/// before, and when it is lost the mesh role ends.
const STANDSTILL_MAX: Duration = Duration::from_secs(14);

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
    add(
        "removals_go_first_after_a_heal",
        Box::new(|t| Box::pin(removals_go_first(t))),
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
    name_peer(b, a.name(), &a.mesh_etcd_endpoint()?)?;
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

fn name_peer(cluster: &Cluster, peer: &str, endpoint: &str) -> Result<()> {
    let file = copied_peers(cluster)?.join(peer);
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

    scene.keeps_while_empty(A, &holding).await?;
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
    name_peer(b, a.name(), &a.mesh_etcd_endpoint()?)?;

    let mut scene = scene;
    scene.unexport(A, "of-peer").await?;
    scene.settled().await.context("after the peer is back")
}

/// Another peer is cut off from B, and changes a lot. B's store stands still while B reads what happened, so that all of it is
/// to be copied when it goes on: what ended is deleted before most of the rest is written.
async fn removals_go_first(testbed: &Testbed) -> Result<()> {
    const PEER: &str = "many";
    const NAMES: usize = 1000;
    let b = testbed.cluster(B);
    let scene = Scene::new(testbed).await?;
    let peer = HandWritten::start(b, PEER, scene.namespace()).await?;
    let ends = |number: &usize| number % 50 == 49;
    let name = |number: usize| format!("web-{number:03}");
    let service =
        |number: usize, address: &str| peer.service(&name(number), &[address.to_owned()], &[80]);
    let before = (0..NAMES).map(|number| service(number, "10.77.0.1"));
    peer.write(before.collect()).await?;
    let between = Forwarder::start(peer.address()?).await?;
    name_peer(b, PEER, &format!("http://{}", between.address()))?;
    let copies = format!("cilium/cache/services/v1/{PEER}/");
    let mut records = Records::of(b).await?;
    eventually(SETTLE, "everything to be copied", async || {
        let keys = records.keys(&copies).await;
        let count = keys.map_err(|error| format!("{error:#}"))?.len();
        (count == NAMES).then_some(()).ok_or(count.to_string())
    })
    .await?;

    peer.cut(&between, Component::Mesh).await?;
    let changes = (0..NAMES).map(|number| {
        if ends(&number) {
            peer.no_service(&name(number))
        } else {
            service(number, "10.77.0.2")
        }
    });
    let revision = peer.write(changes.collect()).await?;
    let since = records.revision().await?;
    b.pause(Component::MeshEtcd)?;
    between.switch(peer.address()?);
    let read = peer.until_read(Component::Mesh, "services", revision);
    let read = tokio::time::timeout(STANDSTILL_MAX, read).await;
    b.resume(Component::MeshEtcd)?;
    let Ok(read) = read else {
        println!(
            "not run: removals go first after a heal: the peer was not read within {STANDSTILL_MAX:?}"
        );
        fs::remove_file(copied_peers(b)?.join(PEER))?;
        b.restart(Component::Mesh).await?;
        return Ok(b.stop(Component::SecondMeshEtcd).await?);
    };
    read?;

    let events = records.events_since(since, &copies, NAMES).await?;
    let is_removal = |event: &(String, bool)| event.1;
    let removals = events.iter().filter(|event| is_removal(event)).count();
    ensure!(removals == NAMES / 50, "{removals} removals");
    let last = events.iter().rposition(is_removal).context("a removal")?;
    let before = last + 1 - removals;
    println!(
        "{before} of {} copies were written before the last of {removals} was deleted",
        NAMES - removals
    );
    ensure!(before <= NAMES / 10, "{before} before: {events:?}");

    fs::remove_file(copied_peers(b)?.join(PEER))?;
    Ok(b.stop(Component::SecondMeshEtcd).await?)
}
