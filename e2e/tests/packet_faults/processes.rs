//! Processes that end without warning.

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use tombolo_testbed::Component;

use super::{
    A, B,
    ground::{Ground, id_of},
};

pub(crate) async fn operator_killed(ground: &Ground) -> Result<()> {
    let release = ground.mesh.release(A).await?;
    let lease = release.api::<Lease>().get("tombolo-operator").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    let holder = holder.context("somebody leads")?;
    let pod = holder.rsplit_once('_').map_or(&*holder, |(pod, _)| pod);
    container_killed(
        ground,
        "a's leading operator killed",
        (A, "operator", Some(pod)),
        B,
    )
    .await
}

pub(crate) async fn publisher_killed(ground: &Ground) -> Result<()> {
    let name = "b's mesh role killed, b publishes";
    container_killed(ground, name, (B, "mesh", None), B).await
}

pub(crate) async fn copier_killed(ground: &Ground) -> Result<()> {
    let name = "a's mesh role killed, a copies";
    container_killed(ground, name, (A, "mesh", None), B).await
}

pub(crate) async fn mesh_etcd_killed(ground: &Ground) -> Result<()> {
    let name = "a's mesh etcd killed";
    container_killed(ground, name, (A, "etcd", None), A).await
}

/// Kills the process of a container while a backend of `retired_in` leaves. The kubelet starts it again.
async fn container_killed(
    ground: &Ground,
    name: &'static str,
    (cluster, container, pod): (usize, &str, Option<&str>),
    retired_in: usize,
) -> Result<()> {
    let mut fault = ground.begin(name, retired_in).await?;
    let before = ground.container(cluster, container, pod).await?;
    let node = ground.mesh.testbed().cluster(cluster);
    node.kill_container(id_of(&before)?).await?;
    fault.retire().await?;
    ground
        .is_restarted(cluster, container, pod, before.restart_count)
        .await?;
    fault.healed()?;
    fault.end().await
}

pub(crate) async fn api_server_killed(ground: &Ground) -> Result<()> {
    let name = "b's API server killed and restarted";
    server_killed(ground, name, Component::ApiServer).await
}

pub(crate) async fn etcd_killed(ground: &Ground) -> Result<()> {
    let name = "etcd of b's API server killed and restarted";
    server_killed(ground, name, Component::Etcd).await
}

/// Kills a server of b's control plane, takes a backend of a out meanwhile, and starts the server again.
async fn server_killed(ground: &Ground, name: &'static str, server: Component) -> Result<()> {
    let mut fault = ground.begin(name, A).await?;
    let b = ground.mesh.testbed().cluster(B);
    b.kill9(server)?;
    fault.retire().await?;
    fault.goes_on(A).await?;
    b.restart(server).await?;
    fault.healed()?;
    fault.end().await
}
