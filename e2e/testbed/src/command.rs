//! Commands that are run to their end, with what they wrote.

use std::{
    path::Path,
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::{local::LocalError, run::Run, wait::patience};

/// Longest that a command may take: an import of images while other clusters start.
const BUDGET: Duration = Duration::from_mins(2);

/// A command, to be run to its end.
#[derive(Debug)]
pub(crate) struct Invocation {
    words: Vec<String>,
    input: String,
    budget: Duration,
    watched: Option<(Arc<Run>, &'static str)>,
}

impl Invocation {
    /// `path` with `arguments`; `enter` is a command that becomes it, empty for none.
    pub(crate) fn new(enter: &[String], path: &Path, arguments: &[&str]) -> Self {
        let mut words = enter.to_vec();
        words.push(path.display().to_string());
        words.extend(arguments.iter().map(|&it| it.to_owned()));
        Self {
            words,
            input: String::new(),
            budget: BUDGET,
            watched: None,
        }
    }

    /// Has it end with the run, and what it started with it; `name` is what it is called in the records.
    pub(crate) fn watched(mut self, run: Arc<Run>, name: &'static str) -> Self {
        self.watched = Some((run, name));
        self
    }

    /// Gives it another time to end than that of most commands.
    pub(crate) fn within(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// Gives it a text to read.
    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// Runs it; that it fails is an error.
    pub(crate) async fn succeed(self) -> Result<Output, LocalError> {
        let command = self.words.join(" ");
        let output = self.run().await?;
        if output.status.success() {
            return Ok(output);
        }
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        Err(LocalError::Command {
            command,
            status: output.status,
            output: String::from_utf8_lossy(&text).trim().to_owned(),
        })
    }

    /// Runs it, whatever its exit code. It is killed when it takes too long, or when nobody waits for it any more.
    pub(crate) async fn run(self) -> Result<Output, LocalError> {
        let command = self.words.join(" ");
        let failed = |source| LocalError::Run {
            command: command.clone(),
            source,
        };
        let mut child = Command::new(&self.words[0])
            .args(&self.words[1..])
            // Ctrl-C is for this program, which ends what it runs; else the command's end would be told as a failure.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that reads nothing has closed it, and says by its exit code whether that is well.
            let _ = stdin.write_all(self.input.as_bytes()).await;
        }
        let pid = child.id();
        if let (Some((run, name)), Some(pid)) = (&self.watched, pid) {
            run.add(pid, name).map_err(failed)?;
        }
        let budget = self.budget * patience();
        let ended = tokio::time::timeout(budget, child.wait_with_output()).await;
        if let (Some((run, _)), Some(pid), Ok(_)) = (&self.watched, pid, &ended) {
            run.forget(pid).map_err(failed)?;
        }
        let late = |_| LocalError::Late {
            command: command.clone(),
            waited: budget,
        };
        ended.map_err(late)?.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_fails_is_shown_with_what_it_wrote() {
        let script = "read -r word; echo no $word >&2; exit 3";
        let command = Invocation::new(&[], Path::new("sh"), &["-c", script]).input("door\n");

        let error = command.succeed().await.unwrap_err().to_string();

        assert!(error.ends_with("exit status: 3: no door"), "{error}");
    }

    #[tokio::test]
    async fn a_command_is_entered_by_another() {
        let enter = ["env".to_owned(), "WORD=key".to_owned()];
        let command = Invocation::new(&enter, Path::new("sh"), &["-c", "echo $WORD"]);

        let output = command.succeed().await.unwrap();

        assert_eq!(output.stdout, b"key\n");
    }
}
