//! A peer without a cluster: a test writes its records by hand, into the second mesh etcd of the cluster that reads it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use etcd_client::{Client, Txn, TxnOp};
use tombolo_testbed::{ClaimedPorts, Cluster, Component, Forwarder, eventually};

use crate::{
    records::{EXPORTS, SERVICES, SYNCED},
    scene::SETTLE,
};

/// Most operations that etcd takes in one transaction.
const TXN_OPS: usize = 128;

/// A peer whose records are written by hand.
pub struct HandWritten<'t> {
    cluster: &'t Cluster,
    name: &'static str,
    namespace: String,
    store: Client,
    endpoint: String,
    /// Nobody listens there.
    silent: ClaimedPorts,
}

impl<'t> HandWritten<'t> {
    /// Starts its store, empty but for who it is and that it is complete.
    pub async fn start(
        cluster: &'t Cluster,
        name: &'static str,
        namespace: &str,
    ) -> Result<HandWritten<'t>> {
        cluster.start_second_mesh_etcd().await?;
        let endpoint = cluster.second_mesh_etcd_endpoint()?;
        let peer = Self {
            cluster,
            name,
            namespace: namespace.to_owned(),
            store: Client::connect([&endpoint], None).await?,
            endpoint,
            silent: ClaimedPorts::claim()?,
        };
        let config = r#"{"id":77,"capabilities":{"syncedCanaries":true,"maxConnectedClusters":255,"serviceExportsEnabled":true}}"#;
        let mut records = vec![TxnOp::put(
            format!("cilium/cluster-config/{name}"),
            config,
            None,
        )];
        for prefix in [EXPORTS, SERVICES] {
            let key = format!("{SYNCED}/{name}/{prefix}");
            records.push(TxnOp::put(key, "2026-03-04T09:10:11Z", None));
        }
        peer.write(records).await?;
        Ok(peer)
    }

    /// The URL of its store.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The address of its store.
    pub fn address(&self) -> Result<SocketAddr> {
        let address = self.endpoint.strip_prefix("http://").context("a URL")?;
        Ok(address.parse()?)
    }

    /// An export with these ports.
    pub fn export(&self, name: &str, ports: &[u16]) -> TxnOp {
        let (peer, namespace) = (self.name, &self.namespace);
        let port = |port: &u16| format!(r#"{{"name":"p{port}","protocol":"TCP","port":{port}}}"#);
        let ports: Vec<_> = ports.iter().map(port).collect();
        let ports = ports.join(",");
        let value = format!(
            r#"{{"cluster":"{peer}","name":"{name}","namespace":"{namespace}","exportCreationTimestamp":"2026-03-04T09:10:11Z","ports":[{ports}],"type":"ClusterSetIP","sessionAffinity":"None","ipFamilies":["IPv4"]}}"#
        );
        TxnOp::put(self.key(EXPORTS, name), value, None)
    }

    /// A global service with these backends, each with the ports.
    pub fn service(&self, name: &str, addresses: &[String], ports: &[u16]) -> TxnOp {
        let (peer, namespace) = (self.name, &self.namespace);
        let port = |port: &u16| format!(r#""p{port}":{{"Protocol":"TCP","Port":{port}}}"#);
        let ports: Vec<_> = ports.iter().map(port).collect();
        let backend = |address: &String| format!(r#""{address}":{{{}}}"#, ports.join(","));
        let backends: Vec<_> = addresses.iter().map(backend).collect();
        let value = format!(
            r#"{{"cluster":"{peer}","namespace":"{namespace}","name":"{name}","frontends":{{}},"backends":{{{}}},"hostnames":{{}},"zones":{{}},"labels":{{}},"selector":{{}},"includeExternal":true,"shared":true,"clusterID":77}}"#,
            backends.join(",")
        );
        TxnOp::put(self.key(SERVICES, name), value, None)
    }

    /// The end of an export.
    pub fn no_export(&self, name: &str) -> TxnOp {
        TxnOp::delete(self.key(EXPORTS, name), None)
    }

    /// The end of a global service.
    pub fn no_service(&self, name: &str) -> TxnOp {
        TxnOp::delete(self.key(SERVICES, name), None)
    }

    fn key(&self, prefix: &str, name: &str) -> String {
        format!("{prefix}/{}/{}/{name}", self.name, self.namespace)
    }

    /// Makes these changes, in transactions as large as etcd takes them; returns the revision of the store after the last.
    pub async fn write(&self, changes: Vec<TxnOp>) -> Result<i64> {
        let mut store = self.store.clone();
        let mut revision = 0;
        for changes in changes.chunks(TXN_OPS) {
            let answer = store.txn(Txn::new().and_then(changes)).await?;
            revision = answer
                .header()
                .context("an answer has a header")?
                .revision();
        }
        Ok(revision)
    }

    /// Cuts it off from a role that reads it through the forwarder, and waits until the role knows.
    pub async fn cut(&self, between: &Forwarder, reader: Component) -> Result<()> {
        let [nobody, _] = self.silent.addresses();
        between.switch(nobody);
        let what = format!("the {reader} to be cut off from {}", self.name);
        let series = format!("tombolo_peer_store_connected{{cluster=\"{}\"}}", self.name);
        self.until(reader, &what, &series, |value| value == 0).await
    }

    /// Waits until a role has read a kind up to this revision.
    pub async fn until_read(&self, reader: Component, kind: &str, revision: i64) -> Result<()> {
        let peer = self.name;
        let what = format!("the {reader} to have read the {kind} of {peer} up to {revision}");
        let series =
            format!("tombolo_peer_followed_revision{{cluster=\"{peer}\",kind=\"{kind}\"}}");
        self.until(reader, &what, &series, |value| value >= revision)
            .await
    }

    /// Waits until a series of a role has such a value.
    async fn until(
        &self,
        reader: Component,
        what: &str,
        series: &str,
        holds: impl Fn(i64) -> bool,
    ) -> Result<()> {
        eventually(SETTLE, what, async || {
            let page = self.cluster.role_page(reader, "/metrics").await;
            let page = page.map_err(|error| error.to_string())?;
            let value = page.lines().find_map(|line| line.strip_prefix(series));
            let whole = value.map(|value| value.trim().trim_end_matches(".0"));
            let value = whole.and_then(|value| value.parse().ok());
            value
                .is_some_and(&holds)
                .then_some(())
                .ok_or(format!("{series} {value:?}"))
        })
        .await?;
        Ok(())
    }
}
