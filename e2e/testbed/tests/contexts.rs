//! Provider `contexts`, over two clusters of provider `api` that stand for somebody else's.
//!
//! What the provider reads of the environment cannot be set in a test, so this program starts itself again with it.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use libtest_mimic::{Arguments, Failed, Trial};
use tombolo_testbed::{Component, Error, PodOptions, Provider, ProviderError, Testbed};

/// Environment variable with the name of the check that this program makes.
const CHECK: &str = "TESTBED_CONTEXTS_CHECK";

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::var(CHECK).as_deref() {
        Ok("clusters") => return clusters_answer().await,
        Ok("faults") => return faults_are_refused().await,
        Ok("unknown") => return an_unknown_context_is_named().await,
        Ok(other) => anyhow::bail!("no check {other}"),
        Err(_) => {}
    }
    let arguments = Arguments::from_args();
    if arguments.list {
        libtest_mimic::run(&arguments, trials("")).exit();
    }
    let bed = Testbed::start_with(&Provider::Api, 2).await?;
    let files = bed
        .clusters()
        .iter()
        .map(tombolo_testbed::Cluster::kubeconfig);
    let files = std::env::join_paths(files.collect::<Result<Vec<_>, _>>()?)?;
    let files = files.into_string().ok().context("a path in UTF-8")?;
    let conclusion =
        tokio::task::spawn_blocking(move || libtest_mimic::run(&arguments, trials(&files)));
    let conclusion = conclusion.await?;
    drop(bed);
    conclusion.exit()
}

fn trials(kubeconfig: &str) -> Vec<Trial> {
    [
        ("clusters", "contexts_answer_in_the_order_they_are_named"),
        (
            "faults",
            "faults_and_fake_pods_are_refused_and_the_provider_named",
        ),
        (
            "unknown",
            "an_unknown_context_is_named_with_those_that_exist",
        ),
    ]
    .into_iter()
    .map(|(check, name)| {
        let kubeconfig = kubeconfig.to_owned();
        Trial::test(name, move || {
            run(check, &kubeconfig).map_err(|it| Failed::from(format!("{it:?}")))
        })
    })
    .collect()
}

fn run(check: &str, kubeconfig: &str) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(CHECK, check)
        .env("KUBECONFIG", kubeconfig)
        .env("TOMBOLO_CLUSTERS", "contexts:b,a");
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

async fn clusters_answer() -> Result<()> {
    let bed = Testbed::start(2).await?;

    let namespace = bed.namespace().await?;

    let names: Vec<_> = bed
        .clusters()
        .iter()
        .map(|it| (it.name(), it.id()))
        .collect();
    ensure!(names == [("b", 1), ("a", 2)], "{names:?}");
    let mut uids = BTreeSet::new();
    for cluster in bed.clusters() {
        uids.insert(
            Api::<Namespace>::all(cluster.client())
                .get(&namespace)
                .await?
                .metadata
                .uid,
        );
    }
    ensure!(uids.len() == 2, "two clusters: {uids:?}");
    Ok(())
}

async fn faults_are_refused() -> Result<()> {
    let bed = Testbed::start(1).await?;
    let cluster = bed.cluster(0);

    let refused = [
        cluster.kill9(Component::ApiServer),
        cluster.pause(Component::Etcd),
        cluster.restart(Component::Etcd).await,
        cluster.wipe_and_restart(Component::MeshEtcd).await,
        cluster
            .fake_pod("default", "x", &[], PodOptions::default())
            .await
            .map(drop),
        cluster.kubeconfig().map(drop),
        bed.start_mesh().await,
    ];

    for (index, refused) in refused.into_iter().enumerate() {
        let unsupported = matches!(
            &refused,
            Err(Error::Provider(ProviderError::Unsupported {
                provider: "contexts",
                ..
            }))
        );
        ensure!(unsupported, "{index}: {refused:?}");
    }
    Ok(())
}

async fn an_unknown_context_is_named() -> Result<()> {
    let names = ["a".to_owned(), "c".to_owned()];

    let unknown = Testbed::start_with(&Provider::Contexts(names.to_vec()), 2).await;
    let too_few = Testbed::start(3).await;

    let unknown = unknown.err().context("there is no context c")?.to_string();
    ensure!(
        unknown == "no context c in the kubeconfig, which has: a, b",
        "{unknown}"
    );
    let expected = ProviderError::TooFewContexts {
        needed: 3,
        named: 2,
    };
    ensure!(
        matches!(&too_few, Err(Error::Provider(error)) if *error == expected),
        "{too_few:?}"
    );
    Ok(())
}
