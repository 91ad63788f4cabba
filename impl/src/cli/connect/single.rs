//! One side of a connection, with a file instead of the other side's kubeconfig.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use tombolo_core::names::ClusterName;

use super::{
    ConnectArgs, ConnectError, check,
    credentials::{self, Read},
    exposure::Endpoint,
    facts::Site,
    files::Credentials,
    invitation::{self, Invitation},
    plan::{Settings, notices},
    progress::Goal,
    refusal::Refusal,
    session::Session,
    steps::Plan,
};
use crate::cli::{certs, render};

/// Accepts an invitation, writes one, or both.
pub(super) async fn run(args: &ConnectArgs, session: &mut Session<'_>) -> Result<()> {
    let accepted = match &args.accept {
        Some(file) => Some(read(file.clone()).await?),
        None => None,
    };
    if let Some(file) = &args.file {
        check_place(file, args.overwrite).map_err(ConnectError::Flags)?;
    }
    let context = &args.common.contexts[0];
    let wishes = [args.wish(context)];
    let make = |sites: &[Site]| {
        let settings = Settings {
            wishes: &wishes,
            force: args.force,
            now: Timestamp::now(),
        };
        build(sites, accepted.as_ref(), args.invite.as_ref(), settings).0
    };
    let (sites, plan) = session.carry_out(make).await?;
    if let (Some(guest), Some(file)) = (&args.invite, &args.file) {
        let settings = Settings {
            wishes: &wishes,
            force: args.force,
            now: Timestamp::now(),
        };
        let endpoint = build(&sites, accepted.as_ref(), args.invite.as_ref(), settings).1;
        write_invitation(&sites[0], guest, endpoint.as_ref(), (file, args))?;
    }
    session.finish(&sites, &plan, Goal::Synced).await
}

/// Whether a file with a key can be put there: looked at before anybody is let in.
fn check_place(file: &Path, overwrite: bool) -> Result<(), String> {
    let name = file.display();
    match file.symlink_metadata() {
        Ok(found) if !found.is_file() => Err(format!(
            "--file {name}: is there, and no file; choose another"
        )),
        Ok(_) if !overwrite => Err(format!(
            "--file {name}: exists; choose another, or --overwrite"
        )),
        Ok(_) => Ok(()),
        Err(_) => {
            let (dir, _) = certs::split(file).map_err(|error| error.to_string())?;
            let there = dir.is_dir();
            let dir = dir.display();
            there.then_some(()).ok_or_else(|| {
                format!("--file {name}: there is no directory {dir}; make it, or choose another")
            })
        }
    }
}

/// Reads an invitation on a thread of its own: a pipe may never say anything, and who waits for it is to be interrupted.
async fn read(file: PathBuf) -> Result<Invitation> {
    let reading = tokio::task::spawn_blocking(move || invitation::read(&file, Timestamp::now()));
    let read = reading.await.context("reading the invitation failed")?;
    Ok(read.map_err(ConnectError::from)?)
}

/// The plan for one cluster, and how it is reached.
fn build(
    sites: &[Site],
    accepted: Option<&Invitation>,
    guest: Option<&ClusterName>,
    settings: Settings<'_>,
) -> (Plan, Option<Endpoint>) {
    let site = &sites[0];
    let mut plan = Plan::default();
    plan.refusals.extend(check::alone(&site.card));
    plan.notices.extend(notices(site));
    let mut endpoint = None;
    if let Some(guest) = guest {
        plan.let_in(0, site, [guest.clone()].into());
        endpoint = plan.reach(sites, 0, settings);
        if *guest == site.card.cluster {
            plan.refuse(Refusal::SameName {
                a: format!("context {}", site.context),
                b: "--invite".to_owned(),
                cluster: guest.to_string(),
            });
        } else if site.publisher.is_none() {
            plan.refuse(Refusal::Nothing {
                a: guest.to_string(),
                b: site.name().to_owned(),
            });
        }
    }
    if let Some(invitation) = accepted {
        accept(&mut plan, site, invitation);
    }
    (plan.settle(settings.force), endpoint)
}

fn accept(plan: &mut Plan, site: &Site, invitation: &Invitation) {
    let card = &invitation.card;
    if invitation.guest != site.card.cluster {
        return plan.refuse(Refusal::NotInvited {
            expected: invitation.guest.to_string(),
            context: site.context.clone(),
            cluster: site.name().to_owned(),
        });
    }
    for refusal in check::alone(card)
        .into_iter()
        .chain(check::between(&site.card, card, false))
    {
        plan.refuse(refusal);
    }
    if site.importer.is_none() {
        return plan.refuse(Refusal::Nothing {
            a: site.name().to_owned(),
            b: card.cluster.to_string(),
        });
    }
    plan.links.push((0, card.cluster.clone()));
    let told = (&invitation.endpoint, &invitation.decided);
    plan.tell(0, site, &card.cluster, told);
}

fn write_invitation(
    site: &Site,
    guest: &ClusterName,
    endpoint: Option<&Endpoint>,
    (file, args): (&Path, &ConnectArgs),
) -> Result<()> {
    if args.common.dry_run {
        return Ok(());
    }
    let publisher = site
        .publisher
        .as_ref()
        .context("the cluster publishes nothing")?;
    let endpoint = endpoint.context("it is not known how the cluster is reached")?;
    let read = Read { site, publisher };
    let decided = credentials::sign(read, guest, Timestamp::now());
    let decided = decided.map_err(|refusal| ConnectError::Refused(vec![refusal]))?;
    let Credentials::Own(tls) = &decided.credentials else {
        return Ok(());
    };
    let text = invitation::render(&site.card, guest, endpoint, tls);
    let text = text.map_err(|problem| anyhow::anyhow!("the invitation: {problem}"))?;
    let (dir, name) = certs::split(file)?;
    certs::write_all(&dir, &[certs::File::private(&name, text)], args.overwrite)?;
    render::note(&render::printable(&format!(
        "written: {}: {endpoint}, with {}; hand it over by a way that nobody else reads",
        file.display(),
        decided.told
    )));
    Ok(())
}
