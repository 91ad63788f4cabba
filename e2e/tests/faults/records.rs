//! Records in the peer's store that are broken, or that claim to be of somebody else.

use std::fs;

use anyhow::{Context as _, Result};
use tombolo_e2e::{
    records::{EXPORTS, Records, SERVICES},
    scene::{SETTLE, Scene},
};
use tombolo_testbed::{Component, Role, Testbed, eventually};

use crate::{A, B};

/// An export as Cilium would write it.
fn export(cluster: &str, namespace: &str, name: &str) -> String {
    format!(
        r#"{{"cluster":"{cluster}","name":"{name}","namespace":"{namespace}","exportCreationTimestamp":"2026-03-04T09:10:11Z","ports":[{{"name":"http","protocol":"TCP","port":80}}],"type":"ClusterSetIP","sessionAffinity":"None","ipFamilies":["IPv4"]}}"#
    )
}

/// A global service as Cilium would write it.
fn service(cluster: &str, namespace: &str, name: &str) -> String {
    format!(
        r#"{{"cluster":"{cluster}","namespace":"{namespace}","name":"{name}","frontends":{{}},"backends":{{"10.9.9.9":{{"http":{{"Protocol":"TCP","Port":80}}}}}},"hostnames":{{}},"zones":{{}},"labels":{{}},"selector":{{}},"includeExternal":true,"shared":true,"clusterID":2}}"#
    )
}

/// Records of each kind that are broken, of another cluster, and under another key than they say.
fn bad_records(ns: &str) -> [(String, String); 6] {
    [
        (
            format!("{EXPORTS}/b/{ns}/malformed"),
            "{\"cluster\":\"b\",".to_owned(),
        ),
        (
            format!("{EXPORTS}/b/{ns}/wrong-cluster"),
            export("z", ns, "wrong-cluster"),
        ),
        (
            format!("{EXPORTS}/b/{ns}/wrong-key"),
            export("b", ns, "another-name"),
        ),
        (
            format!("{SERVICES}/b/{ns}/malformed"),
            "not even a brace".to_owned(),
        ),
        (
            format!("{SERVICES}/b/{ns}/wrong-cluster"),
            service("a", ns, "wrong-cluster"),
        ),
        (
            format!("{SERVICES}/b/{ns}/wrong-key"),
            service("b", ns, "another-name"),
        ),
    ]
}

/// Bad records are skipped, named in log and metric; the rest works. B is the peer that writes them.
pub(crate) async fn are_skipped(testbed: &Testbed) -> Result<()> {
    let mut scene = Scene::with_exports(testbed, &[(B, "good")]).await?;
    let namespace = scene.namespace().to_owned();
    let bad = bad_records(&namespace);
    let before = refused_total(testbed).await?;
    let mut records = Records::of(testbed.cluster(B)).await?;
    for (key, value) in &bad {
        records.put(key, value).await?;
    }
    scene.export(B, "after").await?;
    scene.add_pod(B, "good", "second").await?;

    // No import for any of the bad ones, and everything for the good ones. The bad keys are in B's store, not in the books.
    for name in ["good", "after"] {
        scene
            .import_settled(A, name)
            .await
            .context("the rest works")?;
    }
    let imports = scene.objects(A).await?.imports;
    let names: Vec<_> = imports
        .into_iter()
        .filter_map(|import| import.metadata.name)
        .collect();
    anyhow::ensure!(names == ["after", "good"], "imports {names:?}");
    named_in_log(testbed, &bad.clone().map(|(key, _)| key)).await?;
    let what = "the operator to have counted six refused records";
    eventually(SETTLE, what, async || {
        let now = refused_total(testbed)
            .await
            .map_err(|error| format!("{error:#}"))?;
        if now >= before + 6.0 {
            Ok(())
        } else {
            Err(format!("{before} before, {now} now"))
        }
    })
    .await?;

    for (key, _) in &bad {
        records.delete(key).await?;
    }
    scene
        .settled()
        .await
        .context("after the bad records are gone")
}

/// Waits until one line of the operator's log names both the peer and the record, for each of them.
async fn named_in_log(testbed: &Testbed, keys: &[String]) -> Result<()> {
    let logs = testbed.cluster(A).logs()?;
    let log = logs
        .get(&Component::Operator)
        .context("the operator has a log")?;
    let what = "the operator's log to name the peer and each bad record";
    eventually(SETTLE, what, async || {
        let text = fs::read_to_string(log).map_err(|error| error.to_string())?;
        let missing: Vec<_> = keys.iter().filter(|key| !names(&text, key)).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("not named: {missing:?}"))
        }
    })
    .await?;
    Ok(())
}

/// Whether a line names the key, or its part behind the cluster, and the peer.
fn names(text: &str, key: &str) -> bool {
    let parts: Vec<_> = key.rsplitn(3, '/').collect();
    let suffix = format!("{}/{}", parts[1], parts[0]);
    text.lines()
        .any(|line| line.contains(&suffix) && line.contains("peer"))
}

/// Sum of the operator's counters of refused records of peer `b`.
async fn refused_total(testbed: &Testbed) -> Result<f64> {
    let metrics = testbed
        .cluster(A)
        .role_page(Role::Operator, "/metrics")
        .await?;
    let of_peer = metrics.lines().filter(|line| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        name.contains("refused") && line.contains("\"b\"")
    });
    let values = of_peer.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}
