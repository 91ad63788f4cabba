//! Publishes this cluster's exports and global services into its own etcd.
//!
//! Level-triggered: an event only marks a name dirty; the work compares what should be stored about it with what is stored.
//! Everything is written under leases. It must never delete a key because something could not be read: as long as the API
//! server or a kind is unknown, what is stored stays. Stopping deletes and revokes nothing.
//!
//! Order within one incarnation of the store: records, then the cluster's configuration, then canaries. The canaries hang on a
//! lease of their own that was granted before the store was listed. If the store is lost in between, writing them fails, so that
//! no canary ever vouches for records that went with another incarnation. That lease is shorter than the records' lease: when
//! a publisher dies, its canaries go first, and peers can tell the end of its leases from deletions.
//!
//! Kinds that are not published (nodes, identities, IP addresses, EndpointSlices) get their canaries too: readers of Cilium
//! wait for them, and no keys is then the truth about them.

mod caches;
mod left_out;
mod metrics;
pub mod records;
mod session;
mod view;
mod work;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::future::{join, join_all};
use kube::Client;
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tombolo_core::wire::{
    canary,
    cluster_config::{self, Capabilities, ClusterConfig, EndpointSlicesExportMode},
    key::HEARTBEAT,
};
use tracing::{info, warn};

use self::{caches::Caches, left_out::LeftOut, records::Publishing};
pub use self::{metrics::Metrics, view::View};
use super::ledger::Ledger;
use crate::{
    kvstore::{
        KvStore,
        lease::{Fence, Leases},
    },
    queue::{Queue, RETRY_MAX},
    telemetry::health::Gate,
};

/// How often the heartbeat is written. 1 min, as Cilium's `HeartbeatWriteInterval`; readers give up after twice that.
const HEARTBEAT_INTERVAL: Duration = Duration::from_mins(1);

/// Pause after a heartbeat that could not be written.
const HEARTBEAT_RETRY: Duration = Duration::from_secs(2);

/// How long writes in hand may take after the publisher was told to stop. An etcd that answers needs milliseconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How many names are worked on at once. etcd flushes concurrent writes together.
const WORKERS: usize = 16;

/// What the publisher has to be told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who publishes.
    pub publishing: Publishing,
    /// Size of the mesh's id space, 255 or 511.
    pub max_connected_clusters: u32,
    /// Lifetime of the leases. 15 min is Cilium's `--kvstore-lease-ttl`.
    pub lease_ttl: Duration,
    /// Counters, to be registered by the caller.
    pub metrics: Metrics,
    /// What is seen of the publisher from outside.
    pub view: View,
    /// Opened when everything that is known is published, closed while the store is away and when stopping.
    pub gate: Option<Gate>,
}

/// Why the publisher ended other than by being told to.
#[derive(Debug, Error)]
pub enum Error {
    /// The watches of the API server ended, which they never do by themselves.
    #[error("the watches of this cluster's objects ended; restart the process")]
    WatchEnded,
}

/// Publishes until cancelled. Failures of the API server and of the store are logged and retried for ever.
pub async fn run(
    client: Client,
    store: impl KvStore,
    options: Options,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let view = options.view.clone();
    let publisher = Arc::new(Publisher::new(store, options));
    let seen: Weak<dyn view::Seen> = Arc::downgrade(&publisher) as _;
    view.show(seen);
    let watches = Box::pin(publisher.caches.run(client, &publisher.queue));
    tokio::select! {
        () = watches => Err(Error::WatchEnded),
        () = Box::pin(publisher.run(&cancel)) => Ok(()),
    }
}

/// The publisher's parts. The part of a key after its prefix, `namespace/name`, is what work is about.
struct Publisher<S> {
    options: Options,
    keys: Keys,
    store: S,
    leases: Leases<S>,
    caches: Caches,
    queue: Queue<String>,
    state: Mutex<State>,
    finish: Notify,
    restart: Notify,
    beat: Notify,
}

/// Prefixes and keys that belong to this cluster.
struct Keys {
    services: String,
    exports: String,
    canaries: String,
    config: String,
}

/// What is known; changed only under its lock, which is never held over an await.
#[derive(Default)]
struct State {
    ledger: Ledger,
    /// Whether the ledger holds what the store holds.
    listed: bool,
    /// Whether services, slices and namespaces were listed.
    services_ready: bool,
    /// Whether exports, services and namespaces were listed.
    exports_ready: bool,
    /// The lease of the canaries.
    fence: Fence,
    /// What cannot be published as it is.
    left_out: LeftOut,
    /// Keys that went after they were left to another publisher: deleted by it, or gone with its lease.
    lent_gone: BTreeSet<String>,
}

impl<S: KvStore> Publisher<S> {
    fn new(store: S, options: Options) -> Self {
        Self {
            keys: Keys::of(&options.publishing),
            leases: Leases::new(store.clone(), options.lease_ttl),
            caches: Caches::new(&options.publishing),
            queue: Queue::new(),
            state: Mutex::default(),
            finish: Notify::new(),
            restart: Notify::new(),
            beat: Notify::new(),
            store,
            options,
        }
    }

    /// Everything but the watches of the API server. Returns when cancelled, with the writes in hand finished unless they
    /// take too long.
    async fn run(&self, cancel: &CancellationToken) {
        let workers = join_all((0..WORKERS).map(|_| self.work(cancel)));
        let background = join(
            join(self.follow_store(), self.finish_incarnations()),
            join(
                self.recover_lost_keys(),
                join(self.become_ready(), self.beat()),
            ),
        );
        tokio::select! {
            _ = workers => {}
            _ = background => {}
            () = too_late(cancel) => {
                warn!("writes in hand took too long; they are dropped, and written by the next life");
            }
        }
        self.open_gate(false);
        info!("stopped publishing; what is published stays");
    }

    /// Marks everything dirty once it is known: services and exports apart, since the kind of exports may be missing.
    async fn become_ready(&self) {
        let services = async {
            self.caches.services_synced().await;
            self.mark_ready(|state| state.services_ready = true);
        };
        let exports = async {
            self.caches.exports_synced().await;
            self.mark_ready(|state| state.exports_ready = true);
        };
        join(services, exports).await;
        futures::future::pending::<()>().await;
    }

    fn mark_ready(&self, set: impl FnOnce(&mut State)) {
        let mut state = self.state();
        set(&mut state);
        self.mark_all(&state);
    }

    /// Marks every name dirty that exists here or in the store.
    fn mark_all(&self, state: &State) {
        for suffix in self.caches.suffixes() {
            self.queue.add(suffix);
        }
        for key in state.ledger.keys() {
            self.mark(key);
        }
        self.finish.notify_one();
    }

    /// Marks dirty what a key is about.
    fn mark(&self, key: &str) {
        match self.keys.suffix(key) {
            Some(suffix) => self.queue.add(suffix.to_owned()),
            None => self.finish.notify_one(),
        }
    }

    /// Writes keys again that went with a lease, and after them the canaries, on a new lease of their own: that is how readers,
    /// who take the keys for lost and not for deleted, learn that the writer lives and that what is missing now was deleted.
    async fn recover_lost_keys(&self) {
        loop {
            let lost = self.leases.lost().await;
            warn!(
                keys = lost.len(),
                "keys went with a lease; writing them again"
            );
            let mut state = self.state();
            for key in &lost {
                state.ledger.forget(key);
                self.mark(key);
            }
            if lost.contains(HEARTBEAT) {
                self.beat.notify_one();
            }
            state.fence.outdate();
            state.listed = false;
            drop(state);
            self.restart.notify_one();
        }
    }

    /// Writes the heartbeat: first at once, then every minute, and when it was lost.
    async fn beat(&self) {
        loop {
            let (key, value) = canary::heartbeat(jiff::Timestamp::now());
            let pause = match self.leases.put(&key, value).await {
                Ok(_) => HEARTBEAT_INTERVAL,
                Err(error) => {
                    self.note_failure(error.reason(), &error);
                    warn!(%error, "cannot write the heartbeat; trying again");
                    HEARTBEAT_RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.beat.notified() => {}
            }
        }
    }

    /// The configuration that this cluster announces: `services` records, no EndpointSlices.
    fn config(&self) -> Vec<u8> {
        let config = ClusterConfig {
            id: self.options.publishing.id,
            capabilities: Capabilities {
                synced_canaries: true,
                cached: false,
                max_connected_clusters: self.options.max_connected_clusters,
                service_exports_enabled: Some(true),
                endpoint_slices_export_mode: EndpointSlicesExportMode::ServicesOnly,
            },
        };
        cluster_config::encode(&self.options.publishing.cluster, &config).1
    }

    /// Counts a failure, and keeps it for those who ask.
    fn note_failure(&self, reason: &'static str, error: &impl fmt::Display) {
        self.options.metrics.failed(reason);
        self.options.view.failed(reason, error);
    }

    fn open_gate(&self, open: bool) {
        if let Some(gate) = &self.options.gate {
            gate.set(open);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns once writes in hand had the time that they get after the publisher was told to stop.
async fn too_late(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(STOP_TIMEOUT).await;
}

/// Longest pause between attempts to reach the store. Short, since a restarted etcd is back within seconds.
const STORE_RETRY_MAX: Duration = Duration::from_secs(2);
const _: () = assert!(STORE_RETRY_MAX.as_secs() <= RETRY_MAX.as_secs());

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod fence_tests;
#[cfg(test)]
mod heartbeat_tests;
#[cfg(test)]
mod life_tests;
#[cfg(test)]
mod lost_store_tests;
#[cfg(test)]
mod shared_store_tests;
#[cfg(test)]
mod testkit;
