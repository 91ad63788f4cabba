//! How the testbed runs roles: with which flags, and what faults do to them.
//!
//! This program is the role: it starts itself again with `TOMBOLO_BIN` naming itself, and when called as `tombolo run …`
//! it prints its arguments and serves `/readyz` until it is ended. What the real roles do is tested elsewhere.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use tombolo_testbed::{Cluster, Component, Error, ProcessError, Role, Testbed};

/// Environment variable that names the binary of the roles.
const BINARY: &str = "TOMBOLO_BIN";
/// Environment variable that a role shows.
const SHOWN: &str = "TESTBED_ROLES_SHOWN";
/// Set when `TOMBOLO_BIN` names this program.
const INNER: &str = "TESTBED_ROLES_INNER";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    if arguments.get(1).is_some_and(|it| it == "run") {
        return serve(&arguments);
    }
    if std::env::var_os(INNER).is_none() {
        return again(&arguments[1..]).unwrap_or(ExitCode::FAILURE);
    }
    let mut options = Arguments::from_args();
    // Each trial breaks the same two clusters.
    options.test_threads = Some(1);
    let trials = vec![
        trial("roles_get_the_flags_of_their_cluster", |bed| {
            Box::pin(async move { get_their_flags(bed) })
        }),
        trial("a_killed_role_comes_back_with_its_flags", |bed| {
            Box::pin(come_back(bed))
        }),
        trial(
            "a_role_gets_the_environment_it_is_given_and_keeps_it",
            |bed| Box::pin(keep_their_environment(bed)),
        ),
        trial("a_stopped_role_ends_by_itself", |bed| {
            Box::pin(end_by_themselves(bed))
        }),
        trial("a_role_that_ends_at_once_is_named", |bed| {
            Box::pin(are_named_when_they_fail(bed))
        }),
    ];
    libtest_mimic::run(&options, trials).exit_code()
}

type Check<'b> = std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'b>>;

fn trial(name: &str, check: fn(&Testbed) -> Check<'_>) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Runtime::new()?;
        let outcome = runtime.block_on(async {
            let bed = Testbed::shared().await?;
            bed.start_mesh().await?;
            check(bed).await
        });
        outcome.map_err(|error| Failed::from(format!("{error:?}")))
    })
}

fn get_their_flags(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(1);
    let log = cluster.log_tail(Component::Mesh, 1)?;
    for flag in [
        "run mesh".to_owned(),
        format!("--kubeconfig={}", cluster.kubeconfig()?.display()),
        "--cluster-name=b --cluster-id=2".to_owned(),
        format!("--etcd-endpoints={}", cluster.mesh_etcd_endpoint()?),
    ] {
        ensure!(log.contains(&flag), "{flag} in {log}");
    }
    let log = cluster.log_tail(Component::Operator, 1)?;
    let peers = cluster.peers_directory()?;
    let flag = format!("--clustermesh-config={}", peers.display());
    ensure!(
        log.contains("run operator") && log.contains(&flag),
        "{flag} in {log}"
    );
    let peer = std::fs::read_to_string(peers.join("a"))?;
    ensure!(
        peer.contains(&bed.cluster(0).mesh_etcd_endpoint()?),
        "{peer}"
    );
    let addresses: BTreeSet<_> = bed.clusters().iter().flat_map(health_addresses).collect();
    ensure!(
        addresses.len() == 4,
        "every role has a health address of its own: {addresses:?}"
    );
    Ok(())
}

async fn come_back(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);
    cluster
        .start_role(Role::Operator, &["--extra=flag"])
        .await?;
    let before = pid(cluster, Component::Operator)?;

    cluster.kill9(Role::Operator)?;
    let dead = cluster.role_page(Role::Operator, "/readyz").await;
    cluster.restart(Role::Operator).await?;

    ensure!(dead.is_err(), "nobody answers: {dead:?}");
    ensure!(pid(cluster, Component::Operator)? != before);
    ensure!(cluster.role_page(Role::Operator, "/readyz").await? == "ok");
    ensure!(
        cluster
            .log_tail(Role::Operator, 1)?
            .contains("--extra=flag")
    );
    Ok(())
}

async fn keep_their_environment(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);
    cluster
        .start_role_with(Role::Mesh, &[], &[(SHOWN, "blue")])
        .await?;

    cluster.restart(Role::Mesh).await?;
    let given = cluster.log_tail(Role::Mesh, 1)?;
    cluster.start_role(Role::Mesh, &[]).await?;
    let not_given = cluster.log_tail(Role::Mesh, 1)?;

    ensure!(given.ends_with("shown: blue"), "{given}");
    ensure!(!not_given.contains("shown"), "{not_given}");
    Ok(())
}

async fn end_by_themselves(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);

    cluster.stop(Role::Mesh).await?;

    ensure!(pid(cluster, Component::Mesh).is_err());
    let again = cluster.pause(Role::Mesh);
    ensure!(again.is_err_and(|error| error.to_string().contains("a/mesh: is not running")));
    Ok(())
}

async fn are_named_when_they_fail(bed: &Testbed) -> Result<()> {
    let failed = bed
        .cluster(0)
        .start_role(Role::Mesh, &["--fail"])
        .await
        .err();

    let failed = failed.context("it ended before it was ready")?;
    let Error::Component(tombolo_testbed::ComponentError::Process(ProcessError::Ended { .. })) =
        &failed
    else {
        anyhow::bail!("{failed:?}");
    };
    ensure!(failed.to_string().contains("told to fail"), "{failed}");
    Ok(())
}

fn pid(cluster: &Cluster, component: Component) -> Result<u32> {
    cluster
        .pids()?
        .remove(&component)
        .context("it does not run")
}

fn health_addresses(cluster: &Cluster) -> Vec<String> {
    let logs =
        [Role::Mesh, Role::Operator].map(|role| cluster.log_tail(role, 1).unwrap_or_default());
    let flags = logs.iter().flat_map(|log| log.split_whitespace());
    flags
        .filter(|flag| flag.starts_with("--health-address="))
        .map(str::to_owned)
        .collect()
}

/// This program once more, as the one whose binary of the roles is itself.
fn again(arguments: &[String]) -> Result<ExitCode> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command
        .args(arguments)
        .env(BINARY, &program)
        .env(INNER, "1")
        .env("TOMBOLO_CLUSTERS", "api");
    Ok(if command.status()?.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What stands for a role.
fn serve(arguments: &[String]) -> ExitCode {
    let shown = std::env::var(SHOWN).map_or_else(|_| String::new(), |it| format!(" shown: {it}"));
    println!("{}{shown}", arguments.join(" "));
    if arguments.iter().any(|it| it == "--fail") {
        println!("told to fail");
        return ExitCode::from(2);
    }
    let address = arguments
        .iter()
        .find_map(|it| it.strip_prefix("--health-address="));
    let listener = TcpListener::bind(address.expect("a health address")).expect("a free port");
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nok");
    }
    ExitCode::SUCCESS
}
