//! Runs cases: each in a namespace of its own, several at once, and counts what was not run apart from what passed.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};

use crate::{
    case::{Case, Failure, Feature},
    clusters::Cluster,
    context::{Budgets, Context},
    evidence,
};

/// The clusters and the settings of a run.
pub struct Suite {
    /// Clusters, in order; the first two export.
    pub clusters: Vec<Cluster>,
    /// How long cases wait.
    pub budgets: Budgets,
    /// What the implementation does not have.
    pub without: BTreeSet<Feature>,
    /// Whether the namespaces of failed cases are left.
    pub keep_failed: bool,
}

/// How one case ended.
#[derive(Debug)]
pub enum Verdict {
    /// Everything held.
    Passed {
        /// How long it took.
        took: Duration,
    },
    /// Something did not.
    Failed {
        /// What.
        failure: Failure,
        /// The objects of the case's namespace when it failed, as YAML.
        evidence: String,
    },
    /// It was not run, for that reason. Never counts as passed.
    NotRun(String),
}

impl Suite {
    /// A suite with the upstream suite's budgets, for an implementation that has everything.
    pub fn new(clusters: Vec<Cluster>) -> Self {
        Self {
            clusters,
            budgets: Budgets::default(),
            without: BTreeSet::new(),
            keep_failed: false,
        }
    }

    /// Why a case cannot be run on these clusters, if it cannot.
    pub fn obstacle(&self, case: &Case) -> Option<String> {
        case.features.iter().find_map(|feature| {
            if self.without.contains(feature) {
                return Some(format!(
                    "the implementation is declared to be without `{feature}`"
                ));
            }
            match feature {
                Feature::Backends => self.clusters.iter().find_map(|cluster| {
                    let reason = "needs pods; has no node on which the suite can play the kubelet";
                    cluster
                        .fake_node
                        .is_none()
                        .then(|| format!("cluster {} {reason}", cluster.name))
                }),
                Feature::EndpointSlices | Feature::DerivedService => None,
            }
        })
    }

    /// Runs one case.
    pub async fn run(&self, case: &Case) -> Verdict {
        if let Some(reason) = self.obstacle(case) {
            return Verdict::NotRun(reason);
        }
        let ctx = Context::new(self.clusters.clone(), self.budgets, unique_namespace());
        let start = Instant::now();
        let outcome = (case.run)(&ctx).await;
        let verdict = match outcome {
            Ok(()) => Verdict::Passed {
                took: start.elapsed(),
            },
            Err(failure) => Verdict::Failed {
                failure,
                evidence: evidence::collect(&ctx).await,
            },
        };
        if !(self.keep_failed && matches!(verdict, Verdict::Failed { .. })) {
            ctx.delete_namespace().await;
        }
        verdict
    }

    /// Runs cases, at most `jobs` at once; tells each verdict as it comes.
    pub async fn run_all(
        &self,
        cases: Vec<&'static Case>,
        jobs: usize,
        mut tell: impl FnMut(&'static Case, &Verdict),
    ) -> Vec<(&'static Case, Verdict)> {
        let runs = cases
            .into_iter()
            .map(async |case| (case, self.run(case).await));
        let mut verdicts = Vec::new();
        let mut running = stream::iter(runs).buffer_unordered(jobs);
        while let Some((case, verdict)) = running.next().await {
            tell(case, &verdict);
            verdicts.push((case, verdict));
        }
        verdicts
    }
}

/// A namespace name that no other run has: process, time and a counter.
fn unique_namespace() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = jiff::Timestamp::now().as_millisecond();
    format!("mcs-conformance-{:x}-{now:x}-{next}", std::process::id())
}
