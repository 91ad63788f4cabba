//! What is to be done, or was done, for people and as JSON. No keys and no certificates.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    facts::Site,
    networks,
    steps::{Change, Plan, Step},
};
use crate::cli::render::printable;

/// The whole answer with `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    /// Whether nothing was to be written.
    pub(super) dry_run: bool,
    /// The clusters.
    pub(super) clusters: Vec<Cluster>,
    /// What was written, or would be.
    pub(super) steps: Vec<Row>,
    /// What to know.
    pub(super) notices: Vec<String>,
    /// What has to be there before the rest can be said.
    pub(super) pending: Vec<String>,
    /// Whether everything was taken up by the processes; null when it was not waited for.
    pub(super) synced: Option<bool>,
    /// What is missing for that.
    pub(super) missing: Vec<Missing>,
}

/// A cluster.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cluster {
    context: String,
    namespace: String,
    #[serde(rename = "cluster")]
    name: String,
    id: u32,
    version: String,
    kubernetes: String,
    pod_networks: Vec<String>,
    service_networks: Vec<String>,
    reached: Option<String>,
}

/// A step.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    cluster: String,
    change: Change,
    object: String,
    what: String,
}

/// What is missing with one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Missing {
    /// The cluster.
    pub(super) cluster: String,
    /// Its peer.
    pub(super) peer: String,
    /// What.
    pub(super) what: String,
}

impl Row {
    /// A step of a plan.
    pub(super) fn of(step: &Step, sites: &[Site]) -> Self {
        Self {
            cluster: sites[step.site].name().to_owned(),
            change: step.change,
            object: step.object.clone(),
            what: step.what.clone(),
        }
    }

    fn line(&self) -> String {
        let sign = match self.change {
            Change::Keep => '=',
            Change::Add => '+',
            Change::Replace => '~',
            Change::Remove => '-',
        };
        printable(&format!("{sign} {}: {}", self.object, self.what))
    }

    /// Whether nothing changes.
    pub(super) fn keeps(&self) -> bool {
        self.change == Change::Keep
    }

    /// The step as one line, with its cluster.
    pub(super) fn full_line(&self) -> String {
        format!("{}: {}", self.cluster, self.line())
    }
}

/// The clusters of a plan.
pub(super) fn clusters(sites: &[Site], plan: &Plan) -> Vec<Cluster> {
    let all = sites.iter().enumerate().map(|(index, site)| {
        let nets = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect();
        let mut reached = plan.reached.iter().filter(|(it, _)| *it == index);
        Cluster {
            context: site.context.clone(),
            namespace: site.namespace.clone(),
            name: site.name().to_owned(),
            id: site.card.id,
            version: site.card.version.clone(),
            kubernetes: site.kubernetes.clone(),
            pod_networks: nets(&site.card.networks.pods),
            service_networks: nets(&site.card.networks.services),
            reached: reached.next().map(|(_, text)| text.clone()),
        }
    });
    all.collect()
}

/// A plan for people: the clusters, and below each what becomes of it.
pub(super) fn plan(sites: &[Site], plan: &Plan) -> String {
    let mut text = String::new();
    for (index, site) in sites.iter().enumerate() {
        let card = &site.card;
        let line = format!(
            "{} (context {}, namespace {}): id {}, Tombolo {}, Kubernetes {}; pods {}, Services {}",
            card.cluster,
            site.context,
            site.namespace,
            card.id,
            or_unknown(&card.version),
            site.kubernetes,
            networks::list(&card.networks.pods),
            networks::list(&card.networks.services),
        );
        text += &printable(&line);
        text += "\n";
        for (_, reached) in plan.reached.iter().filter(|(it, _)| *it == index) {
            let _ = writeln!(text, "  reached at {}", printable(reached));
        }
        for step in plan.steps.iter().filter(|it| it.site == index) {
            let _ = writeln!(text, "  {}", Row::of(step, sites).line());
        }
    }
    for notice in &plan.notices {
        let _ = writeln!(text, "note: {}", printable(notice));
    }
    for pending in &plan.pending {
        let _ = writeln!(text, "later: {}", printable(pending));
    }
    text
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// How many steps write something.
pub(super) fn writes(plan: &Plan) -> usize {
    let changes = plan.steps.iter().filter(|step| step.change != Change::Keep);
    changes.count()
}
