//! A process of a run: started, signalled and ended by its pid.
//!
//! It must never outlive its run, so it may not execute before the watchdog knows its pid: a shell waits for one line on
//! its standard input, then becomes the program, under the same pid. When the parent dies before that line is written the
//! shell reads the end of the file and exits.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    io::retry_on_intr,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};

use crate::run::Run;

/// Waits for the word to go, then becomes the program.
const LAUNCHER: &str = r#"read -r go && exec "$@" </dev/null"#;

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 20;

/// Why something could not be done to a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It did not start.
    #[error("{process}: cannot start {}: {source}", program.display())]
    Start {
        /// Name in this run, such as `a/etcd`.
        process: String,
        /// Program that was to run.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is not running, so it cannot get a signal.
    #[error("{process}: is not running; restart it first")]
    NotRunning {
        /// Name in this run.
        process: String,
    },
    /// The system refused the signal.
    #[error("{process}: cannot send signal to pid {pid}: {source}")]
    Signal {
        /// Name in this run.
        process: String,
        /// Its pid.
        pid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended by itself.
    #[error(
        "{process}: ended with {status} before it was ready; {}",
        show_tail(log, tail)
    )]
    Ended {
        /// Name in this run.
        process: String,
        /// How it ended.
        status: ExitStatus,
        /// Its log file.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// It runs, and was not ready in time.
    #[error(
        "{process}: not ready after {waited:.1?}, last answer: {last}; {}",
        show_tail(log, tail)
    )]
    NotReady {
        /// Name in this run.
        process: String,
        /// How long was waited.
        waited: Duration,
        /// What the last readiness probe found.
        last: String,
        /// Its log file.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
}

fn show_tail(log: &Path, tail: &str) -> String {
    format!("end of {}:\n{tail}", log.display())
}

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Name in this run, such as `a/etcd`.
    pub(crate) name: String,
    /// Command that becomes the program, such as `nsenter` with its flags; empty for none.
    pub(crate) enter: Vec<String>,
    /// Executable file.
    pub(crate) path: PathBuf,
    /// Arguments.
    pub(crate) args: Vec<String>,
    /// Environment variables besides those of this process.
    pub(crate) environment: Vec<(String, String)>,
    /// File that gets standard output and standard error; appended to over restarts.
    pub(crate) log: PathBuf,
}

/// A program and, while it runs, its process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Process {
    program: Program,
    run: Arc<Run>,
    child: Option<Child>,
}

impl Process {
    /// A process that does not run yet.
    pub(crate) fn new(program: Program, run: Arc<Run>) -> Self {
        Self {
            program,
            run,
            child: None,
        }
    }

    /// Sets environment variables of the program besides those of this process, from the next start on.
    pub(crate) fn set_environment(&mut self, variables: &[(&str, &str)]) {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        self.program.environment = variables.iter().map(owned).collect();
    }

    /// Starts the program, after ending the process of an earlier start.
    pub(crate) fn start(&mut self) -> Result<(), ProcessError> {
        self.kill9();
        let child = self.spawn().map_err(|source| ProcessError::Start {
            process: self.program.name.clone(),
            program: self.program.path.clone(),
            source,
        })?;
        self.child = Some(child);
        Ok(())
    }

    fn spawn(&self) -> io::Result<Child> {
        if !self.program.path.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.program.log)?;
        let mut child = Command::new("sh")
            .args(["-c", LAUNCHER, "sh"])
            .args(&self.program.enter)
            .arg(&self.program.path)
            .args(&self.program.args)
            .env("NO_COLOR", "1")
            .envs(self.program.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let started = self.run.add(child.id(), &self.program.name).and_then(|()| {
            let mut stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            stdin.write_all(b"go\n")
        });
        if let Err(error) = started {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(child)
    }

    /// Name in this run.
    pub(crate) fn name(&self) -> &str {
        &self.program.name
    }

    /// The log file.
    pub(crate) fn log(&self) -> &Path {
        &self.program.log
    }

    /// The pid while the process runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How the process ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let status = child.try_wait().ok().flatten()?;
        let _ = self.run.forget(child.id());
        self.child = None;
        Some(status)
    }

    /// Kills the process and waits until its pid is gone. Does nothing when it does not run.
    pub(crate) fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = self.run.forget(child.id());
        }
    }

    /// Asks the process to end, and kills it when it has not after `grace`.
    pub(crate) async fn terminate(&mut self, grace: Duration) -> Result<(), ProcessError> {
        self.signal(Signal::TERM)?;
        let start = Instant::now();
        while self.ended().is_none() && self.child.is_some() {
            if start.elapsed() > grace {
                self.kill9();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Stops the process where it is: its connections stay open and nobody answers. Returns when it has stopped: a signal is
    /// only on its way when it was sent, and busy threads still answer.
    pub(crate) fn pause(&mut self) -> Result<(), ProcessError> {
        self.signal(Signal::STOP)?;
        let Some(child) = &self.child else {
            return Ok(());
        };
        // One that has ended will not stop; it is left for others to collect.
        let states = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let pid = Pid::from_child(child);
        let waited = retry_on_intr(|| waitid(WaitId::Pid(pid), states));
        waited.map_err(|error| ProcessError::Signal {
            process: self.program.name.clone(),
            pid: child.id(),
            source: error.into(),
        })?;
        Ok(())
    }

    /// Lets a paused process go on.
    pub(crate) fn resume(&mut self) -> Result<(), ProcessError> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<(), ProcessError> {
        let not_running = || ProcessError::NotRunning {
            process: self.program.name.clone(),
        };
        let child = self.child.as_ref().ok_or_else(not_running)?;
        let pid = child.id();
        kill_process(Pid::from_child(child), signal).map_err(|error| ProcessError::Signal {
            process: self.program.name.clone(),
            pid,
            source: error.into(),
        })
    }

    /// The error for a process that ended before it was ready.
    pub(crate) fn ended_early(&self, status: ExitStatus) -> ProcessError {
        let Program { name, log, .. } = self.program.clone();
        let tail = tail(&log, TAIL_LINES);
        ProcessError::Ended {
            process: name,
            status,
            log,
            tail,
        }
    }

    /// The error for a process that runs and was not ready in time.
    pub(crate) fn not_ready(&self, waited: Duration, last: String) -> ProcessError {
        let Program { name, log, .. } = self.program.clone();
        let tail = tail(&log, TAIL_LINES);
        ProcessError::NotReady {
            process: name,
            waited,
            last,
            log,
            tail,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// The last `lines` lines of a file; says so when there are none.
pub(crate) fn tail(file: &Path, lines: usize) -> String {
    let content = fs::read(file).unwrap_or_default();
    let content = String::from_utf8_lossy(&content);
    let all: Vec<&str> = content.lines().collect();
    if all.is_empty() {
        return "(the log is empty)".to_owned();
    }
    all[all.len().saturating_sub(lines)..].join("\n")
}
