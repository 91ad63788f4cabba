//! Two publishers of one cluster, each with an etcd of its own, behind one address. A reads, B is the peer with two.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::scene::Scene;
use tombolo_testbed::{Component, Forwarder, Role, Testbed, eventually, patience};

use crate::{A, B, one_operator};

/// How often the reader gets to the other store: to one it never saw, back to the one it knew, and to one it has seen.
const FLIPS: usize = 3;

/// Longest time from a flip until a change that was made after it is seen, and until the reader tells of the other store; and how
/// much later on a busy machine.
const NOTICED: Duration = Duration::from_secs(7);
const SLACK: Duration = Duration::from_secs(3);

/// What the operator says when it finds another store.
const REPLACED: &str = "the peer's store was emptied or replaced";

/// Whatever store the reader gets to, it loses nothing, and learns what changed.
pub(crate) async fn flip_behind_one_address(testbed: &Testbed) -> Result<()> {
    let (a, b) = (testbed.cluster(A), testbed.cluster(B));
    b.start_second(Role::Mesh, &[], &[]).await?;
    let stores = [
        address(&b.mesh_etcd_endpoint()?)?,
        address(&b.second_mesh_etcd_endpoint()?)?,
    ];
    let service = Forwarder::start(stores[0]).await?;
    one_operator(testbed).await?;
    a.write_peer(b.name(), &format!("http://{}", service.address()))?;
    let mut scene = Scene::new(testbed).await?;
    scene.export(A, "both").await?;
    scene.export(B, "both").await?;
    for number in 0..20 {
        scene.export(B, &format!("of-b-{number}")).await?;
    }
    scene.settled().await.context("before the first flip")?;

    for flip in 1..=FLIPS {
        let holding = scene.holding(A, &["both", "of-b-0", "of-b-19"]).await?;
        let told = replaced(testbed)?;
        let begin = Instant::now();
        service.switch(stores[flip % 2]);
        scene.add_pod(B, "both", &format!("after-{flip}")).await?;
        scene.export(B, &format!("new-{flip}")).await?;
        scene.unexport(B, &format!("of-b-{flip}")).await?;
        scene.import_settled(A, "both").await?;
        let took = begin.elapsed();
        eventually(
            NOTICED + SLACK,
            "the reader to tell of the other store",
            async || {
                let now = replaced(testbed).map_err(|error| format!("{error:#}"))?;
                (now > told)
                    .then_some(())
                    .ok_or(format!("told {now} times"))
            },
        )
        .await?;
        println!("flip {flip}: a change made afterwards was seen after {took:.1?}");
        ensure!(
            took <= NOTICED + SLACK * patience(),
            "flip {flip}: {took:?}"
        );
        scene.keeps(&holding).await?;
        scene
            .settled()
            .await
            .with_context(|| format!("flip {flip}"))?;
    }

    replica_dies(&mut scene, &service, stores, FLIPS % 2).await?;
    b.stop(Component::SecondMesh).await?;
    b.stop(Component::SecondMeshEtcd).await?;
    a.write_peer(b.name(), &b.mesh_etcd_endpoint()?)?;
    scene.settled().await.context("as before")
}

/// The replica that is read dies, and its etcd goes with its pod: the reader is sent to the other, then to the one that is new.
async fn replica_dies(
    scene: &mut Scene<'_>,
    service: &Forwarder,
    stores: [SocketAddr; 2],
    read: usize,
) -> Result<()> {
    let publisher = [Component::Mesh, Component::SecondMesh][read];
    let store = [Component::MeshEtcd, Component::SecondMeshEtcd][read];
    let b = scene.testbed().cluster(B);
    let holding = scene.holding(A, &["both", "of-b-0"]).await?;

    b.kill9(publisher)?;
    b.kill9(store)?;
    service.switch(stores[1 - read]);
    scene.add_pod(B, "both", "after-death").await?;
    scene.import_settled(A, "both").await?;
    scene.keeps(&holding).await?;
    b.wipe_and_restart(store).await?;
    b.restart(publisher).await?;
    service.switch(stores[read]);
    scene.keeps(&holding).await?;
    scene.settled().await.context("with a replica that is new")
}

/// How often the operator of A has told of another store.
fn replaced(testbed: &Testbed) -> Result<usize> {
    let logs = testbed.cluster(A).logs()?;
    let log = logs.get(&Component::Operator).context("no log")?;
    Ok(std::fs::read_to_string(log)?.matches(REPLACED).count())
}

fn address(url: &str) -> Result<SocketAddr> {
    let address = url.strip_prefix("http://").context("a URL")?;
    Ok(address.parse()?)
}
