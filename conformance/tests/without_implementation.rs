//! Tests the suite itself: where the API is installed and nobody implements it, every case must fail, and at the step
//! that it names. A case that passes there proves nothing.

use std::{path::Path, process::Command, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tombolo_conformance::{
    budgets::Budgets,
    case::{Case, Feature},
    cases,
    clusters::{self, Cluster},
    report::Counts,
    suite::{Cleanup, Suite, Verdict},
};
use tombolo_testbed::{FAKE_NODE, Provider, Testbed, eventually};

/// Time for the API server to serve a new CRD; it needs about half a second.
const CRD_BUDGET: Duration = Duration::from_secs(20);
/// Short, since nothing will ever appear; long enough for the set-up of a case to be accepted.
const BUDGETS: Budgets = Budgets {
    appear: Duration::from_millis(1500),
    start: Duration::from_mins(1),
    stay: Duration::from_millis(300),
    poll: Duration::from_millis(100),
};
/// Cases at the same time: they only wait.
const JOBS: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_implementation_every_case_fails_at_the_step_that_it_names() {
    let testbed = Testbed::start_with(&Provider::Api, 2)
        .await
        .expect("clusters start");
    let mut suite = Suite::new(Vec::new());
    suite.budgets = BUDGETS;
    suite.cleanup = Cleanup::Never;
    for cluster in testbed.clusters() {
        install_crds(cluster.client()).await;
        cluster
            .fake_node()
            .await
            .expect("the API server takes a node");
        suite.clusters.push(Cluster {
            name: cluster.name().to_owned(),
            client: cluster.client(),
            fake_node: Some(FAKE_NODE.to_owned()),
            runs_pods: false,
        });
    }
    eventually(CRD_BUDGET, "the API to be served", async || {
        clusters::check(&suite.clusters)
            .await
            .map_err(|error| error.to_string())
    })
    .await
    .expect("the CRDs are good");

    let verdicts = suite
        .run_all(
            cases::all().filter(|case| !runs_pods(case)).collect(),
            JOBS,
            |case, verdict| match verdict {
                Verdict::Failed { failure, .. } => println!("{}: {failure}", case.id),
                Verdict::Passed { .. } | Verdict::NotRun(_) => println!("{}: {verdict:?}", case.id),
            },
        )
        .await;

    let counts = Counts::of(verdicts.iter().map(|(_, verdict)| verdict));
    let expected = cases::all().filter(|case| !runs_pods(case)).count();
    assert_eq!(counts.failed, expected, "{counts:?}");
    // Those are in `without_implementation_pods`; here they are not run, and not passed.
    for case in cases::all().filter(|case| runs_pods(case)) {
        let verdict = suite.run(case).await;
        let reason = "cluster a needs pods that run; has no ready node";
        assert!(
            matches!(&verdict, Verdict::NotRun(it) if it == reason),
            "{}: {verdict:?}",
            case.id
        );
    }
    assert_eq!(counts.exit_code(), 1);
    check_verdicts(&verdicts);
    check_program(&testbed);
}

fn runs_pods(case: &Case) -> bool {
    case.features.contains(&Feature::Workloads)
}

fn check_verdicts(verdicts: &[(&Case, Verdict)]) {
    for (case, verdict) in verdicts {
        let Verdict::Failed {
            failure, evidence, ..
        } = verdict
        else {
            panic!("{} did not fail", case.id);
        };
        assert_eq!(failure.step, case.fails_first, "{}: {failure}", case.id);
        let exports = evidence
            .files
            .iter()
            .find(|(name, _)| name == "a/ServiceExport.yaml");
        let (_, text) = exports.expect("exports are evidence");
        assert!(
            text.starts_with("# cluster a, namespace mcs-conformance-"),
            "{text}"
        );
    }
}

/// The program must see the same through a kubeconfig, where it cannot make pods: failures are failures, and what cannot
/// be run is neither passed nor failed.
fn check_program(testbed: &Testbed) {
    let kubeconfig = joint_kubeconfig(testbed);
    let report = format!("{}/without.yaml", env!("CARGO_TARGET_TMPDIR"));
    let run = |filter: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tombolo-conformance"))
            .args(["run", "--kubeconfig", &kubeconfig, "--contexts", "a,b"])
            .args([
                "--budget-appear",
                "300ms",
                "--budget-stay",
                "100ms",
                "--filter",
                filter,
                "--report",
                &report,
            ])
            .output()
            .expect("the program runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };

    let (code, text) = run("importing/cluster-set-ip");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("FAILED   importing/cluster-set-ip") && text.contains("KEP-1645#50"));
    assert!(text.ends_with("0 passed, 1 failed, 0 not run\n"), "{text}");
    check_report(Path::new(&report));

    let (code, text) = run("endpoints/traffic");
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("not run  endpoints/traffic: cluster a needs pods"),
        "{text}"
    );
    assert!(text.ends_with("0 passed, 0 failed, 1 not run\n"), "{text}");
}

/// The report must name the evidence of the failed case, and the evidence must be there.
fn check_report(path: &Path) {
    let text = std::fs::read_to_string(path).expect("the report is written");
    let report: Value = serde_saphyr::from_str(&text).expect("the report is YAML");
    let ours = &report["tombolo"];
    assert_eq!(ours["provider"], "contexts:a,b");
    assert_eq!(
        (&ours["core"]["failed"], &report["passed"]),
        (&1.into(), &0.into())
    );
    for cluster in ours["clusters"].as_array().expect("clusters are listed") {
        let known = |field: &str| {
            cluster[field]
                .as_str()
                .is_some_and(|it| it.starts_with('v'))
        };
        assert!(known("kubernetes") && known("crds"), "{cluster}");
    }
    let cases = ours["cases"].as_array().expect("cases are listed");
    let failed = cases.iter().find(|case| case["result"] == "failed");
    let failed = failed.expect("one failed");
    assert_eq!(failed["id"], "importing/cluster-set-ip");
    let evidence = failed["evidence"].as_str().expect("evidence is named");
    for file in ["a/ServiceExport.yaml", "b/Event.yaml"] {
        assert!(Path::new(evidence).join(file).exists(), "{evidence}/{file}");
    }
}

/// One file with the contexts of both clusters.
fn joint_kubeconfig(testbed: &Testbed) -> String {
    let mut joint = serde_json::json!({ "apiVersion": "v1", "kind": "Config" });
    for list in ["clusters", "users", "contexts"] {
        let entries = testbed.clusters().iter().flat_map(|cluster| {
            let path = cluster
                .kubeconfig()
                .expect("control planes have kubeconfigs");
            let text = std::fs::read_to_string(path).expect("the kubeconfig is readable");
            let one: Value = serde_saphyr::from_str(&text).expect("the kubeconfig is YAML");
            one[list].as_array().cloned().unwrap_or_default()
        });
        joint[list] = entries.collect();
    }
    let path = format!("{}/joint-kubeconfig", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, joint.to_string()).expect("the test's directory is writable");
    path
}

async fn install_crds(client: Client) {
    let crds = Api::<CustomResourceDefinition>::all(client);
    for yaml in tombolo_api::crds::ALL {
        let crd: CustomResourceDefinition = serde_saphyr::from_str(yaml).expect("a CRD is YAML");
        let apply = PatchParams::apply("tombolo-conformance-test");
        crds.patch(&crd.name_any(), &apply, &Patch::Apply(&crd))
            .await
            .expect("the CRD is taken");
    }
}
