//! Runs cases: each in a namespace of its own, several at once, and counts what was not run apart from what passed.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};

use crate::{
    budgets::Budgets,
    case::{Case, Failure, Feature},
    changes::Changes,
    clusters::Cluster,
    connection::steady,
    context::{Context, Wait},
    evidence::Evidence,
};

/// The clusters and the settings of a run.
pub struct Suite {
    /// Clusters, in order; the first two export.
    pub clusters: Vec<Cluster>,
    /// How long cases wait.
    pub budgets: Budgets,
    /// What the implementation does not have.
    pub without: BTreeSet<Feature>,
    /// What becomes of the namespaces of cases.
    pub cleanup: Cleanup,
    reached: OnceLock<Reached>,
}

/// What the cases share: the clusters, and what changes in them.
struct Reached {
    clusters: Vec<Cluster>,
    changes: Arc<Changes>,
}

/// What becomes of the namespaces of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    /// They are deleted.
    Always,
    /// Those of failed cases are left.
    KeepFailed,
    /// They are left: the clusters end with the run.
    Never,
}

/// How one case ended.
#[derive(Debug)]
pub enum Verdict {
    /// Everything held.
    Passed {
        /// How long it took.
        took: Duration,
        /// The wait that took longest.
        slowest: Option<Wait>,
    },
    /// Something did not.
    Failed {
        /// What.
        failure: Failure,
        /// How long it took.
        took: Duration,
        /// What the case's namespace held when it failed.
        evidence: Evidence,
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
            cleanup: Cleanup::Always,
            reached: OnceLock::new(),
        }
    }

    /// Why a case cannot be run on these clusters, if it cannot.
    pub fn obstacle(&self, case: &Case) -> Option<String> {
        case.features.iter().find_map(|feature| {
            if self.without.contains(feature) {
                return Some(format!("declared to be without `{feature}`"));
            }
            match feature {
                Feature::Backends => self.clusters.iter().find_map(|cluster| {
                    let reason = "needs pods; has no node on which the suite can play the kubelet";
                    cluster
                        .fake_node
                        .is_none()
                        .then(|| format!("cluster {} {reason}", cluster.name))
                }),
                Feature::Workloads => {
                    let without = self.clusters.iter().find(|it| !it.runs_pods);
                    let reason = "needs pods that run; has no ready node";
                    without.map(|cluster| format!("cluster {} {reason}", cluster.name))
                }
                Feature::Dns
                | Feature::Connectivity
                | Feature::EndpointSlices
                | Feature::DerivedService
                | Feature::ExportedMetadata
                | Feature::DualStack
                | Feature::TiesByName => None,
            }
        })
    }

    /// Runs one case.
    pub async fn run(&self, case: &Case) -> Verdict {
        if let Some(reason) = self.obstacle(case) {
            return Verdict::NotRun(reason);
        }
        let Reached { clusters, changes } = self.reached.get_or_init(|| {
            let clusters: Vec<_> = self.clusters.iter().map(steady).collect();
            let changes = Arc::new(Changes::watch(&clusters));
            Reached { clusters, changes }
        });
        let ctx = Context::new(
            clusters.clone(),
            self.budgets,
            Arc::clone(changes),
            unique_namespace(),
        );
        let start = Instant::now();
        let outcome = (case.run)(&ctx).await;
        let took = start.elapsed();
        let failed = outcome.is_err();
        let verdict = match outcome {
            Ok(()) => Verdict::Passed {
                took,
                slowest: ctx.slowest(),
            },
            Err(failure) => Verdict::Failed {
                failure,
                took,
                evidence: Evidence::collect(&ctx).await,
            },
        };
        match self.cleanup {
            Cleanup::Always => ctx.delete_namespaces().await,
            Cleanup::KeepFailed if !failed => ctx.delete_namespaces().await,
            Cleanup::KeepFailed | Cleanup::Never => {}
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
