//! A process is killed with SIGKILL, the world moves on, the process comes back.

use anyhow::{Context as _, Result};
use tombolo_e2e::scene::Scene;
use tombolo_testbed::{Component, Testbed};

use crate::{A, B, api_works_without};

/// What is killed.
pub(crate) const COMPONENTS: [Component; 5] = [
    Component::Operator,
    Component::Mesh,
    Component::Etcd,
    Component::MeshEtcd,
    Component::ApiServer,
];

/// Kills a component of a cluster, changes what can be changed, starts it again: everything converges.
pub(crate) async fn and_restarted(
    testbed: &Testbed,
    component: Component,
    at: usize,
) -> Result<()> {
    let leaving = [A, B].map(|cluster| (cluster, format!("leaving-{cluster}")));
    let leaving = leaving.each_ref().map(|(at, name)| (*at, name.as_str()));
    let exports = [[(A, "both"), (B, "both")], leaving].concat();
    let mut scene = Scene::with_exports(testbed, &exports).await?;

    testbed.cluster(at).kill9(component)?;
    for cluster in [A, B] {
        if cluster != at || api_works_without(component) {
            change(&mut scene, cluster)
                .await
                .context("while the process is dead")?;
        }
    }
    testbed.cluster(at).restart(component).await?;

    scene.settled().await.context("after the restart")
}

/// A bit of everything: an endpoint more, one less, an export more, one less.
async fn change(scene: &mut Scene<'_>, cluster: usize) -> Result<()> {
    scene.add_pod(cluster, "both", "second").await?;
    scene.remove_pod(cluster, "both", "first").await?;
    scene
        .unexport(cluster, &format!("leaving-{cluster}"))
        .await?;
    scene.export(cluster, &format!("coming-{cluster}")).await
}
