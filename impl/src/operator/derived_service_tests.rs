use super::*;
use crate::operator::testkit::{named, object};

fn import(spec: &str) -> ServiceImport {
    object(&format!(
        "
metadata:
  {{name: web, namespace: shop, uid: import-1, labels: {{team: pay}},
   annotations: {{clustermesh.cilium.io/supported-ip-families: 'IPv6,IPv4'}}}}
spec: {spec}
"
    ))
}

fn cluster_set_ip() -> ServiceImport {
    import("{type: ClusterSetIP, ports: [{name: http, protocol: TCP, port: 80}]}")
}

fn headless() -> ServiceImport {
    import("{type: Headless, ports: [{name: http, protocol: TCP, port: 80}]}")
}

/// The Service as the API server gives it back.
fn stored(import: &ServiceImport) -> Service {
    let mut service = build(&named("shop", "web"), import);
    service.metadata.uid = Some("service-1".to_owned());
    let spec = service.spec.as_mut().unwrap();
    if spec.cluster_ip.is_none() {
        spec.cluster_ip = Some("10.96.0.7".to_owned());
        spec.cluster_ips = Some(vec!["10.96.0.7".to_owned(), "fd00:96::7".to_owned()]);
    }
    service
}

fn decided(import: Option<&ServiceImport>, actual: Option<&Service>, global: bool) -> Decision {
    decide(&Observed {
        name: &named("shop", "web"),
        namespace_global: global,
        import,
        actual,
    })
}

fn applied(decision: Decision) -> Service {
    match decision {
        Decision::Apply(service) => *service,
        other @ (Decision::Leave | Decision::Delete | Decision::Recreate(_) | Decision::Clash) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn a_derived_service_that_is_as_it_should_be_keeps_its_ip_and_is_not_written() {
    let actual = stored(&cluster_set_ip());

    let desired = applied(decided(Some(&cluster_set_ip()), Some(&actual), true));

    assert_eq!(desired.metadata.uid.as_deref(), Some("service-1"));
    assert_eq!(desired.spec.as_ref().unwrap().cluster_ip, None);
    assert!(is_same(&desired, &actual));
}

#[test]
fn a_change_of_type_makes_it_anew() {
    let actual = stored(&cluster_set_ip());

    let decision = decided(Some(&headless()), Some(&actual), true);

    assert!(matches!(decision, Decision::Recreate(service) if is_headless(&service)));
}

#[test]
fn it_goes_with_its_import_its_families_or_its_namespace() {
    let actual = stored(&cluster_set_ip());
    let mut without_family = cluster_set_ip();
    without_family
        .annotations_mut()
        .insert(keys::SUPPORTED_IP_FAMILIES.to_owned(), String::new());

    assert_eq!(decided(None, Some(&actual), true), Decision::Delete);
    assert_eq!(
        decided(Some(&cluster_set_ip()), Some(&actual), false),
        Decision::Delete
    );
    assert_eq!(
        decided(Some(&without_family), Some(&actual), true),
        Decision::Delete
    );
    assert_eq!(decided(None, None, true), Decision::Leave);
}

#[test]
fn one_of_an_earlier_import_of_the_name_is_made_anew() {
    let actual = stored(&cluster_set_ip());
    let mut later = cluster_set_ip();
    later.metadata.uid = Some("import-2".to_owned());

    assert!(matches!(
        decided(Some(&later), Some(&actual), true),
        Decision::Recreate(_)
    ));
}

#[test]
fn a_service_of_somebody_else_is_never_touched() {
    let foreign: Service =
        object("{metadata: {name: derived-x, namespace: shop}, spec: {type: ClusterIP}}");

    assert_eq!(
        decided(Some(&cluster_set_ip()), Some(&foreign), true),
        Decision::Clash
    );
    assert_eq!(decided(None, Some(&foreign), true), Decision::Clash);
}

#[test]
fn what_others_have_set_is_taken_off() {
    let mut actual = stored(&cluster_set_ip());
    actual
        .labels_mut()
        .insert("foreign".to_owned(), "1".to_owned());
    actual
        .annotations_mut()
        .insert(keys::SHARED.to_owned(), "false".to_owned());
    actual.spec.as_mut().unwrap().selector = Some([("app".to_owned(), "web".to_owned())].into());

    let desired = applied(decided(Some(&cluster_set_ip()), Some(&actual), true));

    let expected = json!({
        "metadata": { "labels": { "foreign": null }, "annotations": { keys::SHARED: null } },
        "spec": { "selector": null },
    });
    assert_eq!(strays(&desired, &actual), Some(expected));
}

#[test]
fn a_global_annotation_of_the_exporter_is_overridden() {
    let mut import = cluster_set_ip();
    import
        .annotations_mut()
        .insert(keys::GLOBAL.to_owned(), "false".to_owned());

    let service = build(&named("shop", "web"), &import);

    assert_eq!(service.annotations()[keys::GLOBAL], "true");
}

#[test]
fn session_affinity_reaches_it_unless_it_is_headless() {
    let affinity =
        "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}";
    let ports = "ports: [{port: 80}]";
    let spec = |kind: &str| {
        let import = import(&format!("{{type: {kind}, {ports}, {affinity}}}"));
        build(&named("shop", "web"), &import).spec.unwrap()
    };

    let served = spec("ClusterSetIP");
    let timeout = served
        .session_affinity_config
        .and_then(|config| config.client_ip);
    assert_eq!(served.session_affinity.as_deref(), Some("ClientIP"));
    assert_eq!(timeout.and_then(|client| client.timeout_seconds), Some(600));
    assert_eq!(spec("Headless").session_affinity.as_deref(), Some("None"));
    assert_eq!(spec("Headless").session_affinity_config, None);
}

#[test]
fn of_named_and_unnamed_ports_those_like_the_first_are_kept() {
    let ports = |ports: &str| -> Vec<i32> {
        let import = import(&format!("{{type: ClusterSetIP, ports: {ports}}}"));
        let spec = build(&named("shop", "web"), &import).spec.unwrap();
        spec.ports.unwrap().iter().map(|port| port.port).collect()
    };

    assert_eq!(ports("[{port: 80}]"), [80]);
    assert_eq!(ports("[{port: 80}, {name: b, port: 90}]"), [80]);
    assert_eq!(
        ports("[{name: a, port: 80}, {port: 90}, {name: c, port: 91}]"),
        [80, 91]
    );
}
