//! Counters of what was written into the store.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tombolo_core::names::ClusterName;

use super::reflection::Reflection;
use crate::{status::answer::Copies, telemetry::series::Announced};

type Labels = Vec<(&'static str, String)>;

/// What is copied, while it is.
#[derive(Debug, Clone, Default)]
struct Copying(Arc<Mutex<Option<Reflection>>>);

/// Counters of the reflector. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    puts: Family<Labels, Counter>,
    deletes: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    leading: Gauge,
    copying: Copying,
}

impl Metrics {
    /// Counters that are shown by the registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("tombolo_reflector");
        registry.register("puts", "Copies written", Announced(metrics.puts.clone()));
        registry.register(
            "deletes",
            "Copies deleted",
            Announced(metrics.deletes.clone()),
        );
        registry.register(
            "failures",
            "Calls to this cluster's store that failed",
            Announced(metrics.failures.clone()),
        );
        registry.register(
            "leader_election_master_status",
            "Whether this process holds the lock and writes: 1, or stands by: 0",
            metrics.leading.clone(),
        );
        metrics
    }

    pub(super) fn put(&self, peer: &ClusterName, kind: &'static str) {
        self.puts.get_or_create_owned(&labels(peer, kind)).inc();
    }

    pub(super) fn deleted(&self, peer: &ClusterName, kind: &'static str) {
        self.deletes.get_or_create_owned(&labels(peer, kind)).inc();
    }

    pub(super) fn failed(&self, reason: &'static str) {
        let labels = vec![("reason", reason.to_owned())];
        self.failures.get_or_create_owned(&labels).inc();
    }

    /// What a replica that stands by, or copies, says of that when it is asked.
    pub fn copies(&self) -> Copies {
        let copying = self
            .copying
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waiting = copying.as_ref().map(|of| of.state().backlog.waiting());
        Copies {
            leads: waiting.is_some(),
            waiting: u64::try_from(waiting.unwrap_or_default()).unwrap_or(u64::MAX),
        }
    }

    /// This replica copies from now on; or, without, does not any more.
    pub(super) fn leads(&self, copying: Option<Reflection>) {
        self.leading.set(copying.is_some().into());
        *self
            .copying
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = copying;
    }

    #[cfg(test)]
    pub(super) fn writes(&self, peer: &ClusterName, kind: &'static str) -> (u64, u64) {
        let labels = labels(peer, kind);
        (
            self.puts.get_or_create_owned(&labels).get(),
            self.deletes.get_or_create_owned(&labels).get(),
        )
    }
}

fn labels(peer: &ClusterName, kind: &'static str) -> Labels {
    vec![("cluster", peer.to_string()), ("kind", kind.to_owned())]
}
