//! `scale`: one operator that follows many peers. How long until it knows what all of them say, how much memory that
//! takes, and how much of a core it needs at rest and under changes. The peers are records in one etcd.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use comfy_table::Table;
use etcd_client::Client;
use tombolo_e2e::mock_peers::{MAX_CONNECTED, MockPeers};
use tombolo_testbed::{Cluster, Component, Error, Role, Testbed};

/// Measures an operator with many peers: time until all are synced, memory, processor time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Peers; all their records are in one etcd.
    #[arg(long, default_value_t = 255, value_parser = clap::value_parser!(u32).range(1..=510))]
    peers: u32,
    /// Global services of each peer.
    #[arg(long, default_value_t = 1000)]
    services: u32,
    /// How many of them each peer exports too; the same names in all, so this many imports are made.
    #[arg(long, default_value_t = 0)]
    exported: u32,
    /// Backends of each service.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=250))]
    backends: u8,
    /// Seconds of rest, and of changes, over which processor time is measured.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Changes each second in the second part, spread over all peers.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Longest wait until all peers are synced, in seconds.
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error:#}");
            let assets = error
                .downcast_ref()
                .is_some_and(|it| matches!(it, Error::Assets(_)));
            ExitCode::from(if assets { 2 } else { 1 })
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let peers = MockPeers {
        peers: arguments.peers,
        services: arguments.services,
        exported: arguments.exported,
        backends: arguments.backends,
    };
    let report = |done| progress("peers written", done, arguments.peers);
    peers.write(cluster, report).await?;
    let _beating = peers.beat(cluster).await?;
    let start = Instant::now();
    let flag = format!("--max-connected-clusters={MAX_CONNECTED}");
    cluster.start_role(Role::Operator, &[&flag]).await?;
    let synced = until_synced(cluster, &arguments, start).await?;
    let begun = Usage::of(cluster)?;
    let rest = Duration::from_secs(arguments.seconds);
    tokio::time::sleep(rest).await;
    let rested = Usage::of(cluster)?;
    let (changes, took) = change(&peers, cluster, &arguments).await?;
    let busy = Usage::of(cluster)?;
    let mut table = Table::new();
    table.set_header(["what", "value"]);
    let mut row = |what: &str, value: String| {
        table.add_row([what.to_owned(), value]);
    };
    row("peers", arguments.peers.to_string());
    row(
        "records of services and exports",
        format!(
            "{} + {}",
            u64::from(peers.peers) * u64::from(peers.services),
            u64::from(peers.peers) * u64::from(peers.exported)
        ),
    );
    row(
        "process start → all peers synced",
        format!("{:.1} s", synced.as_secs_f64()),
    );
    row(
        "processor time until then",
        format!("{:.1} s", begun.cpu.as_secs_f64()),
    );
    row("resident memory", mebibytes(rested.resident));
    row("peak of resident memory", mebibytes(busy.peak));
    row("cores used at rest", cores(rested.since(&begun), rest));
    row(
        "changes per second",
        format!("{:.0}", changes / took.as_secs_f64()),
    );
    row("cores used under them", cores(busy.since(&rested), took));
    println!("{table}");
    Ok(())
}

/// Waits until the operator says of every peer that it is ready.
async fn until_synced(
    cluster: &Cluster,
    arguments: &Arguments,
    start: Instant,
) -> Result<Duration> {
    loop {
        let ready = ready_peers(cluster).await?;
        let waited = start.elapsed();
        progress("peers ready", ready, arguments.peers);
        if ready == arguments.peers {
            return Ok(waited);
        }
        ensure!(
            waited < Duration::from_secs(arguments.patience),
            "{ready} of {} peers are ready after {} s; see the operator's log with KEEP=1",
            arguments.peers,
            arguments.patience
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn ready_peers(cluster: &Cluster) -> Result<u32> {
    let page = cluster.role_page(Role::Operator, "/v1/cluster").await?;
    let peers: Vec<serde_json::Value> =
        serde_json::from_str(&page).context("/v1/cluster is a list of peers")?;
    let ready = peers.iter().filter(|peer| peer["ready"] == true);
    Ok(u32::try_from(ready.count())?)
}

/// Changes records at the asked rate; returns how many, and in what time.
async fn change(
    peers: &MockPeers,
    cluster: &Cluster,
    arguments: &Arguments,
) -> Result<(f64, Duration)> {
    let mut client = Client::connect([cluster.mesh_etcd_endpoint()?], None).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(arguments.rate)?);
    let (start, rounds) = (Instant::now(), arguments.seconds * arguments.rate);
    for round in 0..u32::try_from(rounds)? {
        ticks.tick().await;
        let (peer, service) = (
            round % peers.peers,
            round / peers.peers % peers.services.max(1),
        );
        let turn = u8::try_from(1 + round / peers.peers / peers.services.max(1) % 250)?;
        peers
            .touch(&mut client, cluster, peer, service, turn)
            .await?;
    }
    Ok((f64::from(u32::try_from(rounds)?), start.elapsed()))
}

/// What the operator's process has used so far.
struct Usage {
    cpu: Duration,
    resident: u64,
    peak: u64,
}

impl Usage {
    fn of(cluster: &Cluster) -> Result<Self> {
        let pids = cluster.pids()?;
        let pid = pids
            .get(&Component::Operator)
            .context("the operator ended; see its log with KEEP=1")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let bytes = |field: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kibibytes * 1024)
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // After the name in parentheses, which may contain anything: field 14 is user time, 15 system time.
        let fields: Vec<_> = stat
            .rsplit_once(')')
            .context("/proc/PID/stat has a name")?
            .1
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Self {
            cpu: Duration::from_millis(ticks * 1000 / CLOCK_TICKS),
            resident: bytes("VmRSS:").context("VmRSS in /proc/PID/status")?,
            peak: bytes("VmHWM:").context("VmHWM in /proc/PID/status")?,
        })
    }
}

impl Usage {
    /// Processor time since an earlier look.
    fn since(&self, earlier: &Self) -> Duration {
        self.cpu.saturating_sub(earlier.cpu)
    }
}

/// Ticks of a second in `/proc/PID/stat`: 100 on every Linux that Rust runs on (`USER_HZ`).
const CLOCK_TICKS: u64 = 100;

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes / 1024 / 1024)
}

fn cores(used: Duration, over: Duration) -> String {
    format!("{:.3}", used.as_secs_f64() / over.as_secs_f64())
}

fn progress(what: &str, done: u32, of: u32) {
    if stderr().is_terminal() {
        eprint!(
            "\r{what}: {done} of {of}{}",
            if done == of { "\n" } else { "" }
        );
    }
}
