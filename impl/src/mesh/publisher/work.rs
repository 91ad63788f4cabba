//! The work on one name, and what comes after all names: configuration and canaries.

use tokio_util::sync::CancellationToken;
use tombolo_core::wire::{
    canary,
    key::{self, Resource},
};
use tracing::{debug, info, warn};

use super::{
    super::ledger::Action,
    Keys, Publisher, STORE_RETRY_MAX, State,
    metrics::KeyKind,
    records::{self, Publishing, Record, Records},
};
use crate::{
    kvstore::{Error, KvStore, backoff::Backoff},
    mesh::inquiry::STEP_MAX,
    queue::RETRY_FIRST,
};

impl Keys {
    /// The keys of a cluster.
    pub(super) fn of(publishing: &Publishing) -> Self {
        let cluster = &publishing.cluster;
        Self {
            services: key::services_prefix(cluster, false),
            exports: key::service_exports_prefix(cluster, false),
            canaries: key::canaries_prefix(cluster),
            config: key::cluster_config_key(cluster),
        }
    }

    /// The name that the key of a record is about.
    pub(super) fn suffix<'a>(&self, key: &'a str) -> Option<&'a str> {
        let service = key.strip_prefix(self.services.as_str());
        service.or_else(|| key.strip_prefix(self.exports.as_str()))
    }
}

/// A key that comes after all records.
struct Last {
    kind: KeyKind,
    key: String,
    value: Vec<u8>,
}

impl<S: KvStore> Publisher<S> {
    /// One worker: takes dirty names until cancelled, and finishes the one in hand.
    pub(super) async fn work(&self, cancel: &CancellationToken) {
        let pulses = self.options.view.inquiries().pulses();
        let pulse = pulses.part("publisher of records", STEP_MAX);
        loop {
            let suffix = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                suffix = self.queue.next() => suffix,
            };
            let _work = pulse.begin();
            match self.publish(&suffix).await {
                Ok(()) => self.queue.done(&suffix),
                Err(error) => {
                    self.note_failure(error.reason(), &error);
                    let delay = self.queue.retry(&suffix);
                    warn!(name = suffix, %error, ?delay, "cannot publish; trying again");
                }
            }
            if self.queue.is_empty() {
                self.finish.notify_one();
            }
        }
    }

    /// Brings the records of one name to what they should be. Does nothing while the store is not listed: the list marks
    /// everything dirty again.
    async fn publish(&self, suffix: &str) -> Result<(), Error> {
        let Some(records) = self.wanted(suffix) else {
            return Ok(());
        };
        let service = format!("{}{suffix}", self.keys.services);
        let export = format!("{}{suffix}", self.keys.exports);
        self.bring(KeyKind::Service, &service, records.service)
            .await?;
        self.bring(KeyKind::ServiceExport, &export, records.export)
            .await
    }

    /// What should be stored about a name, as far as it is known.
    fn wanted(&self, suffix: &str) -> Option<Records> {
        let (services_ready, exports_ready) = {
            let state = self.state();
            if !state.listed {
                return None;
            }
            (state.services_ready, state.exports_ready)
        };
        let mut records = records::build(&self.options.publishing, &self.caches.observe(suffix));
        self.state().left_out.note(suffix, &records.skipped);
        for error in &records.skipped {
            self.options.metrics.failed(error.reason());
            warn!(name = suffix, %error, "left out");
        }
        if !services_ready {
            records.service = Record::Unknown;
        }
        if !exports_ready {
            records.export = Record::Unknown;
        }
        Some(records)
    }

    async fn bring(&self, kind: KeyKind, key: &str, record: Record) -> Result<(), Error> {
        let (action, went) = {
            let mut state = self.state();
            let action = state.ledger.decide(key, record);
            (action, state.lent_gone.remove(key))
        };
        match action {
            Action::Nothing => {}
            Action::Put(_) if went => self.take_over(),
            Action::Put(value) => {
                let revision = self.leases.put(key, value.clone()).await?;
                self.options.metrics.put(kind);
                debug!(key, revision, bytes = value.len(), "published");
                self.state().ledger.written(key, value, revision);
            }
            Action::Delete => {
                let (revision, _) = self.leases.delete(key).await?;
                self.options.metrics.deleted(kind);
                debug!(key, revision, "withdrawn");
                self.state().ledger.deleted(key, revision);
            }
        }
        Ok(())
    }

    /// Writes configuration and canaries whenever all records are written and one of them is missing.
    pub(super) async fn finish_incarnations(&self) {
        let mut backoff = Backoff::new(RETRY_FIRST, STORE_RETRY_MAX);
        loop {
            match self.finish_incarnation().await {
                Ok(()) => {
                    backoff.reset();
                    self.finish.notified().await;
                }
                Err(error) => {
                    self.note_failure(error.reason(), &error);
                    warn!(%error, "cannot write configuration or canaries; trying again");
                    tokio::time::sleep(backoff.wait()).await;
                }
            }
        }
    }

    pub(super) async fn finish_incarnation(&self) -> Result<(), Error> {
        loop {
            let (last, fence) = {
                let state = self.state();
                let Some(last) = self.next_last(&state) else {
                    if self.is_complete(&state) {
                        self.open_gate(true);
                    }
                    return Ok(());
                };
                (last, state.fence.lease())
            };
            let written = match last.kind {
                KeyKind::Canary => self.store.put(&last.key, last.value.clone(), fence).await,
                KeyKind::Service | KeyKind::ServiceExport | KeyKind::ClusterConfig => {
                    self.leases.put(&last.key, last.value.clone()).await
                }
            };
            let revision = match written {
                Ok(revision) => revision,
                Err(Error::LeaseNotFound { .. }) => {
                    self.lose_store();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            self.options.metrics.put(last.kind);
            info!(key = last.key, revision, "published");
            let mut state = self.state();
            // A canary on a lease that was outdated meanwhile is not what readers wait for.
            if !matches!(last.kind, KeyKind::Canary) || state.fence.lease() == fence {
                state.ledger.written(&last.key, last.value, revision);
            }
        }
    }

    /// A record that is wanted went with the lease of another publisher: everything that it left is written again, and then the
    /// canaries, on a new lease, so that readers learn that this writer lives.
    fn take_over(&self) {
        warn!("keys went with the lease of another publisher; writing them again");
        self.state().fence.outdate();
        self.lose_store();
    }

    /// The store is not the one that was listed: list it anew.
    pub(super) fn lose_store(&self) {
        self.state().listed = false;
        self.restart.notify_one();
    }

    /// The next key to be written after the records, if it is time for one.
    fn next_last(&self, state: &State) -> Option<Last> {
        if !state.listed {
            return None;
        }
        let flushed = state.services_ready && self.queue.is_empty();
        let config = if flushed {
            Record::Present(self.config())
        } else {
            Record::Unknown
        };
        if let Action::Put(value) = state.ledger.decide(&self.keys.config, config) {
            return Some(Last {
                kind: KeyKind::ClusterConfig,
                key: self.keys.config.clone(),
                value,
            });
        }
        if !flushed || state.fence.lease().is_none() {
            return None;
        }
        let now = jiff::Timestamp::now();
        due_canaries(state.exports_ready)
            .map(|resource| canary::encode(&self.options.publishing.cluster, resource, now))
            .find(|(key, _)| !state.ledger.holds_ours(key))
            .map(|(key, value)| Last {
                kind: KeyKind::Canary,
                key,
                value,
            })
    }

    /// Whether everything that is known is published. A missing kind of exports holds back no services, and so no
    /// readiness either.
    pub(super) fn is_complete(&self, state: &State) -> bool {
        let stands = |resource| {
            let key = key::canary_key(&self.options.publishing.cluster, resource, false);
            state.ledger.holds_ours(&key)
        };
        state.listed && state.services_ready && due_canaries(state.exports_ready).all(stands)
    }
}

/// The kinds that are known completely, once services are. Of the kinds that are not published, nothing is everything.
fn due_canaries(exports_ready: bool) -> impl Iterator<Item = Resource> {
    Resource::ALL
        .into_iter()
        .filter(move |resource| match resource {
            Resource::ServiceExports => exports_ready,
            Resource::Services
            | Resource::EndpointSlices
            | Resource::Nodes
            | Resource::Identities
            | Resource::Ip => true,
        })
}
