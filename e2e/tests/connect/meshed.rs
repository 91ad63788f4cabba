//! With the processes of both installations: whether the command makes a mesh, and says so only then.

use std::io::Write as _;

use anyhow::{Result, ensure};
use tombolo_e2e::{
    chart::{Helm, Site},
    scene::Scene,
};
use tombolo_testbed::{Testbed, own_address};

use super::{
    A, B,
    command::{endpoints, install, remove, run, run_beside, versions, words, written},
};

/// Two installations with an authority each, and their processes; none where API servers reach no process of this machine.
async fn sites<'t>(testbed: &'t Testbed, helm: &'t Helm) -> Result<Option<[Site<'t>; 2]>> {
    let Some(own) = own_address() else {
        // Not by the macro, whose output is swallowed when a test passes; on a line of its own.
        writeln!(
            std::io::stdout(),
            "\nnot run: connect with processes: this machine has no address but on loopback"
        )?;
        return Ok(None);
    };
    let a = Site::of(testbed, install(testbed, helm, A, "").await?)?.in_pods_at(own);
    let b = Site::of(testbed, install(testbed, helm, B, "").await?)?.in_pods_at(own);
    for site in [&a, &b] {
        site.start_etcd().await?;
    }
    tokio::try_join!(
        a.start_mesh(),
        b.start_mesh(),
        a.start_operator(),
        b.start_operator(),
    )?;
    Ok(Some([a, b]))
}

pub(crate) async fn and_parted(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let Some([a, b]) = Box::pin(sites(testbed, &helm)).await? else {
        return Ok(());
    };
    let both = [&a, &b];
    let mut scene = Scene::new(testbed).await?;
    scene.export(A, "web").await?;
    scene.export(B, "shop").await?;

    let places = endpoints(testbed, &[A, B])?;
    let connect = words(&["connect", "a", "b"], &places);
    let first = run_beside(testbed, &connect, &both).await?;
    first.expect(
        0,
        &[
            "written; taken up everywhere",
            "+ ConfigMap clustermesh-remote-users: user remote-b",
        ],
    )?;

    for (cluster, name) in [(A, "web"), (A, "shop"), (B, "web"), (B, "shop")] {
        scene.import_settled(cluster, name).await?;
    }
    for site in both {
        site.is_well().await?;
    }
    let before = (versions(&a.release).await?, versions(&b.release).await?);
    let again = run(testbed, &connect).await?;
    again.expect(0, &["nothing had to be changed; taken up everywhere"])?;
    let after = (versions(&a.release).await?, versions(&b.release).await?);
    ensure!(before == after, "{before:?} {after:?}");

    let told = run(testbed, &["disconnect", "a", "b", "--dry-run"]).await?;
    let namespace = scene.namespace();
    told.expect(
        0,
        &[
            &format!("note: a loses what it imports from b: {namespace}/shop"),
            "- Secret cilium-kvstoremesh: b, b.etcd-client-ca.crt, b.etcd-client.crt, b.etcd-client.key",
            "dry run: nothing was written",
        ],
    )?;
    ensure!(
        after.0 == versions(&a.release).await?,
        "a dry run writes nothing"
    );
    let parted = run_beside(testbed, &["disconnect", "a", "b"], &both).await?;
    parted.expect(0, &["written; taken up everywhere"])?;

    scene.import_gone(A, "shop").await?;
    scene.import_gone(B, "web").await?;
    for site in both {
        let left = written(&site.release).await?;
        let users = left
            .get("clustermesh-remote-users")
            .and_then(|it| it.get("users.yaml"));
        ensure!(left.len() == 1, "{:?}", left.keys());
        ensure!(users.is_some_and(|it| it.0 == b"users: []\n"), "{users:?}");
        site.is_well().await?;
        remove(&site.release).await?;
    }
    Ok(())
}

pub(crate) async fn unless_unreachable(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let Some([a, b]) = Box::pin(sites(testbed, &helm)).await? else {
        return Ok(());
    };
    let both = [&a, &b];
    let mut places = endpoints(testbed, &[A])?;
    places.extend(["--endpoint".to_owned(), "b=127.0.0.1:1".to_owned()]);
    let more = ["connect", "a", "b", "--wait-duration", "30s"];

    let late = run_beside(testbed, &words(&more, &places), &both).await?;

    let late = late.expect(
        5,
        &[
            "everything is written, but not taken up in time",
            "- a, peer b: ",
        ],
    )?;
    ensure!(
        late.stderr.contains("127.0.0.1:1") && !late.stderr.contains("- b, peer a: "),
        "{}",
        late.stderr
    );

    // With the right address the next run is all that is needed.
    let places = endpoints(testbed, &[A, B])?;
    let connect = words(&["connect", "a", "b"], &places);
    let mended = run_beside(testbed, &connect, &both).await?;
    mended.expect(
        0,
        &["~ Secret cilium-kvstoremesh: b: ", "taken up everywhere"],
    )?;

    for site in both {
        remove(&site.release).await?;
    }
    Ok(())
}
