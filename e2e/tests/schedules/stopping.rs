//! SIGTERM while what a role writes to does not answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::{
    replicas::Replicas,
    scene::{SETTLE, Scene},
};
use tombolo_testbed::{Cluster, Component, Role, Testbed, eventually, patience};

use crate::{A, B};

/// Longest time from SIGTERM to the end of a role, and how much later it is seen on a busy machine. A kubelet gives 30 s.
const STOP: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(3);

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
    has_work_in_hand(&Replicas::of(a)).await?;
    let (operator, said) = tokio::join!(timed(a.stop(Role::Operator)), says_so(a, Role::Operator));
    let operator = operator?;
    said.context("the operator")?;
    a.resume(Component::ApiServer)?;

    let limit = STOP + SLACK * patience();
    ensure!(mesh < limit, "the mesh took {mesh:?}");
    ensure!(operator < limit, "the operator took {operator:?}");
    scene.keeps(&here).await?;
    scene.keeps(&there).await?;
    a.restart(Component::Mesh).await?;
    a.restart(Component::Operator).await?;
    scene.settled().await.context("after both are back")
}

/// Waits until a role says that it is not ready since it stops: before it has ended, so that nobody counts on it any more.
async fn says_so(cluster: &Cluster, role: Role) -> Result<()> {
    let what = "a role that stops to say so";
    eventually(STOP + SLACK, what, async || {
        match cluster.role_page(role, "/readyz").await {
            Err(error) if error.to_string().contains("stopping") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// Waits until the operator hangs in a piece of work.
async fn has_work_in_hand(operator: &Replicas<'_>) -> Result<()> {
    let metric = "tombolo_queue_oldest_seconds";
    eventually(
        SETTLE,
        "the operator to hang in a write",
        async || match operator.greatest(Component::Operator, metric).await {
            Ok(oldest) if oldest > 0.3 => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;
    Ok(())
}

async fn timed(stop: impl Future<Output = Result<(), tombolo_testbed::Error>>) -> Result<Duration> {
    let begin = Instant::now();
    stop.await?;
    Ok(begin.elapsed())
}
