//! Runs the suite's program in a directory of its own, and ends it when the user wants that.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::process::{Child, Command};

use super::report::{HTML, Report, YAML};

/// How long the program may take to end after it was asked to: it takes its namespaces away and writes its reports.
pub const GRACE: Duration = Duration::from_secs(15);

/// What is run, and where.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The program.
    pub program: PathBuf,
    /// Words of a command that becomes it, such as [`tombolo_testbed::Cluster::reach`] has; empty for none.
    pub enter: Vec<String>,
    /// Its flags.
    pub flags: Vec<String>,
    /// Its working directory, which is made.
    pub directory: PathBuf,
    /// Where its reports are kept. Older ones go.
    pub reports: PathBuf,
    /// How long it may take to end after it was asked to, [`GRACE`].
    pub grace: Duration,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; none when it was interrupted.
    pub status: Option<ExitStatus>,
    /// The report, if it wrote one.
    pub report: Option<Result<Report, String>>,
}

impl Suite {
    /// The flags that name the clusters, then those of the user.
    pub fn flags(kubeconfig: &Path, contexts: &[&str], user: &[String]) -> Vec<String> {
        let mut flags = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--contexts={}", contexts.join(",")),
        ];
        flags.extend(user.iter().cloned());
        flags
    }

    /// Runs it to its end, its output being this program's, and keeps its reports. When `interrupt` ends first, the program is
    /// asked to end, and killed when it has not in time.
    pub async fn run(&self, interrupt: impl Future<Output = ()>) -> Result<Ended> {
        fs::create_dir_all(&self.directory).with_context(|| show(&self.directory))?;
        fs::create_dir_all(&self.reports).with_context(|| show(&self.reports))?;
        for name in [YAML, HTML] {
            remove(&self.reports.join(name))?;
        }
        let mut child = self.start()?;
        let status = tokio::select! {
            status = child.wait() => Some(status?),
            () = interrupt => {
                end(&mut child, self.grace).await?;
                None
            }
        };
        self.keep_reports()?;
        let report = fs::read_to_string(self.reports.join(YAML)).ok();
        let report = report.map(|text| Report::parse(&text));
        Ok(Ended { status, report })
    }

    fn start(&self) -> Result<Child> {
        let program = show(&self.program);
        let mut words = self.enter.iter().chain([&program]).chain(&self.flags);
        let first = words.next().unwrap_or(&program);
        Command::new(first)
            .args(words)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            // A group of its own: Ctrl-C is passed on once, by this program.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {first}"))
    }

    fn keep_reports(&self) -> Result<()> {
        for name in [YAML, HTML] {
            let from = self.directory.join(name);
            if from.exists() {
                let to = self.reports.join(name);
                fs::copy(&from, &to).with_context(|| show(&to))?;
            }
        }
        Ok(())
    }
}

/// Asks the program to end, as Ctrl-C would, and kills it when it does not.
async fn end(child: &mut Child, grace: Duration) -> Result<()> {
    if let Some(id) = child.id() {
        // The program may be a script around the suite.
        let group = format!("-{id}");
        let mut kill = Command::new("kill");
        kill.args(["-INT", "--", &group]).status().await?;
    }
    if tokio::time::timeout(grace, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| show(path))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
