use tombolo_core::{
    export::Refusal,
    merge::{Conflict, ConflictReason, Merged},
    service::{ImportType, SessionAffinity},
};

use super::*;
use crate::operator::testkit::{cluster, object};

fn export(conditions: &str) -> ServiceExport {
    object(&format!(
        "{{metadata: {{name: web, namespace: shop}}, status: {{conditions: {conditions}}}}}"
    ))
}

fn refused(refusal: Refusal) -> View {
    View {
        namespace_global: true,
        verdict: ExportVerdict::Refused(refusal),
        merged: None,
    }
}

fn merged(conflicts: Vec<Conflict>) -> View {
    let spec = tombolo_core::service::ExportSpec {
        cluster: cluster("east"),
        name: crate::operator::testkit::named("shop", "web"),
        created_at: Timestamp::UNIX_EPOCH,
        labels: std::collections::BTreeMap::new(),
        annotations: std::collections::BTreeMap::new(),
        ports: Vec::new(),
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: Vec::new(),
        internal_traffic_policy: None,
        traffic_distribution: None,
    };
    let merged = tombolo_core::merge::merge(std::slice::from_ref(&spec)).unwrap();
    View {
        namespace_global: true,
        verdict: ExportVerdict::Exported(Box::new(spec)),
        merged: Some(Merged {
            conflicts,
            ..merged
        }),
    }
}

const CONFLICT: &str = "[{type: Conflict, status: 'True', reason: TypeConflict, message: m, lastTransitionTime: '2026-01-01T00:00:00Z'}]";

fn types(conditions: &[ApiCondition]) -> Vec<&str> {
    conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect()
}

#[test]
fn an_export_that_is_not_valid_has_no_conflict_condition() {
    let export = export(CONFLICT);

    let desired = build(
        &refused(Refusal::NoService),
        &export,
        false,
        Timestamp::UNIX_EPOCH,
    );

    let patch = strays(&desired, &export).unwrap();
    assert_eq!(types(&desired), ["Valid", "Ready"]);
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_conflict_stays_reported_while_a_cluster_that_takes_part_is_loading() {
    let export = export(CONFLICT);
    let status = |held| {
        let desired = build(&merged(Vec::new()), &export, held, Timestamp::UNIX_EPOCH);
        let conflict = desired
            .iter()
            .find(|condition| condition.type_ == "Conflict");
        conflict.unwrap().status.clone()
    };

    assert_eq!(status(true), "True");
    assert_eq!(status(false), "False");
}

#[test]
fn a_new_conflict_is_reported_even_while_a_cluster_is_loading() {
    let conflict = Conflict {
        reason: ConflictReason::Type,
        message: "types differ".to_owned(),
    };

    let desired = build(
        &merged(vec![conflict]),
        &export("[]"),
        true,
        Timestamp::UNIX_EPOCH,
    );

    assert_eq!(desired[2].status, "True");
    assert_eq!(desired[2].reason, "TypeConflict");
}

#[test]
fn a_status_that_is_right_is_not_written() {
    let desired = build(
        &merged(Vec::new()),
        &export("[]"),
        false,
        Timestamp::UNIX_EPOCH,
    );
    let mut export = export("[]");
    export.status.as_mut().unwrap().conditions = Some(desired.clone());

    let later = build(
        &merged(Vec::new()),
        &export,
        false,
        Timestamp::from_second(9).unwrap(),
    );

    assert_eq!(later, desired);
    assert!(is_same(&later, &export));
}
