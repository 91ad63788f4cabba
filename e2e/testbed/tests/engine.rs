//! `tools/engine`: which engine it takes, what it says where it has none, and what a private one leaves, also when it was killed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tombolo_testbed::{Engine, eventually};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/engine");

/// Tools of the system that the script uses, without any Docker that may be there as well.
const TOOLS: [&str; 14] = [
    "bash",
    "cat",
    "cut",
    "dirname",
    "env",
    "flock",
    "grep",
    "id",
    "mkdir",
    "sha256sum",
    "sed",
    "sleep",
    "timeout",
    "uname",
];

/// Longest wait for processes that were killed.
const BUDGET: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("without_docker_it_says_why_and_ends_with_3", without_docker),
        trial("in_ci_a_missing_engine_is_a_failure", in_ci),
        trial("if_possible_runs_the_command_anyway", if_possible),
        trial("an_engine_that_runs_is_taken_as_it_is", taken_as_it_is),
    ];
    if arguments.list || can_be_private() {
        trials.push(trial("a_private_engine_leaves_nothing", private));
        trials.push(trial(
            "a_private_engine_that_was_killed_is_taken_away",
            killed,
        ));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: fn() -> Result<()>) -> Trial {
    Trial::test(name, move || {
        test().map_err(|error| Failed::from(format!("{error:?}")))
    })
}

/// A private engine needs root and dockerd. Where neither is, and another engine runs, nobody needs a private one.
fn can_be_private() -> bool {
    let dockerd = [
        "/usr/bin/dockerd",
        "/usr/sbin/dockerd",
        "/usr/local/bin/dockerd",
    ];
    let able =
        rustix::process::geteuid().is_root() && dockerd.iter().any(|it| Path::new(it).exists());
    if !able {
        println!(
            "not run: a private Docker engine: it needs root and dockerd (`tools/setup engine`)"
        );
        if std::env::var_os("CI").is_some() && Engine::exit_without("tests").is_some() {
            std::process::exit(1);
        }
    }
    able
}

/// A machine with the system's tools and an empty cache.
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
            symlink(path, bin.join(tool))?;
        }
        Ok(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program that is a script.
    fn install(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path("bin").join(name);
        let script = self.path("script");
        fs::write(&script, format!("#!/usr/bin/env bash\n{text}\n"))?;
        // By a process of its own: what this one has written may still be open in a child that another test is just starting.
        // Those of the system are links, which must not be written through.
        let install = ["--remove-destination", "--no-target-directory"];
        let copied = Command::new("cp")
            .args(install)
            .arg(&script)
            .arg(&path)
            .status()?;
        ensure!(copied.success(), "cp: {copied}");
        Ok(fs::set_permissions(
            &path,
            fs::Permissions::from_mode(0o755),
        )?)
    }

    fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> Result<Output> {
        let mut command = Command::new("/usr/bin/env");
        command
            .args([&["bash", SCRIPT], words].concat())
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("TOMBOLO_CACHE", self.path("cache"))
            .envs(variables.iter().copied());
        Ok(command.output()?)
    }
}

fn laptop() -> Result<Machine> {
    let machine = Machine::new()?;
    machine.install("docker", "exit 1")?;
    machine.install("id", "echo 1000")?;
    Ok(machine)
}

fn without_docker() -> Result<()> {
    let output = laptop()?.run(&["run", "bash", "-c", "echo ran"], &[])?;

    let said = text(&output.stdout);
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(
        said.starts_with("not run: no Docker engine") && said.contains("needs root"),
        "{said}"
    );
    ensure!(!said.contains("ran\n"), "{said}");
    Ok(())
}

fn in_ci() -> Result<()> {
    let output = laptop()?.run(&["run", "bash", "-c", "echo ran"], &[("CI", "true")])?;

    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(
        output.stdout.is_empty() && text(&output.stderr).contains("no Docker engine"),
        "{output:?}"
    );
    Ok(())
}

fn if_possible() -> Result<()> {
    let words = [
        "run",
        "--if-possible",
        "bash",
        "-c",
        "echo ran ${TOMBOLO_ENGINE_NET-without}",
    ];

    let output = laptop()?.run(&words, &[("CI", "true")])?;

    ensure!(text(&output.stdout) == "ran without\n", "{output:?}");
    Ok(())
}

fn taken_as_it_is() -> Result<()> {
    let machine = laptop()?;
    machine.install("docker", "[[ $1 == info ]]")?;
    let command = [
        "run",
        "bash",
        "-c",
        "echo \"$DOCKER_HOST<${TOMBOLO_ENGINE_NET-unset}>\"",
    ];

    let users = machine.run(&command, &[("DOCKER_HOST", "unix:///x")])?;
    let outer = machine.run(
        &command,
        &[("DOCKER_HOST", "unix:///y"), ("TOMBOLO_ENGINE_NET", "/z")],
    )?;

    ensure!(text(&users.stdout) == "unix:///x<>\n", "{users:?}");
    ensure!(text(&outer.stdout) == "unix:///y</z>\n", "{outer:?}");
    Ok(())
}

/// A private engine with a cache of its own, whatever engine runs besides.
struct Private {
    cache: TempDir,
}

impl Private {
    fn new() -> Result<Self> {
        Ok(Self {
            cache: tempfile::tempdir()?,
        })
    }

    fn script(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(SCRIPT)
            .args(words)
            .env_remove("TOMBOLO_ENGINE_NET")
            .env("DOCKER_HOST", "unix:///does/not/exist")
            .env("TOMBOLO_CACHE", self.cache.path())
            .output()?;
        ensure!(output.status.success(), "{words:?}: {output:?}");
        Ok(text(&output.stdout))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.cache.path().join("engine/run").join(name)
    }

    /// What is left of it: processes by their command lines, mounts, control groups.
    fn left(&self) -> Result<(), String> {
        let own = self.cache.path().display().to_string();
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(&own) {
                left.push(format!("process {}", process.path().display()));
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(
            mounts
                .lines()
                .filter(|it| it.contains(&own))
                .map(str::to_owned),
        );
        for hierarchy in fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let groups = fs::read_dir(hierarchy.path())
                .into_iter()
                .flatten()
                .flatten();
            let name = groups.map(|it| it.file_name().to_string_lossy().into_owned());
            left.extend(name.filter(|it| Some(it) == self.group().as_ref()));
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    }

    /// Name of its control groups.
    fn group(&self) -> Option<String> {
        let root = self.cache.path().canonicalize().ok()?.join("engine");
        let sum = Command::new("bash")
            .args(["-c", "printf %s \"$0\" | sha256sum | cut -c1-8"])
            .arg(root)
            .output()
            .ok()?;
        Some(format!("tombolo-engine-{}", text(&sum.stdout).trim()))
    }

    fn processes(&self) -> Result<Vec<i32>> {
        let files = ["dockerd.pid", "exec/containerd/containerd.pid"];
        let pids = files.map(|it| Ok(fs::read_to_string(self.file(it))?.trim().parse()?));
        pids.into_iter().collect()
    }
}

/// An image of one program and a container of it that would always be started again.
const CONTAINER: &str = "tar -C \"$(dirname \"$(command -v busybox)\")\" -c busybox | docker import - t:1 >/dev/null &&
    docker run --detach --restart always --privileged t:1 /busybox sleep 1000 && ip link show docker0";

fn private() -> Result<()> {
    let engine = Private::new()?;
    let links = || fs::read_to_string("/proc/self/net/dev");
    let before = links()?.lines().count();

    let said = engine.script(&[
        "run",
        "bash",
        "-c",
        "docker info >/dev/null && nsenter --net=$TOMBOLO_ENGINE_NET ip link show docker0",
    ])?;

    ensure!(said.contains("docker0"), "{said}");
    ensure!(links()?.lines().count() == before, "{}", links()?);
    engine.left().map_err(anyhow::Error::msg)
}

fn killed() -> Result<()> {
    let engine = Private::new()?;
    let container = CONTAINER.replace("ip link", "nsenter --net=$TOMBOLO_ENGINE_NET ip link");
    let script = format!("eval \"$(\"$0\" up)\" && {container}");
    let output = Command::new("bash")
        .args(["-c", &script, SCRIPT])
        .env_remove("TOMBOLO_ENGINE_NET")
        .env("DOCKER_HOST", "unix:///does/not/exist")
        .env("TOMBOLO_CACHE", engine.cache.path())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    for pid in engine.processes()? {
        kill_process(Pid::from_raw(pid).context("a pid")?, Signal::KILL)?;
    }
    ensure!(
        engine.left().is_err(),
        "the container and its mounts outlive the engine"
    );

    engine.script(&["down"])?;

    // PID 1 has yet to wait for the processes that were left to it.
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(eventually(BUDGET, "nothing of the engine", async || {
        engine.left()
    }))?;
    let again = engine.script(&["run", "docker", "ps", "--all", "--quiet"])?;
    ensure!(
        again.is_empty(),
        "containers of the killed engine are back: {again}"
    );
    engine.left().map_err(anyhow::Error::msg)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
