//! What the command writes, without any process that reads it.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::api::DeleteParams;
use tombolo_e2e::chart::Helm;
use tombolo_testbed::{Testbed, eventually};

use super::{
    A, B, C,
    command::{
        Written, changes_asked_for, command, endpoints, install, remove, run, values, versions,
        words, written,
    },
};

/// Time for a run to write its first object.
const BUDGET: Duration = Duration::from_secs(30);

pub(crate) async fn are_written_once(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, "").await?;
    let b = install(testbed, &helm, B, "").await?;
    let places = endpoints(testbed, &[A, B])?;
    let (asked_a, asked_b) = (changes_asked_for(&a).await?, changes_asked_for(&b).await?);
    let more = ["connect", "a", "b", "--no-wait"];
    let connect = words(&more, &places);
    let mut dry = connect.clone();
    dry.push("--dry-run");

    let told = run(testbed, &dry).await?;

    told.expect(
        0,
        &[
            "+ Secret cilium-clustermesh: b: its copy in the own etcd",
            "dry run: nothing was written; 6 to change",
        ],
    )?;
    ensure!(changes_asked_for(&a).await? == asked_a && changes_asked_for(&b).await? == asked_b);

    run(testbed, &connect).await?.expect(0, &["written\n"])?;
    ensure!(changes_asked_for(&a).await? > asked_a, "the counter counts");
    let (first_a, first_b) = (written(&a).await?, written(&b).await?);
    let own = &first_b["cilium-kvstoremesh"];
    let text = String::from_utf8(own["a"].0.clone())?;
    ensure!(
        text.contains("https://a.mesh.cilium.io:") && text.contains("/a.etcd-client.key"),
        "{text}"
    );
    let authority = a
        .api::<Secret>()
        .get("tombolo-ca")
        .await?
        .data
        .context("data")?;
    ensure!(
        own["a.etcd-client-ca.crt"] == authority["ca.crt"],
        "the authority of a"
    );
    stays_at_home(&authority["ca.key"].0, &first_b)?;

    let asked = changes_asked_for(&a).await?;
    run(testbed, &connect)
        .await?
        .expect(0, &["nothing had to be changed"])?;
    ensure!(
        changes_asked_for(&a).await? == asked,
        "a second run asks for no change"
    );

    let before = versions(&a).await?;
    a.upgrade(&values(testbed, A, "logLevel: debug"))?;
    a.rollback(1)?;
    ensure!(versions(&a).await? == before, "helm leaves it alone");
    ensure!(written(&a).await? == first_a);

    // A list of peers in Helm's values is not taken over by accident, and can be on purpose.
    let listed = "clustermesh: {config: {clusters: [{name: b, ips: [192.0.2.1]}]}}";
    let refused = a
        .upgrade(&values(testbed, A, listed))
        .err()
        .context("helm refuses")?;
    ensure!(
        format!("{refused:#}").contains("cilium-clustermesh"),
        "{refused:#}"
    );
    ensure!(written(&a).await? == first_a);

    remove(&a).await?;
    remove(&b).await
}

/// The key of an authority is in nothing that was written elsewhere.
fn stays_at_home(key: &[u8], elsewhere: &Written) -> Result<()> {
    for (object, data) in elsewhere {
        let has = |content: &ByteString| content.0.windows(key.len()).any(|it| it == key);
        let leaks = data.values().any(has);
        ensure!(!leaks, "the key of an authority left its cluster: {object}");
    }
    Ok(())
}

pub(crate) async fn of_a_third_cluster(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, "").await?;
    let b = install(testbed, &helm, B, "").await?;
    let c = install(testbed, &helm, C, "").await?;
    let places = endpoints(testbed, &[A, B])?;
    let all = endpoints(testbed, &[A, B, C])?;
    let more = ["connect", "a", "b", "--no-wait"];
    run(testbed, &words(&more, &places)).await?.expect(0, &[])?;
    let with_b = written(&a).await?;

    // Two runs at the same time that both change c.
    let (to_a, to_b) = (endpoints(testbed, &[A, C])?, endpoints(testbed, &[B, C])?);
    let first = words(&["connect", "c", "a", "--no-wait"], &to_a);
    let second = words(&["connect", "b", "c", "--no-wait"], &to_b);
    let (first, second) = tokio::join!(run(testbed, &first), run(testbed, &second));
    first?.expect(0, &[])?;
    second?.expect(0, &[])?;

    let with_c = written(&a).await?;
    for (object, data) in &with_b {
        let kept = data
            .iter()
            .all(|(key, content)| key == "users.yaml" || with_c[object].get(key) == Some(content));
        ensure!(kept, "{object} keeps what it has of b");
    }
    let users = String::from_utf8(with_c["clustermesh-remote-users"]["users.yaml"].0.clone())?;
    ensure!(
        users.contains("remote-b") && users.contains("remote-c"),
        "{users}"
    );
    let mesh = ["connect", "a", "b", "c", "--no-wait"];
    run(testbed, &words(&mesh, &all))
        .await?
        .expect(0, &["nothing had to be changed"])?;

    run(testbed, &["disconnect", "a", "--peer", "c", "--no-wait"])
        .await?
        .expect(0, &["written"])?;
    let without_c = written(&a).await?;
    for (object, data) in &with_b {
        ensure!(
            &without_c[object] == data,
            "{object} is as it was before c came"
        );
    }
    let map = c.api::<ConfigMap>().get("clustermesh-remote-users").await?;
    let users = map
        .data
        .unwrap_or_default()
        .remove("users.yaml")
        .unwrap_or_default();
    ensure!(users.contains("remote-a"), "only a was changed: {users}");
    for release in [&a, &b, &c] {
        remove(release).await?;
    }
    Ok(())
}

pub(crate) async fn after_a_kill(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, "").await?;
    let b = install(testbed, &helm, B, "").await?;
    let places = endpoints(testbed, &[A, B])?;
    let more = ["connect", "a", "b", "--no-wait"];
    let connect = words(&more, &places);
    // How far a run has got when it is killed, in objects.
    for progress in [1, 2, 3, 5] {
        let mut first = command(testbed, &connect).await?;
        let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        eventually(BUDGET, "the run to have written something", async || {
            let there = tokio::try_join!(written(&a), written(&b));
            let (of_a, of_b) = there.map_err(|error| format!("{error:#}"))?;
            let count = of_a.len() + of_b.len();
            (count >= progress)
                .then_some(())
                .ok_or(format!("{count} objects"))
        })
        .await?;
        first.kill().await?;

        run(testbed, &connect).await?.expect(0, &[])?;
        let again = run(testbed, &connect).await?;
        again.expect(0, &["nothing had to be changed"])?;
        for (release, peer) in [(&a, "b"), (&b, "a")] {
            let there = written(release).await?;
            ensure!(there.len() == 3, "{:?}", there.keys());
            ensure!(there["cilium-kvstoremesh"].len() == 4);
            ensure!(there["cilium-clustermesh"].contains_key(peer));
        }
        let parted = run(testbed, &["disconnect", "a", "b", "--no-wait"]).await?;
        parted.expect(0, &[])?;
        for release in [&a, &b] {
            let params = DeleteParams::default();
            let maps = release.api::<ConfigMap>();
            maps.delete("clustermesh-remote-users", &params).await?;
        }
    }
    remove(&a).await?;
    remove(&b).await
}
