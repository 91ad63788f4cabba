//! What Tombolo makes of a recorded state: from what users and Kubernetes had put into the cluster, and what the peers had
//! published. Nothing that Cilium's controllers had made goes in, but for the addresses that the API server had allotted.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use serde_json::{Value, json};
use tombolo::{
    cluster::facts,
    mesh::publisher::records::{self, Observed, Publishing, Record},
    operator::{
        context::View, derived_service, endpoint_slice_mirror, endpoint_slice_sync, service_export,
        service_import, virtual_ips::Offer,
    },
};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceExportStatus, ServiceImport},
};
use tombolo_core::{
    export::ExportVerdict,
    names::{ClusterId, NamespacedName},
    service::IpFamily,
    wire::key::{service_exports_prefix, services_prefix},
};

use crate::{
    facts::Facts,
    recording::{Snapshot, Version},
    stored::shaped,
};

/// Everything that the operator makes.
pub(crate) fn objects(snapshot: &Snapshot) -> Result<Vec<Value>, String> {
    let mut made = Vec::new();
    let mut globals = user_services(snapshot);
    for name in names(snapshot)? {
        let Some(view) = view(snapshot, &name) else {
            continue;
        };
        if let Some(export) = find(&snapshot.exports, name.name.as_str()) {
            made.push(json!(export_of(&view, &export)));
        }
        let Some((import, derived)) = import_of(snapshot, &name, &view) else {
            continue;
        };
        made.push(json!(import));
        if let Some(derived) = derived {
            let mirrored = mirrored(snapshot, &name, &view, &derived);
            made.extend(mirrored.iter().map(|slice| json!(slice)));
            made.push(json!(derived));
            globals.push(derived);
        }
    }
    for service in globals {
        let service = identified(&service, "Service");
        let slices = synced(snapshot, &service);
        made.extend(slices.iter().map(|slice| json!(slice)));
    }
    Ok(made)
}

/// The Services that users made.
fn user_services(snapshot: &Snapshot) -> Vec<Service> {
    let services = snapshot.services.iter();
    services
        .filter(|service| !service.name_any().starts_with("derived-"))
        .map(|service| (**service).clone())
        .collect()
}

/// Every name that there is something to decide about.
fn names(snapshot: &Snapshot) -> Result<BTreeSet<NamespacedName>, String> {
    let own = snapshot.exports.iter().map(|export| export.name_any());
    let by_hand = snapshot.made_by_hand.iter().map(ResourceExt::name_any);
    let local = own
        .chain(by_hand)
        .map(|name| NamespacedName::parse(&snapshot.scenario, &name));
    let mut names = local
        .collect::<Result<BTreeSet<_>, _>>()
        .map_err(|error| error.to_string())?;
    let remote = snapshot.remote_exports.iter();
    names.extend(remote.map(|export| export.name.clone()));
    Ok(names)
}

fn view(snapshot: &Snapshot, name: &NamespacedName) -> Option<View> {
    snapshot.namespace.as_ref()?;
    let exports = snapshot.remote_exports.iter();
    Some(View::of(
        &snapshot.cluster,
        facts::namespace_is_global(snapshot.namespace.as_deref(), true),
        find(&snapshot.services, name.name.as_str()).as_deref(),
        find(&snapshot.exports, name.name.as_str()).as_deref(),
        exports
            .filter(|export| export.name == *name)
            .cloned()
            .collect(),
    ))
}

fn export_of(view: &View, export: &ServiceExport) -> ServiceExport {
    let mut export = export.clone();
    export.status = None;
    let conditions = service_export::build(view, &export, false, Timestamp::UNIX_EPOCH);
    export.status = Some(ServiceExportStatus {
        conditions: Some(conditions),
    });
    export
}

/// The import, complete with what it says of its derived Service, and the derived Service.
fn import_of(
    snapshot: &Snapshot,
    name: &NamespacedName,
    view: &View,
) -> Option<(ServiceImport, Option<Service>)> {
    let by_hand = snapshot.made_by_hand.as_ref();
    let observed = service_import::Observed {
        name,
        view,
        actual: by_hand.filter(|import| import.name_any() == name.name.as_str()),
        held: BTreeSet::new(),
        any_loading: false,
        enabled: &BTreeSet::from([IpFamily::V4, IpFamily::V6]),
    };
    let import = match (service_import::decide(&observed), observed.actual) {
        (service_import::Decision::Apply(import), _) => *import,
        (service_import::Decision::Leave, Some(actual)) => return Some((actual.clone(), None)),
        (service_import::Decision::Leave | service_import::Decision::Delete, _) => return None,
    };
    let mut import = identified(&import, "ServiceImport");
    let derived = derived_of(snapshot, name, view, &import);
    if let Some(derived) = &derived {
        let offer = Offer::of(&import, derived);
        let annotations = import.annotations_mut();
        annotations.insert(keys::DERIVED_SERVICE.to_owned(), offer.derived);
        import.spec.ips = Some(offer.ips);
    }
    let status = service_import::build_status(&observed, &import, Timestamp::UNIX_EPOCH);
    import.status = Some(status);
    Some((import, derived))
}

/// The derived Service as the API server stores it: with the addresses that Cilium's got.
fn derived_of(
    snapshot: &Snapshot,
    name: &NamespacedName,
    view: &View,
    import: &ServiceImport,
) -> Option<Service> {
    let decision = derived_service::decide(&derived_service::Observed {
        name,
        namespace_global: view.namespace_global,
        import: Some(import),
        actual: None,
    });
    let mut service = match decision {
        derived_service::Decision::Apply(service) => *service,
        derived_service::Decision::Leave
        | derived_service::Decision::Delete
        | derived_service::Decision::Recreate(_)
        | derived_service::Decision::Clash => return None,
    };
    let recorded = find(&snapshot.services, &service.name_any());
    let recorded = recorded
        .as_ref()
        .and_then(|recorded| recorded.spec.as_ref());
    if let (Some(spec), Some(recorded)) = (&mut service.spec, recorded)
        && spec.cluster_ip.is_none()
    {
        spec.cluster_ip.clone_from(&recorded.cluster_ip);
        spec.cluster_ips.clone_from(&recorded.cluster_ips);
        spec.ip_families.clone_from(&recorded.ip_families);
    }
    Some(service)
}

fn mirrored(
    snapshot: &Snapshot,
    name: &NamespacedName,
    view: &View,
    derived: &Service,
) -> Vec<EndpointSlice> {
    let service = find(&snapshot.services, name.name.as_str());
    let (ExportVerdict::Exported(_), Some(service)) = (&view.verdict, service) else {
        return Vec::new();
    };
    let local = snapshot.slices.iter();
    let local: Vec<_> = local
        .filter(|slice| facts::service_of(slice).as_deref() == Some(name.name.as_str()))
        .cloned()
        .collect();
    let made = endpoint_slice_mirror::build(&endpoint_slice_mirror::Observed {
        cluster: &snapshot.cluster,
        service: &identified(&service, "Service"),
        derived: &identified(derived, "Service"),
        local: &local,
    });
    made.into_values().collect()
}

fn synced(snapshot: &Snapshot, service: &Service) -> Vec<EndpointSlice> {
    if !endpoint_slice_sync::is_eligible(service)
        || endpoint_slice_sync::opts_out(service.annotations())
    {
        return Vec::new();
    }
    let mut remote = snapshot.remote_services.clone();
    remote.retain(|remote| remote.shared && remote.name.name.as_str() == service.name_any());
    let made = endpoint_slice_sync::build(service, &remote, &[]);
    made.into_values().collect()
}

/// An object as the API server would give it: with the uid that the recordings show in its place.
fn identified<K: ResourceExt + Clone>(object: &K, kind: &str) -> K {
    let mut object = object.clone();
    object.meta_mut().uid = Some(format!("(uid of {kind} {})", object.name_any()));
    object
}

fn find<K: ResourceExt>(objects: &[Arc<K>], name: &str) -> Option<Arc<K>> {
    let found = objects.iter().find(|object| object.name_any() == name);
    found.cloned()
}

/// The records that we publish about the recorded objects, those of Cilium's controllers among them: exact values by kind
/// and name.
pub(crate) fn records(version: Version, snapshot: &Snapshot) -> Result<Facts, String> {
    let publishing = Publishing {
        cluster: snapshot.cluster.clone(),
        id: id_of(snapshot)?,
        default_global_namespace: true,
    };
    let services = snapshot.services.iter().map(|object| object.name_any());
    let exports = snapshot.exports.iter().map(|object| object.name_any());
    let mut made = Facts::new();
    for name in services.chain(exports) {
        let slices = snapshot.slices.iter();
        let slices = slices.filter(|slice| facts::service_of(slice).as_ref() == Some(&name));
        let built = records::build(
            &publishing,
            &Observed {
                namespace: snapshot.namespace.clone(),
                service: find(&snapshot.services, &name),
                export: find(&snapshot.exports, &name),
                slices: slices.cloned().collect(),
            },
        );
        if let Some(error) = built.skipped.first() {
            return Err(error.to_string());
        }
        for (kind, record) in [
            ("services", built.service),
            ("serviceexports", built.export),
        ] {
            if let Record::Present(value) = record {
                let value = String::from_utf8(value).map_err(|error| error.to_string())?;
                made.insert(format!("{kind}/{name}"), shaped(version, &value));
            }
        }
    }
    Ok(made)
}

/// The `services` and `serviceexports` records that Cilium wrote, in the same form.
pub(crate) fn recorded_records(version: Version, snapshot: &Snapshot) -> Facts {
    let (cluster, namespace) = (&snapshot.cluster, &snapshot.scenario);
    let services = format!("{}{namespace}/", services_prefix(cluster, false));
    let exports = format!("{}{namespace}/", service_exports_prefix(cluster, false));
    let prefixes = [("services", services), ("serviceexports", exports)];
    let mut recorded = Facts::new();
    for (key, value) in &snapshot.records {
        for (kind, prefix) in &prefixes {
            if let Some(name) = key.strip_prefix(prefix) {
                recorded.insert(format!("{kind}/{name}"), shaped(version, value));
            }
        }
    }
    recorded
}

fn id_of(snapshot: &Snapshot) -> Result<ClusterId, String> {
    let name = snapshot.cluster.as_str();
    let id: u32 = name
        .strip_prefix('c')
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| format!("cluster {name} has no known id"))?;
    ClusterId::try_from(id).map_err(|error| error.to_string())
}
