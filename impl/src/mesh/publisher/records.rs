//! What a cluster publishes about one name: from its objects to the bytes of its records. Pure.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use thiserror::Error;
use tombolo_api::{keys, v1beta1::ServiceExport};
use tombolo_core::{
    export::{ExportVerdict, Refusal, ServiceFacts, evaluate, global_service},
    names::{ClusterId, ClusterName},
    wire::{self, cluster_service, service_export},
};

use crate::cluster::facts;
pub use crate::mesh::ledger::Record;

/// Largest value that is published, in bytes: etcd's limit holds for the whole request, so room is left for key and framing.
const VALUE_MAX_BYTES: usize = wire::MAX_VALUE_BYTES - 4 * 1024;

/// Who publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publishing {
    /// Name of this cluster.
    pub cluster: ClusterName,
    /// Its id.
    pub id: ClusterId,
    /// Whether namespaces without annotation are global.
    pub default_global_namespace: bool,
}

/// The objects of one namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The namespace.
    pub namespace: Option<Arc<Namespace>>,
    /// The Service of that name.
    pub service: Option<Arc<Service>>,
    /// The ServiceExport of that name.
    pub export: Option<Arc<ServiceExport>>,
    /// The Service's slices.
    pub slices: Vec<Arc<EndpointSlice>>,
}

/// What should be stored about one name, and what could not be understood on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// The `services` record.
    pub service: Record,
    /// The `serviceexports` record.
    pub export: Record,
    /// Objects, or parts, that were left out.
    pub skipped: Vec<Error>,
}

/// Why an object was left out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// It cannot be understood.
    #[error(transparent)]
    Object(#[from] facts::Error),
    /// Its record is larger than the store takes.
    #[error(
        "{record} {name}: {size} bytes, at most {VALUE_MAX_BYTES} can be published; use fewer endpoints or shorter annotations"
    )]
    TooLarge {
        /// The kind of record.
        record: &'static str,
        /// Namespace and name.
        name: String,
        /// Its size in bytes.
        size: usize,
    },
}

impl Error {
    /// Short name for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Object(error) => error.reason(),
            Self::TooLarge { .. } => "TooLarge",
        }
    }
}

/// The records of one name.
pub fn build(publishing: &Publishing, observed: &Observed) -> Records {
    let mut skipped = Vec::new();
    let service = match observed.service.as_deref().map(facts::service).transpose() {
        Ok(service) => service,
        Err(error) => {
            let offered = is_offered(observed);
            return Records {
                service: Record::Unknown,
                export: Record::Unknown,
                skipped: offered.then(|| error.into()).into_iter().collect(),
            };
        }
    };
    Records {
        service: service_record(publishing, observed, service.as_ref(), &mut skipped),
        export: export_record(publishing, observed, service.as_ref(), &mut skipped),
        skipped,
    }
}

fn is_global(publishing: &Publishing, observed: &Observed) -> bool {
    let namespace = observed.namespace.as_deref();
    facts::namespace_is_global(namespace, publishing.default_global_namespace)
}

/// Whether somebody asks for a name to be published.
fn is_offered(observed: &Observed) -> bool {
    let service = observed.service.as_deref();
    let annotations = service.and_then(|service| service.metadata.annotations.as_ref());
    let marks = [keys::GLOBAL, keys::GLOBAL_ALIAS];
    observed.export.is_some()
        || annotations.is_some_and(|it| marks.iter().any(|mark| it.contains_key(*mark)))
}

fn service_record(
    publishing: &Publishing,
    observed: &Observed,
    service: Option<&ServiceFacts>,
    skipped: &mut Vec<Error>,
) -> Record {
    let Some(service) = service else {
        return Record::Absent;
    };
    let mut slices = Vec::new();
    for slice in &observed.slices {
        match facts::endpoint_slice(slice) {
            Ok(slice) => slices.push(slice),
            Err(error) => skipped.push(error.into()),
        }
    }
    let global = is_global(publishing, observed);
    let record = global_service(&publishing.cluster, publishing.id, global, service, &slices);
    record.map_or(Record::Absent, |record| {
        let (_, value) = cluster_service::encode(&record);
        sized("Service", service, value, skipped)
    })
}

fn export_record(
    publishing: &Publishing,
    observed: &Observed,
    service: Option<&ServiceFacts>,
    skipped: &mut Vec<Error>,
) -> Record {
    let export = match observed
        .export
        .as_deref()
        .map(facts::service_export)
        .transpose()
    {
        Ok(export) => export,
        Err(error) => {
            skipped.push(error.into());
            return Record::Unknown;
        }
    };
    let global = is_global(publishing, observed);
    match evaluate(&publishing.cluster, global, service, export.as_ref()) {
        ExportVerdict::Exported(spec) => {
            let (_, value) = service_export::encode(&spec);
            service.map_or(Record::Absent, |service| {
                sized("ServiceExport", service, value, skipped)
            })
        }
        ExportVerdict::Refused(
            Refusal::NamespaceNotGlobal
            | Refusal::NoServiceExport
            | Refusal::NoService
            | Refusal::InvalidServiceType
            | Refusal::InvalidExportedLabels
            | Refusal::InvalidExportedAnnotations,
        ) => Record::Absent,
    }
}

fn sized(
    record: &'static str,
    service: &ServiceFacts,
    value: Vec<u8>,
    skipped: &mut Vec<Error>,
) -> Record {
    if value.len() <= VALUE_MAX_BYTES {
        return Record::Present(value);
    }
    skipped.push(Error::TooLarge {
        record,
        name: service.name.to_string(),
        size: value.len(),
    });
    Record::Unknown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn publishing() -> Publishing {
        Publishing {
            cluster: "paris".try_into().unwrap(),
            id: 7.try_into().unwrap(),
            default_global_namespace: true,
        }
    }

    fn global_service(spec: serde_json::Value) -> Observed {
        let metadata = json!({
            "namespace": "shop", "name": "cart",
            "annotations": {"service.cilium.io/global": "true"},
        });
        let service = json!({"metadata": metadata, "spec": spec});
        Observed {
            namespace: Some(Arc::default()),
            service: Some(Arc::new(serde_json::from_value(service).unwrap())),
            ..Observed::default()
        }
    }

    fn slice(name: &str, addresses: impl IntoIterator<Item = String>) -> Arc<EndpointSlice> {
        let endpoints: Vec<_> = addresses
            .into_iter()
            .map(|address| json!({"addresses": [address], "zone": "z".repeat(60)}))
            .collect();
        let slice = json!({
            "metadata": {"namespace": "shop", "name": name},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [],
        });
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn nothing_is_published_about_a_name_without_objects() {
        let records = build(&publishing(), &Observed::default());

        assert_eq!(records.service, Record::Absent);
        assert_eq!(records.export, Record::Absent);
        assert_eq!(records.skipped, []);
    }

    #[test]
    fn a_slice_that_cannot_be_understood_does_not_hold_back_the_others() {
        let mut observed = global_service(json!({"clusterIP": "10.0.0.1"}));
        observed.slices = vec![
            slice("bad", ["nope".to_owned()]),
            slice("good", ["10.1.0.1".to_owned()]),
        ];

        let records = build(&publishing(), &observed);

        let Record::Present(value) = records.service else {
            panic!("{records:?}");
        };
        assert!(
            String::from_utf8(value)
                .unwrap()
                .contains("\"10.1.0.1\":{}")
        );
        assert_eq!(records.skipped.len(), 1);
    }

    #[test]
    fn a_service_that_cannot_be_understood_leaves_what_is_stored() {
        let observed = global_service(json!({"trafficDistribution": "PreferMoon"}));

        let records = build(&publishing(), &observed);

        assert_eq!(records.service, Record::Unknown);
        assert_eq!(records.export, Record::Unknown);
        assert_eq!(records.skipped[0].reason(), "UnknownValue");
    }

    #[test]
    fn a_service_that_nobody_offers_is_not_complained_about() {
        let mut observed = global_service(json!({"trafficDistribution": "PreferMoon"}));
        let mut service = observed.service.as_deref().unwrap().clone();
        service.metadata.annotations = None;
        observed.service = Some(Arc::new(service));

        let records = build(&publishing(), &observed);

        assert_eq!(records.service, Record::Unknown);
        assert_eq!(records.skipped, []);
    }

    #[test]
    fn a_record_that_the_store_would_refuse_is_not_offered_to_it() {
        let mut observed = global_service(json!({"clusterIP": "10.0.0.1"}));
        let addresses = (0..20_000).map(|n| format!("10.1.{}.{}", n / 250, n % 250));
        observed.slices = vec![slice("large", addresses)];

        let records = build(&publishing(), &observed);

        assert_eq!(records.service, Record::Unknown);
        assert_eq!(records.skipped[0].reason(), "TooLarge");
    }
}
