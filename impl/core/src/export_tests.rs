use rstest::rstest;

use super::*;

fn cluster() -> ClusterName {
    "paris".try_into().unwrap()
}

fn annotated(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn service() -> ServiceFacts {
    ServiceFacts {
        name: NamespacedName::parse("shop", "cart").unwrap(),
        external_name: false,
        headless: false,
        cluster_ips: vec!["10.0.0.1".parse().unwrap()],
        ports: vec![ServicePort {
            name: "http".try_into().unwrap(),
            protocol: Protocol::Tcp,
            app_protocol: None,
            port: 80,
        }],
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4],
        internal_traffic_policy: Some(InternalTrafficPolicy::Cluster),
        traffic_distribution: None,
        labels: BTreeMap::new(),
        annotations: annotated(&[(GLOBAL, "true")]),
        selector: BTreeMap::new(),
    }
}

fn export() -> ExportFacts {
    ExportFacts {
        created_at: "2026-03-04T09:10:11Z".parse().unwrap(),
        labels: annotated(&[("team", "pay")]),
        annotations: annotated(&[("note", "hello")]),
    }
}

fn slice(address: &str) -> SliceFacts {
    SliceFacts {
        managed_by: None,
        endpoints: vec![EndpointFacts {
            addresses: vec![address.parse().unwrap()],
            ..EndpointFacts::default()
        }],
        ports: vec![EndpointPort {
            name: "http".try_into().unwrap(),
            protocol: Protocol::Tcp,
            port: Some(8080),
        }],
    }
}

fn record(service: &ServiceFacts, slices: &[SliceFacts]) -> Option<ClusterService> {
    global_service(
        &cluster(),
        ClusterId::try_from(7).unwrap(),
        true,
        service,
        slices,
    )
}

fn addresses(slices: &[SliceFacts]) -> Vec<String> {
    let record = record(&service(), slices).unwrap();
    record.backends.keys().map(ToString::to_string).collect()
}

#[test]
fn an_export_takes_ports_from_the_service_and_labels_from_the_export() {
    let mut service = service();
    service.labels = annotated(&[("not", "exported")]);

    let verdict = evaluate(&cluster(), true, Some(&service), Some(&export()));

    let ExportVerdict::Exported(spec) = verdict else {
        panic!("refused: {verdict:?}");
    };
    assert_eq!(spec.ports, service.ports);
    assert_eq!(spec.labels, export().labels);
    assert_eq!(spec.annotations, export().annotations);
    assert_eq!(spec.created_at, export().created_at);
    assert_eq!(spec.import_type, ImportType::ClusterSetIp);
}

#[test]
fn a_service_without_cluster_ip_is_exported_as_headless() {
    let headless = ServiceFacts {
        headless: true,
        ..service()
    };

    let verdict = evaluate(&cluster(), true, Some(&headless), Some(&export()));

    assert!(
        matches!(verdict, ExportVerdict::Exported(spec) if spec.import_type == ImportType::Headless)
    );
}

#[test]
fn the_first_reason_against_an_export_wins() {
    let external = ServiceFacts {
        external_name: true,
        ..service()
    };
    let cases = [
        (false, None, None, Refusal::NamespaceNotGlobal),
        (true, None, None, Refusal::NoServiceExport),
        (true, Some(&external), None, Refusal::NoServiceExport),
        (true, None, Some(export()), Refusal::NoService),
        (
            true,
            Some(&external),
            Some(export()),
            Refusal::InvalidServiceType,
        ),
    ];

    for (global, service, export, expected) in cases {
        let verdict = evaluate(&cluster(), global, service, export.as_ref());
        assert_eq!(verdict, ExportVerdict::Refused(expected));
    }
}

#[rstest]
#[case::absent_follows_the_default(None, true, true)]
#[case::absent_follows_the_other_default(None, false, false)]
#[case::any_case_of_letters(Some("TrUe"), false, true)]
#[case::empty_is_not_true(Some(""), true, false)]
#[case::yes_is_not_true(Some("yes"), true, false)]
fn the_namespace_annotation_decides_when_it_is_there(
    #[case] annotation: Option<&str>,
    #[case] default_global: bool,
    #[case] expected: bool,
) {
    assert_eq!(namespace_is_global(annotation, default_global), expected);
}

#[rstest]
#[case::plain(&[], false, false)]
#[case::global_is_shared(&[(GLOBAL, "True")], true, true)]
#[case::alias(&[(GLOBAL_ALIAS, "true")], true, true)]
#[case::main_key_beats_its_alias(&[(GLOBAL, "false"), (GLOBAL_ALIAS, "true")], false, false)]
#[case::not_shared(&[(GLOBAL, "true"), (SHARED, "false")], true, false)]
#[case::not_shared_by_alias(&[(GLOBAL, "true"), (SHARED_ALIAS, "no")], true, false)]
#[case::shared_needs_global(&[(SHARED, "true")], false, false)]
fn annotations_say_whether_a_service_is_global_and_shared(
    #[case] pairs: &[(&str, &str)],
    #[case] global: bool,
    #[case] shared: bool,
) {
    let annotations = annotated(pairs);

    assert_eq!(is_global(&annotations), global);
    assert_eq!(is_shared(&annotations), shared);
}

#[test]
fn no_record_leaves_for_what_peers_may_not_use() {
    let external = ServiceFacts {
        external_name: true,
        ..service()
    };
    let plain = ServiceFacts {
        annotations: BTreeMap::new(),
        ..service()
    };

    assert_eq!(record(&external, &[]), None);
    assert_eq!(record(&plain, &[]), None);
    let id = ClusterId::try_from(7).unwrap();
    assert_eq!(global_service(&cluster(), id, false, &service(), &[]), None);
}

#[test]
fn slices_that_the_mesh_made_are_never_published_again() {
    let imported = SliceFacts {
        managed_by: Some(MANAGED_BY_MESH.to_owned()),
        ..slice("10.2.0.1")
    };

    assert_eq!(addresses(&[slice("10.1.0.1"), imported]), ["10.1.0.1"]);
}

#[rstest]
#[case::no_conditions(None, None, true)]
#[case::ready(Some(true), Some(true), true)]
#[case::terminating_but_serving(Some(false), Some(true), true)]
#[case::unknown_serving_counts_as_true(Some(false), None, true)]
#[case::ready_but_not_serving(Some(true), Some(false), true)]
#[case::neither(Some(false), Some(false), false)]
fn an_endpoint_is_left_out_only_when_neither_ready_nor_serving(
    #[case] ready: Option<bool>,
    #[case] serving: Option<bool>,
    #[case] published: bool,
) {
    let mut slice = slice("10.1.0.1");
    slice.endpoints[0].ready = ready;
    slice.endpoints[0].serving = serving;

    assert_eq!(addresses(&[slice]).len(), usize::from(published));
}

#[test]
fn headless_services_have_backends_and_no_frontends() {
    let labelled = ServiceFacts {
        labels: annotated(&[(HEADLESS, "")]),
        ..service()
    };
    let headless = ServiceFacts {
        headless: true,
        ..service()
    };

    for service in [labelled, headless] {
        let record = record(&service, &[slice("10.1.0.1")]).unwrap();
        assert!(record.frontends.is_empty());
        assert_eq!(record.backends.len(), 1);
    }
}

#[test]
fn hints_of_an_endpoint_without_zone_are_lost_and_empty_names_do_not_appear() {
    let mut slice = slice("10.1.0.1");
    slice.endpoints[0].for_zones = vec!["a".to_owned()];
    slice.endpoints[0].hostname = Some(String::new());

    let record = record(&service(), &[slice]).unwrap();

    assert!(record.zones.is_empty());
    assert!(record.hostnames.is_empty());
}

#[test]
fn an_address_of_two_slices_has_the_ports_of_both() {
    let mut second = slice("10.1.0.1");
    second.ports[0].name = "dns".try_into().unwrap();

    let record = record(&service(), &[slice("10.1.0.1"), second]).unwrap();

    let ports = &record.backends[&"10.1.0.1".parse::<IpAddr>().unwrap()];
    let names: Vec<_> = ports.keys().map(PortName::as_str).collect();
    assert_eq!(names, ["dns", "http"]);
}

#[test]
fn a_port_without_number_is_not_published() {
    let mut slice = slice("10.1.0.1");
    slice.ports[0].port = None;

    let record = record(&service(), &[slice]).unwrap();

    assert!(record.backends.values().all(BTreeMap::is_empty));
}

#[test]
fn an_export_of_labels_or_annotations_that_no_object_can_have_is_refused() {
    let evaluated = |change: fn(&mut ExportFacts)| {
        let mut export = export();
        change(&mut export);
        evaluate(&cluster(), true, Some(&service()), Some(&export))
    };

    for labels in [
        |export: &mut ExportFacts| export.labels = annotated(&[("bad key!", "x")]),
        |export: &mut ExportFacts| export.labels = annotated(&[("key", "bad value!")]),
    ] {
        let refused = ExportVerdict::Refused(Refusal::InvalidExportedLabels);
        assert_eq!(evaluated(labels), refused);
    }
    for annotations in [
        |export: &mut ExportFacts| export.annotations = annotated(&[("bad key!", "x")]),
        |export: &mut ExportFacts| {
            export.annotations = annotated(&[("large", "x".repeat(262_000).as_str())]);
        },
    ] {
        let refused = ExportVerdict::Refused(Refusal::InvalidExportedAnnotations);
        assert_eq!(evaluated(annotations), refused);
    }
    assert!(matches!(evaluated(|_| {}), ExportVerdict::Exported(_)));
}
