//! Runs scenarios as tests, one at a time, on one set of clusters for as long as they pass.
//!
//! Scenarios break what they share, so a failed one takes its clusters with it and the next gets new ones.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
};

use anyhow::Result;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tombolo_testbed::{Provider, Testbed};

/// What scenarios share: clusters, with or without something on them.
pub trait Shared: Send + 'static {
    /// The clusters.
    fn testbed(&self) -> &Testbed;
}

impl Shared for Testbed {
    fn testbed(&self) -> &Testbed {
        self
    }
}

/// A scenario: it leaves the clusters as it found them, or fails.
pub type Scenario<S = Testbed> =
    Box<dyn for<'t> Fn(&'t S) -> LocalBoxFuture<'t, Result<()>> + Send>;

/// Starts the clusters that the scenarios share.
pub type Start<S = Testbed> = fn() -> LocalBoxFuture<'static, Result<S>>;

/// For test programs: the exit code to end with where there can be no clusters with nodes, after saying why.
pub fn exit_without_nodes() -> Option<ExitCode> {
    if std::env::args().any(|it| it == "--list") {
        return None;
    }
    match Provider::with_nodes() {
        Ok(provider) => provider.exit_without(),
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Runs the scenarios that the command line asks for and ends the process.
pub fn main<S: Shared>(scenarios: Vec<(String, Scenario<S>)>, start: Start<S>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let runtime = Arc::new(Runtime::new().expect("the system gives threads"));
    let shared = Arc::new(Mutex::new(None::<S>));
    let trial = |(name, scenario): (String, Scenario<S>)| {
        let (runtime, shared) = (Arc::clone(&runtime), Arc::clone(&shared));
        Trial::test(name, move || run(&runtime, &shared, &scenario, start))
    };

    let conclusion = libtest_mimic::run(&arguments, scenarios.into_iter().map(trial).collect());

    // Destructors do not run at `exit`.
    drop(shared);
    conclusion.exit()
}

/// Runs a scenario on the shared clusters, or on new ones after a failure.
fn run<S: Shared>(
    runtime: &Runtime,
    shared: &Mutex<Option<S>>,
    scenario: &Scenario<S>,
    start: Start<S>,
) -> Result<(), Failed> {
    let kept = shared.lock().ok().and_then(|mut shared| shared.take());
    let outcome = runtime.block_on(async {
        let subject = match kept {
            Some(subject) => subject,
            None => start().await?,
        };
        if let Err(error) = scenario(&subject).await {
            subject.testbed().keep_logs("a scenario failed");
            return Err(error);
        }
        Ok(subject)
    });
    match outcome {
        Ok(subject) => {
            if let Ok(mut shared) = shared.lock() {
                *shared = Some(subject);
            }
            Ok(())
        }
        Err(error) => Err(format!("{error:#}").into()),
    }
}
