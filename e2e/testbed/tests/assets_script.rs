//! `tools/assets`, with a Go that builds in no time: what it finds, builds, says and leaves.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tombolo_testbed::{Assets, KindTools, NodeAssets, eventually};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/assets");

/// Tools of the system that the script uses, without any etcd, kubectl or go that may be there as well.
const TOOLS: [&str; 20] = [
    "bash",
    "cat",
    "sed",
    "sort",
    "head",
    "tail",
    "awk",
    "paste",
    "cut",
    "sha256sum",
    "dirname",
    "df",
    "flock",
    "mkdir",
    "mv",
    "rm",
    "sleep",
    "kill",
    "env",
    "touch",
];

/// Binaries of the set for nodes.
const NODE_PROGRAMS: [&str; 6] = [
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "pause",
    "helm",
];

/// Stands for Go: tells a version, notes what it is asked to build, and writes a file as the result.
const GO: &str = r#"#!/usr/bin/env bash
if [[ $1 == env ]]; then echo "${STUB_VERSION:-go1.99.0}"; exit; fi
while [[ $# -gt 0 ]]; do [[ $1 != -o ]] || out=$2; shift; done
echo "${out##*/}" >>"$STUB_CALLS"
if [[ ${out##*/} == "${STUB_HANG:-}" ]]; then touch "$STUB_CALLS.hangs"; sleep 1000; fi
if [[ ${out##*/} == "${STUB_FAIL:-}" ]]; then echo "this does not compile"; exit 1; fi
printf '#!/bin/sh\necho etcd Version: 3.6.0\n' >"$out"
/bin/chmod +x "$out"
"#;

/// Longest wait for a script that builds nothing real.
const BUDGET: Duration = Duration::from_secs(20);

/// A machine with the system's tools, a Go, and an empty cache.
struct Machine {
    directory: TempDir,
}

impl Machine {
    fn new() -> Result<Self> {
        let machine = Self {
            directory: tempfile::tempdir()?,
        };
        let bin = machine.path("bin");
        fs::create_dir(&bin)?;
        for tool in TOOLS {
            let path = std::env::split_paths(&std::env::var_os("PATH").context("PATH")?)
                .map(|directory| directory.join(tool))
                .find(|path| path.is_file())
                .with_context(|| format!("{tool} on PATH"))?;
            std::os::unix::fs::symlink(path, bin.join(tool))?;
        }
        install(&bin.join("go"), GO)?;
        Ok(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn script(&self) -> Command {
        // Whoever runs the tests in the background may ignore signals, and a shell cannot trap what it inherits as ignored.
        let mut command = Command::new("/usr/bin/env");
        command
            .args(["--default-signal=INT,TERM", SCRIPT])
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("TOMBOLO_CACHE", self.path("cache"))
            .env("STUB_CALLS", self.path("calls"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What Go was asked to build, in order.
    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls"))
            .unwrap_or_default()
            .replace('\n', " ")
    }

    /// Names of what is in the cache, but for the lock.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/assets"))
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|it| it.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != ".lock").collect()
    }
}

#[test]
fn the_script_and_the_testbed_agree_on_the_directory() -> Result<()> {
    let output = Command::new(SCRIPT).arg("--where").output()?;

    assert_eq!(Some(stdout(&output).into()), Assets::cache_directory());
    Ok(())
}

#[test]
fn it_builds_all_four_once_and_prints_their_directory() -> Result<()> {
    let machine = Machine::new()?;

    let first = machine.script().output()?;
    let second = machine.script().output()?;

    let directory = PathBuf::from(stdout(&first));
    assert!(
        directory.starts_with(machine.path("cache/assets")),
        "{first:?}"
    );
    assert_eq!(stdout(&first), stdout(&second));
    assert_eq!(
        machine.calls(),
        "etcd kube-apiserver kube-controller-manager kubectl "
    );
    assert!(
        stderr(&first).contains("built kube-apiserver (2 of 4)"),
        "{}",
        stderr(&first)
    );
    assert_eq!(
        fs::read_dir(&directory)?.count(),
        4,
        "binaries and nothing else"
    );
    assert_eq!(machine.cached().len(), 1, "{:?}", machine.cached());
    Ok(())
}

#[test]
fn print_builds_nothing_and_names_the_command() -> Result<()> {
    let machine = Machine::new()?;

    let before = machine.script().arg("--print").output()?;
    let built = machine.script().output()?;
    let after = machine.script().arg("--print").output()?;

    assert_eq!(before.status.code(), Some(1));
    assert!(
        stderr(&before).contains("run 'make assets'"),
        "{}",
        stderr(&before)
    );
    assert_eq!(stdout(&after), stdout(&built));
    Ok(())
}

#[test]
fn two_at_once_build_once() -> Result<()> {
    let machine = Machine::new()?;

    let both = [machine.script().spawn()?, machine.script().spawn()?];
    let outputs = both.map(Child::wait_with_output);

    for output in outputs {
        assert!(output?.status.success());
    }
    assert_eq!(
        machine.calls(),
        "etcd kube-apiserver kube-controller-manager kubectl "
    );
    Ok(())
}

#[test]
fn what_a_build_that_was_killed_left_is_taken_away() -> Result<()> {
    let machine = Machine::new()?;
    fs::create_dir_all(machine.path("cache/assets/.building-1/bin"))?;

    let output = machine.script().output()?;

    assert!(output.status.success(), "{output:?}");
    assert_eq!(machine.cached().len(), 1, "{:?}", machine.cached());
    Ok(())
}

#[test]
fn a_build_that_fails_shows_why_and_leaves_nothing() -> Result<()> {
    let machine = Machine::new()?;

    let output = machine.script().env("STUB_FAIL", "kubectl").output()?;

    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("this does not compile"),
        "{}",
        stderr(&output)
    );
    assert!(
        stderr(&output).contains("go could not build kubectl"),
        "{}",
        stderr(&output)
    );
    assert_eq!(machine.cached(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn an_interrupted_build_leaves_nothing_and_can_be_repeated() -> Result<()> {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let machine = Machine::new()?;
        let script = machine
            .script()
            .env("STUB_HANG", "kube-apiserver")
            .spawn()?;
        let hangs = machine.path("calls.hangs");
        eventually(BUDGET, "the build of the second program", async || {
            if hangs.exists() {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        })
        .await?;

        kill_process(Pid::from_child(&script), signal)?;
        let output = script.wait_with_output()?;

        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(machine.cached(), Vec::<String>::new());
        assert!(machine.script().output()?.status.success());
    }
    Ok(())
}

#[test]
fn go_that_is_missing_or_too_old_is_one_message() -> Result<()> {
    let machine = Machine::new()?;

    let old = machine.script().env("STUB_VERSION", "go1.20.1").output()?;
    fs::remove_file(machine.path("bin/go"))?;
    let missing = machine.script().output()?;

    for (output, words) in [(old, "is 1.20.1"), (missing, "there is no go on PATH")] {
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(
            message.contains("building needs Go 1.26") && message.contains(words),
            "{message}"
        );
    }
    Ok(())
}

#[test]
fn binaries_that_exist_are_taken_and_nothing_is_built() -> Result<()> {
    let machine = Machine::new()?;
    let [assets, kubebuilder] = ["t", "k"].map(|name| machine.path(name));
    fs::create_dir(&assets)?;
    fs::create_dir(&kubebuilder)?;
    for name in ["kube-apiserver", "kube-controller-manager"] {
        install(&assets.join(name), "#!/bin/sh\necho Kubernetes v1.36.3\n")?;
    }
    for name in ["etcd", "kubectl"] {
        install(
            &kubebuilder.join(name),
            "#!/bin/sh\necho etcd Version: 3.6.1\n",
        )?;
    }

    let output = machine
        .script()
        .env("TOMBOLO_ASSETS", &assets)
        .env("KUBEBUILDER_ASSETS", &kubebuilder)
        .output()?;

    let expected = format!("{}:{}", kubebuilder.display(), assets.display());
    assert_eq!(stdout(&output), expected);
    assert_eq!(machine.calls(), "");
    Ok(())
}

#[test]
fn an_etcd_that_is_too_old_is_not_taken() -> Result<()> {
    let machine = Machine::new()?;
    for name in [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kubectl",
    ] {
        install(
            &machine.path("bin").join(name),
            "#!/bin/sh\necho etcd Version: 3.4.23\n",
        )?;
    }

    let output = machine.script().output()?;

    assert!(
        stderr(&output).contains("is 3.4.23, 3.6 is needed"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        machine.calls(),
        "etcd kube-apiserver kube-controller-manager kubectl "
    );
    Ok(())
}

#[test]
fn the_script_and_the_testbed_agree_on_the_directory_for_nodes() -> Result<()> {
    let output = Command::new(SCRIPT).args(["node", "--where"]).output()?;

    assert_eq!(Some(stdout(&output).into()), NodeAssets::cache_directory());
    Ok(())
}

#[test]
fn the_script_and_the_testbed_agree_on_the_directory_for_kind() -> Result<()> {
    let output = Command::new(SCRIPT).args(["kind", "--where"]).output()?;

    assert_eq!(Some(stdout(&output).into()), KindTools::cache_directory());
    Ok(())
}

#[test]
fn the_set_for_kind_is_built_alone() -> Result<()> {
    let machine = Machine::new()?;

    let missing = machine.script().args(["kind", "--print"]).output()?;
    let built = machine.script().arg("kind").output()?;
    let again = machine.script().args(["kind", "--print"]).output()?;

    assert!(
        stderr(&missing).contains("run 'tools/assets kind'"),
        "{missing:?}"
    );
    assert_eq!(machine.calls(), "kind kubeadm ");
    assert_eq!(stdout(&built), stdout(&again));
    assert!(
        stderr(&built).contains("about a minute"),
        "{}",
        stderr(&built)
    );
    Ok(())
}

#[test]
fn the_set_for_nodes_is_built_beside_the_other_and_leaves_it_alone() -> Result<()> {
    let machine = Machine::new()?;
    let control_plane = machine.script().output()?;

    let missing = machine.script().args(["node", "--print"]).output()?;
    let node = machine.script().arg("node").output()?;
    let again = machine.script().args(["node", "--print"]).output()?;

    assert!(
        stderr(&missing).contains("run 'make assets-node'"),
        "{missing:?}"
    );
    assert!(
        machine
            .calls()
            .ends_with("kubectl kube-scheduler kubelet kube-proxy coredns pause helm "),
        "{}",
        machine.calls()
    );
    assert_eq!(stdout(&node), stdout(&again));
    assert_eq!(machine.cached().len(), 2, "{:?}", machine.cached());
    assert!(PathBuf::from(stdout(&control_plane)).join("etcd").exists());
    Ok(())
}

#[test]
fn a_kubelet_on_path_is_not_taken_and_a_whole_named_set_is() -> Result<()> {
    let machine = Machine::new()?;
    let named = machine.path("named");
    fs::create_dir(&named)?;
    for name in NODE_PROGRAMS {
        install(&machine.path("bin").join(name), "#!/bin/sh\n")?;
        install(&named.join(name), "#!/bin/sh\n")?;
    }

    let of_path = machine.script().args(["node", "--print"]).output()?;
    let of_name = machine
        .script()
        .arg("node")
        .env("TOMBOLO_ASSETS", &named)
        .output()?;

    assert_eq!(of_path.status.code(), Some(1), "{of_path:?}");
    assert_eq!(stdout(&of_name), named.display().to_string());
    assert_eq!(machine.calls(), "");
    Ok(())
}

/// Puts a program in place by `cp`: a file that this process itself wrote may still be open in a child that another
/// test is just starting, and then it cannot be run.
fn install(path: &Path, content: &str) -> Result<()> {
    let text = path.with_extension("text");
    fs::write(&text, content)?;
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755))?;
    anyhow::ensure!(Command::new("cp").arg(&text).arg(path).status()?.success());
    Ok(fs::remove_file(text)?)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
