//! What stays and what goes over upgrades, rollbacks and uninstalls.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::ListParams};
use tombolo_e2e::chart::{Helm, Installation};
use tombolo_testbed::Testbed;

use super::{A, Secrets, secrets};

const AUTHORITY: &str = "tombolo-ca";
const SERVER: &str = "clustermesh-apiserver-server-cert";
const REMOTE: &str = "clustermesh-apiserver-remote-cert";

fn values(tls: &str, clusters: &str) -> String {
    format!(
        "cluster: {{name: a, id: 1}}\nclustermesh:\n  config: {{clusters: {clusters}}}\n  apiserver: {{tls: {tls}}}\n"
    )
}

/// Names of the Secrets with certificates that are not as they were.
fn changed(before: &Secrets, after: &Secrets) -> BTreeSet<String> {
    let certificates = after.iter().filter(|(_, data)| data.contains_key("ca.crt"));
    certificates
        .filter(|(name, data)| before.get(*name) != Some(data))
        .map(|(name, _)| name.clone())
        .collect()
}

fn only(name: &str) -> BTreeSet<String> {
    [name.to_owned()].into()
}

pub(crate) async fn of_certificates(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let release = Installation::prepare(&helm, testbed.cluster(A)).await?;
    let plain = values("{auto: {certValidityDuration: 1095}}", "[]");

    let notes = release.install(&plain)?;
    ensure!(notes.contains("tombolo connect THIS OTHER"), "{notes}");
    let first = secrets(&release).await?;
    ensure!(first.len() == 5, "{:?}", first.keys());

    release.upgrade(&values(
        "{auto: {certValidityDuration: 1095}}",
        "[{name: b, address: b.example.org}]",
    ))?;
    let with_peer = secrets(&release).await?;
    ensure!(
        changed(&first, &with_peer).is_empty(),
        "a peer changes no certificate"
    );
    ensure!(with_peer["cilium-kvstoremesh"].contains_key("b"));

    let named = "{server: {extraDnsNames: [a.example.org]}}";
    release.upgrade(&values(named, "[]"))?;
    let renamed = secrets(&release).await?;
    ensure!(changed(&first, &renamed) == only(SERVER));

    release.rollback(2)?;
    let back = secrets(&release).await?;
    ensure!(
        changed(&with_peer, &back).is_empty(),
        "a rollback brings back what was"
    );

    release.upgrade(&values("{authMode: cluster}", "[]"))?;
    let towards_peers = secrets(&release).await?;
    ensure!(changed(&back, &towards_peers) == only(REMOTE));

    // All certificates of one day have less than a third of three years.
    release.uninstall()?;
    release.install(&values("{auto: {certValidityDuration: 1}}", "[]"))?;
    let short = secrets(&release).await?;
    release.upgrade(&values("{auto: {certValidityDuration: 1}}", "[]"))?;
    ensure!(changed(&short, &secrets(&release).await?).is_empty());
    release.upgrade(&plain)?;
    let renewed = changed(&short, &secrets(&release).await?);
    ensure!(renewed.len() == 4, "{renewed:?}");
    ensure!(!renewed.contains(AUTHORITY), "the authority stays");
    release.uninstall()
}

pub(crate) async fn of_a_release(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let release = Installation::prepare(&helm, testbed.cluster(A)).await?;
    let plain = values("{}", "[]");
    release.install(&plain)?;
    let before = secrets(&release).await?;

    release.uninstall()?;

    let left = secrets(&release).await?;
    ensure!(left.keys().eq([AUTHORITY]), "{:?}", left.keys());
    let services = release
        .api::<Service>()
        .list(&ListParams::default())
        .await?;
    ensure!(services.items.is_empty(), "{:?}", services.items);
    let maps = release
        .api::<ConfigMap>()
        .list(&ListParams::default())
        .await?;
    let ours = maps
        .items
        .iter()
        .filter(|map| map.metadata.labels.is_some());
    ensure!(ours.count() == 0, "{:?}", maps.items);
    // A definition would take all exports with it.
    let rendered = helm.template(&plain)?;
    ensure!(rendered.of_kind("CustomResourceDefinition").is_empty());
    let definitions: Api<CustomResourceDefinition> = Api::all(release.cluster().client());
    definitions.list(&ListParams::default()).await?;

    release.install(&plain)?;
    let again = secrets(&release).await?;
    ensure!(
        again[AUTHORITY] == before[AUTHORITY],
        "the authority is found again"
    );
    ensure!(again[SERVER] != before[SERVER]);
    release.uninstall()
}
