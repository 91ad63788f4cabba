//! Runs scenarios as tests, one at a time, on one set of clusters for as long as they pass.
//!
//! Scenarios break what they share, so a failed one takes its clusters with it and the next gets new ones.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tombolo_testbed::Testbed;

/// A scenario: it leaves the clusters as it found them, or fails.
pub type Scenario = Box<dyn for<'t> Fn(&'t Testbed) -> LocalBoxFuture<'t, Result<()>> + Send>;

/// Starts the clusters that the scenarios share.
pub type Start = fn() -> LocalBoxFuture<'static, Result<Testbed>>;

/// Runs the scenarios that the command line asks for and ends the process.
pub fn main(scenarios: Vec<(String, Scenario)>, start: Start) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let runtime = Arc::new(Runtime::new().expect("the system gives threads"));
    let shared = Arc::new(Mutex::new(None));
    let trial = |(name, scenario): (String, Scenario)| {
        let (runtime, shared) = (Arc::clone(&runtime), Arc::clone(&shared));
        Trial::test(name, move || run(&runtime, &shared, &scenario, start))
    };

    let conclusion = libtest_mimic::run(&arguments, scenarios.into_iter().map(trial).collect());

    // Destructors do not run at `exit`.
    drop(shared);
    conclusion.exit()
}

/// Runs a scenario on the shared clusters, or on new ones after a failure.
fn run(
    runtime: &Runtime,
    shared: &Mutex<Option<Testbed>>,
    scenario: &Scenario,
    start: Start,
) -> Result<(), Failed> {
    let kept = shared.lock().ok().and_then(|mut shared| shared.take());
    let outcome = runtime.block_on(async {
        let testbed = match kept {
            Some(testbed) => testbed,
            None => start().await?,
        };
        if let Err(error) = scenario(&testbed).await {
            testbed.keep_logs("a scenario failed");
            return Err(error);
        }
        Ok(testbed)
    });
    match outcome {
        Ok(testbed) => {
            if let Ok(mut shared) = shared.lock() {
                *shared = Some(testbed);
            }
            Ok(())
        }
        Err(error) => Err(format!("{error:#}").into()),
    }
}
