//! Many peers in one etcd, for measurements: their records as real ones would write them, without the clusters.

use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::{Client, ConnectOptions, Txn, TxnOp};
use serde_json::json;
use tokio::task::JoinSet;
use tombolo_testbed::Cluster;

use crate::records::{EXPORTS, SERVICES, SYNCED};

/// Most operations that etcd takes in one transaction.
const TXN_OPS: usize = 128;
/// The most clusters that a mesh can have; the follower has to be told the same.
pub const MAX_CONNECTED: u32 = 511;
/// The namespace of all services.
pub const NAMESPACE: &str = "default";

/// Key of the heartbeat.
const HEARTBEAT: &str = "cilium/.heartbeat";
/// Time between two heartbeats; real ones come once a minute.
const BEAT: Duration = Duration::from_secs(30);

/// What the peers say.
#[derive(Debug, Clone, Copy)]
pub struct MockPeers {
    /// How many there are, at most 510: one id is the follower's.
    pub peers: u32,
    /// Global services of each, with the same names in all.
    pub services: u32,
    /// How many of those each exports too.
    pub exported: u32,
    /// Backends of each service.
    pub backends: u8,
}

impl MockPeers {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.peers).map(|number| format!("peer-{number}"))
    }

    /// Writes everything into a cluster's mesh etcd, canaries last, and makes that cluster know them as peers.
    ///
    /// `progress` is told after each peer.
    pub async fn write(&self, cluster: &Cluster, mut progress: impl FnMut(u32)) -> Result<()> {
        let endpoint = cluster.mesh_etcd_endpoint()?;
        let options = ConnectOptions::new();
        let mut client = Client::connect([&endpoint], Some(options))
            .await
            .context("connect to the mesh etcd")?;
        for (number, name) in (0..).zip(self.names()) {
            let id = id(number, cluster.id());
            let records = self.records(&name, id);
            for batch in records.chunks(TXN_OPS) {
                put_all(&mut client, batch).await?;
            }
            put_all(&mut client, &signs(&name, id)).await?;
            progress(number + 1);
        }
        for name in self.names() {
            cluster.write_peer(&name, &endpoint)?;
        }
        Ok(())
    }

    /// Writes the heartbeat of their etcd, at once and then twice a minute, until what is returned is dropped.
    pub async fn beat(&self, cluster: &Cluster) -> Result<JoinSet<()>> {
        let mut client = Client::connect([cluster.mesh_etcd_endpoint()?], None).await?;
        client.put(HEARTBEAT, "1", None).await?;
        let mut beating = JoinSet::new();
        beating.spawn(async move {
            let mut ticks = tokio::time::interval(BEAT);
            for beat in 2_u64.. {
                ticks.tick().await;
                // Peers that miss a beat turn suspect, which the measurement would show.
                let _ = client.put(HEARTBEAT, beat.to_string(), None).await;
            }
        });
        Ok(beating)
    }

    /// Changes the backends of one service of one peer; `turn` makes each change another.
    pub async fn touch(
        &self,
        client: &mut Client,
        cluster: &Cluster,
        peer: u32,
        service: u32,
        turn: u8,
    ) -> Result<()> {
        let name = format!("peer-{peer}");
        let (key, value) = self.service(&name, id(peer, cluster.id()), service, turn);
        client.put(key, value, None).await?;
        Ok(())
    }

    fn records(&self, peer: &str, id: u32) -> Vec<(String, String)> {
        let services = (0..self.services).map(|service| self.service(peer, id, service, 0));
        services
            .chain((0..self.exported).map(|service| export(peer, service)))
            .collect()
    }

    fn service(&self, peer: &str, id: u32, service: u32, turn: u8) -> (String, String) {
        let name = service_name(service);
        let backends: serde_json::Map<_, _> = (1..=self.backends)
            .map(|last| {
                let address = format!("10.{}.{turn}.{last}", id % 256);
                (address, json!({"http": {"Protocol": "TCP", "Port": 8080}}))
            })
            .collect();
        let value = json!({
            "cluster": peer, "namespace": NAMESPACE, "name": name,
            "frontends": {"10.96.0.9": {"http": {"Protocol": "TCP", "Port": 80}}},
            "backends": backends,
            "labels": {"app": name}, "selector": {"app": name},
            "includeExternal": true, "shared": true, "clusterID": id,
        });
        (
            format!("{SERVICES}/{peer}/{NAMESPACE}/{name}"),
            value.to_string(),
        )
    }
}

/// The name of a service.
pub fn service_name(service: u32) -> String {
    format!("service-{service}")
}

/// An id that is not the follower's.
fn id(peer: u32, follower: u32) -> u32 {
    let id = peer + 1;
    if id < follower { id } else { id + 1 }
}

fn export(peer: &str, service: u32) -> (String, String) {
    let name = service_name(service);
    let value = json!({
        "cluster": peer, "name": name, "namespace": NAMESPACE,
        "exportCreationTimestamp": "2026-01-01T00:00:00Z",
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
        "type": "ClusterSetIP", "sessionAffinity": "None", "ipFamilies": ["IPv4"],
    });
    (
        format!("{EXPORTS}/{peer}/{NAMESPACE}/{name}"),
        value.to_string(),
    )
}

/// Cluster-config and canaries.
fn signs(peer: &str, id: u32) -> Vec<(String, String)> {
    let config = json!({"id": id, "capabilities": {
        "syncedCanaries": true, "maxConnectedClusters": MAX_CONNECTED, "serviceExportsEnabled": true,
    }});
    let canary = |prefix: &str| {
        (
            format!("{SYNCED}/{peer}/{prefix}"),
            "2026-01-01T00:00:00Z".to_owned(),
        )
    };
    vec![
        (format!("cilium/cluster-config/{peer}"), config.to_string()),
        canary(SERVICES),
        canary(EXPORTS),
    ]
}

async fn put_all(client: &mut Client, records: &[(String, String)]) -> Result<()> {
    let puts: Vec<_> = records
        .iter()
        .map(|(key, value)| TxnOp::put(key.as_str(), value.as_str(), None))
        .collect();
    client
        .txn(Txn::new().and_then(puts))
        .await
        .context("write records of mock peers")?;
    Ok(())
}
