//! Cilium's metrics of MCS-API objects, under Cilium's names and labels, so that its alerts and dashboards go on working:
//! `cilium_operator_mcsapi_*`, the five of Cilium 1.20. All are gauges, made of the caches when they are asked for; so what
//! belongs to an object goes with it.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, registry::Registry};

use super::context::Caches;
use crate::{
    cluster::cache::{Cache, Cached},
    telemetry::series::Metric,
};

/// What the metrics of a kind are called.
struct Kind {
    /// The label with the object's name.
    label: &'static str,
    info: Metric,
    condition: Metric,
}

const EXPORT: Kind = Kind {
    label: "serviceexport",
    info: Metric::new(
        "cilium_operator_mcsapi_serviceexport_info",
        "A ServiceExport of this cluster",
    ),
    condition: Metric::new(
        "cilium_operator_mcsapi_serviceexport_status_condition",
        "A condition of a ServiceExport of this cluster, as its status has it",
    ),
};

const IMPORT: Kind = Kind {
    label: "serviceimport",
    info: Metric::new(
        "cilium_operator_mcsapi_serviceimport_info",
        "A ServiceImport of this cluster",
    ),
    condition: Metric::new(
        "cilium_operator_mcsapi_serviceimport_status_condition",
        "A condition of a ServiceImport of this cluster, as its status has it",
    ),
};

const CLUSTERS: Metric = Metric::new(
    "cilium_operator_mcsapi_serviceimport_status_clusters",
    "Clusters that back a ServiceImport of this cluster",
);

/// Shows the metrics of what these caches hold.
pub fn register(registry: &mut Registry, caches: &Caches) {
    registry.register_collector(Box::new(McsApi(caches.clone())));
}

#[derive(Debug)]
struct McsApi(Caches);

impl Collector for McsApi {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (exports, imports) = (&self.0.exports, &self.0.imports);
        objects(&mut encoder, &EXPORT, exports, |export| {
            export.status.as_ref()?.conditions.as_deref()
        })?;
        objects(&mut encoder, &IMPORT, imports, |import| {
            import.status.as_ref()?.conditions.as_deref()
        })?;
        let mut clusters = CLUSTERS.gauge(&mut encoder)?;
        for import in imports.all() {
            let status = import.status.as_ref();
            let count = status.and_then(|status| status.clusters.as_ref().map(Vec::len));
            clusters.set(&labels_of(&IMPORT, &*import), count.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The two metrics that both kinds have.
fn objects<K: Cached>(
    encoder: &mut DescriptorEncoder<'_>,
    kind: &Kind,
    cache: &Cache<K>,
    conditions: impl Fn(&K) -> Option<&[Condition]>,
) -> Result<(), fmt::Error> {
    let all = cache.all();
    let mut info = kind.info.gauge(encoder)?;
    for it in &all {
        info.set(&labels_of(kind, &**it), 1)?;
    }
    let mut series = kind.condition.gauge(encoder)?;
    for it in &all {
        for condition in conditions(it).unwrap_or_default() {
            let mut labels = labels_of(kind, &**it);
            labels.push(("condition", condition.type_.clone()));
            labels.push(("status", condition.status.clone()));
            labels.push(("reason", condition.reason.clone()));
            series.set(&labels, 1)?;
        }
    }
    Ok(())
}

fn labels_of<K: Resource<DynamicType = ()>>(kind: &Kind, it: &K) -> Vec<(&'static str, String)> {
    vec![
        (kind.label, it.name_any()),
        ("namespace", it.namespace().unwrap_or_default()),
    ]
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
