//! The runner of the upstream suite, with programs in its place that end in every way that a suite can.

use std::{
    fs,
    future::pending,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;
use tombolo_e2e::upstream::{self, Outcome, Suite, report};
use tombolo_testbed::eventually;

const PASSED: &str = "groups: [{name: Required, tests: [{desc: x, passed: true}]}]";
const FAILED: &str = "groups: [{name: Required, tests: [{desc: x, failed: true, message: no}]}]";

/// The shell of scripts. Whoever runs the tests in the background may ignore signals, and that is inherited.
const SHELL: &str = "/usr/bin/env -S --default-signal=INT,TERM sh";

/// A suite whose program is a shell script. Made by a process of its own: what this one has written may still be open in a child
/// that another test is just starting, and then it cannot be run.
fn suite(directory: &TempDir, script: &str) -> Suite {
    let program = directory.path().join("conformance.test");
    let text = directory.path().join("script");
    fs::write(&text, format!("#!{SHELL}\n{script}\n")).expect("a temporary directory is writable");
    let installed = Command::new("install").arg(&text).arg(&program).status();
    assert!(installed.expect("install runs").success());
    Suite {
        program,
        enter: Vec::new(),
        flags: Suite::flags(Path::new("/kube"), &["a", "b"], &["--x=1".to_owned()]),
        directory: directory.path().join("work"),
        reports: directory.path().join("reports"),
        grace: Duration::ZERO,
    }
}

/// Runs a script to its end, in place of an older run that left reports.
async fn run(directory: &TempDir, script: &str) -> (Suite, Outcome) {
    let suite = suite(directory, script);
    fs::create_dir(&suite.reports).expect("a temporary directory is writable");
    fs::write(suite.reports.join(report::YAML), PASSED).expect("a temporary directory is writable");
    let outcome = upstream::on(&suite, pending()).await;
    (suite, outcome)
}

#[tokio::test]
async fn it_runs_in_a_directory_of_its_own_and_its_reports_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!("echo \"$*\" >report.html; echo '{PASSED}' >report.yaml");

    let (suite, outcome) = run(&directory, &script).await;

    assert_eq!(outcome, Outcome::Passed);
    let html = fs::read_to_string(suite.reports.join(report::HTML)).unwrap();
    assert_eq!(html, "--kubeconfig=/kube --contexts=a,b --x=1\n");
    assert!(suite.directory.join(report::YAML).exists());
    assert!(!Path::new(report::YAML).exists());
}

#[tokio::test]
async fn specs_that_fail_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!("echo '{FAILED}' >report.yaml; exit 1");

    let (_, outcome) = run(&directory, &script).await;

    assert_eq!(outcome, Outcome::Failed(vec!["x: no".to_owned()]));
}

#[tokio::test]
async fn the_report_of_an_earlier_run_is_not_taken_for_that_of_this_one() {
    let directory = tempfile::tempdir().unwrap();

    let (suite, outcome) = run(&directory, "exit 0").await;

    assert_eq!(outcome.exit_code(), 2, "{outcome:?}");
    assert!(!suite.reports.join(report::YAML).exists());
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_no_result() {
    let directory = tempfile::tempdir().unwrap();
    let mut suite = suite(&directory, "exit 0");
    suite.program = directory.path().join("gone");

    let outcome = upstream::on(&suite, pending()).await;

    assert_eq!(outcome.exit_code(), 2, "{outcome:?}");
    assert!(outcome.text().contains("gone"), "{outcome:?}");
}

#[tokio::test]
async fn an_interrupted_program_is_asked_to_end_and_may_report() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "trap \"echo '{PASSED}' >report.yaml; exit 1\" INT; sleep 60 & echo $! >pid; wait; kill $!"
    );

    let (suite, outcome) = interrupted(&directory, &script, Duration::from_secs(30)).await;

    assert_eq!(outcome, Outcome::Interrupted);
    assert!(suite.reports.join(report::YAML).exists());
    end_sleeper(&suite);
}

#[tokio::test]
async fn a_program_that_does_not_end_is_killed() {
    let directory = tempfile::tempdir().unwrap();

    let script = "trap '' INT; echo $$ >pid; exec sleep 60";
    let (suite, outcome) = interrupted(&directory, script, Duration::from_millis(300)).await;

    assert_eq!(outcome, Outcome::Interrupted);
    let pid = fs::read_to_string(suite.directory.join("pid")).unwrap();
    assert!(!PathBuf::from(format!("/proc/{}", pid.trim())).exists());
}

/// Runs a script, and interrupts it when it has written its pid.
async fn interrupted(directory: &TempDir, script: &str, grace: Duration) -> (Suite, Outcome) {
    let suite = Suite {
        grace,
        ..suite(directory, script)
    };
    let pid = suite.directory.join("pid");
    let written = async {
        let seen = eventually(Duration::from_secs(20), "a pid", async || {
            let text = fs::read_to_string(&pid).unwrap_or_default();
            text.ends_with('\n').then_some(()).ok_or(text)
        });
        seen.await.expect("the script writes its pid");
    };
    let outcome = upstream::on(&suite, written).await;
    (suite, outcome)
}

fn end_sleeper(suite: &Suite) {
    let pid = fs::read_to_string(suite.directory.join("pid")).expect("it was written");
    let ended = Command::new("kill")
        .arg(pid.trim())
        .status()
        .expect("kill is there");
    assert!(ended.success());
}

#[test]
fn without_a_program_the_command_says_not_run() {
    for program in [None, Some("/nowhere/conformance.test")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upstream"));
        command.env_remove("CONFORMANCE_TEST");
        if let Some(program) = program {
            command.env("CONFORMANCE_TEST", program);
        }

        let output = command.output().unwrap();

        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(
            text.contains("not run: CONFORMANCE_TEST") && text.contains("mcs-api"),
            "{text}"
        );
    }
}
