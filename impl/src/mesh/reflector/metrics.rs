//! Counters of what was written into the store.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tombolo_core::names::ClusterName;

use crate::telemetry::series::Announced;

type Labels = Vec<(&'static str, String)>;

/// Counters of the reflector. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    puts: Family<Labels, Counter>,
    deletes: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    leading: Gauge,
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

    /// Whether this replica copies from now on.
    pub(super) fn leads(&self, leads: bool) {
        self.leading.set(leads.into());
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
