//! Two peers at once: what is known of one must not be mixed up with what is not known of the other.

use anyhow::{Context as _, Result};
use tombolo_e2e::scene::Scene;
use tombolo_testbed::{Component, Role, Testbed};

use crate::{A, B, C};

/// B is unreachable, A's operator starts anew, and C withdraws its exports: C's go, B's stay.
pub(crate) async fn one_withdraws_while_the_other_is_unreachable(testbed: &Testbed) -> Result<()> {
    let exports = [(B, "both"), (C, "both"), (B, "of-b"), (C, "of-c")];
    let mut scene = Scene::with_exports(testbed, &exports).await?;
    let of_b = scene.holding(A, &["of-b"]).await?;

    testbed.cluster(B).kill9(Component::MeshEtcd)?;
    testbed.cluster(A).kill9(Role::Operator)?;
    scene.unexport(C, "of-c").await?;
    scene.unexport(C, "both").await?;
    testbed.cluster(A).restart(Component::Operator).await?;

    for name in ["both", "of-b", "of-c"] {
        scene
            .import_settled(A, name)
            .await
            .context("what C withdrew goes, what B exports stays")?;
    }
    scene.keeps(&of_b).await?;
    testbed.cluster(B).restart(Component::MeshEtcd).await?;
    scene.settled().await.context("after B is back")
}
