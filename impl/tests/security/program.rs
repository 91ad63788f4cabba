//! Runs the program.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Output},
};

/// What the program answered.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, without the settings of whoever runs the tests.
pub(crate) fn tombolo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// Runs it to its end.
pub(crate) fn answer<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Answer {
    let output: Output = tombolo()
        .args(arguments)
        .output()
        .expect("the program runs");
    Answer {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// `tombolo certs make DIR --cluster-name CLUSTER ...`, which must succeed.
pub(crate) fn make(dir: &Path, cluster: &str, more: &[&str]) -> String {
    let dir = dir.display().to_string();
    let first = ["certs", "make", &dir, "--cluster-name", cluster];
    let answer = answer(first.iter().chain(more));
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    answer.stdout
}
