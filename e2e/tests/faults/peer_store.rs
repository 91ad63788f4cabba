//! The peer's store cannot be read, or cannot be believed. Cluster A looks on, cluster B is the peer.

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::{
    records::{EXPORTS, Records, SYNCED},
    scene::{Holding, SETTLE, Scene},
};
use tombolo_testbed::{Component, Role, Testbed, eventually};

use crate::{A, B};

/// What B exports, alone or with A.
const OF_PEER: [&str; 2] = ["both", "of-peer"];

/// A scene with an import from both clusters and one from B only, and what A holds of them.
async fn prepare(testbed: &Testbed) -> Result<(Scene<'_>, Holding)> {
    let exports = [(A, "both"), (B, "both"), (B, "of-peer")];
    let scene = Scene::with_exports(testbed, &exports).await?;
    let holding = scene.holding(A, &OF_PEER).await?;
    Ok((scene, holding))
}

/// Local work of A: a new export gets its import, a new endpoint reaches an import that the peer exports too.
async fn local_work_goes_on(scene: &mut Scene<'_>) -> Result<()> {
    scene.export(A, "local").await?;
    scene
        .import_settled(A, "local")
        .await
        .context("a local export gets its import")?;
    scene.add_pod(A, "both", "second").await?;
    scene
        .import_settled(A, "both")
        .await
        .context("a local endpoint is mirrored")
}

/// The peer's store is gone.
pub(crate) async fn is_down(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(B).kill9(Component::MeshEtcd)?;
    local_work_goes_on(&mut scene).await?;
    scene.keeps(&holding).await?;
    testbed.cluster(B).restart(Component::MeshEtcd).await?;

    scene
        .settled()
        .await
        .context("after the peer's store is back")
}

/// The peer's store accepts connections and does not answer.
pub(crate) async fn is_paused(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(B).pause(Component::MeshEtcd)?;
    scene.add_pod(B, "both", "while-paused").await?;
    scene.unexport(B, "of-peer").await?;
    // What A must hold now is what it held: it cannot know of these two changes.
    scene.keeps(&holding).await?;
    testbed.cluster(B).resume(Component::MeshEtcd)?;

    local_work_goes_on(&mut scene).await?;
    scene
        .settled()
        .await
        .context("after the peer's store goes on")
}

/// The peer's store has lost its canary, so it must not be taken for complete; its publisher is not there to mend it.
pub(crate) async fn has_no_canary(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(B).kill9(Component::Mesh)?;
    let mut records = Records::of(testbed.cluster(B)).await?;
    let canaries = records.delete(&format!("{SYNCED}/b/")).await?;
    ensure!(
        canaries >= 2,
        "{canaries} canaries, expected one for exports and one for services"
    );
    let removed = records
        .delete(&format!("{EXPORTS}/b/{}/of-peer", scene.namespace()))
        .await?;
    ensure!(removed == 1, "{removed} records of `of-peer`");
    // First an operator that saw the canary go, then one that never saw it.
    scene.keeps(&holding).await?;
    testbed.cluster(A).restart(Component::Operator).await?;
    scene
        .keeps(&holding)
        .await
        .context("after a restart of the operator")?;
    local_work_goes_on(&mut scene).await?;
    testbed.cluster(B).restart(Component::Mesh).await?;

    scene.settled().await.context("after the publisher is back")
}

/// The peer's store starts from nothing, and its publisher is late.
pub(crate) async fn comes_back_empty(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    scene.keeps_while_empty(B, &holding).await?;
    local_work_goes_on(&mut scene).await?;
    // What is missing after the refill was meant to go.
    scene.unexport(B, "of-peer").await?;
    testbed.cluster(B).restart(Component::Mesh).await?;

    scene.settled().await.context("after the refill")
}

/// A new operator does not know what the peer exports, and must not take that for nothing.
pub(crate) async fn is_down_while_the_operator_restarts(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;

    testbed.cluster(B).kill9(Component::MeshEtcd)?;
    testbed.cluster(A).kill9(Role::Operator)?;
    scene.add_pod(A, "both", "while-dead").await?;
    testbed.cluster(A).restart(Component::Operator).await?;
    scene
        .import_settled(A, "both")
        .await
        .context("what happened meanwhile is made up for")?;
    local_work_goes_on(&mut scene).await?;
    scene.keeps(&holding).await?;
    testbed.cluster(B).restart(Component::MeshEtcd).await?;

    scene
        .settled()
        .await
        .context("after the peer's store is back")
}

/// The lease of the peer's publisher ends: every key and the canary go in one revision, as if all had been deleted.
pub(crate) async fn loses_its_lease(testbed: &Testbed) -> Result<()> {
    let (mut scene, holding) = prepare(testbed).await?;
    let key = format!("{EXPORTS}/b/{}/of-peer", scene.namespace());
    let mut records = Records::of(testbed.cluster(B)).await?;

    let revoked = records.revoke_lease_of(&key).await?;
    scene
        .keeps(&holding)
        .await
        .context("after the lease was revoked")?;

    let what = "the publisher to write its records again, under a new lease";
    eventually(SETTLE, what, async || {
        let mut records = Records::of(testbed.cluster(B))
            .await
            .map_err(|e| format!("{e:#}"))?;
        match records
            .lease_of(&key)
            .await
            .map_err(|error| format!("{error:#}"))?
        {
            Some(lease) if lease != revoked && lease != 0 => Ok(()),
            other => Err(format!("lease {other:?}, revoked {revoked}")),
        }
    })
    .await?;
    scene.settled().await.context("after the refill")?;
    // A deletion that is meant still gets through.
    scene.unexport(B, "of-peer").await?;
    scene.settled().await.context("after an export ended")
}
