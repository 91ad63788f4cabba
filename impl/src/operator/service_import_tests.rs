use jiff::Timestamp;
use tombolo_core::{
    export::{ExportVerdict, Refusal},
    merge::merge,
    service::{ExportSpec, ImportType, Protocol, SessionAffinity},
};

use super::{status::is_same_status, *};
use crate::operator::testkit::{cluster, named, object};

/// An export of `shop/web` with one TCP port.
fn export(from: &str, second: i64, port: (&str, u16)) -> ExportSpec {
    ExportSpec {
        cluster: cluster(from),
        name: named("shop", "web"),
        created_at: Timestamp::from_second(second).unwrap(),
        labels: BTreeMap::from([("team".to_owned(), from.to_owned())]),
        annotations: BTreeMap::new(),
        ports: vec![tombolo_core::service::ServicePort {
            name: port.0.try_into().unwrap(),
            protocol: Protocol::Tcp,
            app_protocol: None,
            port: port.1,
        }],
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4],
        internal_traffic_policy: None,
        traffic_distribution: None,
    }
}

fn view(exports: &[ExportSpec]) -> View {
    View {
        namespace_global: true,
        verdict: ExportVerdict::Refused(Refusal::NoServiceExport),
        merged: merge(exports),
    }
}

/// `shop/web` as it was when `east` and `west` exported it, `east` first.
fn existing() -> ServiceImport {
    object(
        "
metadata:
  {name: web, namespace: shop, uid: u1, labels: {team: east},
   annotations: {clustermesh.cilium.io/supported-ip-families: IPv4, multicluster.kubernetes.io/derived-service: derived-x}}
spec:
  {type: ClusterSetIP, sessionAffinity: None, ipFamilies: [IPv4], ips: [10.96.0.7],
   ports: [{name: http, protocol: TCP, port: 80}, {name: metrics, protocol: TCP, port: 9090}]}
status:
  {endpointSliceObjects: Present, clusters: [{cluster: east}, {cluster: west}],
   conditions: [{type: Ready, status: 'True', reason: Ready, message: ServiceImport is ready, lastTransitionTime: '2026-01-01T00:00:00Z'}]}
",
    )
}

/// What is decided about `actual` with these exports known, these clusters held and all others synced.
fn decided(exports: &[ExportSpec], actual: Option<&ServiceImport>, held: &[&str]) -> Decision {
    let name = named("shop", "web");
    decide(&Observed {
        name: &name,
        view: &view(exports),
        actual,
        held: held.iter().map(|name| cluster(name)).collect(),
        any_loading: !held.is_empty(),
        enabled: &[IpFamily::V4].into(),
    })
}

fn applied(decision: Decision) -> ServiceImport {
    match decision {
        Decision::Apply(import) => *import,
        other @ (Decision::Leave | Decision::Delete) => panic!("{other:?}"),
    }
}

fn ports(import: &ServiceImport) -> Vec<i32> {
    import.spec.ports.iter().map(|port| port.port).collect()
}

#[test]
fn an_import_that_nobody_exports_is_deleted() {
    assert_eq!(decided(&[], Some(&existing()), &[]), Decision::Delete);
    assert_eq!(decided(&[], None, &[]), Decision::Leave);
}

#[test]
fn an_import_that_a_user_made_is_left_alone_until_somebody_exports_it() {
    let mut hand_made = existing();
    hand_made.status = None;
    hand_made.metadata.annotations = Some(BTreeMap::from([("note".to_owned(), "1".to_owned())]));
    let annotated = |key: &str| {
        let mut import = hand_made.clone();
        import
            .annotations_mut()
            .insert(key.to_owned(), String::new());
        import
    };
    let mut with_clusters = existing();
    with_clusters.metadata.annotations = None;

    assert_eq!(decided(&[], Some(&hand_made), &[]), Decision::Leave);
    for ours in [
        annotated(keys::SUPPORTED_IP_FAMILIES),
        annotated(keys::DERIVED_SERVICE),
        with_clusters,
    ] {
        assert_eq!(decided(&[], Some(&ours), &[]), Decision::Delete);
    }
    let taken = decided(&[export("east", 1, ("http", 80))], Some(&hand_made), &[]);
    assert!(is_ours(&applied(taken)));
}

#[test]
fn an_import_is_not_deleted_while_a_cluster_that_backs_it_is_loading() {
    assert_eq!(decided(&[], Some(&existing()), &["east"]), Decision::Leave);
}

#[test]
fn an_import_without_status_is_not_deleted_while_any_peer_is_loading() {
    let name = named("shop", "web");
    let mut unfinished = existing();
    unfinished.status = None;
    let decided = |any_loading| {
        decide(&Observed {
            name: &name,
            view: &view(&[]),
            actual: Some(&unfinished),
            held: BTreeSet::new(),
            any_loading,
            enabled: &[IpFamily::V4].into(),
        })
    };

    assert_eq!(decided(true), Decision::Leave);
    assert_eq!(decided(false), Decision::Delete);
}

#[test]
fn with_a_cluster_held_the_import_keeps_what_it_has_and_gains_ports_that_clash_with_none() {
    let west = [
        export("west", 5, ("admin", 8443)),
        export("north", 6, ("http", 8080)),
    ];

    let import = applied(decided(&west, Some(&existing()), &["east"]));

    assert_eq!(ports(&import), [80, 9090, 8443]);
    assert_eq!(import.labels()["team"], "east");
    assert_eq!(import.uid().as_deref(), Some("u1"));
}

#[test]
fn once_every_cluster_is_synced_the_import_is_what_they_say() {
    let import = applied(decided(
        &[export("west", 5, ("admin", 8443))],
        Some(&existing()),
        &[],
    ));

    assert_eq!(ports(&import), [8443]);
    assert_eq!(import.labels()["team"], "west");
}

#[test]
fn held_clusters_stay_in_the_status() {
    let name = named("shop", "web");
    let view = view(&[export("west", 5, ("http", 80))]);
    let actual = existing();
    let observed = Observed {
        name: &name,
        view: &view,
        actual: Some(&actual),
        held: [cluster("east")].into(),
        any_loading: true,
        enabled: &[IpFamily::V4].into(),
    };

    let status = build_status(&observed, &actual, Timestamp::UNIX_EPOCH);

    assert!(is_same_status(&status, actual.status.as_ref()));
}

#[test]
fn an_import_that_is_as_it_should_be_is_not_written() {
    let exports = [
        export("east", 1, ("http", 80)),
        export("west", 2, ("metrics", 9090)),
    ];

    let import = applied(decided(&exports, Some(&existing()), &[]));

    assert!(is_same(&import, &existing()));
    assert_eq!(strays(&import, &existing()), None);
}

#[test]
fn labels_annotations_and_fields_that_others_have_set_are_taken_off() {
    let exports = [
        export("east", 1, ("http", 80)),
        export("west", 2, ("metrics", 9090)),
    ];
    let mut tampered = existing();
    tampered
        .labels_mut()
        .insert("foreign".to_owned(), "1".to_owned());
    tampered
        .annotations_mut()
        .insert("example.com/note".to_owned(), "1".to_owned());
    tampered.spec.traffic_distribution = Some("PreferClose".to_owned());

    let import = applied(decided(&exports, Some(&tampered), &[]));

    let expected = json!({
        "metadata": { "labels": { "foreign": null }, "annotations": { "example.com/note": null } },
        "spec": { "trafficDistribution": null },
    });
    assert!(!is_same(&import, &tampered));
    assert_eq!(strays(&import, &tampered), Some(expected));
}

#[test]
fn an_exported_annotation_cannot_name_the_derived_service_or_the_families() {
    let mut lying = export("east", 1, ("http", 80));
    for key in [keys::DERIVED_SERVICE, keys::SUPPORTED_IP_FAMILIES] {
        lying
            .annotations
            .insert(key.to_owned(), "kube-dns".to_owned());
    }

    let import = applied(decided(&[lying], None, &[]));

    assert_eq!(import.annotations().get(keys::DERIVED_SERVICE), None);
    assert_eq!(import.annotations()[keys::SUPPORTED_IP_FAMILIES], "IPv4");
}

#[test]
fn slices_are_absent_where_the_service_opts_out_or_is_not_served() {
    let name = named("shop", "web");
    let view = view(&[export("east", 1, ("http", 80))]);
    let status_of = |annotation: (&str, &str), global: bool| {
        let mut import = existing();
        import
            .annotations_mut()
            .insert(annotation.0.to_owned(), annotation.1.to_owned());
        let view = View {
            namespace_global: global,
            ..view.clone()
        };
        let observed = Observed {
            name: &name,
            view: &view,
            actual: None,
            held: BTreeSet::new(),
            any_loading: false,
            enabled: &BTreeSet::new(),
        };
        build_status(&observed, &import, Timestamp::UNIX_EPOCH)
            .endpoint_slice_objects
            .unwrap()
    };

    assert_eq!(status_of(("a", "b"), true), "Present");
    assert_eq!(status_of(("a", "b"), false), "Absent");
    assert_eq!(
        status_of((keys::SYNC_ENDPOINT_SLICES, "False"), true),
        "Absent"
    );
    assert_eq!(
        status_of((keys::SYNC_ENDPOINT_SLICES, "true"), true),
        "Present"
    );
    assert_eq!(status_of((keys::SUPPORTED_IP_FAMILIES, ""), true), "Absent");
    let mut unserved = existing();
    unserved.annotations_mut().remove(keys::DERIVED_SERVICE);
    let observed = Observed {
        name: &name,
        view: &view,
        actual: None,
        held: BTreeSet::new(),
        any_loading: false,
        enabled: &BTreeSet::new(),
    };
    let status = build_status(&observed, &unserved, Timestamp::UNIX_EPOCH);
    assert_eq!(status.endpoint_slice_objects.as_deref(), Some("Absent"));
}

#[test]
fn an_import_of_a_family_that_this_cluster_lacks_is_not_ready() {
    let mut six = export("east", 1, ("http", 80));
    six.ip_families = vec![IpFamily::V6];
    let import = applied(decided(std::slice::from_ref(&six), None, &[]));
    let name = named("shop", "web");
    let view = view(&[six]);
    let observed = Observed {
        name: &name,
        view: &view,
        actual: None,
        held: BTreeSet::new(),
        any_loading: false,
        enabled: &[IpFamily::V4].into(),
    };

    let status = build_status(&observed, &import, Timestamp::UNIX_EPOCH);

    assert_eq!(import.annotations()[keys::SUPPORTED_IP_FAMILIES], "");
    assert_eq!(status.conditions.unwrap()[0].reason, "IPFamilyNotSupported");
}
