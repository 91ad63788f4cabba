//! The leader dies, stops, stands still, or cannot reach the API server. A looks on with two operators; B is the peer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use tombolo_e2e::{
    replicas::{REPLICAS, Replicas, other},
    scene::{Holding, Scene},
};
use tombolo_testbed::{Component, Testbed, eventually};

use crate::{A, B};

/// Longest time until another replica leads after the leader died, with the default settings.
const TAKEOVER: Duration = Duration::from_secs(20);

/// Longest time until another replica leads after the leader was told to stop: the Lease is given back.
const HANDOVER: Duration = Duration::from_secs(3);

/// Default of `--leader-election-renew-deadline`.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How long to look when a leader is expected. More than [`TAKEOVER`], so that a late one is told by its time.
const BUDGET: Duration = Duration::from_secs(40);

/// What B exports all the time.
const KEPT: [&str; 2] = ["both", "of-b"];

/// Writes that keep a leader busy for a while.
const MANY: usize = 25;

/// Two replicas in A, and a scene with exports of both clusters.
struct Stage<'t> {
    replicas: Replicas<'t>,
    scene: Scene<'t>,
    holding: Holding,
    leader: Component,
    begin: Timestamp,
}

impl<'t> Stage<'t> {
    async fn set(testbed: &'t Testbed) -> Result<Self> {
        let replicas = Replicas::start(testbed.cluster(A), &[]).await?;
        let mut scene = Scene::new(testbed).await?;
        scene.export(A, "both").await?;
        for name in KEPT {
            scene.export(B, name).await?;
        }
        scene.settled().await.context("before the fault")?;
        let leader = replicas.leader(BUDGET).await?;
        ensure!(!replicas.leads(other(leader)).await?, "both lead");
        Ok(Self {
            holding: scene.holding(A, &KEPT).await?,
            leader,
            begin: Timestamp::now(),
            replicas,
            scene,
        })
    }

    /// Exports of B that come one after the other.
    async fn more_exports(&mut self, prefix: &str) -> Result<()> {
        for number in 0..MANY {
            self.scene.export(B, &format!("{prefix}-{number}")).await?;
        }
        Ok(())
    }

    /// Everything is as it must be, and since the beginning these have written, in this order.
    async fn ends_with(&self, writers: &[Component]) -> Result<()> {
        self.scene.settled().await.context("after the fault")?;
        let terms = self.replicas.terms_since(self.begin)?;
        println!("{terms:#?}");
        let wrote: Vec<_> = terms.iter().map(|term| term.writer).collect();
        ensure!(wrote == writers, "{terms:#?}, expected {writers:?}");
        Ok(())
    }
}

/// SIGKILL while exports come: the other takes over, nothing goes, and the one that comes back writes nothing.
pub(crate) async fn is_killed(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed).await?;
    let (old, new) = (stage.leader, other(stage.leader));
    stage.more_exports("early").await?;

    stage.replicas.cluster().kill9(old)?;
    let begin = Instant::now();
    stage.more_exports("late").await?;
    stage.replicas.until_leads(new, BUDGET).await?;
    let took = begin.elapsed();
    println!("takeover after SIGKILL: {took:.1?}");
    ensure!(took <= TAKEOVER, "{took:?}");
    stage.scene.keeps(&stage.holding).await?;
    stage.replicas.cluster().restart(old).await?;
    stage.scene.unexport(B, "late-0").await?;

    stage.ends_with(&[old, new]).await?;
    let writes = stage
        .replicas
        .metric(old, "tombolo_operator_api_writes_total");
    ensure!(writes.await? == 0.0, "the standby has written");
    ensure!(!stage.replicas.leads(old).await?, "two lead");
    Ok(())
}

/// SIGTERM: the Lease is given back, so that the other need not wait for its end.
pub(crate) async fn is_told_to_stop(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed).await?;
    let (old, new) = (stage.leader, other(stage.leader));
    stage.more_exports("early").await?;

    let begin = Instant::now();
    let (stopped, led) = tokio::join!(
        stage.replicas.cluster().stop(old),
        stage.replicas.until_leads(new, BUDGET)
    );
    stopped?;
    led?;
    let took = begin.elapsed();
    println!("handover after SIGTERM: {took:.1?}");
    ensure!(took <= HANDOVER, "{took:?}");
    stage.more_exports("late").await?;
    stage.scene.keeps(&stage.holding).await?;
    stage.replicas.cluster().restart(old).await?;

    stage.ends_with(&[old, new]).await
}

/// SIGSTOP in the middle of writes, beyond the end of the Lease, then SIGCONT: it must not finish what it had begun.
pub(crate) async fn stands_still(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed).await?;
    let (old, new) = (stage.leader, other(stage.leader));
    let cluster = stage.replicas.cluster();
    stage.more_exports("early").await?;

    cluster.pause(old)?;
    let begin = Instant::now();
    stage.more_exports("late").await?;
    stage.replicas.until_leads(new, BUDGET).await?;
    let took = begin.elapsed();
    println!("takeover after SIGSTOP: {took:.1?}");
    ensure!(took <= TAKEOVER, "{took:?}");
    cluster.resume(old)?;
    let what = "the paused replica to know that it does not lead";
    eventually(BUDGET, what, async || {
        match stage.replicas.leads(old).await {
            Ok(false) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    stage.scene.unexport(B, "early-0").await?;
    stage.scene.keeps(&stage.holding).await?;

    stage.ends_with(&[old, new]).await
}

/// The API server accepts connections and does not answer.
pub(crate) async fn api_server_hangs(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed).await?;
    let cluster = stage.replicas.cluster();

    cluster.pause(Component::ApiServer)?;
    let begin = Instant::now();
    stage.more_exports("meanwhile").await?;
    let gone = nobody_leads(&stage.replicas, begin).await;
    cluster.resume(Component::ApiServer)?;
    println!(
        "nobody leads {:.1?} after the API server began to hang",
        gone?
    );

    somebody_leads_again(&stage).await?;
    stage.scene.keeps(&stage.holding).await?;
    stage.scene.settled().await.context("after it goes on")?;
    one_at_a_time(&stage)
}

/// The API server is not there.
pub(crate) async fn api_server_is_dead(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed).await?;
    let cluster = stage.replicas.cluster();

    cluster.kill9(Component::ApiServer)?;
    let begin = Instant::now();
    stage.more_exports("meanwhile").await?;
    let gone = nobody_leads(&stage.replicas, begin).await?;
    println!("nobody leads {gone:.1?} after the API server died");
    cluster.restart(Component::ApiServer).await?;

    somebody_leads_again(&stage).await?;
    stage.scene.keeps(&stage.holding).await?;
    stage.scene.settled().await.context("after it is back")?;
    one_at_a_time(&stage)
}

/// Waits until neither replica leads; measured from `begin`.
async fn nobody_leads(replicas: &Replicas<'_>, begin: Instant) -> Result<Duration> {
    let what = "no replica to lead";
    eventually(BUDGET, what, async || {
        for replica in REPLICAS {
            match replicas.leads(replica).await {
                Ok(false) => {}
                other => return Err(format!("{replica}: {other:?}")),
            }
        }
        Ok(())
    })
    .await?;
    let took = begin.elapsed();
    // The last renewal was at most a retry period before.
    ensure!(took <= RENEW_DEADLINE + Duration::from_secs(1), "{took:?}");
    Ok(took)
}

async fn somebody_leads_again(stage: &Stage<'_>) -> Result<()> {
    let begin = Instant::now();
    stage.replicas.leader(BUDGET).await?;
    let took = begin.elapsed();
    println!("somebody leads {took:.1?} after the API server is back");
    ensure!(took <= TAKEOVER, "{took:?}");
    Ok(())
}

/// Terms of the two replicas do not overlap: each changed hands at most once here.
fn one_at_a_time(stage: &Stage<'_>) -> Result<()> {
    let terms = stage.replicas.terms_since(stage.begin)?;
    println!("{terms:#?}");
    ensure!(terms.len() <= 2, "{terms:#?}");
    Ok(())
}
