//! Counters of what was written into the store.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tombolo_core::names::ClusterName;

use crate::telemetry::series::Announced;

type Labels = Vec<(&'static str, String)>;

const LEADING: &str = "Whether this process holds the lock and writes: 1, or stands by: 0";

/// Counters of the reflector. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    puts: Family<Labels, Counter>,
    deletes: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    leading: Gauge,
    /// The same under Cilium's name.
    cilium_leading: Family<Labels, Gauge>,
}

impl Metrics {
    /// Counters that are shown by the registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "cilium_kvstoremesh_leader_election_master_status",
            LEADING,
            metrics.cilium_leading.clone(),
        );
        metrics.leads(false);
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
            LEADING,
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
        let labels = vec![("name", "kvstoremesh".to_owned())];
        let cilium = self.cilium_leading.get_or_create_owned(&labels);
        cilium.set(leads.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of the lock, by name and labels.
    fn leading(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let shown = lines.filter(|line| line.contains("leader_election"));
        shown.map(str::to_owned).collect()
    }

    #[test]
    fn who_holds_the_lock_is_shown_under_ciliums_name_too() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let standby = leading(&registry);

        metrics.leads(true);

        let shown = |value| {
            [
                "cilium_kvstoremesh_leader_election_master_status{name=\"kvstoremesh\"}",
                "tombolo_reflector_leader_election_master_status",
            ]
            .map(|name| format!("{name} {value}"))
        };
        assert_eq!(standby, shown(0));
        assert_eq!(leading(&registry), shown(1));
    }
}
