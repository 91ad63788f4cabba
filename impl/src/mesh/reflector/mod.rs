//! Copies what peers publish into this cluster's own store, where its operator and agents read it: Cilium's kvstoremesh.
//!
//! Each peer then has one reader in this cluster, and what it said survives that it goes away. Values are copied byte for byte
//! and never looked at, broken ones included: they are for the readers to judge. A copy goes only by [`Evidence`], as rows do.
//!
//! | of the peer | in this cluster's store |
//! |---|---|
//! | `cilium/cluster-config/C` | the same key, `cached` and `syncedCanaries` set |
//! | `cilium/state/K/v1/C/…` | `cilium/cache/K/v1/C/…` |
//! | `cilium/state/identities/v1/id/…` | `cilium/cache/identities/v1/C/id/…` |
//! | `cilium/state/ip/v1/default/…` | `cilium/cache/ip/v1/C/…` |
//! | `cilium/synced/C/cilium/state/K/v1` | `cilium/synced/C/cilium/cache/K/v1`, once everything of the kind is written |
//!
//! Of several processes on one store one writes, the one that holds the lock (`impl/src/kvstore/mutex.rs`). It begins with what
//! the store holds and keeps the leases of an earlier life alive, so that a restart writes only what differs.
//!
//! [`Evidence`]: tombolo_core::evidence::Evidence

mod backlog;
mod copies;
mod election;
mod keys;
mod metrics;
mod readiness;
mod reflection;
mod session;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod writer;

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    election::{LOCK_TTL, STANDBY_AFTER, Times},
    reflection::Reflection,
    writer::Writer,
};
pub use self::{metrics::Metrics, readiness::Patience, view::View};
use super::{
    config_dir,
    peer::LocalCluster,
    peering::{Follow, follow_peers},
    remote_cluster,
    statuses::Statuses,
};
use crate::{
    kvstore::{self, KvStore, fenced::Fenced, mutex::Lock},
    telemetry::health::Gate,
};

/// How long the copy of a peer stays that was taken out of the configuration. Cilium's grace: 3 min.
pub const DRAIN_GRACE: Duration = Duration::from_mins(3);

/// Longest wait for the lock to be given back when stopping; its lease ends it otherwise.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the reflector has to be told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory with one file per peer, in Cilium's format.
    pub config_dir: PathBuf,
    /// This cluster.
    pub local: LocalCluster,
    /// How the peers are followed.
    pub peers: remote_cluster::Options,
    /// Lifetime of the leases. 15 min is Cilium's `--kvstore-lease-ttl`.
    pub lease_ttl: Duration,
    /// How long the copy of a peer stays that was taken out of the configuration ([`DRAIN_GRACE`]); none: for good.
    pub drain_grace: Option<Duration>,
    /// How long peers are waited for before the copies are offered.
    pub patience: Patience,
    /// Counters, to be registered by the caller.
    pub metrics: Metrics,
    /// What is seen of the copies from outside.
    pub view: View,
    /// Where the peers' status is told.
    pub statuses: Statuses,
    /// Opened when the copies are ready to be read, or this process is a standby.
    pub gate: Option<Gate>,
}

/// Why the reflector ended other than by being told to.
#[derive(Debug, Error)]
pub enum Error {
    /// Another process may hold the lock now: nothing is written any more.
    #[error("the copies of the peers are no longer this process's to write: {0}")]
    LockLost(#[source] kvstore::Error),
    /// The directory of the peers cannot be read or watched.
    #[error(transparent)]
    ConfigDir(#[from] config_dir::Error),
}

impl Error {
    /// Short name for metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::LockLost(error) => error.reason(),
            Self::ConfigDir(_) => "ConfigDir",
        }
    }
}

/// Waits for the lock, then copies until cancelled. Copies stay when it ends, whatever the reason.
pub async fn run(
    store: impl KvStore,
    options: Options,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let times = Times {
        lock_ttl: LOCK_TTL,
        standby_after: STANDBY_AFTER,
    };
    let elected = election::elect(&store, times, options.gate.as_ref(), &options.view);
    let Some(lock) = cancel.run_until_cancelled(elected).await else {
        return Ok(());
    };
    let reflection = Reflection::new(options.drain_grace);
    let (dir, stop) = (options.config_dir.clone(), cancel.clone());
    let follow = Follow {
        local: options.local.clone(),
        records: reflection.clone(),
        statuses: options.statuses.clone(),
        options: options.peers,
    };
    let follow = follow_peers(dir, follow, stop);
    let outcome = reflect(&lock, reflection, &options, follow, &cancel).await;
    if outcome.is_ok() {
        let released = tokio::time::timeout(RELEASE_TIMEOUT, lock.release()).await;
        if !matches!(released, Ok(Ok(()))) {
            warn!("the lock of the copies could not be given back; it ends with its lease");
        }
    }
    outcome
}

/// Copies what `follow` brings, for as long as the lock is held.
async fn reflect<S: KvStore>(
    lock: &Lock<S>,
    reflection: Reflection,
    options: &Options,
    follow: impl Future<Output = Result<(), config_dir::Error>>,
    cancel: &CancellationToken,
) -> Result<(), Error> {
    let store = Fenced::new(lock);
    let writer = Arc::new(Writer::new(store, reflection.clone(), options));
    let seen: Weak<dyn view::Seen> = Arc::downgrade(&writer) as _;
    options.view.show(seen);
    let follow = async {
        // What the store holds comes first: it is what the peers are known to have said.
        reflection.seeded().await;
        match follow.await {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    let background = join(
        mind_configuration(&reflection, &options.statuses),
        become_ready(&reflection, options),
    );
    options.metrics.leads(true);
    let outcome = tokio::select! {
        biased;
        error = lock.lost() => Err(Error::LockLost(error)),
        outcome = writer.run(cancel) => outcome.map_err(Error::LockLost),
        error = follow => Err(error.into()),
        _ = background => Ok(()),
    };
    options.metrics.leads(false);
    if let Some(gate) = &options.gate {
        gate.set(false);
    }
    info!("stopped copying; what is copied stays");
    outcome
}

/// Tells which peers are configured, whenever that changes; runs for ever.
async fn mind_configuration(reflection: &Reflection, statuses: &Statuses) {
    let mut changes = statuses.changes();
    reflection.seeded().await;
    loop {
        if statuses.is_loaded() {
            let peers = statuses.peers().into_iter();
            reflection.configure(&peers.map(|peer| peer.cluster).collect());
        }
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Opens the gate once the copies are good enough; runs for ever.
async fn become_ready(reflection: &Reflection, options: &Options) {
    readiness::wait(reflection, &options.statuses, options.patience).await;
    if let Some(gate) = &options.gate {
        gate.set(true);
    }
    std::future::pending::<()>().await;
}
