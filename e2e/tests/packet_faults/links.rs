//! Links between clusters that lose everything.

use std::time::Duration;

use anyhow::{Result, ensure};
use tombolo_e2e::{
    installed::{status, values::STORE_PORT},
    traffic::{
        self,
        sample::{self, Sample, Uptime},
    },
};
use tombolo_testbed::eventually;

use super::{A, B, ground::Ground};

/// Longest time for a cluster to say that it does not hear of a peer.
const NOTICE: Duration = Duration::from_secs(40);

pub(crate) async fn pods_cut(ground: &Ground) -> Result<()> {
    let mut fault = ground.begin("pods of a and b cut apart", B).await?;
    let [a, b] = [A, B].map(|index| ground.mesh.testbed().cluster(index));
    a.cut_pods(b).await?;
    let cut = traffic::now()?;
    fault.retire().await?;
    for cluster in [A, B] {
        fault.goes_on(cluster).await?;
        fault.is_felt(cluster).await?;
    }
    for (cluster, own, peers) in [(A, "web-a", "web-b"), (B, "web-b", "web-a")] {
        let mut samples = fault.samples(cluster).await?;
        samples.retain(|it| it.begin >= cut);
        let answered = sample::answered(&samples);
        ensure!(answered.contains(own), "own pods answer: {answered:?}");
        ensure!(!answered.contains(peers), "nothing passes: {answered:?}");
    }
    a.heal_pods(b).await?;
    fault.healed()?;
    fault.end_with(cut_off).await
}

/// Pods that are cut off are live, and cannot be told from live ones: their packets are lost. Nothing else may fail.
fn cut_off(sample: &Sample, end: Uptime) -> bool {
    sample.begin <= end && sample.lost_packets()
}

pub(crate) async fn store_cut(ground: &Ground) -> Result<()> {
    let mut fault = ground.begin("b's store cut off from a", B).await?;
    let [a, b] = [A, B].map(|index| ground.mesh.testbed().cluster(index));
    a.cut_port(b, STORE_PORT).await?;
    fault.retire().await?;
    let kubeconfig = ground.mesh.testbed().kubeconfig()?;
    eventually(NOTICE, "a says that it does not hear of b", async || {
        let report = status::ask(a, &kubeconfig, &[]).await;
        let report = report.map_err(|error| format!("{error:#}"))?;
        match status::knows(&report, &["b"]) {
            Ok(()) => Err("it does".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await?;
    fault.goes_on(A).await?;
    let samples = fault.samples(A).await?;
    let last = &samples[samples.len().saturating_sub(30)..];
    let answered = sample::answered(last);
    ensure!(
        answered.contains("web-b"),
        "what a peer said that is not heard of is used on: {answered:?}"
    );
    a.heal_port(b, STORE_PORT).await?;
    fault.healed()?;
    fault.end().await
}
