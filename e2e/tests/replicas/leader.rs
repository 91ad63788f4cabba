//! The leader dies, stops, stands still, or cannot reach the API server. A looks on with two operators; B is the peer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use tombolo_e2e::{
    replicas::{REPLICAS, Replicas, other},
    scene::{Holding, Scene},
};
use tombolo_testbed::{Component, Testbed, eventually, patience};

use crate::{A, B};

/// Times of an election.
struct Times {
    /// What sets them.
    flags: &'static [&'static str],
    /// Longest time until another replica leads after the leader died: duration of the Lease and retry period.
    takeover: Duration,
    /// How long a leader writes without a renewal.
    renew_deadline: Duration,
}

/// What everybody gets who sets nothing: 15 s, 10 s, 2 s.
const DEFAULT: Times = Times {
    flags: &[],
    takeover: Duration::from_secs(17),
    renew_deadline: Duration::from_secs(10),
};

/// What happens is the same with shorter ones.
const SHORT: Times = Times {
    flags: &[
        "--leader-election-lease-duration=10s",
        "--leader-election-renew-deadline=7s",
        "--leader-election-retry-period=1s",
    ],
    takeover: Duration::from_secs(13),
    renew_deadline: Duration::from_secs(7),
};

/// Longest time until another replica leads after the leader was told to stop: the Lease is given back, which takes 1 or 2 s. Less
/// than a Lease of [`DEFAULT`] that is not given back would take.
const HANDOVER: Duration = Duration::from_secs(10);

/// How much later than it happened something may be seen on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// When something is seen that happens after this time.
fn at_latest(time: Duration) -> Duration {
    time + SLACK * patience()
}

/// How long to look when a leader is expected. More than any takeover takes, so that a late one is told by its time.
const BUDGET: Duration = Duration::from_secs(40);

/// What B exports all the time.
const KEPT: [&str; 2] = ["both", "of-b"];

/// Writes that keep a leader busy for a while.
const MANY: usize = 10;

/// Two replicas in A, and a scene with exports of both clusters.
struct Stage<'t> {
    times: Times,
    replicas: Replicas<'t>,
    scene: Scene<'t>,
    holding: Holding,
    leader: Component,
    begin: Timestamp,
}

impl<'t> Stage<'t> {
    async fn set(testbed: &'t Testbed, times: Times) -> Result<Self> {
        let replicas = Replicas::start(testbed.cluster(A), times.flags).await?;
        let mut scene = Scene::new(testbed).await?;
        scene.export(A, "both").await?;
        for name in KEPT {
            scene.export(B, name).await?;
        }
        scene.settled().await.context("before the fault")?;
        let leader = replicas.leader(BUDGET).await?;
        ensure!(!replicas.leads(other(leader)).await?, "both lead");
        Ok(Self {
            times,
            holding: scene.holding(A, &KEPT).await?,
            leader,
            begin: Timestamp::now(),
            replicas,
            scene,
        })
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

    /// The same for `old` and then `new`, of which `old` was stopped where it was: a request whose check was past is sent when the
    /// process goes on, and nobody can call it back. There is at most one for each thread of the process.
    async fn ends_with_what_was_in_hand(&self, old: Component, new: Component) -> Result<()> {
        self.scene.settled().await.context("after the fault")?;
        let terms = self.replicas.terms_since(self.begin)?;
        println!("{terms:#?}");
        let first = terms.first().context("nobody has written")?;
        let late = terms.iter().skip(1).filter(|term| term.writer == old);
        let late: usize = late.map(|term| term.writes).sum();
        let threads = std::thread::available_parallelism()?.get();
        let handed_over = terms.iter().skip(1).any(|term| term.writer == new);
        ensure!(first.writer == old && handed_over, "{terms:#?}");
        ensure!(
            late <= threads,
            "{late} writes of {old} after it went on: {terms:#?}"
        );
        Ok(())
    }
}

/// Exports of B that come one after the other.
async fn more_exports(scene: &mut Scene<'_>, prefix: &str) -> Result<()> {
    for number in 0..MANY {
        scene.export(B, &format!("{prefix}-{number}")).await?;
    }
    Ok(())
}

/// Waits until this replica leads, while exports come; returns how long it took.
async fn taken_over(stage: &mut Stage<'_>, new: Component) -> Result<Duration> {
    let (took, ()) = tokio::try_join!(
        stage.replicas.until_leads(new, BUDGET),
        more_exports(&mut stage.scene, "late")
    )?;
    Ok(took)
}

/// SIGKILL while exports come: the other takes over, nothing goes, and the one that comes back writes nothing.
pub(crate) async fn is_killed(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed, DEFAULT).await?;
    let (old, new) = (stage.leader, other(stage.leader));
    more_exports(&mut stage.scene, "early").await?;

    stage.replicas.cluster().kill9(old)?;
    let took = taken_over(&mut stage, new).await?;
    println!("takeover after SIGKILL: {took:.1?}");
    ensure!(took <= at_latest(stage.times.takeover), "{took:?}");
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
    let mut stage = Stage::set(testbed, DEFAULT).await?;
    let (old, new) = (stage.leader, other(stage.leader));
    more_exports(&mut stage.scene, "early").await?;

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
    more_exports(&mut stage.scene, "late").await?;
    stage.scene.keeps(&stage.holding).await?;
    stage.replicas.cluster().restart(old).await?;

    stage.ends_with(&[old, new]).await
}

/// SIGSTOP in the middle of writes, beyond the end of the Lease, then SIGCONT: it must not finish what it had begun.
pub(crate) async fn stands_still(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed, SHORT).await?;
    let (old, new) = (stage.leader, other(stage.leader));
    let cluster = stage.replicas.cluster();
    more_exports(&mut stage.scene, "early").await?;

    cluster.pause(old)?;
    let took = taken_over(&mut stage, new).await?;
    println!("takeover after SIGSTOP: {took:.1?}");
    ensure!(took <= at_latest(stage.times.takeover), "{took:?}");
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

    stage.ends_with_what_was_in_hand(old, new).await
}

/// The API server accepts connections and does not answer.
pub(crate) async fn api_server_hangs(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::set(testbed, SHORT).await?;
    let cluster = stage.replicas.cluster();

    cluster.pause(Component::ApiServer)?;
    let gone = nobody_leads(&mut stage).await;
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
    let mut stage = Stage::set(testbed, SHORT).await?;
    let cluster = stage.replicas.cluster();

    cluster.kill9(Component::ApiServer)?;
    let gone = nobody_leads(&mut stage).await?;
    println!("nobody leads {gone:.1?} after the API server died");
    cluster.restart(Component::ApiServer).await?;

    somebody_leads_again(&stage).await?;
    stage.scene.keeps(&stage.holding).await?;
    stage.scene.settled().await.context("after it is back")?;
    one_at_a_time(&stage)
}

/// Waits until neither replica leads, while exports come; returns how long it took.
async fn nobody_leads(stage: &mut Stage<'_>) -> Result<Duration> {
    let begin = Instant::now();
    let (replicas, deadline) = (&stage.replicas, stage.times.renew_deadline);
    let gone = eventually(BUDGET, "no replica to lead", async || {
        for replica in REPLICAS {
            match replicas.leads(replica).await {
                Ok(false) => {}
                other => return Err(format!("{replica}: {other:?}")),
            }
        }
        Ok(begin.elapsed())
    });
    let exports = more_exports(&mut stage.scene, "meanwhile");
    let (took, exported) = tokio::join!(gone, exports);
    exported?;
    let took = took?;
    // The last renewal was before the fault.
    ensure!(took <= at_latest(deadline), "{took:?}");
    Ok(took)
}

async fn somebody_leads_again(stage: &Stage<'_>) -> Result<()> {
    let begin = Instant::now();
    stage.replicas.leader(BUDGET).await?;
    let took = begin.elapsed();
    println!("somebody leads {took:.1?} after the API server is back");
    ensure!(took <= at_latest(stage.times.takeover), "{took:?}");
    Ok(())
}

/// Terms of the two replicas do not overlap: each changed hands at most once here.
fn one_at_a_time(stage: &Stage<'_>) -> Result<()> {
    let terms = stage.replicas.terms_since(stage.begin)?;
    println!("{terms:#?}");
    ensure!(terms.len() <= 2, "{terms:#?}");
    Ok(())
}
