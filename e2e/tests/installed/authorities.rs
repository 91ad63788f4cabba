//! Clusters that were installed on their own, each with an authority that it made: what one holds of the other's.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{ResourceExt as _, api::ListParams};
use tombolo_e2e::{
    chart::Installation,
    installed::{AUTHORITY, Mesh},
};

use super::{A, B};

/// Members of the Secret of an authority.
const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";

pub(crate) async fn stay(mesh: &Mesh) -> Result<()> {
    let (a, b) = (mesh.release(A).await?, mesh.release(B).await?);
    let [of_a, of_b] = [authority(&a).await?, authority(&b).await?];
    for member in [CERTIFICATE, KEY] {
        ensure!(of_a[member] != of_b[member], "{member} is shared");
    }
    knows_only_the_certificate(&a, b.cluster().name(), &of_b).await?;
    knows_only_the_certificate(&b, a.cluster().name(), &of_a).await
}

async fn authority(release: &Installation<'_>) -> Result<BTreeMap<String, ByteString>> {
    let secret = release.api::<Secret>().get(AUTHORITY).await?;
    let data = secret.data.unwrap_or_default();
    for member in [CERTIFICATE, KEY] {
        let value = data.get(member).context(member)?;
        ensure!(!value.0.is_empty(), "{member} is empty");
    }
    Ok(data)
}

/// The peer is trusted by the certificate of its own authority, and no Secret holds the key of that.
async fn knows_only_the_certificate(
    release: &Installation<'_>,
    peer: &str,
    authority: &BTreeMap<String, ByteString>,
) -> Result<()> {
    let member = format!("{peer}.etcd-client-ca.crt");
    let key = String::from_utf8_lossy(&authority[KEY].0).into_owned();
    let secrets = release.api::<Secret>().list(&ListParams::default()).await?;
    let mut trusting = 0;
    for secret in secrets {
        let what = format!("{} of {}", secret.name_any(), release.cluster().name());
        let data = secret.data.unwrap_or_default();
        for (name, value) in &data {
            let text = String::from_utf8_lossy(&value.0);
            ensure!(
                !text.contains(key.trim()),
                "{name} of {what} has the key of {peer}'s authority"
            );
        }
        if let Some(trusted) = data.get(&member) {
            ensure!(*trusted == authority[CERTIFICATE], "{member} of {what}");
            trusting += 1;
        }
    }
    ensure!(trusting > 0, "no Secret has {member}");
    Ok(())
}
