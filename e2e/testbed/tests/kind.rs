//! Provider `kind`: two clusters in containers, their pods, faults, and what is left when a run is killed.
//!
//! Run by `make e2e` (`kind/with`), which has the engine and the node image; elsewhere nothing is run and the reason is told.

#[expect(dead_code, reason = "some of it needs what only provider local has")]
mod local {
    pub(crate) mod packets;
    pub(crate) mod pods;
}

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use libtest_mimic::{Arguments, Failed, Trial};
use local::{
    packets,
    pods::{TCP, ask, client, reaches, server},
};
use tombolo_testbed::{
    Cluster, Component, Error, PodOptions, Provider, ProviderError, Testbed, eventually,
};

/// Environment variable that makes this program the subject of its own tests: what it is to start.
const SUBJECT: &str = "TESTBED_KIND_SUBJECT";

/// Longest wait for containers to go away.
const BUDGET: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    if std::env::var_os(SUBJECT).is_some() {
        return subject();
    }
    let mut arguments = Arguments::from_args();
    // Faults are shared by all who use the clusters.
    arguments.test_threads = Some(1);
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(None)).exit_code();
    }
    if Provider::from_env() != Ok(Provider::Kind) {
        println!("not run: provider kind: TOMBOLO_CLUSTERS does not name it; `make e2e` does");
        return ExitCode::SUCCESS;
    }
    if let Some(code) = Provider::Kind.exit_without() {
        return code;
    }
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    let bed = Arc::new(runtime.block_on(Testbed::start_with(&Provider::Kind, 2))?);
    let conclusion = libtest_mimic::run(arguments, trials(Some(&bed)));
    if conclusion.has_failed() {
        bed.keep_logs("a test failed");
    }
    Ok(conclusion.exit_code())
}

fn trials(bed: Option<&Arc<Testbed>>) -> Vec<Trial> {
    macro_rules! with_bed {
        ($name:ident, $test:path) => {{
            let bed = bed.cloned();
            Trial::test(stringify!($name), move || {
                let bed = bed.expect("invariant: only a list is made without clusters");
                block_on($test(&bed))
            })
        }};
    }
    vec![
        with_bed!(two_clusters_share_no_address, ready),
        with_bed!(a_command_in_a_pod_tells_all_it_did, packets::exec),
        with_bed!(pods_reach_pods_of_the_other_cluster, packets::pod_to_pod),
        with_bed!(services_answer_by_name_and_address, packets::services),
        with_bed!(pods_are_cut_apart_and_healed, cut_and_heal),
        with_bed!(a_port_of_a_node_is_cut_off_and_healed, cut_port_and_heal),
        with_bed!(tombolo_runs_as_a_user_other_than_root, packets::tombolo),
        with_bed!(a_killed_api_server_comes_back, api_server_comes_back),
        with_bed!(what_it_cannot_do_is_refused_and_a_provider_named, refused),
        Trial::test("a_wrong_node_image_is_named_with_the_variable", || {
            wrong_image().map_err(|error| Failed::from(format!("{error:?}")))
        }),
        Trial::test("sigkill_of_the_program_leaves_nothing", || {
            block_on(killed())
        }),
        Trial::test(
            "an_interrupt_while_a_cluster_is_made_leaves_nothing",
            || block_on(interrupted()),
        ),
    ]
}

fn block_on(test: impl Future<Output = Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(test);
    ended.map_err(|error| Failed::from(format!("{error:?}")))
}

async fn ready(bed: &Testbed) -> Result<()> {
    for cluster in bed.clusters() {
        let node = Api::<Node>::all(cluster.client())
            .get(&cluster.node()?)
            .await?;
        let ranges = node.spec.and_then(|it| it.pod_cidrs).unwrap_or_default();
        let number = 127 + cluster.id();
        let expected = [
            format!("10.{number}.0.0/24"),
            format!("fd00:{number}::/112"),
        ];
        ensure!(ranges == expected, "{ranges:?}");
    }
    ensure!(
        bed.pids_with_pods().len() > 20,
        "{:?}",
        bed.pids_with_pods()
    );
    println!("memory: {} MiB", bed.resident_bytes()? >> 20);
    Ok(())
}

/// Pods lose each other and no API server is lost; all is well at once when it is undone.
async fn cut_and_heal(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    let ips = server(b, &namespace, "server").await?;
    client(a, &namespace, "client").await?;
    client(b, &namespace, "client").await?;
    let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
    let target = |ip: &'_ str| if ip.contains(':') { "-6" } else { "-4" };

    // Twice is as once.
    a.cut_pods(b).await?;
    a.cut_pods(b).await?;

    for ip in &ips {
        let cut = ask(a, &namespace, "client", (target(ip), ip, TCP)).await;
        ensure!(cut.is_err(), "{ip} answered {cut:?}");
        reaches(b, &namespace, "client", (target(ip), ip, TCP), "server").await?;
    }

    a.heal_pods(b).await?;

    for ip in &ips {
        reaches(a, &namespace, "client", (target(ip), ip, TCP), "server").await?;
    }
    Ok(())
}

/// Pods lose a port of the other cluster's node, and only theirs: in the other direction it is still reached.
async fn cut_port_and_heal(bed: &Testbed) -> Result<()> {
    /// Where kubelets listen.
    const PORT: u16 = 10250;
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    for cluster in [a, b] {
        client(cluster, &namespace, "client").await?;
    }
    let (addresses_of_a, addresses_of_b) = (node_addresses(a).await?, node_addresses(b).await?);
    ensure!(addresses_of_b.len() == 2, "{addresses_of_b:?}");
    for address in &addresses_of_b {
        connects(a, &namespace, address, PORT).await?;
    }

    // Twice is as once.
    a.cut_port(b, PORT).await?;
    a.cut_port(b, PORT).await?;

    for address in &addresses_of_b {
        let cut = connection(a, &namespace, address, PORT).await;
        ensure!(cut.is_err(), "{address} answered");
    }
    for address in &addresses_of_a {
        connects(b, &namespace, address, PORT).await?;
    }

    a.heal_port(b, PORT).await?;

    for address in &addresses_of_b {
        connects(a, &namespace, address, PORT).await?;
    }
    Ok(())
}

/// Addresses of a cluster's node, as its Node says.
async fn node_addresses(cluster: &Cluster) -> Result<Vec<String>> {
    let nodes = Api::<Node>::all(cluster.client());
    let status = nodes.get(&cluster.node()?).await?.status;
    let addresses = status.and_then(|it| it.addresses).unwrap_or_default();
    let internal = addresses.into_iter().filter(|it| it.type_ == "InternalIP");
    Ok(internal.map(|it| it.address).collect())
}

async fn connects(cluster: &Cluster, namespace: &str, address: &str, port: u16) -> Result<()> {
    let what = format!("{address} port {port} answers {}", cluster.name());
    eventually(BUDGET, &what, async || {
        connection(cluster, namespace, address, port).await
    })
    .await?;
    Ok(())
}

/// Tries to connect once from the client's pod.
async fn connection(
    cluster: &Cluster,
    namespace: &str,
    address: &str,
    port: u16,
) -> Result<(), String> {
    let port = port.to_string();
    let command = ["nc", "-z", "-w", "2", address, &port];
    let output = cluster.exec(namespace, "client", &command).await;
    let output = output.map_err(|it| it.to_string())?;
    output.success().map(drop)
}

async fn api_server_comes_back(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(1);

    cluster.restart(Component::ApiServer).await?;

    let nodes = Api::<Node>::all(cluster.client())
        .list(&ListParams::default())
        .await?;
    ensure!(nodes.items.len() == 1);
    Ok(())
}

async fn refused(bed: &Testbed) -> Result<()> {
    let cluster = bed.cluster(0);

    let refused = [
        cluster.isolate().await,
        cluster.stop(Component::ApiServer).await,
        cluster
            .fake_pod("default", "x", &[], PodOptions::default())
            .await
            .map(drop),
    ];

    for (index, refused) in refused.into_iter().enumerate() {
        let unsupported = matches!(
            &refused,
            Err(Error::Provider(ProviderError::Unsupported {
                provider: "kind",
                ..
            }))
        );
        ensure!(unsupported, "{index}: {refused:?}");
    }
    Ok(())
}

/// What is to be read of the environment cannot be set in a test, so this program starts itself again with it.
fn wrong_image() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let output = Command::new(std::env::current_exe()?)
        .env(SUBJECT, "1")
        .env("TMPDIR", temporary.path())
        .env("KIND_NODE_IMAGE", "localhost/no-such-node:1")
        .output()?;

    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success(), "{said}");
    for part in [
        "node image localhost/no-such-node:1",
        "KIND_NODE_IMAGE",
        "kind/node-image",
    ] {
        ensure!(said.contains(part), "{part} in {said}");
    }
    Ok(())
}

/// Without its program, the watchdog of a run removes its containers and files.
async fn killed() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut subject = start_subject(temporary.path())?;
    let mut line = String::new();
    BufReader::new(subject.stdout.take().context("a pipe")?).read_line(&mut line)?;
    let node = line.trim().to_owned();
    ensure!(
        containers()?.contains(&node),
        "the subject did not start: {line:?}"
    );

    subject.kill()?;
    subject.wait()?;

    nothing_is_left(temporary.path(), &node).await
}

/// Ctrl-C ends the program, kind with it, and the container that kind was making.
async fn interrupted() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut subject = start_subject(temporary.path())?;
    let node = format!("tombolo-{:x}-1-a-control-plane", subject.id());
    eventually(BUDGET, "a container that kind makes", async || {
        let containers = containers().map_err(|it| it.to_string())?;
        let made = containers.contains(&node);
        made.then_some(()).ok_or_else(|| format!("{containers:?}"))
    })
    .await?;

    let pid = subject.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status()?;
    ensure!(sent.success(), "{sent}");
    let status = subject.wait()?;
    ensure!(!status.success(), "{status}");

    nothing_is_left(temporary.path(), &node).await
}

/// This program as the subject of its own tests, with its files in a directory of its own.
fn start_subject(temporary: &Path) -> Result<Child> {
    let subject = Command::new(std::env::current_exe()?)
        .env(SUBJECT, "1")
        .env("TMPDIR", temporary)
        .env_remove("KEEP")
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(subject)
}

/// Waits until there is no container of this name, no file of the run, no mount of one, and no process that names one.
async fn nothing_is_left(temporary: &Path, node: &str) -> Result<()> {
    eventually(BUDGET, "no container, file, mount or process", async || {
        let containers = containers().map_err(|it| it.to_string())?;
        let files = temporary.read_dir().map_err(|it| it.to_string())?.count();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo");
        let mounts = mounts.map_err(|it| it.to_string())?;
        let place = temporary.display().to_string();
        let mounted = mounts.lines().filter(|it| it.contains(&place)).count();
        let processes = command_lines_with(&[&place, node]);
        match (
            containers.iter().any(|it| it == node),
            files,
            mounted,
            &processes[..],
        ) {
            (false, 0, 0, []) => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await?;
    Ok(())
}

/// Command lines of all processes that have one of these texts in them.
fn command_lines_with(texts: &[&str]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|it| std::fs::read_to_string(it.path().join("cmdline")).ok());
    let lines = lines.filter(|line| texts.iter().any(|text| line.contains(text)));
    lines.map(|it| it.replace('\0', " ")).collect()
}

fn containers() -> Result<Vec<String>> {
    let output = Command::new("docker")
        .args(["ps", "--all", "--format", "{{.Names}}"])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Starts a cluster, tells the name of its node, and waits.
fn subject() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bed = runtime.block_on(Testbed::start_with(&Provider::Kind, 1));
    let node = bed.as_ref().map_err(ToString::to_string);
    match node.and_then(|bed| bed.cluster(0).node().map_err(|it| it.to_string())) {
        Ok(node) => println!("{node}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    loop {
        std::thread::park();
    }
}
