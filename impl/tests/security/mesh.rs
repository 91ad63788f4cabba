//! Two clusters, mutual TLS end to end: certificates by `tombolo certs`, users by `tombolo run mesh`, and an operator that reads as
//! the peer `remote-b`.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{Api, PostParams};
use serde_json::json;
use tombolo::{
    kvstore::{KvStore, config::EtcdConfig, etcd::EtcdStore},
    operator::{crds, leadership::Tenure},
};
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};
use tombolo_testbed::{Cluster, Testbed, eventually};

use crate::{
    processes::{BUDGET, MeshEtcd, role, until_logged},
    program::make,
};

const NAMESPACE: &str = "shop";

async fn create_namespace(cluster: &Cluster) -> Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    let api = Api::<Namespace>::all(cluster.client());
    api.create(&PostParams::default(), &namespace).await?;
    Ok(())
}

async fn export(cluster: &Cluster, name: &str) -> Result<()> {
    let service = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]},
    }))?;
    let services = Api::<Service>::namespaced(cluster.client(), NAMESPACE);
    services.create(&PostParams::default(), &service).await?;
    let export: ServiceExport = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let exports = Api::<ServiceExport>::namespaced(cluster.client(), NAMESPACE);
    exports.create(&PostParams::default(), &export).await?;
    Ok(())
}

async fn until_imported(cluster: &Cluster, name: &str) -> Result<()> {
    let imports = Api::<ServiceImport>::namespaced(cluster.client(), NAMESPACE);
    eventually(BUDGET, &format!("{name} is imported"), async || {
        imports
            .get(name)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

fn copy_pair(from: &Path, to: &Path) -> Result<()> {
    for end in ["crt", "key"] {
        fs::copy(from.with_extension(end), to.with_extension("new"))?;
        fs::rename(to.with_extension("new"), to.with_extension(end))?;
    }
    Ok(())
}

#[tokio::test]
async fn a_mesh_with_mutual_tls_is_set_up_by_three_commands_and_survives_a_wrong_certificate()
-> Result<()> {
    let testbed = Testbed::start(2).await?;
    let (a, b) = (testbed.cluster(0), testbed.cluster(1));
    crds::install(&a.client(), &Tenure::sole()).await?;
    create_namespace(a).await?;
    create_namespace(b).await?;
    let work = tempfile::tempdir()?;
    let at = |name: &str| work.path().join(name);

    // 1. Certificates: b's are of the authority that both share.
    make(&at("certs-a"), "a", &[]);
    let shared =
        [at("certs-a/ca.crt"), at("certs-a/ca.key")].map(|file| file.display().to_string());
    make(
        &at("certs-b"),
        "b",
        &["--ca-cert", &shared[0], "--ca-key", &shared[1]],
    );
    let etcd = MeshEtcd::new()?;
    let running = etcd.start(&at("certs-a"))?;
    etcd.client_file(&at("own"), &at("certs-a/ca.crt"), &at("certs-a/admin-a"))?;
    fs::write(
        at("users.yaml"),
        "users:\n- {name: remote-b, role: remote}\n",
    )?;

    // 2. The mesh role bootstraps the etcd, then publishes.
    let flags = [
        format!("--etcd-config={}", at("own").display()),
        "--cluster-users-enabled".to_owned(),
        format!("--cluster-users-config-path={}", at("users.yaml").display()),
    ];
    let _mesh = role("mesh", a, work.path(), &flags)?;

    // 3. The operator of b reads as remote-b.
    fs::create_dir_all(at("peers"))?;
    copy_pair(&at("certs-b/remote-b"), &at("common"))?;
    etcd.client_file(&at("peers/a"), &at("certs-b/ca.crt"), &at("common"))?;
    let flags = [format!("--clustermesh-config={}", at("peers").display())];
    let operator = role("operator", b, work.path(), &flags)?;
    export(a, "web").await?;
    until_imported(b, "web").await?;

    // What b may, tried with its own certificate.
    let as_b = EtcdStore::new(EtcdConfig::read(&at("peers/a"))?);
    as_b.get("cilium/cluster-config/a")
        .await?
        .entry
        .context("b reads who a is")?;
    let write = as_b
        .put(
            "cilium/state/serviceexports/v1/a/shop/evil",
            Vec::new(),
            None,
        )
        .await;
    assert_eq!(write.unwrap_err().reason(), "Denied");

    // A certificate of somebody else's authority, while the connection breaks.
    make(&at("certs-x"), "b", &[]);
    copy_pair(&at("certs-x/remote-b"), &at("common"))?;
    drop(running);
    let _running = etcd.start(&at("certs-a"))?;
    let parts = [
        "peer=a",
        "peers/a: https://",
        "the server refuses the client certificate",
        "remote-b, signed by Tombolo CA of b",
    ];
    until_logged(&operator.process, &parts).await?;
    export(a, "cart").await?;
    copy_pair(&at("certs-b/remote-b"), &at("common"))?;
    let mended = Instant::now();
    until_imported(b, "cart").await?;
    println!(
        "imported {:?} after the certificate was mended",
        mended.elapsed()
    );
    until_imported(b, "web").await?;
    Ok(())
}
