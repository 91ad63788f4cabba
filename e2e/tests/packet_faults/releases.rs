//! Certificates and releases that change.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, ResourceExt as _, api::DeleteParams};
use tombolo_e2e::{
    chart::Installation,
    installed::{objects, values},
};
use tombolo_testbed::eventually;

use super::{
    B,
    ground::{Ground, id_of},
};

/// Secrets of b with certificates, and the volumes of its mesh pod that hold two of them.
const CERTIFICATES: [&str; 4] = ["server", "admin", "remote", "local"];
const VOLUMES: [(&str, &str); 2] = [("etcd-server", "server"), ("etcd-admin", "admin")];

/// Longest time for a kubelet to renew mounted files.
const MOUNTED: Duration = Duration::from_mins(2);

pub(crate) async fn certificates_rotated(ground: &Ground) -> Result<()> {
    let mut fault = ground
        .begin("b's certificates made anew, its mesh etcd killed", B)
        .await?;
    let release = ground.mesh.release(B).await?;
    let before = certificates(&release).await?;
    let secrets: Api<Secret> = release.api();
    for name in CERTIFICATES.map(secret_of) {
        secrets.delete(&name, &DeleteParams::default()).await?;
    }
    release.change("{}")?;
    let after = certificates(&release).await?;
    ensure!(
        before.iter().all(|(name, data)| after[name] != *data),
        "every certificate is another"
    );
    files_are_those_of(&release, &after).await?;
    fault.retire().await?;
    // Every client connects anew, with its new certificate, to a server with its new one.
    let etcd = ground.container(B, "etcd", None).await?;
    let cluster = release.cluster();
    cluster.kill_container(id_of(&etcd)?).await?;
    ground
        .is_restarted(B, "etcd", None, etcd.restart_count)
        .await?;
    fault.healed()?;
    fault.end().await
}

pub(crate) async fn upgraded(ground: &Ground) -> Result<()> {
    let mut fault = ground
        .begin("b's chart upgraded, every pod replaced", B)
        .await?;
    let release = ground.mesh.release(B).await?;
    release.change(&values::that_roll("upgraded"))?;
    fault.retire().await?;
    ground.mesh.is_well_in(B).await?;
    fault.healed()?;
    fault.end().await
}

pub(crate) async fn rolled_back(ground: &Ground) -> Result<()> {
    let release = ground.mesh.release(B).await?;
    let before = release.revision()?;
    release.change(&values::that_roll("to be rolled back"))?;
    ground.mesh.is_well_in(B).await?;
    let mut fault = ground
        .begin("b's chart rolled back, every pod replaced", B)
        .await?;
    release.rollback(before)?;
    fault.retire().await?;
    ground.mesh.is_well_in(B).await?;
    fault.healed()?;
    fault.end().await
}

fn secret_of(user: &str) -> String {
    format!("clustermesh-apiserver-{user}-cert")
}

/// The certificates of a release, by user.
async fn certificates(release: &Installation<'_>) -> Result<BTreeMap<&'static str, String>> {
    let mut found = BTreeMap::new();
    for user in CERTIFICATES {
        let secret = release.api::<Secret>().get(&secret_of(user)).await?;
        let data = secret.data.unwrap_or_default();
        let pem = data.get("tls.crt").context("tls.crt")?.0.clone();
        found.insert(user, String::from_utf8(pem)?);
    }
    Ok(found)
}

/// Waits until the kubelet has put these certificates where the containers of the mesh pod read them.
async fn files_are_those_of(
    release: &Installation<'_>,
    certificates: &BTreeMap<&'static str, String>,
) -> Result<()> {
    let pods = objects::pods(release).await?;
    let pod = pods.iter().find(|pod| is_mesh(pod)).context("a mesh pod")?;
    let uid = pod.uid().context("a uid")?;
    for (volume, user) in VOLUMES {
        let path =
            format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~secret/{volume}/tls.crt");
        let what = format!("{path} to be the new certificate");
        eventually(MOUNTED, &what, async || {
            let read = release.cluster().on_node("cat", &[&path]).await;
            let read = read.map_err(|error| error.to_string())?;
            let same = read.stdout.trim() == certificates[user].trim();
            same.then_some(()).ok_or_else(|| "another".to_owned())
        })
        .await?;
    }
    Ok(())
}

fn is_mesh(pod: &Pod) -> bool {
    pod.labels()
        .get("app.kubernetes.io/component")
        .map(String::as_str)
        == Some("mesh")
}
