//! Brings the store to what it should hold. Order of one peer: cluster-config, records, canaries.
//!
//! As with the publisher, canaries hang on a lease of their own that was granted before the store was listed, and goes before
//! the records' leases when nobody prolongs them. Every write looks at the lock of the process (see [`crate::kvstore::fenced`]).

use std::{sync::Mutex, time::Duration};

use futures::future::{join, join_all};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tombolo_core::{
    names::ClusterName,
    wire::key::{self, Resource},
};
use tracing::{debug, info, warn};

use super::{
    Options,
    backlog::{Feed, Taken},
    metrics::Metrics,
    reflection::Reflection,
    state::Step,
    view::View,
};
use crate::{
    kvstore::{Error, KvStore, lease::Leases},
    mesh::ledger::Action,
};

/// How many feeds are worked on at once, with up to [`super::backlog::BATCH`] writes each. etcd flushes concurrent writes together.
const WORKERS: usize = 4;

/// How long writes in hand may take after the process was told to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes copies.
#[derive(Debug)]
pub(super) struct Writer<S> {
    pub(super) store: S,
    pub(super) leases: Leases<S>,
    pub(super) lease_ttl: Duration,
    pub(super) reflection: Reflection,
    pub(super) metrics: Metrics,
    pub(super) view: View,
    /// The cluster whose store it is.
    pub(super) local: ClusterName,
    /// The error that says that the lock is lost, and a token that is cancelled when it is there.
    lost: Mutex<Option<Error>>,
    halted: CancellationToken,
}

impl<S: KvStore> Writer<S> {
    pub(super) fn new(store: S, reflection: Reflection, options: &Options) -> Self {
        Self {
            leases: Leases::new(store.clone(), options.lease_ttl),
            store,
            lease_ttl: options.lease_ttl,
            reflection,
            metrics: options.metrics.clone(),
            view: options.view.clone(),
            local: options.local.name.clone(),
            lost: Mutex::default(),
            halted: CancellationToken::new(),
        }
    }

    /// Writes until cancelled, with the writes in hand finished unless they take too long; or until a write finds the lock lost.
    pub(super) async fn run(&self, cancel: &CancellationToken) -> Result<(), Error> {
        let workers = join_all((0..WORKERS).map(|_| self.work(cancel)));
        let background = join(
            join(self.follow_store(), self.take_steps()),
            join(self.recover_lost_keys(), self.reflection.end_graces()),
        );
        tokio::select! {
            _ = workers => {}
            _ = background => {}
            () = self.halted.cancelled() => {}
            () = too_late(cancel) => {
                warn!("writes in hand took too long; they are dropped, and made by the next life");
            }
        }
        let lost = self.lost.lock().ok().and_then(|mut lost| lost.take());
        lost.map_or(Ok(()), Err)
    }

    /// A call to the store failed. When it failed for the lock, nothing is written any more.
    pub(super) fn failed(&self, error: &Error) {
        self.metrics.failed(error.reason());
        self.view.failed(error.reason(), error);
        if matches!(error, Error::LockLost { .. }) {
            if let Ok(mut lost) = self.lost.lock() {
                *lost = Some(error.clone());
            }
            self.halted.cancel();
        }
    }

    /// One worker: takes records that are due until cancelled, and finishes those in hand.
    async fn work(&self, cancel: &CancellationToken) {
        loop {
            let taken = self
                .reflection
                .state()
                .backlog
                .take(tokio::time::Instant::now());
            let (feed, keys) = match taken {
                Taken::Batch(feed, keys) => (feed, keys),
                Taken::Nothing(due) => {
                    let due = async {
                        match due {
                            Some(due) => tokio::time::sleep_until(due).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        () = self.reflection.work() => {}
                        () = due => {}
                    }
                    continue;
                }
            };
            // There may be more for another worker.
            self.reflection.wake();
            let outcomes = join_all(keys.iter().map(|key| self.bring(&feed, key))).await;
            self.settle(&feed, outcomes);
            if cancel.is_cancelled() {
                return;
            }
        }
    }

    fn settle(&self, feed: &Feed, outcomes: Vec<Result<(), Error>>) {
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        for error in &failures {
            self.failed(error);
        }
        if let Some(error) = failures.first() {
            let (peer, kind) = feed;
            warn!(%peer, kind = kind.name(), %error, reason = error.reason(), failed = failures.len(), "cannot copy; trying again");
        }
        let mut state = self.reflection.state();
        let now = tokio::time::Instant::now();
        state.backlog.settle(feed, !failures.is_empty(), now);
        let idle = state.backlog.is_idle(feed);
        drop(state);
        if idle {
            self.reflection.steps().add(feed.0.clone());
        } else {
            self.reflection.wake();
        }
        self.reflection.progressed();
    }

    /// Brings one record to what it should be, if that is known and nothing has to come before.
    async fn bring(&self, feed: &Feed, key: &str) -> Result<(), Error> {
        let action = self.reflection.state().decide(feed, key);
        let outcome = match action {
            Action::Nothing => return Ok(()),
            Action::Put(value) => {
                let written = self.leases.put(key, value.to_vec()).await;
                written.map(|revision| {
                    self.metrics.put(&feed.0, feed.1.name());
                    debug!(peer = %feed.0, key, revision, bytes = value.len(), "copied");
                    let mut state = self.reflection.state();
                    state.ledger.written(key, value, revision);
                })
            }
            Action::Delete => self.leases.delete(key).await.map(|(revision, _)| {
                self.metrics.deleted(&feed.0, feed.1.name());
                debug!(peer = %feed.0, key, revision, "removed");
                self.reflection.state().ledger.deleted(key, revision);
            }),
        };
        // What the peer says may have changed in the meantime; what failed is still to be done.
        self.reflection.state().mark(feed, key);
        outcome
    }

    /// Writes and deletes cluster-configs and canaries, for ever.
    async fn take_steps(&self) {
        let steps = self.reflection.steps();
        loop {
            let peer = steps.next().await;
            match self.take_steps_of(&peer).await {
                Ok(()) => steps.done(&peer),
                Err(error) => {
                    self.failed(&error);
                    let delay = steps.retry(&peer);
                    warn!(%peer, %error, reason = error.reason(), ?delay, "cannot write a cluster-config or canary; trying again");
                }
            }
            self.reflection.progressed();
        }
    }

    async fn take_steps_of(&self, peer: &ClusterName) -> Result<(), Error> {
        loop {
            let Some(step) = self.reflection.state().next_step(peer) else {
                return Ok(());
            };
            match step {
                Step::DropCanary(kind) => {
                    let key = key::canary_key(peer, kind, true);
                    self.drop_key(peer, &key, "canary").await?;
                    let mut state = self.reflection.state();
                    state.settle_canary(peer, kind);
                    state.mark_kind(peer, kind);
                    drop(state);
                    self.reflection.wake();
                }
                Step::PutConfig(config) => {
                    let key = key::cluster_config_key(peer);
                    let revision = self.leases.put(&key, config.to_vec()).await?;
                    info!(%peer, key, revision, "copied the cluster-config");
                    self.metrics.put(peer, "clusterconfig");
                    let mut state = self.reflection.state();
                    state.ledger.written(&key, config, revision);
                    state.mark_peer(peer);
                    drop(state);
                    self.reflection.wake();
                }
                Step::DropConfig => {
                    let key = key::cluster_config_key(peer);
                    self.drop_key(peer, &key, "clusterconfig").await?;
                    self.reflection.state().mark_peer(peer);
                    self.reflection.wake();
                }
                Step::PutCanary(kind) => {
                    if !self.put_canary(peer, kind).await? {
                        return Ok(());
                    }
                }
                Step::Forget => {
                    self.reflection.state().copies.forget(peer);
                    info!(%peer, "nothing of the peer is left");
                }
            }
        }
    }

    async fn drop_key(
        &self,
        peer: &ClusterName,
        key: &str,
        kind: &'static str,
    ) -> Result<(), Error> {
        let (revision, _) = self.leases.delete(key).await?;
        info!(%peer, key, revision, "removed");
        self.metrics.deleted(peer, kind);
        self.reflection.state().ledger.deleted(key, revision);
        Ok(())
    }

    /// Writes a canary; false when the store is not the one that was listed.
    async fn put_canary(&self, peer: &ClusterName, kind: Resource) -> Result<bool, Error> {
        let key = key::canary_key(peer, kind, true);
        let fence = self.reflection.state().fence.lease();
        let Some(fence) = fence else {
            self.reflection.state().settle_canary(peer, kind);
            return Ok(false);
        };
        let value = tombolo_core::wire::canary::value(Timestamp::now());
        match self.store.put(&key, value.clone(), Some(fence)).await {
            Ok(revision) => {
                info!(%peer, key, revision, "everything of the kind is copied");
                self.metrics.put(peer, "canary");
                let mut state = self.reflection.state();
                // A canary on a lease that was outdated meanwhile is not what readers wait for.
                let stands = state.fence.lease() == Some(fence);
                if stands {
                    state.ledger.written(&key, value.into(), revision);
                    state.settle_canary(peer, kind);
                }
                Ok(stands)
            }
            Err(Error::LeaseNotFound { .. }) => {
                self.reflection.state().settle_canary(peer, kind);
                self.reflection.lose_store();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes keys again that went with a lease, and after them the canaries on a new lease of their own, for ever: so readers,
    /// who take the keys for lost and not for deleted, learn that the writer lives.
    async fn recover_lost_keys(&self) {
        loop {
            let lost = self.leases.lost().await;
            warn!(
                keys = lost.len(),
                "keys went with a lease; writing them again"
            );
            let mut state = self.reflection.state();
            for key in &lost {
                state.ledger.forget(key);
            }
            state.fence.outdate();
            state.listed = false;
            drop(state);
            self.reflection.lose_store();
        }
    }
}

async fn too_late(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(STOP_TIMEOUT).await;
}
