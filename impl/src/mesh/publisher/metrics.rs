//! Counters of what was written into the store.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::telemetry::series::Announced;

/// Counters of the publisher. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    puts: Family<Kind, Counter>,
    deletes: Family<Kind, Counter>,
    failures: Family<Failure, Counter>,
}

/// Kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum KeyKind {
    Service,
    ServiceExport,
    ClusterConfig,
    Canary,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: KeyKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    reason: &'static str,
}

impl Metrics {
    /// Counters that are shown by the registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("tombolo_publisher");
        registry.register("puts", "Keys written", Announced(metrics.puts.clone()));
        registry.register(
            "deletes",
            "Keys deleted",
            Announced(metrics.deletes.clone()),
        );
        registry.register(
            "failures",
            "Objects left out and calls to the store that failed",
            Announced(metrics.failures.clone()),
        );
        metrics
    }

    pub(super) fn put(&self, kind: KeyKind) {
        self.puts.get_or_create(&Kind { kind }).inc();
    }

    pub(super) fn deleted(&self, kind: KeyKind) {
        self.deletes.get_or_create(&Kind { kind }).inc();
    }

    pub(super) fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&Failure { reason }).inc();
    }

    #[cfg(test)]
    pub(super) fn put_count(&self, kind: KeyKind) -> u64 {
        self.puts.get_or_create(&Kind { kind }).get()
    }

    #[cfg(test)]
    pub(super) fn delete_count(&self, kind: KeyKind) -> u64 {
        self.deletes.get_or_create(&Kind { kind }).get()
    }
}
