//! Every case of the conformance suite, all specs of the upstream suite among them, on the mesh as it was installed.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tombolo_conformance::{
    case::{Case, Feature},
    cases,
    clusters::{self, Cluster},
    report::document::{self, About, Ended, Implementation},
    suite::{Suite, Verdict},
};
use tombolo_e2e::installed::Mesh;

/// Cases at the same time: pods that run on this machine are what they wait for.
const JOBS: usize = 6;
/// The specs of the upstream suite, as the cases name them.
const SPECS: usize = 27;
/// What all cases may take.
const LIMIT: Duration = Duration::from_mins(10);

/// Runs all; with `TOMBOLO_REPORT=FILE` a report is written.
pub(crate) async fn passed(mesh: &Mesh) -> Result<()> {
    let mut clusters = Vec::new();
    for cluster in mesh.testbed().clusters() {
        clusters.push(Cluster {
            name: cluster.name().to_owned(),
            runs_pods: clusters::has_ready_node(&cluster.client()).await,
            client: cluster.client(),
            fake_node: None,
        });
    }
    let mut suite = Suite::new(clusters);
    suite.budgets = suite.budgets.patient(tombolo_testbed::patience());
    let begin = Instant::now();

    let verdicts = suite.run_all(cases::all().collect(), JOBS, tell);
    let verdicts = tokio::time::timeout(LIMIT, verdicts).await;
    let verdicts = verdicts.with_context(|| format!("the cases took more than {LIMIT:?}"))?;

    let specs: BTreeSet<_> = passed_only(&verdicts)
        .filter_map(|case| case.upstream)
        .collect();
    println!(
        "{} of {} cases passed in {:?}, {} of {SPECS} specs of the upstream suite among them",
        passed_only(&verdicts).count(),
        verdicts.len(),
        begin.elapsed(),
        specs.len(),
    );
    let failed: Vec<_> = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Failed { .. }))
        .map(|(case, _)| case.id)
        .collect();
    let untold: Vec<_> = verdicts
        .iter()
        .filter(|(case, verdict)| {
            matches!(verdict, Verdict::NotRun(_)) && !case.features.contains(&Feature::Backends)
        })
        .map(|(case, _)| case.id)
        .collect();
    report(&suite, mesh, verdicts).await?;
    ensure!(
        untold.is_empty(),
        "not run, although they need no node without kubelet: {untold:?}"
    );
    ensure!(failed.is_empty(), "failed: {failed:?}");
    ensure!(specs.len() == SPECS, "of the upstream specs only {specs:?}");
    Ok(())
}

fn passed_only(verdicts: &[(&'static Case, Verdict)]) -> impl Iterator<Item = &'static Case> {
    let passed = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Passed { .. }));
    passed.map(|(case, _)| *case)
}

fn tell(case: &Case, verdict: &Verdict) {
    match verdict {
        Verdict::Passed { .. } => {}
        Verdict::NotRun(reason) => println!("not run: {}, installed: {reason}", case.id),
        Verdict::Failed { failure, .. } => println!("{}: {failure}", case.id),
    }
}

async fn report(suite: &Suite, mesh: &Mesh, verdicts: Vec<(&'static Case, Verdict)>) -> Result<()> {
    let file = std::env::var_os("TOMBOLO_REPORT").filter(|path| !path.is_empty());
    let Some(file) = file.map(PathBuf::from) else {
        return Ok(());
    };
    let about = About {
        implementation: Implementation {
            project: "tombolo".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        },
        provider: format!("{}, installed", mesh.testbed().cluster(0).provider()),
        clusters: clusters::facts(&suite.clusters).await,
        budgets: suite.budgets,
        ..About::default()
    };
    let ended: Vec<_> = verdicts
        .into_iter()
        .map(|(case, verdict)| Ended {
            case,
            verdict,
            evidence: None,
        })
        .collect();
    document::write(&file, &about, &ended).with_context(|| file.display().to_string())
}
