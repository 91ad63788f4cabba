//! However a test program ends, nothing that its testbed started outlives it.
//!
//! This program is its own subject: with [`MODE`] set it starts a cluster, tells its pids, and ends in that way.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use tombolo_testbed::{Testbed, eventually};

/// Environment variable that makes this program the subject.
const MODE: &str = "TESTBED_LEFTOVERS_MODE";

/// Longest wait for processes to go away; they get SIGKILL, so it is short.
const BUDGET: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Ok(mode) = std::env::var(MODE) {
        return subject(&mode);
    }
    let trials = vec![
        trial("a_dropped_testbed_leaves_nothing", || {
            ends("drop", None, Kept::Nothing)
        }),
        trial("a_static_that_is_never_dropped_leaves_nothing", || {
            ends("exit", None, Kept::Nothing)
        }),
        trial("a_panic_leaves_only_logs", || {
            ends("panic", None, Kept::Logs)
        }),
        trial("ctrl_c_leaves_nothing", || {
            ends("wait", Some(Signal::INT), Kept::Nothing)
        }),
        trial("sigterm_leaves_nothing", || {
            ends("wait", Some(Signal::TERM), Kept::Nothing)
        }),
        trial("sigkill_leaves_nothing", || {
            ends("wait", Some(Signal::KILL), Kept::Nothing)
        }),
        trial(
            "sigkill_during_the_start_leaves_nothing",
            killed_while_starting,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, test: fn() -> Result<()>) -> Trial {
    Trial::test(name, move || {
        test().map_err(|error| Failed::from(format!("{error:?}")))
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Kept {
    Nothing,
    Logs,
}

/// Lets the subject end, by itself or by a signal, and looks for what it left.
fn ends(mode: &str, signal: Option<Signal>, kept: Kept) -> Result<()> {
    let mut subject = start_subject(mode)?;
    let (directory, pids) = read_report(&mut subject)?;
    ensure!(pids.len() == 4, "four processes per cluster: {pids:?}");
    if let Some(signal) = signal {
        ensure!(
            pids.iter().all(|pid| exists(pid)),
            "the cluster runs before the signal"
        );
        kill_process(Pid::from_child(&subject), signal)?;
    }
    subject.wait()?;

    runtime()?.block_on(eventually(
        BUDGET,
        "no process and no directory",
        async || {
            let left: Vec<_> = pids.iter().filter(|pid| exists(pid)).collect();
            let expected = kept == Kept::Logs;
            match (left.is_empty(), directory.exists() == expected) {
                (true, true) => Ok(()),
                _ => Err(format!(
                    "pids {left:?}, {} exists: {}",
                    directory.display(),
                    directory.exists()
                )),
            }
        },
    ))?;
    if kept == Kept::Logs {
        check_kept(&directory)?;
    }
    Ok(())
}

fn check_kept(directory: &Path) -> Result<()> {
    ensure!(
        directory.join("a/kube-apiserver.log").is_file(),
        "the log is kept"
    );
    runtime()?.block_on(eventually(BUDGET, "no data of etcd", async || {
        let data = directory.join("a/etcd-data");
        if data.exists() {
            Err(format!("{} is there", data.display()))
        } else {
            Ok(())
        }
    }))?;
    Ok(std::fs::remove_dir_all(directory)?)
}

/// The subject dies as soon as it has a first process: others are about to be started.
fn killed_while_starting() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut subject = command("exit")?.env("TMPDIR", temporary.path()).spawn()?;
    let parent = subject.id();
    let runtime = runtime()?;
    let children = runtime.block_on(eventually(BUDGET, "the first etcd", async || {
        let children = children(parent);
        if children.iter().any(|(_, name)| name == "etcd") {
            Ok(children)
        } else {
            Err(format!("{children:?}"))
        }
    }))?;

    subject.kill()?;
    subject.wait()?;

    runtime.block_on(eventually(BUDGET, "no process and no file", async || {
        let left: Vec<_> = children.iter().filter(|(pid, _)| exists(pid)).collect();
        let files: Vec<_> = std::fs::read_dir(temporary.path())
            .into_iter()
            .flatten()
            .collect();
        if left.is_empty() && files.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?} {files:?}"))
        }
    }))?;
    Ok(())
}

fn start_subject(mode: &str) -> Result<Child> {
    Ok(command(mode)?.spawn()?)
}

fn command(mode: &str) -> Result<Command> {
    // Whoever runs the tests in the background may ignore signals, and that is inherited.
    let mut command = Command::new("/usr/bin/env");
    command
        .arg("--default-signal=INT,TERM")
        .arg(std::env::current_exe()?)
        .env(MODE, mode)
        .env_remove("KEEP")
        .env("TOMBOLO_CLUSTERS", "api");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// The subject's directory and the pids of its processes.
fn read_report(subject: &mut Child) -> Result<(PathBuf, Vec<String>)> {
    let mut line = String::new();
    let stdout = subject.stdout.take().context("a pipe")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let directory = words
        .next()
        .context("the subject says where its cluster is")?;
    Ok((directory.into(), words.collect()))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// Pid and name of the processes whose parent is `parent`.
fn children(parent: u32) -> Vec<(String, String)> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    let pids: Vec<_> = lists
        .flat_map(|it| it.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pids.into_iter()
        .map(|pid| (pid.clone(), name(&pid).trim().to_owned()))
        .collect()
}

/// Starts a cluster, tells where and which pids, and ends.
fn subject(mode: &str) -> ExitCode {
    let runtime = runtime().expect("a runtime");
    let bed = runtime.block_on(Testbed::start(1)).expect("a cluster");
    let pids: Vec<_> = bed
        .cluster(0)
        .pids()
        .expect("pids")
        .into_values()
        .map(|it| it.to_string())
        .collect();
    println!("{} {}", bed.directory().display(), pids.join(" "));
    if mode == "drop" {
        return ExitCode::SUCCESS;
    }
    // As a static is: never dropped.
    let _bed: &'static Testbed = Box::leak(Box::new(bed));
    match mode {
        "panic" => panic!("on purpose"),
        "wait" => loop {
            std::thread::park();
        },
        _ => ExitCode::SUCCESS,
    }
}
