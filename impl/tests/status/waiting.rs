//! `--wait`: until everything is well, or the time is over, or somebody interrupts it.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};
use tombolo_testbed::{Component, Role, Testbed, eventually, patience};

use crate::{BUDGET, UNKNOWN, at, nobody_listens, until_well};

const INTERRUPTED: i32 = 130;

/// How long it may take to end at once: less than a question that nobody answers, which is given up after 15 s.
fn at_once() -> Duration {
    (Duration::from_secs(3) * patience()).min(Duration::from_secs(12))
}

fn spawn(arguments: &[String]) -> Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command
        .arg("status")
        .args(arguments)
        .env_remove("KUBECONFIG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok(command.spawn()?)
}

/// Sends a signal by its name.
async fn signal(child: &Child, name: &str) -> Result<()> {
    let pid = child.id().context("it has ended")?.to_string();
    let sent = Command::new("kill")
        .args(["-s", name, &pid])
        .status()
        .await?;
    ensure!(sent.success(), "kill: {sent}");
    Ok(())
}

/// The next line that it writes on standard error.
async fn says(child: &mut Child) -> Result<String> {
    let errors = child.stderr.as_mut().context("standard error is piped")?;
    let mut line = String::new();
    timeout(BUDGET, BufReader::new(errors).read_line(&mut line)).await??;
    Ok(line)
}

fn with(mut arguments: Vec<String>, more: &[&str]) -> Vec<String> {
    arguments.extend(more.iter().map(|&more| more.to_owned()));
    arguments
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_as_soon_as_everything_is_well_and_says_what_is_missing_when_the_time_is_over()
-> Result<()> {
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let mesh = at(cluster, &[Role::Mesh])?;

    let mut waits = spawn(&with(mesh.clone(), &["--wait", "--timeout", "2m"]))?;
    let said = says(&mut waits).await?;
    cluster.start_role(Role::Mesh, &[]).await?;
    let output = timeout(BUDGET, waits.wait_with_output()).await??;
    let text = String::from_utf8(output.stdout)?;
    ensure!(said.starts_with("waiting: 1 unknown"), "{said}");
    ensure!(output.status.code() == Some(0), "{text}");
    ensure!(text.starts_with("WELL: "), "{text}");

    until_well(cluster, &[Role::Mesh]).await?;
    cluster.pause(Component::MeshEtcd)?;
    let began = Instant::now();
    let output = spawn(&with(mesh, &["--wait", "--timeout", "9s"]))?.wait_with_output();
    let output = timeout(BUDGET, output).await??;
    let took = began.elapsed();
    cluster.resume(Component::MeshEtcd)?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code().is_some_and(|code| code >= 3), "{text}");
    ensure!(
        text.contains("its store did not say how far it is"),
        "{text}"
    );
    ensure!(
        !text.contains("it did not answer"),
        "the last look was too short: {text}"
    );
    ensure!(took >= Duration::from_secs(7), "{took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_it_at_once_also_in_the_middle_of_a_question() -> Result<()> {
    // Connections are accepted, and nobody answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", silent.local_addr()?);
    for name in ["INT", "TERM"] {
        let mut waits = spawn(&with(
            vec!["--address".to_owned(), address.clone()],
            &["--wait"],
        ))?;
        let (_asked, _) = timeout(BUDGET, silent.accept()).await??;

        let began = Instant::now();
        signal(&waits, name).await?;
        let ended = timeout(BUDGET, waits.wait()).await??;
        let took = began.elapsed();

        ensure!(ended.code() == Some(INTERRUPTED), "{name}: {ended}");
        ensure!(took < at_once(), "{name}: {took:?}");
        let said = says(&mut waits).await?;
        ensure!(
            said.contains("interrupted; nothing was found out yet"),
            "{said}"
        );
    }

    // Between two questions, with something known.
    let silent = nobody_listens()?;
    let address = format!("http://{}", silent.local_addr()?);
    let mut waits = spawn(&with(vec!["--address".to_owned(), address], &["--wait"]))?;
    let said = says(&mut waits).await?;
    ensure!(said.starts_with("waiting: "), "{said}");
    signal(&waits, "INT").await?;
    let output = timeout(at_once(), waits.wait_with_output()).await??;
    ensure!(output.status.code() == Some(INTERRUPTED), "{output:?}");
    ensure!(output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8(output.stderr)?;
    ensure!(said.contains("interrupted; 1 unknown"), "{said}");
    Ok(())
}

#[tokio::test]
async fn what_never_answers_is_unknown_when_the_time_is_over() -> Result<()> {
    let silent = nobody_listens()?;
    let address = format!("http://{}", silent.local_addr()?);

    let arguments = with(
        vec!["--address".to_owned(), address],
        &["--wait", "--timeout", "2s"],
    );
    let output = timeout(BUDGET, spawn(&arguments)?.wait_with_output()).await??;

    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(UNKNOWN), "{text}");
    ensure!(text.contains("no connection"), "{text}");
    Ok(())
}

/// A kubeconfig whose user has a command that writes its pid into a file, and then hangs.
fn hanging_credentials(directory: &Path, pid: &Path) -> Result<String> {
    let file = directory.join("kubeconfig");
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600",
        pid.display()
    );
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "paris",
        "contexts": [{"name": "paris", "context": {"cluster": "paris", "user": "somebody"}}],
        "clusters": [{"name": "paris", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "somebody", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script],
            "interactiveMode": "Never",
        }}}],
    });
    fs::write(&file, kubeconfig.to_string())?;
    Ok(file.display().to_string())
}

/// Waits for the command of [`hanging_credentials`]; returns its pid.
async fn credentials_hang(file: &Path) -> Result<String> {
    let what = "the command to be run";
    let pid = eventually(BUDGET, what, async || {
        fs::read_to_string(file).map_err(|error| error.to_string())
    });
    let pid = pid.await?.trim().to_owned();
    fs::remove_file(file)?;
    Ok(pid)
}

#[tokio::test]
async fn a_credential_plugin_that_hangs_is_not_waited_for() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let pid = directory.path().join("pid");
    let file = hanging_credentials(directory.path(), &pid)?;
    let kubeconfig = vec!["--kubeconfig".to_owned(), file];

    let began = Instant::now();
    let mut asks = spawn(&with(kubeconfig.clone(), &["--timeout", "2s"]))?;
    let plugin = credentials_hang(&pid).await?;
    let ended = timeout(BUDGET, asks.wait()).await;
    let took = began.elapsed();
    // It is nobody's child any more.
    Command::new("kill").arg(&plugin).status().await?;
    ensure!(ended??.code() == Some(UNKNOWN), "after {took:?}");
    let text = String::from_utf8(asks.wait_with_output().await?.stdout)?;
    ensure!(text.contains("gave no credentials in time"), "{text}");
    ensure!(took >= Duration::from_secs(2), "{took:?}");

    let mut waits = spawn(&with(kubeconfig, &["--wait"]))?;
    let plugin = credentials_hang(&pid).await?;
    signal(&waits, "TERM").await?;
    let ended = timeout(at_once(), waits.wait()).await;
    Command::new("kill").arg(&plugin).status().await?;
    ensure!(ended??.code() == Some(INTERRUPTED));
    Ok(())
}
