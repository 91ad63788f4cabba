use serde_json::Value;

use super::*;
use crate::{case::Failure, context::Wait, evidence::Evidence};

fn ended(id: &str, verdict: Verdict, evidence: Option<&str>) -> Ended {
    let case = cases::all().find(|case| case.id == id);
    Ended {
        case: case.expect("the case exists"),
        verdict,
        evidence: evidence.map(PathBuf::from),
    }
}

fn failed(blame: Blame) -> Verdict {
    let failure = Failure {
        step: "the import appears",
        cluster: "east".to_owned(),
        expected: "a ServiceImport within 20s".to_owned(),
        observed: "no ServiceImport".to_owned(),
        blame,
    };
    Verdict::Failed {
        failure,
        took: Duration::from_secs(20),
        evidence: Evidence::default(),
    }
}

fn passed() -> Verdict {
    let slowest = Some(Wait {
        step: "the import goes",
        took: Duration::from_secs(19),
    });
    Verdict::Passed {
        took: Duration::from_millis(21_500),
        slowest,
    }
}

fn value(ended: &[Ended]) -> Value {
    let about = About {
        provider: "contexts:east,west".to_owned(),
        ..About::default()
    };
    serde_json::to_value(document(&about, ended)).expect("a document is JSON too")
}

fn find<'a>(list: &'a Value, key: &str, wanted: &str) -> &'a Value {
    let entries = list.as_array().expect("a list");
    let found = entries.iter().find(|entry| entry[key] == wanted);
    found.unwrap_or_else(|| panic!("no {key} {wanted}"))
}

#[test]
fn what_was_not_selected_is_not_run_and_counts_in_the_total_only() {
    let document = value(&[ended("importing/last-export", passed(), None)]);

    assert_eq!(document["passed"], 1);
    assert_eq!(document["total"], cases::all().count());
    let core = &document["tombolo"]["core"];
    assert_eq!((&core["passed"], &core["failed"]), (&1.into(), &0.into()));
    assert_eq!(document["tombolo"]["extended"]["passed"], 0);
    let other = find(&document["tombolo"]["cases"], "id", "importing/headless");
    assert_eq!(
        (&other["result"], &other["reason"]),
        (&"not run".into(), &"not selected".into())
    );
}

#[test]
fn a_failure_is_in_both_parts_with_its_evidence_and_whose_fault_it_is() {
    let all = [
        ended(
            "importing/ips",
            failed(Blame::Implementation),
            Some("r/ips"),
        ),
        ended("endpoints/labels", failed(Blame::SetUp), None),
    ];

    let document = value(&all);

    let case = find(&document["tombolo"]["cases"], "id", "importing/ips");
    assert_eq!(case["evidence"], "r/ips");
    assert_eq!(case["failure"]["observed"], "no ServiceImport");
    let required = find(&document["groups"], "name", "Required");
    let test = find(&required["tests"], "desc", all[0].case.title);
    assert_eq!(
        (&test["failed"], &test["conformant"]),
        (&true.into(), &"No".into())
    );
    let optional = find(&document["groups"], "name", "Optional");
    let test = find(&optional["tests"], "desc", all[1].case.title);
    assert_eq!(
        (&test["passed"], &test["conformant"]),
        (&false.into(), &"Unknown".into())
    );
}

#[test]
fn a_pass_close_to_its_budget_shows_the_wait_that_took_so_long() {
    let document = value(&[ended("importing/last-export", passed(), None)]);

    let case = find(&document["tombolo"]["cases"], "id", "importing/last-export");
    assert_eq!(case["seconds"], 21.5);
    assert_eq!(case["slowestwait"]["step"], "the import goes");
    assert_eq!(case["slowestwait"]["seconds"], 19.0);
}

#[test]
fn a_written_report_gives_back_its_results_and_has_upstreams_fields() {
    let directory = std::env::temp_dir().join(format!("tombolo-report-{}", std::process::id()));
    let path = directory.join("report.yaml");
    let ended = [ended("importing/last-export", passed(), None)];

    write(&path, &About::default(), &ended).expect("the directory is writable");

    let text = fs::read_to_string(&path).expect("it is there");
    let results = read_results(&path).expect("it is a report");
    fs::remove_dir_all(&directory).expect("it is ours");
    assert_eq!(results["importing/last-export"], "passed");
    assert_eq!(results["importing/headless"], "not run");
    for field in [
        "groups:",
        "suitefailure:",
        "dnsdomain: clusterset.local",
        "passed: 1",
        "total:",
        "implementation:",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(field)),
            "{field}\n{text}"
        );
    }
    assert_eq!(evidence_directory(&path), directory.join("report-evidence"));
}
