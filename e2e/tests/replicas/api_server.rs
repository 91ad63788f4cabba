//! The API server says nothing, on all connections or on those that there are.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tombolo_e2e::scene::Scene;
use tombolo_testbed::{Component, Forwarder, Role, Testbed, eventually, patience};

use crate::{A, B, one_operator};

/// Longest time until a role tells that its API server is silent.
const TOLD: Duration = Duration::from_secs(12);

/// Time after which a role leaves connections that swallow everything, and how much later that is seen on a busy machine.
const LEFT: Duration = Duration::from_secs(35);
const SLACK: Duration = Duration::from_secs(5);

const REACHABLE: &str = "tombolo_api_server_reachable";

/// All connections of both roles of A to its API server swallow what is sent; new ones would work. Both find out, and go on.
pub(crate) async fn connections_swallow_everything(testbed: &Testbed) -> Result<()> {
    let a = testbed.cluster(A);
    let between = Forwarder::start(a.api_server_address()?).await?;
    let kubeconfig = a.kubeconfig_by(between.address())?;
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    one_operator(testbed).await?;
    a.start_role(Role::Operator, &[&flag]).await?;
    a.start_role(Role::Mesh, &[&flag]).await?;
    let mut scene = Scene::new(testbed).await?;
    scene.export(A, "of-a").await?;
    scene.export(B, "of-b").await?;
    scene.settled().await.context("before")?;
    let holding = scene.holding(A, &["of-a", "of-b"]).await?;

    between.swallow();
    let begin = Instant::now();
    scene.export(A, "late").await?;
    scene.add_pod(A, "of-a", "late").await?;
    scene.settled().await.context("with new connections")?;
    let took = begin.elapsed();
    println!("roles work again {took:.1?} after their connections began to swallow everything");
    ensure!(took <= LEFT + SLACK * patience(), "{took:?}");

    scene.keeps(&holding).await?;
    a.start_role(Role::Operator, &[]).await?;
    a.start_role(Role::Mesh, &[]).await?;
    Ok(())
}

/// The API server of A is stopped where it is: connections stay open, new ones are accepted, nobody answers.
pub(crate) async fn is_stopped_where_it_is(testbed: &Testbed) -> Result<()> {
    let a = testbed.cluster(A);
    one_operator(testbed).await?;
    let mut scene = Scene::new(testbed).await?;
    scene.export(A, "of-a").await?;
    scene.export(B, "of-b").await?;
    scene.settled().await.context("before")?;
    let holding = scene.holding(A, &["of-a", "of-b"]).await?;

    a.pause(Component::ApiServer)?;
    let begin = Instant::now();
    for role in [Role::Operator, Role::Mesh] {
        told(testbed, role, "0").await?;
    }
    let noticed = begin.elapsed();
    scene.export(B, "meanwhile").await?;
    let ready = a.role_page(Role::Mesh, "/readyz").await;
    a.resume(Component::ApiServer)?;
    let begin = Instant::now();
    println!("both roles tell {noticed:.1?} after the API server was stopped");
    ready.context("a publisher stays ready without its API server")?;

    for role in [Role::Operator, Role::Mesh] {
        told(testbed, role, "1").await?;
    }
    scene.settled().await.context("after it goes on")?;
    println!(
        "everything is right {:.1?} after it went on",
        begin.elapsed()
    );
    scene.keeps(&holding).await
}

/// Waits until a role of A says so of its API server.
async fn told(testbed: &Testbed, role: Role, value: &str) -> Result<()> {
    let line = format!("{REACHABLE} {value}");
    eventually(TOLD, &line, async || {
        let page = testbed.cluster(A).role_page(role, "/metrics").await;
        let page = page.map_err(|error| error.to_string())?;
        let said = page.lines().find(|line| line.starts_with(REACHABLE));
        (said == Some(line.as_str()))
            .then_some(())
            .ok_or(format!("{said:?}"))
    })
    .await?;
    Ok(())
}
