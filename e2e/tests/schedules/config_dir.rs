//! The directory with the peers' files is away, or empty, for a moment.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use tombolo_e2e::scene::Scene;
use tombolo_testbed::Testbed;

use crate::{A, B, C};

/// The directory is renamed away and back, and one of its files is replaced by deleting it first.
pub(crate) async fn is_away_for_a_moment(testbed: &Testbed) -> Result<()> {
    let mut scene = Scene::with_exports(testbed, &[(B, "of-b"), (C, "of-c")]).await?;
    let holding = scene.holding(A, &["of-b", "of-c"]).await?;
    let directory = testbed.cluster(A).peers_directory()?;
    let away = directory.with_extension("away");
    let file = directory.join("b");

    let change = async {
        fs::rename(&directory, &away)?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        fs::rename(&away, &directory)?;
        let content = fs::read(&file)?;
        // For much less than the time after which a peer without a file is none any more, so that nobody may see it.
        fs::remove_file(&file)?;
        fs::write(&file, "")?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        fs::write(&file, content)?;
        Ok(())
    };
    tokio::try_join!(change, scene.keeps(&holding))?;

    scene.unexport(B, "of-b").await?;
    scene.settled().await.context("changes still get through")?;
    // A peer whose file is gone is no peer: this is meant.
    let endpoint = testbed.cluster(C).mesh_etcd_endpoint()?;
    testbed.cluster(A).remove_peer("c")?;
    scene.import_gone(A, "of-c").await?;
    testbed.cluster(A).write_peer("c", &endpoint)?;
    scene
        .settled()
        .await
        .context("after the peer is there again")
}
