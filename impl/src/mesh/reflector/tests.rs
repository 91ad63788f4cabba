//! What ends up in this cluster's store.

mod copying;
mod draining;
mod lives;
mod recorded;
mod seen;
mod untaken;

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tombolo_core::{
    names::ClusterName,
    wire::{
        cluster_config::Capabilities,
        key::{self, Resource},
    },
};

use super::{
    Error, Metrics, Options, Patience, View,
    election::{self, Times},
    reflect,
    reflection::Reflection,
};
use crate::{
    kvstore::{
        Entry, KvStore,
        memory::MemoryStore,
        testing::{budget, eventually},
    },
    mesh::{
        peer::LocalCluster,
        remote_cluster::{
            self, Budget, Memory, RemoteCluster,
            testkit::{Writer, capable, service},
        },
        reservations::Reservations,
        statuses::Statuses,
    },
    telemetry::health::Health,
};

/// A cluster `here` with id 1 and what copies its peers into its store.
struct Here<S> {
    store: S,
    local: LocalCluster,
    metrics: Metrics,
    lease_ttl: Duration,
    lock_ttl: Duration,
    grace: Option<Duration>,
    patience: Patience,
    budget: Budget,
    running: Option<Running>,
}

struct Running {
    reflection: Reflection,
    cancel: CancellationToken,
    statuses: Statuses,
    view: View,
    health: Health,
    task: JoinHandle<Result<(), Error>>,
}

impl<S: KvStore> Here<S> {
    fn new(store: S) -> Self {
        Self {
            store,
            local: LocalCluster {
                name: name("here"),
                id: 1.try_into().unwrap(),
                max_connected: 255,
            },
            metrics: Metrics::default(),
            lease_ttl: Duration::from_mins(1),
            lock_ttl: election::LOCK_TTL,
            grace: Some(Duration::from_mins(3)),
            patience: Patience::default(),
            budget: Budget::default(),
            running: None,
        }
    }

    /// Begins a life that copies these peers.
    fn start<P: KvStore>(&mut self, peers: &[(&str, P)]) {
        let (cancel, statuses, health) = (
            CancellationToken::new(),
            Statuses::default(),
            Health::new(Registry::default()),
        );
        let (local, view) = (self.local.clone(), View::default());
        let options = Options {
            config_dir: "unused".into(),
            local: local.clone(),
            peers: remote_cluster::Options {
                budget: self.budget,
                ..remote_cluster::Options::default()
            },
            lease_ttl: self.lease_ttl,
            drain_grace: self.grace,
            patience: self.patience,
            metrics: self.metrics.clone(),
            view: view.clone(),
            statuses: statuses.clone(),
            gate: Some(health.gate("reflected")),
        };
        let reflection = Reflection::new(self.grace);
        let reservations = Reservations::default();
        let follow = |(name, store): &(&str, P)| {
            let remote = RemoteCluster {
                peer: (*name).try_into().unwrap(),
                local: local.clone(),
                store: store.clone(),
                records: reflection.clone(),
                statuses: statuses.clone(),
                options: options.peers,
                reservations: reservations.clone(),
                memory: Memory::default(),
            };
            remote.run(cancel.clone())
        };
        let follow = join_all(peers.iter().map(follow));
        configure(&statuses, peers.iter().map(|(name, _)| *name));
        let (store, stop) = (self.store.clone(), cancel.clone());
        let (arrived, lock_ttl) = (reflection.clone(), self.lock_ttl);
        let task = tokio::spawn(async move {
            let times = Times {
                lock_ttl,
                standby_after: Duration::from_millis(500),
            };
            let lock = election::elect(&store, times, options.gate.as_ref(), &options.view);
            let Some(lock) = stop.run_until_cancelled(lock).await else {
                return Ok(());
            };
            let follow = async {
                follow.await;
                Ok(())
            };
            reflect(&lock, reflection, &options, follow, &stop).await?;
            lock.release().await.map_err(Error::LockLost)
        });
        self.running = Some(Running {
            reflection: arrived,
            cancel,
            statuses,
            view,
            health,
            task,
        });
    }

    /// Says which peers are configured; those that were followed before are followed on.
    fn configure<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        configure(&self.running().statuses, names);
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it was started")
    }

    /// Ends the life as SIGTERM does.
    async fn stop(&mut self) {
        let running = self.running.take().unwrap();
        running.cancel.cancel();
        running.task.await.unwrap().unwrap();
    }

    /// Ends the life as SIGKILL does, with the lock in its hands: nothing is finished, nothing given back. Then the lease of the
    /// lock ends, as it does when nobody prolongs it.
    async fn kill(&mut self) {
        let running = self.running.take().unwrap();
        running.task.abort();
        assert!(running.task.await.unwrap_err().is_cancelled());
        let line = self.store.list(key::KVSTOREMESH_LOCK).await.unwrap();
        let first = line.entries.values().min_by_key(|it| it.create_revision);
        let lease = first.and_then(|held| held.lease).expect("it held the lock");
        self.store.revoke(lease).await.unwrap();
    }

    /// Waits until the life ends by itself; returns why.
    async fn end(&mut self) -> Error {
        let running = self.running.take().unwrap();
        let ended = tokio::time::timeout(budget(), running.task).await;
        ended.expect("in time").unwrap().unwrap_err()
    }

    fn is_ready(&self) -> bool {
        self.running().health.closed().is_empty()
    }

    async fn until_ready(&self) {
        eventually("the copies are ready", async || self.is_ready()).await;
    }

    async fn entry(&self, key: &str) -> Option<Entry> {
        self.store.get(key).await.unwrap().entry
    }

    async fn value(&self, key: &str) -> Option<String> {
        let entry = self.entry(key).await?;
        Some(String::from_utf8_lossy(&entry.value).into_owned())
    }

    /// Everything under `cilium/`, less the lock.
    async fn everything(&self) -> BTreeMap<String, Entry> {
        let mut entries = self.store.list("cilium/").await.unwrap().entries;
        entries.retain(|key, _| !key.starts_with(key::KVSTOREMESH_LOCK));
        entries
    }

    /// The records that are copied, without `cilium/cache/`.
    async fn records(&self) -> Vec<String> {
        let entries = self.store.list("cilium/cache/").await.unwrap().entries;
        let keys = entries.into_keys();
        keys.map(|key| key["cilium/cache/".len()..].to_owned())
            .collect()
    }

    async fn until_records(&self, records: &[&str]) {
        eventually(&format!("{records:?} are copied"), async || {
            self.records().await == records
        })
        .await;
    }
}

fn configure<'a>(statuses: &Statuses, names: impl IntoIterator<Item = &'a str>) {
    let names = names.into_iter().map(|name| name.try_into().unwrap());
    statuses.configure(&names.collect());
}

/// A peer that publishes exports, with all canaries, in a store of its own.
async fn peer(name: &str, exports: &[&str]) -> Writer<MemoryStore> {
    let mut peer = Writer::new(name, MemoryStore::new(name));
    peer.new_lease().await;
    refill(&mut peer, exports).await;
    peer
}

/// Writes everything of a peer under its lease.
async fn refill(peer: &mut Writer<MemoryStore>, exports: &[&str]) {
    peer.config(2, capable()).await;
    for export in exports {
        peer.export(export, 1).await;
    }
    all_canaries(peer).await;
}

async fn all_canaries(peer: &Writer<MemoryStore>) {
    for kind in Resource::ALL {
        peer.canary(kind).await;
    }
}

fn without_exports() -> Capabilities {
    Capabilities {
        service_exports_enabled: None,
        ..capable()
    }
}

fn name(name: &str) -> ClusterName {
    name.try_into().unwrap()
}

fn canary(peer: &str, kind: Resource) -> String {
    key::canary_key(&name(peer), kind, true)
}

fn export_of(peer: &str, service: &str) -> String {
    format!("cilium/cache/serviceexports/v1/{peer}/shop/{service}")
}
