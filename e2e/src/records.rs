//! The records in a cluster's mesh etcd, read and broken by hand, as an operator with `etcdctl` could.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Client, DeleteOptions, EventType, GetOptions, WatchOptions};
use tombolo_testbed::Cluster;

use crate::scene::SETTLE;

/// Longest wait for an answer: a store that is down must not hang a look at it.
const ANSWER: Duration = Duration::from_secs(2);

/// Key prefix of exports.
pub const EXPORTS: &str = "cilium/state/serviceexports/v1";
/// Key prefix of services with their backends.
pub const SERVICES: &str = "cilium/state/services/v1";
/// Key prefix of sync canaries.
pub const SYNCED: &str = "cilium/synced";

/// A cluster's mesh etcd.
pub struct Records {
    client: Client,
    cluster: String,
}

impl Records {
    /// Connects.
    pub async fn of(cluster: &Cluster) -> Result<Self> {
        let endpoint = cluster.mesh_etcd_endpoint()?;
        let client = Client::connect([endpoint], None)
            .await
            .context("connect to the mesh etcd")?;
        Ok(Self {
            client,
            cluster: cluster.name().to_owned(),
        })
    }

    /// The keys with that prefix, without it.
    pub async fn keys(&mut self, prefix: &str) -> Result<BTreeSet<String>> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let answer = tokio::time::timeout(ANSWER, self.client.get(prefix, Some(options))).await??;
        let keys = answer.kvs().iter().map(|record| {
            let key = String::from_utf8_lossy(record.key()).into_owned();
            key.strip_prefix(prefix).unwrap_or(&key).to_owned()
        });
        Ok(keys.collect())
    }

    /// The values of the records with that prefix, as text.
    pub async fn values(&mut self, prefix: &str) -> Result<Vec<String>> {
        let options = GetOptions::new().with_prefix();
        let answer = tokio::time::timeout(ANSWER, self.client.get(prefix, Some(options))).await??;
        let values = answer.kvs().iter();
        Ok(values
            .map(|record| String::from_utf8_lossy(record.value()).into_owned())
            .collect())
    }

    /// The revision of the store.
    pub async fn revision(&mut self) -> Result<i64> {
        let answer = self.client.get("probe", None).await?;
        Ok(answer
            .header()
            .context("an answer has a header")?
            .revision())
    }

    /// What happened to records with that prefix after that revision, in order, until there are so many: their keys without
    /// the prefix, and whether they were deleted.
    pub async fn events_since(
        &mut self,
        revision: i64,
        prefix: &str,
        count: usize,
    ) -> Result<Vec<(String, bool)>> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(revision + 1);
        let mut answers = self.client.watch(prefix, Some(options)).await?;
        let mut events = Vec::new();
        while events.len() < count {
            let next = tokio::time::timeout(SETTLE, answers.message()).await;
            let next = next.with_context(|| format!("{} of {count} events", events.len()))?;
            let answer = next?.context("the watch has ended")?;
            for event in answer.events() {
                let key = event.kv().context("an event has a key")?.key_str()?;
                let key = key.strip_prefix(prefix).unwrap_or(key).to_owned();
                events.push((key, event.event_type() == EventType::Delete));
            }
        }
        Ok(events)
    }

    /// The names of a namespace's exports that this cluster published.
    pub async fn exports(&mut self, namespace: &str) -> Result<BTreeSet<String>> {
        let prefix = format!("{EXPORTS}/{}/{namespace}/", self.cluster);
        self.keys(&prefix).await
    }

    /// Writes a record.
    pub async fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.client
            .put(key, value, None)
            .await
            .context("write a record")?;
        Ok(())
    }

    /// Removes all records with that prefix; returns how many.
    pub async fn delete(&mut self, prefix: &str) -> Result<i64> {
        let options = DeleteOptions::new().with_prefix();
        let answer = self
            .client
            .delete(prefix, Some(options))
            .await
            .context("delete records")?;
        Ok(answer.deleted())
    }

    /// Revokes the lease that a record is held by: every record of that lease goes in one revision, as when it expires.
    pub async fn revoke_lease_of(&mut self, key: &str) -> Result<i64> {
        let answer = self.client.get(key, None).await.context("read a record")?;
        let record = answer
            .kvs()
            .first()
            .with_context(|| format!("no record {key}"))?;
        let lease = record.lease();
        ensure!(lease != 0, "{key} is held by no lease");
        self.client
            .lease_revoke(lease)
            .await
            .context("revoke a lease")?;
        Ok(lease)
    }

    /// The lease that holds a record; none when there is no record.
    pub async fn lease_of(&mut self, key: &str) -> Result<Option<i64>> {
        let answer = self.client.get(key, None).await.context("read a record")?;
        Ok(answer.kvs().first().map(etcd_client::KeyValue::lease))
    }
}
