//! `tombolo status` and `/metrics` of real roles: green only with proof, never when a store or a reader hangs.

mod broken;
mod copies;
mod hanging;
mod lying;
mod operator;
mod pods;
mod waiting;

use std::{process::Output, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::net::TcpSocket;
use tombolo_testbed::{Cluster, Role, eventually};

/// How long a condition may take on a busy machine.
pub(crate) const BUDGET: Duration = Duration::from_mins(2);

pub(crate) const PROBLEM: i32 = 3;
pub(crate) const UNKNOWN: i32 = 4;
pub(crate) const BEHIND: i32 = 5;

pub(crate) const BOTH: [Role; 2] = [Role::Mesh, Role::Operator];

/// Runs `tombolo status` with these arguments.
pub(crate) async fn run(arguments: &[String]) -> Result<Output> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command
        .arg("status")
        .args(arguments)
        .env_remove("KUBECONFIG");
    Ok(command.output().await?)
}

/// Arguments that ask these roles of a cluster.
pub(crate) fn at(cluster: &Cluster, roles: &[Role]) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    for role in roles {
        arguments.push("--address".to_owned());
        arguments.push(format!("http://{}", cluster.role_address(*role)?));
    }
    Ok(arguments)
}

/// The exit code, and what was written as JSON.
pub(crate) async fn status(cluster: &Cluster, roles: &[Role]) -> Result<(i32, Value)> {
    let mut arguments = at(cluster, roles)?;
    arguments.extend(["-o".to_owned(), "json".to_owned()]);
    let output = run(&arguments).await?;
    let code = output.status.code().context("it was killed")?;
    let text = String::from_utf8(output.stdout)?;
    let json = serde_json::from_str(&text)
        .with_context(|| format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((code, json))
}

pub(crate) async fn until_well(cluster: &Cluster, roles: &[Role]) -> Result<()> {
    eventually(BUDGET, "everything is well", async || {
        match status(cluster, roles).await {
            Ok((0, _)) => Ok(()),
            Ok((code, json)) => Err(format!("{code}: {}", json["findings"])),
            Err(error) => Err(format!("{error:#}")),
        }
    })
    .await?;
    Ok(())
}

/// Asks again and again for a while, while something hangs: it must never be well; the last exit code.
pub(crate) async fn never_well(cluster: &Cluster, roles: &[Role], times: usize) -> Result<i32> {
    let mut last = 0;
    for time in 0..times {
        let (code, json) = status(cluster, roles).await?;
        ensure!(code != 0, "well at look {time}: {json}");
        ensure!(json["verdict"] != "Well", "{json}");
        last = code;
    }
    Ok(last)
}

/// The levels and texts of what was found, for messages and comparisons.
pub(crate) fn findings(json: &Value) -> Vec<String> {
    let findings = json["findings"].as_array();
    let text = |finding: &Value| {
        let part = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", part("level"), part("subject"), part("what"))
    };
    findings.into_iter().flatten().map(text).collect()
}

/// A port on which nobody listens, and nobody else can as long as this lives.
pub(crate) fn nobody_listens() -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    Ok(socket)
}

#[tokio::test]
async fn an_address_without_a_process_is_unknown_and_a_bad_one_is_bad_input() -> Result<()> {
    let silent = nobody_listens()?;
    let address = format!("http://{}", silent.local_addr()?);

    let nobody = run(&["--address".to_owned(), address]).await?;
    let bad = run(&["--address".to_owned(), "ftp://x".to_owned()]).await?;

    ensure!(nobody.status.code() == Some(UNKNOWN), "{nobody:?}");
    ensure!(bad.status.code() == Some(2), "{bad:?}");
    ensure!(String::from_utf8(bad.stderr)?.contains("expected http://HOST:PORT"));
    Ok(())
}
