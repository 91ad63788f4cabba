//! Counters of what the operator does.

use std::sync::Arc;

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::{
    operator::{
        OnReconcile,
        apply::{Controller, OnWrite, Verb},
    },
    telemetry::series::Announced,
};

/// A counter of writes to the API server, by controller and verb.
pub(super) fn count_writes(registry: &mut Registry) -> OnWrite {
    let writes: Family<Vec<(&'static str, &'static str)>, Counter> = Family::default();
    registry.register(
        "tombolo_operator_api_writes",
        "Writes to the API server",
        Announced(writes.clone()),
    );
    Arc::new(move |controller: Controller, verb: Verb| {
        let labels = vec![("controller", controller.as_str()), ("verb", verb.as_str())];
        writes.get_or_create(&labels).inc();
    })
}

/// A counter of names that were worked on, by controller and outcome.
pub(super) fn count_reconciles(registry: &mut Registry) -> OnReconcile {
    let reconciles: Family<Vec<(&'static str, &'static str)>, Counter> = Family::default();
    registry.register(
        "tombolo_operator_reconciles",
        "Names that a controller has worked on",
        Announced(reconciles.clone()),
    );
    Arc::new(move |controller: Controller, outcome: &'static str| {
        let labels = vec![("controller", controller.as_str()), ("outcome", outcome)];
        reconciles.get_or_create(&labels).inc();
    })
}
