//! `tombolo connect` and `tombolo disconnect`: lets clusters read each other's mesh etcds, or no longer.
//!
//! Reads the installations under the user's own rights, plans, writes what is missing and waits until the processes have taken it up.
//! Whatever is there already stays; so a second run finishes what the first did not. The key of an authority never leaves its
//! cluster: what goes over is certificates of authorities, and a certificate with its key for the peer.

mod args;
mod check;
mod credentials;
mod error;
mod exposure;
mod facts;
mod files;
mod gather;
mod installation;
mod invitation;
mod networks;
mod objects;
mod plan;
#[cfg(test)]
mod plan_tests;
mod progress;
#[cfg(test)]
mod progress_tests;
mod refusal;
mod session;
mod single;
mod steps;
#[cfg(test)]
mod testkit;
mod text;
mod undo;
mod users;
mod write;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use jiff::Timestamp;

pub use self::args::{ConnectArgs, DisconnectArgs};
use self::{args::Common, plan::Settings, progress::Goal, session::Session, steps::Plan};
pub(super) use self::{error::ConnectError, session::NotSynced};
use crate::cli::interruption::until_interrupted;

/// What `--help` says beyond the flags.
pub(super) const HELP: &str = "\
Makes in each cluster what lets the others read its mesh etcd (a user, a certificate, a Service where it is needed), and tells its
processes where the others are. Whatever is there already stays; more clusters can be connected later. helm upgrade keeps it.

Examples:
  tombolo connect paris rome --dry-run
  tombolo connect paris rome oslo
  tombolo connect paris rome --exposure load-balancer
  tombolo connect paris rome --endpoint rome=mesh.rome.example.org:2379

Without the kubeconfig of the other side, each side runs:
  tombolo connect paris --invite rome --file paris-for-rome.yaml      # hand the file over; who has it can read the mesh etcd
  tombolo connect paris --accept rome-for-paris.yaml

Exit codes:
  0  done: everything is written, and taken up unless --no-wait or --dry-run
  1  failed: an API server did not answer, or refused
  2  refused or bad input: nothing was written; a flag, a file, clusters that do not go together
  5  written, but not taken up within --wait-duration
  130  interrupted; run it again to complete it";

/// What `--help` of `disconnect` says beyond the flags.
pub(super) const DISCONNECT_HELP: &str = "\
Takes out exactly what tombolo connect has written. What a cluster imports from a peer that is taken out goes.

Examples:
  tombolo disconnect paris rome --dry-run
  tombolo disconnect paris --peer rome      # rome is gone, or somebody else's

Exit codes: as tombolo connect.";

/// Connects.
pub(super) fn run(args: &ConnectArgs) -> Result<()> {
    refuse_strangers(&args.strangers(), "--exposure, --endpoint, --namespace")?;
    let one_sided = args.invite.is_some() || args.accept.is_some();
    check_contexts(
        &args.common,
        one_sided,
        "--invite NAME --file FILE, or --accept FILE",
    )?;
    block_on(async {
        let mut session = Session::open(&args.common).await?;
        if one_sided {
            return single::run(args, &mut session).await;
        }
        let contexts = args.common.contexts.iter();
        let wishes: Vec<_> = contexts.map(|context| args.wish(context)).collect();
        let make = |sites: &[facts::Site]| {
            let settings = Settings {
                wishes: &wishes,
                force: args.force,
                now: Timestamp::now(),
            };
            plan::build(sites, settings)
        };
        let (sites, plan) = session.carry_out(make).await?;
        session.finish(&sites, &plan, Goal::Synced).await
    })
}

/// Disconnects.
pub(super) fn run_disconnect(args: &DisconnectArgs) -> Result<()> {
    refuse_strangers(&args.common.strangers(), "--namespace")?;
    check_contexts(&args.common, args.peer.is_some(), "--peer NAME")?;
    block_on(async {
        let mut session = Session::open(&args.common).await?;
        let make = |sites: &[facts::Site]| -> Plan {
            let peers = sites.iter().enumerate().map(|(index, site)| {
                let others = sites.iter().enumerate().filter(|(it, _)| *it != index);
                let others = others.map(|(_, other)| other.card.cluster.clone());
                let peers: BTreeSet<_> = others.chain(args.peer.clone()).collect();
                (site, peers)
            });
            undo::build(&peers.collect::<Vec<_>>())
        };
        let (sites, plan) = session.carry_out(make).await?;
        session.finish(&sites, &plan, Goal::Gone).await
    })
}

/// Refuses what flags say of contexts that are not there.
fn refuse_strangers(strangers: &[&str], of: &str) -> Result<()> {
    let Some(context) = strangers.first() else {
        return Ok(());
    };
    Err(flags(format!(
        "{of}: {context}: not among the contexts of this command; name one of them"
    )))
}

/// Two contexts or more, or one and the flags for that.
fn check_contexts(common: &Common, one_sided: bool, instead: &str) -> Result<()> {
    let contexts = &common.contexts;
    let distinct: BTreeSet<_> = contexts.iter().collect();
    if distinct.len() != contexts.len() {
        return Err(flags(format!(
            "contexts {}: one is there twice; name each once",
            contexts.join(" ")
        )));
    }
    match (contexts.len(), one_sided) {
        (1, true) | (2.., false) => Ok(()),
        (_, true) => Err(flags(format!(
            "{instead}: expected one context; name that of the cluster to be changed"
        ))),
        (_, false) => Err(flags(format!(
            "expected two contexts or more; name those of the clusters, or, with one, {instead}"
        ))),
    }
}

fn flags(problem: String) -> anyhow::Error {
    ConnectError::Flags(problem).into()
}

/// Runs it, until somebody interrupts it: then at once.
fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    // A second installation fails, and that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let last = || "run the command again to complete it".to_owned();
    let outcome = runtime.block_on(until_interrupted(work, last));
    // A credential plugin that hangs is not waited for.
    runtime.shutdown_background();
    outcome
}
