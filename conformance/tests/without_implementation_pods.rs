//! Tests the cases with pods that run: on clusters with nodes, DNS and the API, where nobody implements it, each must fail, and at
//! the step that it names. Nothing that is silent there may count as passed.
//!
//! Needs clusters with nodes (provider `local`, or `kind`); where those cannot be had, nothing is run and the reason is told.

use std::{process::ExitCode, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use tombolo_conformance::{
    budgets::Budgets,
    case::{Case, Feature},
    cases,
    clusters::{self, Cluster},
    suite::{Cleanup, Suite, Verdict},
};
use tombolo_testbed::{Provider, Testbed};

/// Nothing will ever appear; pods take their time on a busy machine.
const BUDGETS: Budgets = Budgets {
    appear: Duration::from_secs(2),
    start: Duration::from_mins(2),
    stay: Duration::from_millis(300),
    poll: Duration::from_millis(200),
};
/// Cases at the same time: their pods start on one machine.
const JOBS: usize = 4;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match Provider::with_nodes() {
        Ok(provider) => {
            if let (false, Some(code)) = (arguments.list, provider.exit_without()) {
                return code;
            }
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    let name = "without_an_implementation_every_case_with_pods_fails_at_the_step_that_it_names";
    let trial = Trial::test(name, || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(run())
    });
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

async fn run() -> Result<(), Failed> {
    let testbed = Testbed::start_with(&Provider::with_nodes()?, 2).await?;
    let mut suite = Suite::new(Vec::new());
    suite.budgets = BUDGETS;
    suite.cleanup = Cleanup::Always;
    for cluster in testbed.clusters() {
        suite.clusters.push(Cluster {
            name: cluster.name().to_owned(),
            runs_pods: clusters::has_ready_node(&cluster.client()).await,
            client: cluster.client(),
            fake_node: None,
        });
    }
    clusters::check(&suite.clusters).await?;
    let with_pods = |case: &&Case| case.features.contains(&Feature::Workloads);
    let cases: Vec<_> = cases::all().filter(with_pods).collect();

    let verdicts = suite.run_all(cases, JOBS, |_, _| {}).await;

    let wrong: Vec<_> = verdicts.iter().filter_map(wrong).collect();
    if wrong.is_empty() {
        println!("{} cases failed where they say", verdicts.len());
        return Ok(());
    }
    testbed.keep_logs("a case ended otherwise than it says");
    Err(wrong.join("\n").into())
}

/// How a case ended, if not as it says.
fn wrong((case, verdict): &(&'static Case, Verdict)) -> Option<String> {
    match verdict {
        Verdict::Failed { failure, .. } if failure.step == case.fails_first => None,
        Verdict::Failed { failure, .. } => Some(format!("{}: {failure}", case.id)),
        Verdict::Passed { .. } | Verdict::NotRun(_) => Some(format!("{}: {verdict:?}", case.id)),
    }
}
