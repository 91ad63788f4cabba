//! Runs every case against Tombolo on two clusters of the testbed, or against whatever implements the API in the
//! contexts that `TOMBOLO_CLUSTERS=contexts:a,b` names. Each case is a test; `--test-threads N` bounds how many run at once.
//! With `TOMBOLO_REPORT=FILE` a report is written, and evidence of what failed beside it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;
use tombolo_conformance::{
    case::{Case, Feature},
    cases,
    clusters::{self, Cluster},
    evidence::{self, Evidence},
    report::document::{self, About, Ended, Implementation},
    suite::{Cleanup, Suite, Verdict},
};
use tombolo_testbed::{Error, FAKE_NODE, Provider, Testbed, eventually};

/// Cases at the same time, where the command line does not say: they mostly wait.
const THREADS: usize = 32;
/// The same where pods run on this machine, which is then what they wait for.
const THREADS_LOCAL: usize = 6;
/// Lines of each process's log that go into the evidence of a failed case.
const LOG_LINES: usize = 500;
/// Time for the operators to install the CRDs, on a busy machine.
const API_BUDGET: Duration = Duration::from_mins(1);

/// The clusters with their suite; made by the first case that runs.
struct World {
    suite: Suite,
    provider: Provider,
    // Ends its processes when it is dropped.
    testbed: Testbed,
}

/// What the cases share.
struct Shared {
    runtime: Runtime,
    world: OnceLock<Result<World, String>>,
    ended: Mutex<Vec<Ended>>,
    report: Option<PathBuf>,
}

fn main() {
    let mut arguments = Arguments::from_args();
    let threads = match Provider::from_env() {
        Ok(Provider::Local | Provider::Kind) => THREADS_LOCAL,
        Ok(Provider::Api | Provider::Contexts(_)) | Err(_) => THREADS,
    };
    arguments.test_threads.get_or_insert(threads);
    let shared = Arc::new(Shared {
        runtime: Runtime::new().expect("the system gives threads"),
        world: OnceLock::new(),
        ended: Mutex::default(),
        report: std::env::var_os("TOMBOLO_REPORT")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
    });
    let mut cases: Vec<_> = cases::all().collect();
    // Cases with pods take longest: they start first.
    cases.sort_by_key(|case| {
        !(case.features.contains(&Feature::Backends) || case.features.contains(&Feature::Workloads))
    });
    let trials = cases
        .into_iter()
        .map(|case| {
            let shared = Arc::clone(&shared);
            Trial::ignorable_test(case.id, move || run(case, &shared))
        })
        .collect();

    let conclusion = libtest_mimic::run(&arguments, trials);

    let reported = shared
        .report
        .as_deref()
        .map(|path| write_report(path, &shared));
    // Destructors do not run at `exit`.
    drop(shared);
    if let Some(Err(error)) = reported {
        eprintln!("TOMBOLO_REPORT: the report cannot be written: {error}");
        std::process::exit(1);
    }
    conclusion.exit();
}

fn run(case: &'static Case, shared: &Shared) -> Result<Completion, Failed> {
    let world = shared.world.get_or_init(|| {
        shared
            .runtime
            .block_on(start())
            .map_err(|error| format!("the clusters cannot be used: {error}"))
    });
    let world = world.as_ref()?;
    let mut verdict = shared.runtime.block_on(world.suite.run(case));
    let kept = match &mut verdict {
        Verdict::Passed { .. } | Verdict::NotRun(_) => None,
        Verdict::Failed { evidence, .. } => {
            add_logs(evidence, &world.testbed);
            Some(keep(evidence, case, shared))
        }
    };
    let completion = match &verdict {
        Verdict::Passed { .. } => Ok(Completion::Completed),
        Verdict::NotRun(reason) => {
            println!("not run: {}: {reason}", case.id);
            Ok(Completion::ignored_with(reason))
        }
        Verdict::Failed { failure, .. } => {
            world.testbed.keep_logs(case.id);
            let kept = kept.as_deref().unwrap_or(Path::new("")).display();
            Err(format!("{}\n{failure}\nevidence is in {kept}", case.title).into())
        }
    };
    let mut ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
    ended.push(Ended {
        case,
        verdict,
        evidence: kept,
    });
    completion
}

fn add_logs(evidence: &mut Evidence, testbed: &Testbed) {
    for cluster in testbed.clusters() {
        // Somebody else's clusters have no logs here.
        for component in cluster.logs().unwrap_or_default().into_keys() {
            let name = format!("{component:?}").replace(['(', ')'], "-");
            let text = cluster.log_tail(component, LOG_LINES);
            let text = text.unwrap_or_else(|error| error.to_string());
            evidence.add_log(cluster.name(), &name, text);
        }
    }
}

/// Writes evidence beside the report, or where tests put their files.
fn keep(evidence: &Evidence, case: &Case, shared: &Shared) -> PathBuf {
    let directory = match &shared.report {
        Some(report) => document::evidence_directory(report),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    };
    let directory = directory.join(evidence::directory_name(case));
    if let Err(error) = evidence.write(&directory) {
        eprintln!("{}: {error}", directory.display());
    }
    directory
}

fn write_report(path: &Path, shared: &Shared) -> std::io::Result<()> {
    let mut about = About::default();
    match shared.world.get() {
        None => "no case was selected".clone_into(&mut about.suite_failure),
        Some(Err(error)) => about.suite_failure.clone_from(error),
        Some(Ok(world)) => {
            about.provider = world.provider.to_string();
            about.budgets = world.suite.budgets;
            about.without = world.suite.without.iter().copied().collect();
            about.clusters = shared
                .runtime
                .block_on(clusters::facts(&world.suite.clusters));
            about.implementation = match world.provider {
                Provider::Api | Provider::Local | Provider::Kind => Implementation {
                    project: "tombolo".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..Implementation::default()
                },
                // Whoever runs it knows what it is.
                Provider::Contexts(_) => Implementation::default(),
            };
        }
    }
    let ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
    document::write(path, &about, &ended)
}

async fn start() -> Result<World, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Provider::from_env().map_err(Error::from)?;
    let testbed = Testbed::start_with(&provider, 2).await?;
    match &provider {
        Provider::Api | Provider::Local | Provider::Kind => testbed.start_mesh().await?,
        // Somebody else's clusters have an implementation of their own.
        Provider::Contexts(_) => {}
    }
    let mut clusters = Vec::new();
    for cluster in testbed.clusters() {
        let fake_node = match cluster.fake_node().await {
            Ok(()) => Some(FAKE_NODE.to_owned()),
            // Cases with pods are then reported as not run.
            Err(Error::Provider(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let name = cluster.name().to_owned();
        clusters.push(Cluster {
            name,
            runs_pods: fake_node.is_none() && clusters::has_ready_node(&cluster.client()).await,
            client: cluster.client(),
            fake_node,
        });
    }
    eventually(API_BUDGET, "the API to be served", async || {
        clusters::check(&clusters)
            .await
            .map_err(|error| error.to_string())
    })
    .await?;
    let mut suite = Suite::new(clusters);
    suite.budgets = suite.budgets.patient(tombolo_testbed::patience());
    if matches!(provider, Provider::Api) {
        suite.cleanup = Cleanup::Never;
    }
    Ok(World {
        suite,
        provider,
        testbed,
    })
}
