use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};

use super::*;
use crate::operator::testkit::object;

const EXPORT_YAML: &str = r#"
metadata: {name: web, namespace: shop, resourceVersion: "1"}
status:
  conditions:
  - {type: Valid, status: "True", reason: Valid, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Conflict, status: "False", reason: NoConflicts, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
"#;

const IMPORT_YAML: &str = r#"
metadata: {name: web, namespace: shop, resourceVersion: "1"}
spec: {type: ClusterSetIP, ports: [{port: 80}]}
status:
  clusters: [{cluster: paris}, {cluster: rome}]
  conditions:
  - {type: Ready, status: "True", reason: Ready, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
"#;

/// The samples of `/metrics`, without what describes them.
fn samples(caches: &Caches) -> Vec<String> {
    let mut registry = Registry::default();
    register(&mut registry, caches);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn exports_and_imports_have_ciliums_series() {
    let caches = Caches::new();
    let export: ServiceExport = object(EXPORT_YAML);
    let import: ServiceImport = object(IMPORT_YAML);
    caches.exports.set(Arc::new(export), &|_| {});
    caches.imports.set(Arc::new(import), &|_| {});

    assert_eq!(
        samples(&caches),
        [
            r#"cilium_operator_mcsapi_serviceexport_info{serviceexport="web",namespace="shop"} 1"#,
            r#"cilium_operator_mcsapi_serviceexport_status_condition{serviceexport="web",namespace="shop",condition="Valid",status="True",reason="Valid"} 1"#,
            r#"cilium_operator_mcsapi_serviceexport_status_condition{serviceexport="web",namespace="shop",condition="Conflict",status="False",reason="NoConflicts"} 1"#,
            r#"cilium_operator_mcsapi_serviceimport_info{serviceimport="web",namespace="shop"} 1"#,
            r#"cilium_operator_mcsapi_serviceimport_status_condition{serviceimport="web",namespace="shop",condition="Ready",status="True",reason="Ready"} 1"#,
            r#"cilium_operator_mcsapi_serviceimport_status_clusters{serviceimport="web",namespace="shop"} 2"#,
        ]
    );
}

#[test]
fn the_series_of_an_object_go_with_it() {
    let caches = Caches::new();
    let export: ServiceExport = object(EXPORT_YAML);
    caches.exports.set(Arc::new(export), &|_| {});
    assert_eq!(samples(&caches).len(), 3);

    let key = ("shop".to_owned(), "web".to_owned());
    caches.exports.remove(&key, &|_| {});

    assert_eq!(samples(&caches), Vec::<String>::new());
}

#[test]
fn a_condition_that_changes_leaves_no_series_of_its_last_state_behind() {
    let caches = Caches::new();
    let conflict = EXPORT_YAML.replace(
        r#"status: "False", reason: NoConflicts"#,
        r#"status: "True", reason: PortConflict"#,
    );
    let states = [EXPORT_YAML, &conflict].map(object::<ServiceExport>);
    for export in states {
        caches.exports.set(Arc::new(export), &|_| {});
    }

    let samples = samples(&caches);

    let of_conflict = |line: &&String| line.contains(r#"condition="Conflict""#);
    let found: Vec<_> = samples.iter().filter(of_conflict).collect();
    assert_eq!(found.len(), 1, "{samples:?}");
    assert!(found[0].contains(r#"status="True",reason="PortConflict""#));
}

#[test]
fn what_others_wrote_into_a_status_cannot_break_the_page() {
    let caches = Caches::new();
    let mut export: ServiceExport = object(EXPORT_YAML);
    let conditions = export.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions.truncate(1);
    conditions[0].reason = "a\"} 7\nevil 1 \\".to_owned();
    caches.exports.set(Arc::new(export), &|_| {});

    let samples = samples(&caches);

    assert_eq!(samples.len(), 2, "{samples:?}");
    assert!(
        samples[1].contains(r#"reason="a\"} 7\nevil 1 \\""#),
        "{samples:?}"
    );
}
