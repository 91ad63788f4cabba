//! A plan: what is to be written, in order, and what speaks against it. Values only.

use std::collections::BTreeMap;

use serde::Serialize;
use tombolo_core::names::ClusterName;

use super::{exposure::Exposure, files::Data, refusal::Refusal, users::Edit};

/// What is to be done.
#[derive(Default)]
pub(super) struct Plan {
    /// The steps, in their order.
    pub(super) steps: Vec<Step>,
    /// What speaks against it.
    pub(super) refusals: Vec<Refusal>,
    /// What the user should know.
    pub(super) notices: Vec<String>,
    /// How each cluster is reached, by its number.
    pub(super) reached: Vec<(usize, String)>,
    /// Who is to read whom, by numbers of clusters and the name of the peer.
    pub(super) links: Vec<(usize, ClusterName)>,
    /// What has to be there before the rest can be said.
    pub(super) pending: Vec<String>,
}

/// One step.
#[derive(Clone)]
pub(super) struct Step {
    /// Number of the cluster.
    pub(super) site: usize,
    /// When it is its turn.
    pub(super) stage: Stage,
    /// What becomes of the object.
    pub(super) change: Change,
    /// Kind and name of the object.
    pub(super) object: String,
    /// What of it, for people. No keys.
    pub(super) what: String,
    /// What to write; none when all is as it should be.
    pub(super) write: Option<Write>,
}

/// Order of steps: nobody is told of a peer that would not let it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Services.
    Exposure,
    /// Users of the etcds.
    Users,
    /// Files of the mesh role.
    Mesh,
    /// Files of the operator.
    Operator,
    /// What nothing needs any more.
    Rest,
}

/// What becomes of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    /// It stays as it is.
    Keep,
    /// It comes.
    Add,
    /// It becomes another.
    Replace,
    /// It goes.
    Remove,
}

/// A write.
#[derive(Clone)]
pub(super) enum Write {
    /// All keys of a Secret that are about a peer; none to give them up.
    Peer {
        /// The Secret.
        secret: &'static str,
        /// The peer.
        peer: ClusterName,
        /// The keys.
        data: Data,
        /// Whether the object is `connect`'s.
        ours: bool,
    },
    /// The list of users.
    Users(Edit),
    /// The Service of `connect`.
    Service {
        /// Its type.
        exposure: Exposure,
        /// Labels of the pods behind it.
        selector: BTreeMap<String, String>,
        /// Whether readers stay with one replica.
        affinity: bool,
    },
    /// A Secret of `connect`, unless it has changed: uid and resourceVersion.
    DeleteSecret(&'static str, (String, String)),
    /// The Service of `connect`, unless it has changed: uid and resourceVersion.
    DeleteService((String, String)),
}

impl Plan {
    /// Notes a reason against it, once.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        if !self.refusals.contains(&refusal) {
            self.refusals.push(refusal);
        }
    }

    /// The plan with its steps in order; what `--force` lifts becomes a notice.
    pub(super) fn settle(mut self, force: bool) -> Self {
        if force {
            let (lifted, left) = std::mem::take(&mut self.refusals)
                .into_iter()
                .partition(Refusal::is_lifted_by_force);
            self.refusals = left;
            let told = |it: Refusal| format!("in spite of this, by --force: {it}");
            self.notices.extend(Vec::into_iter(lifted).map(told));
        }
        self.steps.sort_by_key(|step| step.stage);
        self
    }

    /// Whether nothing is to be written.
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_empty() && self.steps.iter().all(|step| step.write.is_none())
    }
}
