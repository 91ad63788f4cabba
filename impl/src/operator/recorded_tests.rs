//! From what a cluster held and its peer had published to what Cilium 1.20.2 made of it: our objects equal the recorded ones,
//! but for what we do differently on purpose.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_core::service::IpFamily;

use crate::operator::{
    derived_service, endpoint_slice_mirror, endpoint_slice_sync, service_export, service_import,
    testkit::{Recorded, named},
};

fn enabled() -> BTreeSet<IpFamily> {
    [IpFamily::V4, IpFamily::V6].into()
}

/// Everything of an import but times, what the derived Service's controller writes, and `endpointSliceObjects`, which
/// here says what exists.
fn import_facts(mut import: ServiceImport) -> Value {
    import.metadata.creation_timestamp = None;
    import.spec.ips = None;
    if let Some(annotations) = &mut import.metadata.annotations {
        annotations.remove(keys::DERIVED_SERVICE);
    }
    let mut facts = json!(import);
    if let Some(status) = facts["status"].as_object_mut() {
        status.remove("endpointSliceObjects");
        for condition in status["conditions"].as_array_mut().unwrap() {
            condition
                .as_object_mut()
                .unwrap()
                .remove("lastTransitionTime");
        }
    }
    facts
}

#[rstest]
fn imports_equal_those_that_cilium_made(
    #[values("c1", "c2")] cluster: &str,
    #[values(
        ("m01-basic", 2), ("m02-both", 2), ("m04-headless", 2), ("m05-dual", 2), ("m07-externalname", 2),
        ("m09-sync", 2), ("m10-session", 2), ("m11-unnamed", 2), ("m13-longname", 2), ("n02-false", 2), ("n06-flip", 2),
        ("n06-flip", 3), ("n07-importer-gated", 2), ("x01-port-number", 2), ("x02-port-name", 2),
        ("x05-port-subset", 2), ("x06-port-superset", 2), ("x08-port-unnamed", 2), ("x09-port-proto", 2), ("x10-type", 2),
        ("x12-session", 2), ("x13-session-timeout", 2), ("x15-annotations", 2), ("x17-labels", 2), ("x18-itp", 2),
        ("x19-td", 2), ("x21-families", 2), ("x23-labels-empty", 2), ("x24-resolved", 2), ("x24-resolved", 3)
    )]
    (scenario, step): (&str, usize),
) {
    let recorded = Recorded::of(scenario, step, cluster);
    let enabled = enabled();

    let mut ours = Vec::new();
    for name in recorded.exported_names() {
        let view = recorded.view(&name);
        let actual = recorded
            .imports
            .iter()
            .find(|import| import.name_any() == name.name.as_str());
        let observed = service_import::Observed {
            name: &name,
            view: &view,
            actual,
            held: BTreeSet::new(),
            any_loading: false,
            enabled: &enabled,
        };
        if let service_import::Decision::Apply(mut import) = service_import::decide(&observed) {
            let derived = actual.and_then(|actual| actual.annotations().get(keys::DERIVED_SERVICE));
            if let Some(derived) = derived {
                import
                    .annotations_mut()
                    .insert(keys::DERIVED_SERVICE.to_owned(), derived.clone());
            }
            import.status = Some(service_import::build_status(
                &observed,
                &import,
                Timestamp::UNIX_EPOCH,
            ));
            ours.push(import_facts(*import));
        }
    }

    let theirs: Vec<_> = recorded.imports.into_iter().map(import_facts).collect();
    assert_eq!(ours, theirs);
}

#[rstest]
fn conditions_of_exports_equal_those_that_cilium_wrote(
    #[values("c1", "c2")] cluster: &str,
    #[values(
        ("m01-basic", 2), ("m02-both", 2), ("m07-externalname", 2), ("m08-noservice", 2), ("m24-svc-removed", 3), ("n02-false", 2),
        ("n07-importer-gated", 2), ("x01-port-number", 2), ("x05-port-subset", 2), ("x10-type", 2), ("x17-labels", 2),
        ("x24-resolved", 2), ("x24-resolved", 3)
    )]
    (scenario, step): (&str, usize),
) {
    let recorded = Recorded::of(scenario, step, cluster);

    for export in &recorded.exports {
        let view = recorded.view(&named(&recorded.namespace, &export.name_any()));
        let mut unwritten = export.clone();
        unwritten.status = None;
        let ours = service_export::build(&view, &unwritten, false, Timestamp::UNIX_EPOCH);

        let theirs = export
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone());
        let texts =
            |conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>| -> Vec<_> {
                let conditions = conditions.into_iter();
                conditions
                    .map(|c| [c.type_, c.status, c.reason, c.message])
                    .collect()
            };
        assert_eq!(texts(ours), texts(theirs.unwrap()));
    }
}

/// What of a derived Service is decided by a controller, not by the API server. Session affinity reaches ours only.
fn service_facts(service: &Service) -> Value {
    let spec = service.spec.as_ref().unwrap();
    let headless = spec.cluster_ip.as_deref() == Some("None");
    json!({
        "labels": service.labels(),
        "annotations": service.annotations(),
        "owners": service.owner_references(),
        "ports": spec.ports,
        "selector": spec.selector,
        "type": spec.type_,
        "headless": headless,
        "policies": [spec.ip_family_policy, spec.internal_traffic_policy, spec.traffic_distribution],
    })
}

/// The import as an API server would give it: with the uid that the recordings show in its place.
fn identified(import: &ServiceImport) -> ServiceImport {
    let mut import = import.clone();
    import.metadata.uid = Some(format!("(uid of ServiceImport {})", import.name_any()));
    import
}

fn identified_service(service: &Service) -> Service {
    let mut service = service.clone();
    service.metadata.uid = Some(format!("(uid of Service {})", service.name_any()));
    service
}

#[rstest]
fn derived_services_equal_those_that_cilium_made(
    #[values("c1", "c2")] cluster: &str,
    #[values(
        "m01-basic",
        "m02-both",
        "m04-headless",
        "m05-dual",
        "m09-sync",
        "m10-session",
        "m11-unnamed",
        "m13-longname",
        "x05-port-subset",
        "x10-type",
        "x18-itp",
        "x19-td",
        "n07-importer-gated"
    )]
    scenario: &str,
) {
    let recorded = Recorded::of(scenario, 2, cluster);

    assert!(!recorded.imports.is_empty());
    for import in &recorded.imports {
        let name = named(&recorded.namespace, &import.name_any());
        let theirs = recorded.service(name.derived().name.as_str());
        let import = identified(import);
        let observed = derived_service::Observed {
            name: &name,
            namespace_global: recorded.namespace_global,
            import: Some(&import),
            actual: theirs,
        };
        match (derived_service::decide(&observed), theirs) {
            (derived_service::Decision::Apply(ours), Some(theirs)) => {
                assert_eq!(service_facts(&ours), service_facts(theirs));
            }
            (decision, theirs) => {
                assert_eq!((decision, theirs), (derived_service::Decision::Leave, None));
            }
        }
    }
}

/// A slice without what is random: its own name's suffix is checked elsewhere, the order of endpoints does not matter.
fn slice_facts(slice: &EndpointSlice) -> Value {
    let mut endpoints = slice.endpoints.clone().unwrap_or_default();
    for endpoint in &mut endpoints {
        let fake = |target: &k8s_openapi::api::core::v1::ObjectReference| {
            target.kind.as_deref() == Some("store.ClusterService")
        };
        endpoint.target_ref = endpoint.target_ref.take().filter(|target| !fake(target));
    }
    endpoints.sort_by(|a, b| a.addresses.cmp(&b.addresses));
    let ports = slice.ports.iter().flatten().map(|port| {
        json!([
            port.name.clone().unwrap_or_default(),
            port.protocol,
            port.port,
            port.app_protocol
        ])
    });
    let mut ports: Vec<_> = ports.collect();
    ports.sort_by_key(Value::to_string);
    json!({
        "labels": slice.labels(),
        "owners": slice.owner_references(),
        "addressType": slice.address_type,
        "endpoints": endpoints,
        "ports": ports,
    })
}

#[rstest]
fn mirrored_slices_equal_those_that_cilium_made(
    #[values("c1", "c2")] cluster: &str,
    #[values(
        "m01-basic",
        "m02-both",
        "m04-headless",
        "m05-dual",
        "m11-unnamed",
        "m13-longname",
        "x01-port-number",
        "x02-port-name",
        "x05-port-subset",
        "x08-port-unnamed",
        "x09-port-proto"
    )]
    scenario: &str,
) {
    let recorded = Recorded::of(scenario, 2, cluster);

    for export in &recorded.exports {
        let name = export.name_any();
        let derived = named(&recorded.namespace, &name).derived().name.to_string();
        let service = identified_service(recorded.service(&name).unwrap());
        let local = recorded.slices_of(&name, keys::MANAGED_BY_KUBERNETES);
        let local: Vec<_> = local.into_iter().map(Arc::new).collect();
        let ours = endpoint_slice_mirror::build(&endpoint_slice_mirror::Observed {
            cluster: &recorded.cluster,
            service: &service,
            derived: &identified_service(recorded.service(&derived).unwrap()),
            local: &local,
        });

        let theirs = recorded.slices_of(&derived, keys::MANAGED_BY_MIRROR);
        let ours: Vec<_> = ours
            .iter()
            .map(|(name, slice)| (name.clone(), slice_facts(slice)))
            .collect();
        let theirs: Vec<_> = theirs
            .iter()
            .map(|slice| (slice.name_any(), slice_facts(slice)))
            .collect();
        assert_eq!(ours, theirs);
    }
}

#[rstest]
fn slices_of_remote_endpoints_equal_those_that_cilium_made(
    #[values("c1", "c2")] cluster: &str,
    #[values("g05-headless", "g16-sync-slices", "m04-headless", "m09-sync")] scenario: &str,
) {
    let recorded = Recorded::of(scenario, 2, cluster);
    let peer = if cluster == "c1" { "c2" } else { "c1" };

    for service in &recorded.services {
        let name = service.name_any();
        let theirs = recorded.slices_of(&name, keys::MANAGED_BY_MESH);
        let mut remote = recorded.remote_services.clone();
        remote.retain(|service| service.name.name.as_str() == name);
        if theirs.is_empty() {
            // Cilium writes slices only for headless Services and those that ask for it.
            continue;
        }
        let ours = endpoint_slice_sync::build(&identified_service(service), &remote, &[]);

        let full = theirs
            .iter()
            .filter(|slice| slice.endpoints.as_ref().is_some_and(|all| !all.is_empty()));
        let theirs: Vec<_> = full.map(slice_facts).collect();
        assert_eq!(ours.values().map(slice_facts).collect::<Vec<_>>(), theirs);
        let prefix = format!("{name}-{peer}-");
        assert!(
            ours.keys().all(|name| name.starts_with(&prefix)),
            "{:?}",
            ours.keys()
        );
    }
}
