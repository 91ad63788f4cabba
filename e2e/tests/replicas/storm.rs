//! A peer that changes a thousand records a second. A reads it; its store is written by hand, as peer `storm`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_e2e::{
    hand_written::HandWritten,
    replicas::Replicas,
    scene::{SETTLE, Scene},
    view::target,
};
use tombolo_testbed::{Cluster, Component, Testbed, eventually, patience};

use crate::{A, one_operator};

/// Services of the peer.
const NAMES: u32 = 100;

/// Changes that are made, and how many per second.
const CHANGES: u32 = 8_000;
const PER_SECOND: u32 = 1_000;

/// Hands that write at the same time, and how many changes each makes in one transaction.
const WRITERS: u32 = 10;
const AT_ONCE: u32 = 10;

/// Longest that a name may wait during the storm, in seconds, how much longer on a busy machine, and memory that it may cost.
const OLDEST: f64 = 3.0;
const SLACK: f64 = 2.0;
const MEMORY_KIB: u64 = 100 * 1024;

const PEER: &str = "storm";
/// Port of every service.
const PORT: u16 = 8080;

/// Backends of a name after so many changes of it: some come, some go.
fn backends(name: u32, change: u32) -> Vec<String> {
    let address = |number: u32| format!("10.{}.{}.{}", 200 + name / 250, name % 250, number);
    (0..=change % 5)
        .map(|number| address(change / 5 % 20 * 5 + number))
        .collect()
}

/// What the operator has done and holds.
struct Done {
    reconciles: f64,
    writes: f64,
    memory: u64,
}

impl Done {
    async fn by(operator: &Replicas<'_>) -> Result<Self> {
        let of = Component::Operator;
        let pids = operator.cluster().pids()?;
        Ok(Self {
            reconciles: operator
                .metric(of, "tombolo_operator_reconciles_total")
                .await?,
            writes: operator
                .metric(of, "tombolo_operator_api_writes_total")
                .await?,
            memory: resident(*pids.get(&of).context("no operator")?)?,
        })
    }
}

/// Queues stay within the number of names, work coalesces, memory stays, and in the end everything is right.
pub(crate) async fn a_thousand_changes_a_second(testbed: &Testbed) -> Result<()> {
    let a = testbed.cluster(A);
    one_operator(testbed).await?;
    let operator = Replicas::of(a);
    let scene = Scene::new(testbed).await?;
    let peer = HandWritten::start(a, PEER, scene.namespace()).await?;
    let exports = (0..NAMES).map(|number| peer.export(&format!("web-{number}"), &[PORT]));
    peer.write(exports.collect()).await?;
    a.write_peer(PEER, peer.endpoint())?;
    let derived = derived_services(&scene).await?;
    let names: Vec<String> = derived.values().cloned().collect();
    let before = Done::by(&operator).await?;

    let changing = write_all(&peer, &names);
    let (took, seen) = while_watching(changing, &operator).await?;
    let rate = f64::from(CHANGES) / took.as_secs_f64();
    let over = Instant::now();
    last_values_arrive(&scene, &derived).await?;
    let settled = over.elapsed();
    let after = Done::by(&operator).await?;
    let reconciles = after.reconciles - before.reconciles;
    let writes = after.writes - before.writes;
    let grown = after.memory.saturating_sub(before.memory);
    println!(
        "{CHANGES} changes of {NAMES} services in {took:.1?} ({rate:.0}/s): deepest queue {:.0}, oldest name {:.2} s, \
         {reconciles} reconciles, {writes} writes, {grown} KiB more than {} KiB, at rest {settled:.1?} afterwards",
        seen.depth, seen.oldest, before.memory
    );

    ensure!(seen.looks > 0, "the queues were never seen");
    if rate < 0.8 * f64::from(PER_SECOND) {
        println!("not run: a thousand changes a second: the machine made {rate:.0}");
    } else {
        // Each controller's queue holds a name at most once, and a change of slices concerns two of them.
        ensure!(seen.depth <= 3.0 * f64::from(NAMES), "{}", seen.depth);
        let oldest = OLDEST + SLACK * f64::from(patience());
        ensure!(seen.oldest <= oldest, "{}", seen.oldest);
        let half = f64::from(CHANGES) / 2.0;
        ensure!(writes < half, "{writes} writes for {CHANGES} changes");
    }
    ensure!(grown <= MEMORY_KIB, "{grown} KiB");
    leave(a, &scene).await
}

/// Takes the peer away, and waits until everything of it is gone.
async fn leave(cluster: &Cluster, scene: &Scene<'_>) -> Result<()> {
    cluster.remove_peer(PEER)?;
    let what = "everything of the peer to go with it";
    eventually(SETTLE, what, async || {
        let objects = scene.objects(A).await;
        let objects = objects.map_err(|error| format!("{error:#}"))?;
        let left = objects.imports.len() + objects.slices.len();
        (left == 0).then_some(()).ok_or(format!("{left} objects"))
    })
    .await?;
    Ok(cluster.stop(Component::SecondMeshEtcd).await?)
}

/// Names of the derived Services by import, once all are there.
async fn derived_services(scene: &Scene<'_>) -> Result<BTreeMap<String, String>> {
    let found = eventually(SETTLE, "an import for each export", async || {
        let objects = scene
            .objects(A)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let ready =
            |import: &&ServiceImport| import.spec.ips.as_ref().is_some_and(|ips| !ips.is_empty());
        let named = |import: &ServiceImport| {
            let derived = import.annotations().get(keys::DERIVED_SERVICE)?;
            Some((import.name_any(), derived.clone()))
        };
        let derived: BTreeMap<_, _> = objects
            .imports
            .iter()
            .filter(ready)
            .filter_map(named)
            .collect();
        (derived.len() == NAMES as usize)
            .then_some(derived.clone())
            .ok_or(format!("{}", derived.len()))
    });
    Ok(found.await?)
}

/// Makes all changes on schedule; returns how long it took. Several at a time, each of another service, go into one transaction.
async fn write_all(peer: &HandWritten<'_>, names: &[String]) -> Result<Duration> {
    let begin = Instant::now();
    let hand = async |hand: u32| -> Result<()> {
        let first = (hand * AT_ONCE..CHANGES).step_by((WRITERS * AT_ONCE) as usize);
        for first in first {
            let due = begin + Duration::from_secs(1) * first / PER_SECOND;
            tokio::time::sleep_until(due.into()).await;
            let puts = (first..first + AT_ONCE).map(|change| {
                let (number, name) = (change % NAMES, &names[(change % NAMES) as usize]);
                peer.service(name, &backends(number, change / NAMES), &[PORT])
            });
            peer.write(puts.collect()).await?;
        }
        Ok(())
    };
    futures::future::try_join_all((0..WRITERS).map(hand)).await?;
    Ok(begin.elapsed())
}

/// The worst of what the operator showed.
#[derive(Debug, Default)]
struct Worst {
    depth: f64,
    oldest: f64,
    looks: u32,
}

/// Looks at the operator's queues as long as the storm lasts.
async fn while_watching(
    storm: impl Future<Output = Result<Duration>>,
    operator: &Replicas<'_>,
) -> Result<(Duration, Worst)> {
    let mut worst = Worst::default();
    let mut storm = Box::pin(storm);
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            took = &mut storm => return Ok((took?, worst)),
            _ = ticks.tick() => {}
        }
        let of = Component::Operator;
        let depth = operator.metric(of, "tombolo_queue_depth").await;
        let oldest = operator.greatest(of, "tombolo_queue_oldest_seconds").await;
        let (Ok(depth), Ok(oldest)) = (depth, oldest) else {
            // One of many looks; the next tells of the same queues.
            continue;
        };
        worst = Worst {
            looks: worst.looks + 1,
            depth: worst.depth.max(depth),
            oldest: worst.oldest.max(oldest),
        };
    }
}

/// Waits until the endpoints of every service are those that were written last.
async fn last_values_arrive(scene: &Scene<'_>, derived: &BTreeMap<String, String>) -> Result<()> {
    eventually(SETTLE, "the last value of every service", async || {
        let objects = scene
            .objects(A)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let view = objects.view(BTreeSet::new());
        for (number, name) in (0..).zip(derived.keys()) {
            let last = backends(number, CHANGES / NAMES - 1);
            let wanted: BTreeSet<_> = last
                .iter()
                .map(|address| target("p8080", address, PORT.into()))
                .collect();
            let seen = view.imports.get(name).map(|import| import.targets.clone());
            if seen.as_ref() != Some(&wanted) {
                return Err(format!("{name}: {seen:?}, wanted {wanted:?}"));
            }
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.context("no VmRSS")?.split_whitespace().next();
    Ok(number.context("no number")?.parse()?)
}
