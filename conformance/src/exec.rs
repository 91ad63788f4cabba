//! Commands in pods, by `pods/exec`. Output is what a program of ours, or a DNS server, sent; no tool's text is read.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{context::Context, expect::Seen};

/// How long a command may take, beyond what it is asked to wait for itself.
const SLACK: Duration = Duration::from_secs(10);

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether its exit code was 0.
    pub success: bool,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, and what is said of its end.
    pub stderr: String,
}

impl Context {
    /// Runs a command in a pod to its end. That a command cannot be run is an error, and never an empty output.
    pub async fn exec(
        &self,
        (cluster, pod): (usize, &str),
        command: &[&str],
        takes: Duration,
    ) -> Result<Output, Seen> {
        let parameters = AttachParams::default().stderr(true);
        let running = async {
            let pods = self.api::<Pod>(cluster);
            let mut process = pods.exec(pod, command.iter().copied(), &parameters).await?;
            let (stdout, stderr) = (process.stdout(), process.stderr());
            let status = process.take_status();
            let (stdout, stderr) = tokio::join!(whole(stdout), whole(stderr));
            let status = match status {
                Some(status) => status.await,
                None => None,
            };
            let status = status.ok_or("the command ended without a status")?;
            let message = status.message.unwrap_or_default();
            Ok(Output {
                success: status.status.as_deref() == Some("Success"),
                stdout,
                stderr: format!("{}{message}", String::from_utf8_lossy(&stderr)),
            })
        };
        let late = |_| Seen::from(format!("{command:?} in pod {pod} did not end in time"));
        timeout(takes + SLACK, running).await.map_err(late)?
    }

    /// Sends bytes to a command's standard input and reads from its standard output until `enough` of it is there.
    pub(crate) async fn converse(
        &self,
        (cluster, pod): (usize, &str),
        command: &[&str],
        send: &[u8],
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, Seen> {
        let parameters = AttachParams::default().stdin(true).stderr(false);
        let talking = async {
            let pods = self.api::<Pod>(cluster);
            let mut process = pods.exec(pod, command.iter().copied(), &parameters).await?;
            let mut stdin = process.stdin().ok_or("no standard input")?;
            let mut stdout = process.stdout().ok_or("no standard output")?;
            let said = |error: std::io::Error| Seen::from(format!("{command:?}: {error}"));
            stdin.write_all(send).await.map_err(said)?;
            stdin.flush().await.map_err(said)?;
            let (mut received, mut part) = (Vec::new(), [0; 4096]);
            while !enough(&received) {
                let read = stdout.read(&mut part).await.map_err(said)?;
                if read == 0 {
                    let got = received.len();
                    return Err(format!("{command:?} ended after {got} bytes of the answer").into());
                }
                received.extend_from_slice(&part[..read]);
            }
            Ok(received)
        };
        let late = |_| Seen::from(format!("{command:?} in pod {pod}: no answer in time"));
        timeout(SLACK, talking).await.map_err(late)?
    }
}

async fn whole(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut stream) = stream {
        // What came before an error counts; the status tells of the rest.
        let _ = stream.read_to_end(&mut all).await;
    }
    all
}
