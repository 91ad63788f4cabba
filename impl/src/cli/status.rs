//! `tombolo status`: whether this cluster knows what its peers export, and its peers what it does.
//!
//! Asks the processes, judges by `crate::status::judge`, prints. Reads only. Whatever did not answer, or did not say all, is
//! unknown; and unknown is never green.

mod cluster;
mod gather;
mod http;
mod pods;
mod report;
mod text;

use std::{
    cell::RefCell,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hyper::Uri;
use kube::Client;
use thiserror::Error;

use self::gather::Gathered;
#[cfg(test)]
pub(super) use self::report::Process;
pub(super) use self::report::Report;
use super::{
    args::{Output, StatusArgs},
    interruption::until_interrupted,
    render,
};
use crate::{cluster::client, status::Verdict};

/// How long to ask at most when nothing is waited for. Processes give their stores and peers 3 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long to wait at most with `--wait`, as Cilium's `cilium clustermesh status --wait`.
const WAIT_TIMEOUT: Duration = Duration::from_mins(15);

/// Longest time for one round of questions while waiting.
const ROUND_MAX: Duration = Duration::from_secs(15);

/// A round with less time than this may find that nobody answers for want of time alone: processes give their stores, peers and
/// API server 3 s, and the copies another 3 s.
const ROUND_MIN: Duration = Duration::from_secs(7);

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// What `--help` says beyond the flags.
pub(super) const HELP: &str = "\
How far every store is, is read from the store when the question comes, and every reader has to show that it has reached that
point. What does not answer is unknown, and unknown is never well.

Examples:
  tombolo status --address http://127.0.0.1:9879
  tombolo status --kubeconfig ~/.kube/config --context paris
  tombolo status --wait --timeout 5m -o json

Exit codes:
  0  well: everything is known and up to date
  1  failed: no question could be asked
  2  bad input: a flag, a file, a kubeconfig
  3  problem: something is wrong and will hardly mend itself
  4  unknown: some process, peer or store did not say; nothing is known to be wrong
  5  behind: something is not up to date; nothing is unknown or wrong
  130  interrupted, by Ctrl-C or SIGTERM; the last look, if there was one, is on standard error

JSON (-o json), one object; members are added, never renamed or removed:
  verdict    Well, Behind, Unknown or Problem
  summary    the verdict in one sentence
  processes  [{address, answer, error}]; answer is what the process says at /v1/status, null when it did not answer
  findings   [{process, level, subject, what, next}], the worst first; level is Notice, Behind, Unknown or Problem, and notices do
             not count";

/// What the user has to say differently.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// An address is no plain HTTP URL.
    #[error(
        "--address {address}: expected http://HOST:PORT, as the process has with --health-address"
    )]
    Address {
        /// What was given.
        address: String,
    },
}

/// Not everything is well.
#[derive(Debug, Error)]
#[error("not well: {summary}")]
pub(super) struct NotWell {
    verdict: Verdict,
    summary: String,
}

impl NotWell {
    /// The exit code.
    pub(super) fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Well => 0,
            Verdict::Problem => 3,
            Verdict::Unknown => 4,
            Verdict::Behind => 5,
        }
    }
}

/// Asks, judges, prints.
pub(super) fn run(args: &StatusArgs) -> Result<()> {
    let addresses = args.address.iter().map(|text| address(text));
    let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
    // A second installation fails, and that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let last = RefCell::new("nothing was found out yet".to_owned());
    let asked = ask(args, &addresses, &last);
    let report = runtime.block_on(until_interrupted(asked, || last.take()));
    // A credential plugin that hangs is not waited for.
    runtime.shutdown_background();
    let report = report?;
    let answer = match args.output {
        Output::Text => text::render(&report, style(args)),
        Output::Json => render::json(&report).context("the answer cannot be written as JSON")?,
    };
    io::stdout()
        .write_all(answer.as_bytes())
        .context("cannot write to standard output")?;
    match report.verdict {
        Verdict::Well => Ok(()),
        verdict @ (Verdict::Behind | Verdict::Unknown | Verdict::Problem) => Err(NotWell {
            verdict,
            summary: report.summary,
        }
        .into()),
    }
}

/// One look at all pods of a cluster.
pub(super) async fn look(client: &Client, within: Duration) -> Report {
    report::build(gather::in_cluster(client, within).await)
}

fn address(text: &str) -> Result<Uri, Error> {
    let refused = || Error::Address {
        address: text.to_owned(),
    };
    let uri: Uri = text.parse().map_err(|_| refused())?;
    let plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/");
    if plain && uri.host().is_some_and(|host| !host.is_empty()) {
        Ok(uri)
    } else {
        Err(refused())
    }
}

fn style(args: &StatusArgs) -> text::Style {
    text::Style {
        all: args.all,
        colour: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}

/// Asks once, or until everything is well or the time is over; tells `last` what it knows meanwhile.
async fn ask(args: &StatusArgs, addresses: &[Uri], last: &RefCell<String>) -> Result<Report> {
    let default = if args.wait {
        WAIT_TIMEOUT
    } else {
        ANSWER_TIMEOUT
    };
    let until = Instant::now() + args.timeout.unwrap_or(default);
    let left = || until.saturating_duration_since(Instant::now());
    let client = if addresses.is_empty() {
        match tokio::time::timeout(left(), make_client(args)).await {
            Ok(client) => Some(client?),
            Err(_) => return Ok(report::build(Gathered::without_client())),
        }
    } else {
        None
    };
    let mut before = None;
    loop {
        let within = left().min(ROUND_MAX);
        let report = report::build(round(client.as_ref(), addresses, within).await);
        let report = informed(report, before.take(), within);
        if report.verdict == Verdict::Well || !args.wait || left() <= PAUSE {
            return Ok(report);
        }
        if last.replace(report.summary.clone()) != report.summary && args.output == Output::Text {
            render::note(&format!("waiting: {}", report.summary));
        }
        before = Some(report);
        tokio::time::sleep(PAUSE).await;
    }
}

/// A client by the user's kubeconfig. Made on a thread of its own: the credential plugin that it may name runs as long as it likes,
/// and blocks whoever waits for it.
async fn make_client(args: &StatusArgs) -> Result<Client> {
    let (file, context) = (args.kubeconfig.clone(), args.context.clone());
    let runtime = tokio::runtime::Handle::current();
    let making = tokio::task::spawn_blocking(move || {
        runtime.block_on(client::client(file.as_deref(), context.as_deref()))
    });
    Ok(making.await.context("making a client failed")??)
}

/// What is known after a round: of one that was too short and found less than well, what the round before it has found.
fn informed(report: Report, before: Option<Report>, within: Duration) -> Report {
    match before {
        Some(before) if within < ROUND_MIN && report.verdict != Verdict::Well => before,
        Some(_) | None => report,
    }
}

async fn round(client: Option<&Client>, addresses: &[Uri], within: Duration) -> Gathered {
    match client {
        Some(client) => gather::in_cluster(client, within).await,
        None => gather::at_addresses(addresses, within).await,
    }
}

#[cfg(test)]
mod tests;
