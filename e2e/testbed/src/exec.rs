//! Commands in pods, by `kubectl exec`.

use std::process::Output;

use crate::{Cluster, Error, assets::Assets, command::Invocation};

/// What a command in a pod did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code; none when it was ended by a signal.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error, followed by what kubectl says of its end.
    pub stderr: String,
}

impl ExecOutput {
    /// Standard output without the last line end, when the exit code is 0; else all that was written.
    pub fn success(&self) -> Result<&str, String> {
        if self.code == Some(0) {
            Ok(self.stdout.trim_end_matches('\n'))
        } else {
            Err(format!("{self:?}"))
        }
    }
}

impl From<Output> for ExecOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Cluster {
    /// Runs a command in the first container of a pod, to its end. That it fails is not an error: the exit code tells.
    pub async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        command: &[&str],
    ) -> Result<ExecOutput, Error> {
        let pod = ["exec", "--namespace", namespace, pod, "--"];
        let output = self.kubectl(&[&pod[..], command].concat())?.run().await?;
        Ok(output.into())
    }

    /// kubectl as an administrator of this cluster, from where its API server is reached.
    fn kubectl(&self, arguments: &[&str]) -> Result<Invocation, Error> {
        let (enter, mut flags) = self.kubectl_flags()?;
        flags.extend(arguments.iter().map(|&it| it.to_owned()));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        Ok(Invocation::new(&enter, &Assets::kubectl()?, &flags))
    }

    fn kubectl_flags(&self) -> Result<(Vec<String>, Vec<String>), Error> {
        if self.provider() == "contexts" {
            return Ok((Vec::new(), vec![format!("--context={}", self.name())]));
        }
        self.nodes("run commands in pods")?;
        let plane = self.plane("run commands in pods")?;
        let cache = plane.directory.join("kubectl-cache");
        let flags = vec![
            format!("--kubeconfig={}", plane.kubeconfig.display()),
            format!("--cache-dir={}", cache.display()),
        ];
        Ok((plane.site.enter.clone(), flags))
    }
}
