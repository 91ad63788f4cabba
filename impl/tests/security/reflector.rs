//! Copies of a peer over TLS: the peer's store and the own one each ask for certificates, of different authorities.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use tombolo::kvstore::{Entry, KvStore, config::EtcdConfig, etcd::EtcdStore};
use tombolo_core::wire::key::{self, Resource};
use tombolo_testbed::{Testbed, eventually};

use crate::{
    processes::{BUDGET, MeshEtcd, RoleProcess, role},
    program::{Answer, answer, make},
};

const EXPORTS: &str = "cilium/state/serviceexports/v1/b/shop";
const COPIES: &str = "cilium/cache/serviceexports/v1/b/shop";

/// A store, reached as the administrator of its cluster.
async fn store(etcd: &MeshEtcd, certs: &Path, cluster: &str) -> Result<EtcdStore> {
    let file = certs.join("administrator");
    let pair = certs.join(format!("admin-{cluster}"));
    etcd.client_file(&file, &certs.join("ca.crt"), &pair)?;
    let store = EtcdStore::new(EtcdConfig::read(&file)?);
    until_reached(&store).await?;
    Ok(store)
}

async fn until_reached(store: &EtcdStore) -> Result<()> {
    eventually(BUDGET, "etcd to answer", async || {
        let read = store.get("probe").await;
        read.map(drop).map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

/// Who the peer is, and that its exports are complete.
async fn announce(peer: &EtcdStore) -> Result<()> {
    let config = r#"{"id":7,"capabilities":{"syncedCanaries":true,"maxConnectedClusters":255,"serviceExportsEnabled":true}}"#;
    put(peer, "cilium/cluster-config/b", config).await?;
    let cluster = "b".try_into()?;
    for kind in Resource::ALL {
        let canary = key::canary_key(&cluster, kind, false);
        put(peer, &canary, "2026-03-04T09:10:11Z").await?;
    }
    Ok(())
}

async fn put(store: &EtcdStore, key: &str, value: &str) -> Result<()> {
    store.put(key, value.as_bytes().to_vec(), None).await?;
    Ok(())
}

async fn until_copied(own: &EtcdStore, name: &str) -> Result<Entry> {
    let key = format!("{COPIES}/{name}");
    let what = format!("{key} to be there");
    let copied = eventually(BUDGET, &what, async || {
        let read = own.get(&key).await.map_err(|error| error.to_string())?;
        read.entry.ok_or_else(|| "no such key".to_owned())
    });
    Ok(copied.await?)
}

/// What `tombolo status` says, once it says all of these.
async fn until_told(health: &str, parts: &[&str]) -> Result<Answer> {
    let what = format!("a status with {parts:?}");
    let told = eventually(BUDGET, &what, async || {
        let said = answer(["status", "--address", health]);
        let all = parts.iter().all(|part| said.stdout.contains(part));
        if all {
            Ok(said)
        } else {
            Err(said.stdout + &said.stderr)
        }
    });
    Ok(told.await?)
}

/// The mesh role of cluster a, which copies the peers of a directory.
fn copier(testbed: &Testbed, work: &Path, own: &Path) -> Result<RoleProcess> {
    let flags = [
        format!("--etcd-config={}", own.display()),
        format!("--clustermesh-config={}", work.join("peers").display()),
    ];
    role("mesh", testbed.cluster(0), work, &flags)
}

#[tokio::test]
async fn copies_over_tls_stay_while_the_peer_shows_a_certificate_of_another_authority() -> Result<()>
{
    let work = tempfile::tempdir()?;
    let at = |name: &str| -> PathBuf { work.path().join(name) };
    make(&at("peer"), "b", &["--peer", "a"]);
    make(&at("own"), "a", &[]);
    make(&at("other"), "b", &[]);
    let (peer_etcd, own_etcd) = (MeshEtcd::new()?, MeshEtcd::new()?);
    let running = peer_etcd.start(&at("peer"))?;
    let _own = own_etcd.start(&at("own"))?;
    let testbed = Testbed::start(1).await?;
    let peer = store(&peer_etcd, &at("peer"), "b").await?;
    let own = store(&own_etcd, &at("own"), "a").await?;
    put(&peer, &format!("{EXPORTS}/web"), "whatever b says").await?;
    announce(&peer).await?;
    fs::create_dir_all(at("peers"))?;
    let ca = at("peer/ca.crt");
    peer_etcd.client_file(&at("peers/b"), &ca, &at("peer/remote-a"))?;

    let copier = copier(&testbed, work.path(), &at("own/administrator"))?;
    let health = format!("http://{}", copier.health());
    let copy = until_copied(&own, "web").await?;
    assert_eq!(copy.value, b"whatever b says");
    until_told(&health, &["1 peer followed", "Ready"]).await?;

    // The peer's etcd comes back with a certificate that another authority signed.
    drop(running);
    let running = peer_etcd.start(&at("other"))?;
    let parts = [
        "peer b (mesh of a): it cannot be trusted now",
        "the server's certificate is signed by none of the authorities that are trusted",
        &format!("add the authority that signed it to {}", ca.display()),
    ];
    let said = until_told(&health, &parts).await?;
    println!("{}", said.stdout);
    assert_ne!(said.code, 0, "{}", said.stdout);
    let kept = own.get(&format!("{COPIES}/web")).await?.entry;
    assert_eq!(kept.context("the copy is kept")?, copy);

    // It is mended, and has moved on.
    drop(running);
    let _running = peer_etcd.start(&at("peer"))?;
    until_reached(&peer).await?;
    put(&peer, &format!("{EXPORTS}/cart"), "something new").await?;
    until_copied(&own, "cart").await?;
    let kept = own.get(&format!("{COPIES}/web")).await?.entry;
    assert_eq!(kept, Some(copy), "it was never written anew");
    Ok(())
}
