//! One run of the command on its clusters: read, plan, write, wait. Decides nothing.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use thiserror::Error as ThisError;

use super::{
    ConnectError,
    args::{Common, of},
    facts::Site,
    gather::{self, Place},
    progress::{self, Goal},
    steps::Plan,
    text::{self, Document, Missing, Row},
    write::{self, Mode},
};
use crate::{
    cli::{args::Output, render, status},
    cluster::client,
};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time for one look at all processes.
const LOOK_MAX: Duration = Duration::from_secs(15);
/// A process gives its peers and stores 3 s, and the copies another 3 s: a shorter look may find that nobody answers.
const LOOK_MIN: Duration = Duration::from_secs(8);

/// Everything is written, and not everybody has taken it up in time.
#[derive(Debug, ThisError)]
#[error(
    "everything is written, but not taken up in time:{}\nlook again with tombolo status, or run the command again",
    list(.missing)
)]
pub(in crate::cli) struct NotSynced {
    missing: Vec<Missing>,
}

impl NotSynced {
    /// The exit code, as that of a status that is behind.
    pub(in crate::cli) const EXIT_CODE: u8 = 5;
}

fn list(missing: &[Missing]) -> String {
    let lines = missing.iter().map(|it| {
        let line = format!("{}, peer {}: {}", it.cluster, it.peer, it.what);
        format!("\n- {}", render::printable(&line))
    });
    lines.collect()
}

/// The clusters of a run.
pub(super) struct Session<'a> {
    common: &'a Common,
    /// Where they are, in the order of the contexts.
    pub(super) places: Vec<Place>,
    until: Instant,
    steps: Vec<Row>,
    told: BTreeSet<String>,
}

impl<'a> Session<'a> {
    /// Makes the clients.
    pub(super) async fn open(common: &'a Common) -> Result<Self> {
        let mut places = Vec::new();
        for context in &common.contexts {
            let client = client::from_files(&kubeconfigs(common), Some(context)).await?;
            let namespace = of(&common.namespace, context);
            let namespace = namespace
                .map_or("tombolo-system", |it| it.as_str())
                .to_owned();
            places.push(Place {
                client,
                context: context.clone(),
                namespace,
            });
        }
        Ok(Self {
            common,
            places,
            until: Instant::now() + common.wait_duration,
            steps: Vec::new(),
            told: BTreeSet::new(),
        })
    }

    /// Reads all clusters at the same time.
    pub(super) async fn read(&self) -> Result<Vec<Site>, ConnectError> {
        try_join_all(self.places.iter().map(gather::read)).await
    }

    /// Shows a plan, refuses it, or carries it out; plans and carries out again as long as something has to be there first. Returns
    /// what it was carried out on.
    pub(super) async fn carry_out(
        &mut self,
        make: impl Fn(&[Site]) -> Plan,
    ) -> Result<(Vec<Site>, Plan)> {
        let mut shown = false;
        loop {
            let sites = self.read().await?;
            let plan = make(&sites);
            if !shown {
                self.say(&text::plan(&sites, &plan))?;
                shown = true;
            }
            if !plan.refusals.is_empty() {
                return Err(ConnectError::Refused(plan.refusals).into());
            }
            if self.common.dry_run {
                let rows = plan.steps.iter().map(|step| Row::of(step, &sites));
                self.steps.extend(rows);
                return Ok((sites, plan));
            }
            self.write(&sites, &plan).await?;
            if plan.pending.is_empty() {
                return Ok((sites, plan));
            }
            let wrote = plan.steps.iter().any(|step| step.write.is_some());
            let waits = !self.common.no_wait && Instant::now() + PAUSE < self.until;
            if !wrote && !waits {
                return Err(ConnectError::Unfinished(plan.pending.join("; ")).into());
            }
            for pending in &plan.pending {
                self.once(&format!("waiting: {pending}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes a plan: everything is tried first, so that a right that is missing for the last step is found before the first.
    async fn write(&mut self, sites: &[Site], plan: &Plan) -> Result<(), ConnectError> {
        for mode in [Mode::Trial, Mode::Real] {
            for step in &plan.steps {
                let row = Row::of(step, sites);
                if let Some(write) = &step.write {
                    let mut unheard = Unheard((mode == Mode::Real).then(|| row.full_line()));
                    let written = write::write(&self.places[step.site], write, mode).await;
                    unheard.0 = None;
                    if written.is_err() && mode == Mode::Trial {
                        note("nothing was written: every write is tried before the first is meant");
                    }
                    written?;
                    if mode == Mode::Real {
                        note(&format!("written: {}", row.full_line()));
                    }
                }
                let told = self
                    .steps
                    .iter()
                    .any(|it| it.full_line() == row.full_line());
                if mode == Mode::Real && !told {
                    self.steps.push(row);
                }
            }
        }
        Ok(())
    }

    /// Waits until the processes have taken the plan up, and says how it ended.
    pub(super) async fn finish(&self, sites: &[Site], plan: &Plan, goal: Goal) -> Result<()> {
        let (mut synced, mut missing) = (None, Vec::new());
        if !self.common.dry_run && !self.common.no_wait {
            missing = self.wait(sites, plan, goal).await;
            synced = Some(missing.is_empty());
        }
        self.answer(sites, plan, (synced, &missing))?;
        if missing.is_empty() {
            Ok(())
        } else {
            Err(NotSynced { missing }.into())
        }
    }

    async fn wait(&self, sites: &[Site], plan: &Plan, goal: Goal) -> Vec<Missing> {
        let mut last = Vec::new();
        loop {
            let missing = self.look(sites, plan, goal).await;
            if missing.is_empty() {
                return missing;
            }
            for it in missing.iter().filter(|it| !last.contains(*it)) {
                self.progress(&format!(
                    "waiting: {}, peer {}: {}",
                    it.cluster, it.peer, it.what
                ));
            }
            // Of a look that is cut short nothing could be said.
            if Instant::now() + PAUSE + LOOK_MIN > self.until {
                return missing;
            }
            last = missing;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look(&self, sites: &[Site], plan: &Plan, goal: Goal) -> Vec<Missing> {
        let mut missing = Vec::new();
        let left = self.until.saturating_duration_since(Instant::now());
        let looks = self.places.iter().enumerate().map(async |(index, place)| {
            let peers: Vec<_> = plan.links.iter().filter(|(it, _)| *it == index).collect();
            if peers.is_empty() {
                return (index, peers, None);
            }
            let report = status::look(&place.client, left.clamp(LOOK_MIN, LOOK_MAX)).await;
            (index, peers, Some(report))
        });
        for (index, peers, report) in futures::future::join_all(looks).await {
            let Some(report) = report else { continue };
            let site = &sites[index];
            let copies = site.publisher.as_ref().is_some_and(|it| it.copies);
            for (_, peer) in peers {
                if let Some(what) = progress::missing(&report, peer, goal, copies) {
                    missing.push(Missing {
                        cluster: site.name().to_owned(),
                        peer: peer.to_string(),
                        what,
                    });
                }
            }
        }
        missing
    }

    /// The answer on standard output.
    fn answer(
        &self,
        sites: &[Site],
        plan: &Plan,
        (synced, missing): (Option<bool>, &[Missing]),
    ) -> Result<()> {
        if self.common.output == Output::Json {
            let document = Document {
                dry_run: self.common.dry_run,
                clusters: text::clusters(sites, plan),
                steps: self.steps.clone(),
                notices: plan.notices.clone(),
                pending: plan.pending.clone(),
                synced,
                missing: missing.to_vec(),
            };
            let json = render::json(&document).context("the answer cannot be written as JSON")?;
            return render::print(&json);
        }
        let changes = text::writes(plan);
        let written = if self.common.dry_run {
            if plan.is_done() {
                "dry run: nothing would have to be changed".to_owned()
            } else {
                format!("dry run: nothing was written; {changes} to change")
            }
        } else if self.steps.iter().all(Row::keeps) {
            "nothing had to be changed".to_owned()
        } else {
            "written".to_owned()
        };
        let taken = match synced {
            Some(true) => "; taken up everywhere",
            Some(false) => "; not taken up everywhere",
            None => "",
        };
        render::print(&format!("{written}{taken}\n"))
    }

    /// A part of the answer that can be said already.
    fn say(&self, text: &str) -> Result<()> {
        if self.common.output == Output::Text {
            render::print(text)?;
        }
        Ok(())
    }

    /// As [`Self::progress`], but never twice.
    fn once(&mut self, text: &str) {
        if self.told.insert(text.to_owned()) {
            self.progress(text);
        }
    }

    /// What happens meanwhile, on standard error.
    fn progress(&self, text: &str) {
        if self.common.output == Output::Text {
            note(text);
        }
    }
}

/// A write that is under way: whoever interrupts it is told that it may have been done.
struct Unheard(Option<String>);

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            note(&format!("may have been written: {line}"));
        }
    }
}

/// Says something on standard error, whatever the form of the answer is.
fn note(text: &str) {
    render::note(&render::printable(text));
}

fn kubeconfigs(common: &Common) -> Vec<PathBuf> {
    let named = common.kubeconfig.iter();
    let named = named.filter(|it| !it.as_os_str().is_empty());
    let mut files: Vec<_> = named.cloned().collect();
    if files.is_empty() {
        let home = std::env::home_dir().unwrap_or_default();
        files.push(home.join(".kube/config"));
    }
    files
}
