//! `tombolo dns configure`: has the cluster's CoreDNS answer names of imported services, checks that, or takes it back.
//!
//! The order matters: nothing is switched on before the API is served and CoreDNS may read it, and the right goes only after no
//! pod of CoreDNS uses it. What is done is proven by answers of the pods, not by what was written.

mod answer;
pub mod apply;
pub mod args;
pub mod corefile;
pub mod error;
pub mod observe;
pub mod plan;
mod rights;
mod text;
pub mod version;

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::Client;

use self::{
    answer::Wanted,
    args::{ConfigureArgs, Dns},
    error::NotDone,
    observe::Observed,
    plan::{Level, Plan, Rights},
};
use crate::{
    cli::{interruption::until_interrupted, render::print as say},
    cluster::client,
};

/// How long pods may take to answer when they are only checked.
const ANSWER: Duration = Duration::from_secs(10);

/// What `--help` says beyond the flags.
pub(super) const HELP: &str = "\
Adds the zone clusterset.local and the option multicluster to the plugin kubernetes of the Corefile, lets the account of CoreDNS
read ServiceImports (ClusterRole and ClusterRoleBinding tombolo-coredns), and has NodeLocal DNS forward the zone to CoreDNS, if it is
there. Everything else in a Corefile stays byte for byte; what is not understood is refused with its line. Then every pod of CoreDNS
is asked, through the API server, until it answers in the zone.

Examples:
  tombolo dns configure --kubeconfig ~/.kube/config --context paris --dry-run
  tombolo dns configure --kubeconfig ~/.kube/config --context paris
  tombolo dns configure --kubeconfig ~/.kube/config --context paris --check
  tombolo dns configure --kubeconfig ~/.kube/config --context paris --undo

Exit codes:
  0  done, and proven by answers; with --check: everything is configured
  1  failed, refused, or not proven; with --check: something is missing
  2  bad input: a flag, a kubeconfig
  130  interrupted; run it again to complete it";

/// Carries out what the user asked for.
pub(super) fn run(command: &Dns) -> Result<()> {
    let Dns::Configure(args) = command;
    // A second installation fails, and that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let last = || "run it again to complete it: what is done stays done".to_owned();
    let done = runtime.block_on(until_interrupted(configure(args), last));
    runtime.shutdown_background();
    done
}

async fn configure(args: &ConfigureArgs) -> Result<()> {
    let client = client::client(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let observed = observe::observe(&client, args).await?;
    let plan = if args.undo {
        plan::undo(&observed, args)
    } else {
        plan::configure(&observed, args)
    };
    say(&text::findings(&plan))?;
    say(&text::differences(&plan))?;
    let blocked = plan.texts(Level::Blocked);
    if !blocked.is_empty() {
        return Err(NotDone::Blocked(blocked.join("; ")).into());
    }
    let missing = plan.texts(Level::Missing);
    if args.dry_run {
        return Ok(());
    }
    if args.check && !missing.is_empty() {
        return Err(NotDone::Missing(missing.join("; ")).into());
    }
    carry_out(&client, args, &observed, &plan).await
}

/// Writes in the order in which it is safe.
async fn carry_out(
    client: &Client,
    args: &ConfigureArgs,
    observed: &Observed,
    plan: &Plan,
) -> Result<()> {
    if plan.rights == Rights::Grant {
        apply::grant(client, args, &observed.account).await?;
        say(&format!(
            "written  ClusterRole and ClusterRoleBinding {}\n",
            observe::ROLE
        ))?;
    }
    for change in plan.corefile.iter().chain(&plan.node_local) {
        apply::write(client, change).await?;
        say(&format!(
            "written  ConfigMap {}/{}\n",
            change.namespace, change.name
        ))?;
    }
    if plan.restart {
        apply::restart(client, args, Timestamp::now()).await?;
        apply::restarted(client, args).await?;
        say("restarted CoreDNS: its Corefile has no plugin reload\n")?;
    }
    let wanted = if args.undo {
        Wanted::Gone
    } else {
        Wanted::Served
    };
    // A zone that others have configured is not expected to go.
    let nothing_undone =
        args.undo && plan.corefile.is_none() && plan.rights == Rights::Keep && !plan.restart;
    if !args.objects_only && !nothing_undone {
        let at_once = if args.check {
            args.timeout.min(ANSWER)
        } else {
            Duration::ZERO
        };
        let mut proven = answer::prove(client, args, wanted, at_once).await;
        // What an earlier run has written may not be seen yet either.
        if proven.is_err() && !args.check {
            say(
                "waiting for the pods of CoreDNS; the kubelet and CoreDNS take up to two minutes to see a new Corefile\n",
            )?;
            proven = answer::prove(client, args, wanted, args.timeout).await;
        }
        say(&format!(
            "ok       {:<14} {}\n",
            "answers",
            proven.map_err(NotDone::Unproven)?
        ))?;
    }
    if plan.rights == Rights::Revoke {
        apply::revoke(client, observed).await?;
        say(&format!(
            "deleted  ClusterRole and ClusterRoleBinding {}\n",
            observe::ROLE
        ))?;
    }
    Ok(())
}
