//! The Helm chart, installed: real API servers take it, the accounts that it makes have the rights that the roles need and no
//! others, and its etcd, certificates and files make a mesh of two clusters.
//!
//! There are no nodes: what a kubelet would start of a pod, the scenario starts itself, with the flags, files and tokens of the pod.

#[path = "installation/lifetime.rs"]
mod lifetime;
#[path = "installation/mesh.rs"]
mod mesh;
#[path = "installation/users.rs"]
mod users;

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{ResourceExt as _, api::ListParams};
use tombolo_e2e::{
    chart::Installation,
    scenarios::{self, Scenario},
};
use tombolo_testbed::Testbed;

/// Number of the first cluster.
const A: usize = 0;
/// Number of the second.
const B: usize = 1;

/// Data of Secrets, by name.
type Secrets = BTreeMap<String, BTreeMap<String, ByteString>>;

fn main() {
    let mut all: Vec<(String, Scenario)> = Vec::new();
    let mut add = |name: &str, scenario: Scenario| all.push((name.to_owned(), scenario));
    add(
        "upgrades_keep_certificates_as_long_as_they_serve",
        Box::new(|t| Box::pin(lifetime::of_certificates(t))),
    );
    add(
        "what_is_uninstalled_goes_except_the_authority",
        Box::new(|t| Box::pin(lifetime::of_a_release(t))),
    );
    add(
        "users_export_and_nobody_writes_imports",
        Box::new(|t| Box::pin(users::export_and_write_no_imports(t))),
    );
    add(
        "two_installations_are_a_mesh",
        Box::new(|t| Box::pin(mesh::of_two_installations(t))),
    );
    scenarios::main(all, || Box::pin(async { Ok(Testbed::start(2).await?) }));
}

/// All Secrets of a release's namespace but helm's own.
async fn secrets(installation: &Installation<'_>) -> Result<Secrets> {
    let all = installation.api::<Secret>();
    let all = all.list(&ListParams::default()).await?;
    let own = all
        .items
        .into_iter()
        .filter(|secret| secret.type_.as_deref() != Some("helm.sh/release.v1"));
    Ok(own
        .map(|secret| (secret.name_any(), secret.data.unwrap_or_default()))
        .collect())
}
