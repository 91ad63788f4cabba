//! SIGTERM while what a role writes to does not answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::scene::Scene;
use tombolo_testbed::{Component, Role, Testbed};

use crate::{A, B};

/// Longest time from SIGTERM to the end of a role. Half of what a kubelet gives is plenty.
const STOP: Duration = Duration::from_secs(8);

/// Both roles of A end in time although their stores hang, and nothing that they wrote goes.
pub(crate) async fn in_time(testbed: &Testbed) -> Result<()> {
    let mut scene = Scene::with_exports(testbed, &[(A, "of-a"), (B, "of-b")]).await?;
    let (here, there) = (
        scene.holding(A, &["of-b"]).await?,
        scene.holding(B, &["of-a"]).await?,
    );
    let a = testbed.cluster(A);

    a.pause(Component::MeshEtcd)?;
    scene.add_pod(A, "of-a", "while-paused").await?;
    let mesh = timed(a.stop(Role::Mesh)).await?;
    a.resume(Component::MeshEtcd)?;
    a.pause(Component::ApiServer)?;
    scene.add_pod(B, "of-b", "while-paused").await?;
    let operator = timed(a.stop(Role::Operator)).await?;
    a.resume(Component::ApiServer)?;

    ensure!(mesh < STOP, "the mesh took {mesh:?}");
    ensure!(operator < STOP, "the operator took {operator:?}");
    scene.keeps(&here).await?;
    scene.keeps(&there).await?;
    a.restart(Component::Mesh).await?;
    a.restart(Component::Operator).await?;
    scene.settled().await.context("after both are back")
}

async fn timed(stop: impl Future<Output = Result<(), tombolo_testbed::Error>>) -> Result<Duration> {
    let begin = Instant::now();
    stop.await?;
    Ok(begin.elapsed())
}
