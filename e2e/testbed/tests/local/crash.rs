//! However a run ends, nothing of it is left: by itself, or after `tombolo-testbed down`.
//!
//! This program is its own subject: with [`SUBJECT`] set it starts a cluster, tells what it is made of, and waits.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use tombolo_testbed::{Provider, Testbed, eventually};

/// Environment variable that makes this program the subject.
const SUBJECT: &str = "TESTBED_LOCAL_SUBJECT";

/// Longest wait for processes and control groups to go away.
const BUDGET: Duration = Duration::from_secs(30);

/// What a run is made of.
#[derive(Debug)]
struct Parts {
    directory: PathBuf,
    name: String,
    pids: Vec<u32>,
    namespaces: Vec<PathBuf>,
}

impl Parts {
    fn new(directory: PathBuf, pids: Vec<u32>) -> Self {
        let link = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let name = directory.file_name().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            namespaces: pids.iter().filter_map(link).collect(),
            directory,
            pids,
        }
    }

    fn groups(&self) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
        let hierarchies = hierarchies.flatten().map(|it| it.path());
        let all = hierarchies.chain(["/sys/fs/cgroup".into()]);
        all.map(|it| it.join(&self.name))
            .filter(|it| it.exists())
            .collect()
    }

    fn processes(&self) -> Vec<u32> {
        let exists = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        self.pids.iter().copied().filter(exists).collect()
    }

    /// Everything that can be left: processes, groups, files, and namespaces and mounts that some process still sees.
    fn left(&self) -> Result<(), String> {
        let mut left: Vec<String> = Vec::new();
        left.extend(self.processes().iter().map(|it| format!("process {it}")));
        left.extend(self.groups().iter().map(|it| it.display().to_string()));
        if self.directory.exists() {
            left.push(self.directory.display().to_string());
        }
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes.map(|it| it.path()) {
            let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            if mounts.contains(&self.name) {
                left.push(format!("mounts of {}", process.display()));
            }
            if let Ok(network) = fs::read_link(process.join("ns/net"))
                && self.namespaces.contains(&network)
            {
                left.push(format!("{} of {}", network.display(), process.display()));
            }
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    }

    async fn are_gone(&self) -> Result<()> {
        eventually(BUDGET, "nothing of the run", async || self.left()).await?;
        Ok(())
    }
}

/// Two runs one after the other: the first leaves nothing that hinders the second.
pub(crate) async fn one_after_the_other() -> Result<()> {
    for _ in 0..2 {
        let bed = Testbed::start_with(&Provider::Local, 1).await?;
        let parts = Parts::new(bed.directory().to_owned(), bed.pids_with_pods());
        ensure!(!parts.groups().is_empty() && parts.left().is_err());

        drop(bed);

        // PID 1 has yet to wait for the processes that were left to it.
        parts.are_gone().await?;
    }
    Ok(())
}

/// Without its program, the watchdog of a run removes it.
pub(crate) async fn program_killed() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let (mut subject, parts) = start_subject(&temporary)?;

    subject.kill()?;
    subject.wait()?;

    parts.are_gone().await
}

/// With program and watchdog killed at once everything stays, until `tombolo-testbed down`.
pub(crate) async fn down_removes_all() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let (mut subject, parts) = start_subject(&temporary)?;
    let in_use = down(&temporary)?;
    let records = fs::read_to_string(parts.directory.join("records"))?;
    let watchdog = records
        .lines()
        .find_map(|it| it.strip_prefix("watchdog "))
        .and_then(|it| it.split(' ').next()?.parse().ok())
        .and_then(Pid::from_raw)
        .context("the record of the watchdog")?;

    // Stopped first, so that it notices nothing in between.
    kill_process(watchdog, Signal::STOP)?;
    subject.kill()?;
    subject.wait()?;
    kill_process(watchdog, Signal::KILL)?;

    ensure!(in_use.contains("in use by process"), "{in_use}");
    let alive = parts.processes().len();
    ensure!(alive > 8, "{alive} of {:?} live", parts.pids);
    ensure!(!parts.groups().is_empty() && parts.directory.exists());

    let said = down(&temporary)?;

    ensure!(said.contains("removed, with"), "{said}");
    parts.are_gone().await?;
    let again = down(&temporary)?;
    ensure!(again.contains("nothing is left"), "{again}");
    Ok(())
}

/// Whoever is told that the clusters can be ended can end them at once.
pub(crate) async fn up_is_interrupted() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut up = up(&temporary).stdout(Stdio::piped()).spawn()?;
    let stdout = BufReader::new(up.stdout.take().context("a pipe")?);
    let told = stdout
        .lines()
        .any(|line| line.is_ok_and(|it| it.contains("interrupt this to end")));
    ensure!(told, "it ended by itself: {:?}", up.wait()?);

    kill_process(Pid::from_child(&up), Signal::INT)?;

    let ended = up.wait()?;
    ensure!(ended.success(), "{ended:?}");
    is_empty(temporary.path()).await
}

/// A terminal sends Ctrl-C to all programs of its group: also to those that a start runs, whose end must not be told as a
/// failure.
pub(crate) async fn up_is_interrupted_while_it_starts() -> Result<()> {
    // What there is in the directory of the run, from early to late.
    for reached in ["", "images", "a/etcd.log", "a/kube-apiserver.log"] {
        let temporary = tempfile::tempdir()?;
        let mut up = up(&temporary).process_group(0).spawn()?;
        let what = format!("a run with `{reached}`");
        let begun = eventually(BUDGET, &what, async || {
            let runs = fs::read_dir(temporary.path()).map_err(|it| it.to_string())?;
            let mut runs = runs.flatten().map(|it| it.path().join(reached));
            let found = runs.any(|it| it.exists());
            found.then_some(()).ok_or_else(|| "not there".to_owned())
        });
        begun.await?;

        kill_process_group(Pid::from_child(&up), Signal::INT)?;

        let ended = up.wait()?;
        ensure!(ended.code() == Some(130), "`{reached}`: {ended:?}");
        is_empty(temporary.path()).await?;
    }
    Ok(())
}

/// Starts one cluster, in that directory.
fn up(temporary: &TempDir) -> Command {
    let mut up = Command::new(env!("CARGO_BIN_EXE_tombolo-testbed"));
    up.args(["up", "1"])
        .env("TMPDIR", temporary.path())
        .env("TOMBOLO_CLUSTERS", "local")
        .env_remove("KEEP");
    up
}

async fn is_empty(directory: &Path) -> Result<()> {
    eventually(BUDGET, "an empty directory", async || {
        let left = fs::read_dir(directory).map_err(|it| it.to_string())?;
        let left: Vec<_> = left.flatten().map(|it| it.path()).collect();
        let empty = left.is_empty();
        empty.then_some(()).ok_or_else(|| format!("{left:?}"))
    })
    .await?;
    Ok(())
}

fn down(temporary: &TempDir) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_tombolo-testbed"))
        .arg("down")
        .env("TMPDIR", temporary.path())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn start_subject(temporary: &TempDir) -> Result<(Child, Parts)> {
    let mut subject = Command::new(std::env::current_exe()?)
        .env(SUBJECT, temporary.path())
        .env("TMPDIR", temporary.path())
        .env_remove("KEEP")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = subject.stdout.take().context("a pipe")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let directory = words.next().context("the subject did not start")?;
    let pids: Result<Vec<u32>, _> = words.map(str::parse).collect();
    Ok((subject, Parts::new(directory.into(), pids?)))
}

/// Where the subject is to work, when this program is it.
pub(crate) fn subject_of() -> Option<PathBuf> {
    std::env::var_os(SUBJECT).map(PathBuf::from)
}

/// Starts a cluster, tells where and which pids, and waits.
pub(crate) fn subject(directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bed = runtime.block_on(Testbed::start_with(&Provider::Local, 1));
    let bed = match bed {
        Ok(bed) => bed,
        Err(error) => {
            eprintln!("{}: {error}", directory.display());
            return ExitCode::FAILURE;
        }
    };
    let pids = bed.pids_with_pods();
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    println!("{} {}", bed.directory().display(), pids.join(" "));
    loop {
        std::thread::park();
    }
}
