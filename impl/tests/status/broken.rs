//! Every way in which the two stores of a mesh are broken on purpose, alone and together: never well until they are mended.

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Client, DeleteOptions};
use tombolo_testbed::{Cluster, Component, Role, Testbed};

use crate::{BOTH, never_well, until_well};

/// What is done to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Paused,
    Killed,
    Wiped,
}

/// What is done to the own store and to the peer's.
const FAULTS: [[Fault; 2]; 9] = [
    [Fault::Paused, Fault::None],
    [Fault::Killed, Fault::None],
    [Fault::Wiped, Fault::None],
    [Fault::None, Fault::Paused],
    [Fault::None, Fault::Killed],
    [Fault::None, Fault::Wiped],
    [Fault::Paused, Fault::Killed],
    [Fault::Killed, Fault::Wiped],
    [Fault::Wiped, Fault::Paused],
];

impl Fault {
    /// Breaks a cluster's store. Of one that is wiped the publisher is dead, so that it is not filled at once.
    async fn breaks(self, cluster: &Cluster) -> Result<()> {
        match self {
            Self::None => {}
            Self::Paused => cluster.pause(Component::MeshEtcd)?,
            Self::Killed => cluster.kill9(Component::MeshEtcd)?,
            Self::Wiped => {
                cluster.kill9(Role::Mesh)?;
                cluster.wipe_and_restart(Component::MeshEtcd).await?;
            }
        }
        Ok(())
    }

    async fn mends(self, cluster: &Cluster) -> Result<()> {
        match self {
            Self::None => {}
            Self::Paused => cluster.resume(Component::MeshEtcd)?,
            Self::Killed => cluster.restart(Component::MeshEtcd).await?,
            Self::Wiped => cluster.restart(Role::Mesh).await?,
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_done_to_the_stores_is_never_well() -> Result<()> {
    let testbed = Testbed::start(2).await?;
    testbed.start_mesh().await?;
    let (a, b) = (testbed.cluster(0), testbed.cluster(1));
    until_well(a, &BOTH).await?;

    for [own, theirs] in FAULTS {
        let what = || format!("own store {own:?}, peer's store {theirs:?}");
        own.breaks(a).await.with_context(what)?;
        theirs.breaks(b).await.with_context(what)?;
        if own != Fault::None {
            never_well(a, &[Role::Mesh], 2).await.with_context(what)?;
        }
        if theirs != Fault::None {
            never_well(a, &[Role::Operator], 2)
                .await
                .with_context(what)?;
        }
        own.mends(a).await.with_context(what)?;
        theirs.mends(b).await.with_context(what)?;
        until_well(a, &BOTH).await.with_context(what)?;
    }
    Ok(())
}

/// Deletes the canaries of a cluster from its own store.
async fn delete_canaries(cluster: &Cluster) -> Result<i64> {
    let mut store = Client::connect([cluster.mesh_etcd_endpoint()?], None).await?;
    let canaries = format!("cilium/synced/{}/", cluster.name());
    let options = DeleteOptions::new().with_prefix();
    Ok(store.delete(canaries, Some(options)).await?.deleted())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_without_canaries_is_never_well_until_they_are_back() -> Result<()> {
    let testbed = Testbed::start(2).await?;
    testbed.start_mesh().await?;
    let (a, b) = (testbed.cluster(0), testbed.cluster(1));
    until_well(a, &BOTH).await?;

    // Its publisher stands still, and does not put them back.
    b.pause(Role::Mesh)?;
    let deleted = delete_canaries(b).await?;
    ensure!(deleted > 0, "no canary was there");
    never_well(a, &[Role::Operator], 3).await?;
    b.resume(Role::Mesh)?;
    until_well(a, &BOTH).await?;

    // The own ones, which are put back at once: it is well only after that.
    delete_canaries(a).await?;
    until_well(a, &BOTH).await?;
    let mut store = Client::connect([a.mesh_etcd_endpoint()?], None).await?;
    let canary = format!("cilium/synced/{}/cilium/state/services/v1", a.name());
    let found = store.get(canary, None).await?;
    ensure!(
        !found.kvs().is_empty(),
        "well without a canary in the own store"
    );
    Ok(())
}
