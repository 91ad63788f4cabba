use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::*;
use crate::{
    mesh::peers::RemoteState,
    operator::{
        apply::{Pace, Writer},
        leadership::Tenure,
        testkit::{cluster, named, object},
    },
};

/// Of a cluster without peers, whose API server is never asked.
fn context() -> Context {
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube::Client::try_from(nowhere).unwrap();
    Context {
        caches: Caches::new(),
        remote: Arc::new(RemoteState::new(Arc::new(|_| {}))),
        writer: Writer::new(
            client,
            Arc::new(|_, _| {}),
            Tenure::sole(),
            Pace::unlimited(),
        ),
        cluster: cluster("east"),
        default_global: true,
        families: BTreeSet::new(),
    }
}

/// Names that are dirty, by controller.
async fn dirty(queues: &Queues) -> Vec<(Controller, String)> {
    let mut dirty = Vec::new();
    for (controller, queue) in queues.all() {
        while !queue.is_empty() {
            let name = queue.next().await;
            queue.done(&name);
            dirty.push((controller, name.to_string()));
        }
    }
    dirty
}

fn added<K: DeserializeOwned>(yaml: &str) -> K {
    object(yaml)
}

fn new<K>(object: &K) -> Difference<'_, K> {
    Difference {
        old: None,
        new: Some(object),
    }
}

#[tokio::test]
async fn a_peers_export_concerns_the_import_and_the_own_export() {
    let queues = Queues::new();

    queues.remote(&Dirty {
        kind: RecordKind::Exports,
        name: named("shop", "web"),
        lost: false,
    });

    let web = "shop/web".to_owned();
    assert_eq!(
        dirty(&queues).await,
        [
            (Controller::ServiceImport, web.clone()),
            (Controller::ServiceExport, web)
        ]
    );
}

#[tokio::test]
async fn a_peers_service_concerns_the_slices_of_its_name() {
    let queues = Queues::new();

    queues.remote(&Dirty {
        kind: RecordKind::Services,
        name: named("shop", "derived-x"),
        lost: false,
    });

    assert_eq!(
        dirty(&queues).await,
        [(Controller::EndpointSliceSync, "shop/derived-x".to_owned())]
    );
}

#[tokio::test]
async fn a_derived_service_concerns_its_import() {
    let queues = Queues::new();
    let derived: Service = added(
        "{metadata: {name: derived-x, namespace: shop, labels: {multicluster.kubernetes.io/service-name: web}}}",
    );

    queues.service(&new(&derived));

    let dirty = dirty(&queues).await;
    for controller in [Controller::DerivedService, Controller::EndpointSliceMirror] {
        assert!(
            dirty.contains(&(controller, "shop/web".to_owned())),
            "{dirty:?}"
        );
    }
    assert!(dirty.contains(&(Controller::EndpointSliceSync, "shop/derived-x".to_owned())));
}

#[tokio::test]
async fn a_slice_concerns_the_service_that_it_had_and_the_one_that_it_has() {
    let queues = Queues::new();
    let slice = |service: &str| -> EndpointSlice {
        added(&format!(
            "{{metadata: {{name: a, namespace: shop, labels: {{kubernetes.io/service-name: {service}, endpointslice.kubernetes.io/managed-by: x}}}}, addressType: IPv4}}"
        ))
    };
    let (old, new) = (slice("db"), slice("web"));

    let difference = Difference {
        old: Some(&old),
        new: Some(&new),
    };
    queues.slice(&difference, &Caches::new());

    let mirror = |name: &str| (Controller::EndpointSliceMirror, name.to_owned());
    assert_eq!(
        dirty(&queues).await,
        [mirror("shop/web"), mirror("shop/db")]
    );
}

#[tokio::test]
async fn a_slice_whose_labels_were_taken_off_is_found_by_its_controller() {
    let queues = Queues::new();
    let slice: EndpointSlice = added(
        "
metadata:
  {name: a, namespace: shop, ownerReferences: [{apiVersion: v1, kind: Service, name: web, uid: u, controller: true}]}
addressType: IPv4
",
    );

    queues.slice(&new(&slice), &Caches::new());

    let web = "shop/web".to_owned();
    assert_eq!(
        dirty(&queues).await,
        [
            (Controller::EndpointSliceMirror, web.clone()),
            (Controller::EndpointSliceSync, web)
        ]
    );
}

#[tokio::test]
async fn a_namespace_that_was_made_anew_between_two_looks_concerns_all_names_in_it() {
    let queues = Queues::new();
    let ctx = context();
    ctx.caches.services.set(
        Arc::new(added("{metadata: {name: web, namespace: shop}}")),
        &|_| {},
    );
    let namespace =
        |uid: &str| -> Namespace { added(&format!("{{metadata: {{name: shop, uid: {uid}}}}}")) };
    let (old, same, anew) = (namespace("1"), namespace("1"), namespace("2"));
    let change = |new| Difference {
        old: Some(&old),
        new: Some(new),
    };

    queues.namespace(&change(&same), &ctx);
    assert_eq!(dirty(&queues).await, []);

    queues.namespace(&change(&anew), &ctx);
    let import = (Controller::ServiceImport, "shop/web".to_owned());
    assert!(dirty(&queues).await.contains(&import));
}

#[tokio::test]
async fn an_object_with_a_name_that_no_service_can_have_is_ignored() {
    let queues = Queues::new();
    let export: ServiceExport = added("{metadata: {name: a.b, namespace: shop}}");

    queues.export(&new(&export));

    assert_eq!(dirty(&queues).await, []);
}

#[tokio::test]
async fn a_status_alone_concerns_only_its_writer() {
    let queues = Queues::new();
    let export = |version: u32, generation: u32| -> ServiceExport {
        added(&format!(
            "{{metadata: {{name: web, namespace: shop, generation: {generation}, resourceVersion: '{version}'}}}}"
        ))
    };
    let (before, status, spec) = (export(1, 1), export(2, 1), export(3, 2));

    let changed = |old, new| Difference {
        old: Some(old),
        new: Some(new),
    };
    queues.export(&changed(&before, &status));
    assert_eq!(
        dirty(&queues).await,
        [(Controller::ServiceExport, "shop/web".to_owned())]
    );

    queues.export(&changed(&status, &spec));
    assert_eq!(dirty(&queues).await.len(), 3);
}

#[tokio::test]
async fn an_export_with_a_name_that_no_service_can_have_is_set_apart() {
    let queues = Queues::new();
    let export: ServiceExport = added("{metadata: {name: a.b, namespace: shop}}");

    queues.export(&new(&export));

    assert!(dirty(&queues).await.is_empty());
    let key = queues.misnamed_exports.next().await;
    assert_eq!(key, ("shop".to_owned(), "a.b".to_owned()));
}

/// A slice of the Service `name` with these endpoints, each with what its condition `ready` says.
fn slice_with(name: &str, endpoints: &[(&str, bool)]) -> EndpointSlice {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(address, ready)| {
            format!("{{addresses: [{address}], conditions: {{ready: {ready}}}}}")
        })
        .collect();
    added(&format!(
        "{{metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}, \
         addressType: IPv4, endpoints: [{}]}}",
        endpoints.join(", ")
    ))
}

#[tokio::test]
async fn a_lost_endpoint_goes_before_endpoints_that_came_earlier() {
    let (queues, caches) = (Queues::new(), Caches::new());
    let both = slice_with("lost", &[("10.0.0.1", true), ("10.0.0.2", true)]);
    let one = slice_with("lost", &[("10.0.0.1", true)]);
    let unready = slice_with("unready", &[("10.0.0.3", false)]);
    let ready = slice_with("unready", &[("10.0.0.3", true)]);

    queues.slice(&new(&slice_with("first", &[("10.0.0.9", true)])), &caches);
    let changed = |old, new| Difference {
        old: Some(old),
        new: Some(new),
    };
    queues.slice(&changed(&one, &both), &caches);
    assert_eq!(
        queues.endpoint_slice_mirror.next().await,
        named("shop", "first")
    );
    queues.slice(&changed(&both, &one), &caches);
    queues.slice(&changed(&ready, &unready), &caches);
    queues.slice(&new(&slice_with("last", &[])), &caches);

    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(queues.endpoint_slice_mirror.next().await.name.to_string());
    }
    assert_eq!(order, ["lost", "unready", "last"]);
}

#[tokio::test]
async fn the_service_of_an_import_that_is_gone_goes_before_those_of_new_imports() {
    let queues = Queues::new();
    let import = |name: &str| -> ServiceImport {
        added(&format!("{{metadata: {{name: {name}, namespace: shop}}}}"))
    };

    queues.import(&new(&import("new")));
    queues.import(&Difference {
        old: Some(&import("gone")),
        new: None,
    });

    assert_eq!(queues.derived_service.next().await, named("shop", "gone"));
    assert_eq!(queues.derived_service.next().await, named("shop", "new"));
}

#[tokio::test]
async fn a_withdrawn_export_goes_before_new_ones() {
    let queues = Queues::new();
    let export = |name: &str| -> ServiceExport {
        added(&format!("{{metadata: {{name: {name}, namespace: shop}}}}"))
    };

    queues.export(&new(&export("new")));
    queues.export(&Difference {
        old: Some(&export("gone")),
        new: None,
    });

    assert_eq!(queues.service_import.next().await, named("shop", "gone"));
    assert_eq!(queues.service_import.next().await, named("shop", "new"));
}
