//! What the program says to bad input, and with which exit code. Needs no cluster.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tombolo-conformance"))
        .args(arguments)
        .env_remove("KUBECONFIG")
        .output()
        .expect("the program runs")
}

/// Runs, expects exit code 2 and nothing on standard output, returns the message.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    message
}

const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
clusters: [{name: east, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: admin, user: {token: none}}]
contexts: [{name: east, context: {cluster: east, user: admin}}, {name: west, context: {cluster: east, user: admin}}]
";

fn file(name: &str, content: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, content).expect("the test's directory is writable");
    path
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let message = refused(&[
        "run",
        "--kubeconfig",
        "/nowhere/config",
        "--contexts",
        "a,b",
    ]);

    assert!(
        message.contains("/nowhere/config: expected a kubeconfig"),
        "{message}"
    );
    assert!(message.contains("kubectl config view"), "{message}");
}

#[test]
fn a_broken_kubeconfig_is_named_with_what_is_wrong() {
    let path = file("broken.yaml", "clusters: [\n  - oops: {\n");

    let message = refused(&["run", "--kubeconfig", &path, "--contexts", "a,b"]);

    assert!(
        message.contains(&format!("{path}: expected a kubeconfig")),
        "{message}"
    );
    assert!(message.contains("line"), "{message}");
}

#[test]
fn an_unknown_context_is_named_with_those_that_exist() {
    let path = file("contexts.yaml", KUBECONFIG);

    let message = refused(&["run", "--kubeconfig", &path, "--contexts", "east,north"]);

    let wanted = "field contexts: expected a context `north`, has: east, west";
    assert!(message.contains(wanted), "{message}");
}

#[test]
fn one_cluster_is_too_few_even_when_named_twice() {
    let path = file("one.yaml", KUBECONFIG);

    let message = refused(&["run", "--kubeconfig", &path, "--contexts", "east,east"]);

    assert!(
        message.contains("expected at least two different contexts, got 1"),
        "{message}"
    );
}

#[test]
fn a_cluster_that_does_not_answer_is_named() {
    let path = file("closed.yaml", KUBECONFIG);

    let message = refused(&["run", "--kubeconfig", &path, "--contexts", "east,west"]);

    assert!(
        message.contains("cluster east: expected ServiceExport to be served"),
        "{message}"
    );
}

#[test]
fn wrong_values_of_flags_say_what_was_expected() {
    let path = file("flags.yaml", KUBECONFIG);
    let run = ["run", "--kubeconfig", &path, "--contexts", "east,west"];

    for (flag, value, wanted) in [
        (
            "--budget-appear",
            "soon",
            "expected a positive duration such as `20s`",
        ),
        (
            "--budget-stay",
            "0s",
            "expected a positive duration such as `20s`",
        ),
        ("--jobs", "0", "expected a number from 1 to 64"),
        (
            "--without",
            "packets",
            "expected one of backends, workloads, dns, connectivity, endpoint-slices, derived-service, exported-metadata, dual-stack, ties-by-name",
        ),
        ("--filter", "no-such-case", "no case matches"),
    ] {
        let message = refused(&[&run[..], &[flag, value]].concat());
        assert!(
            message.contains(flag) && message.contains(wanted),
            "{message}"
        );
    }
}

#[test]
fn the_list_shows_ids_rules_and_upstream_rows() {
    let output = run(&["list", "--filter", "importing/"]);

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(
        text.contains("importing/last-export: ") && text.contains("upstream S1"),
        "{text}"
    );
    assert!(!text.contains("conflicts/"), "{text}");
}

#[test]
fn the_rules_are_shown_with_their_cases_and_the_bugs_with_theirs() {
    let output = run(&["rules", "-o", "markdown"]);

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(
        text.starts_with("| rule | level | says | checked by |\n|---|"),
        "{text}"
    );
    let union = text
        .lines()
        .find(|line| line.starts_with("| KEP-1645#145 |"));
    assert!(
        union.is_some_and(|row| row.contains("conflicts/port-union")),
        "{text}"
    );
    let bug = text
        .lines()
        .find(|line| line.starts_with("| BC-01 | cilium#45109"));
    assert!(
        bug.is_some_and(|row| row.contains("endpoints/shared-target")),
        "{text}"
    );
}

#[test]
fn results_come_from_a_report_and_from_nothing_else() {
    let path = file("no-report.yaml", "groups: []\n");

    let message = refused(&["rules", "--report", &path]);

    assert!(message.contains("expected a report of a run"), "{message}");
}

#[test]
fn nobody_who_listens_is_no_reason_to_crash() {
    for (arguments, code) in [
        (&["list"][..], 0),
        (&["rules"], 0),
        (&["list", "--filter", "none-such"], 2),
    ] {
        let closed = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer
        };
        let ended = Command::new(env!("CARGO_BIN_EXE_tombolo-conformance"))
            .args(arguments)
            .stdout(closed())
            .stderr(closed())
            .status()
            .expect("the program runs");

        assert_eq!(ended.code(), Some(code), "{arguments:?}");
    }
}
