use std::collections::BTreeSet;

use prometheus_client::encoding::text::encode;
use tombolo_core::{evidence::Evidence, peer_status::Failure};

use super::*;

fn statuses(names: &[&str]) -> Statuses {
    let statuses = Statuses::default();
    let names: BTreeSet<_> = names.iter().map(|&name| name.try_into().unwrap()).collect();
    statuses.configure(&names);
    statuses
}

/// The samples of `/metrics` with this text in them.
fn samples(statuses: &Statuses, text: &str) -> Vec<String> {
    let mut registry = Registry::default();
    statuses.register_metrics(&mut registry);
    register(&mut registry, statuses, Counterpart::Operator);
    let mut page = String::new();
    encode(&mut page, &registry).unwrap();
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(text));
    lines.map(str::to_owned).collect()
}

#[test]
fn ciliums_names_have_ciliums_labels_and_no_suffix() {
    let statuses = statuses(&["rome"]);
    statuses.update(&"rome".try_into().unwrap(), |status, _| {
        status.failures = 3;
        status.last_failure = Some(Failure {
            at: "2026-11-30T12:00:00Z".parse().unwrap(),
            reason: "Unreachable".to_owned(),
            text: String::new(),
        });
    });

    let found = samples(&statuses, "cilium_operator_clustermesh_remote_cluster");

    let prefix = "cilium_operator_clustermesh_remote_cluster";
    for line in [
        format!("{prefix}s 1"),
        format!(r#"{prefix}_failures{{target_cluster="rome"}} 3"#),
        format!(r#"{prefix}_last_failure_ts{{target_cluster="rome"}} 1796040000"#),
        format!(r#"{prefix}_readiness_status{{target_cluster="rome"}} 0"#),
        format!(r#"{prefix}_cache_revocations{{target_cluster="rome"}} 0"#),
        format!(r#"{prefix}_services{{target_cluster="rome"}} 0"#),
        format!(r#"{prefix}_service_exports{{target_cluster="rome"}} 0"#),
    ] {
        assert!(found.contains(&line), "{line} is not in {found:#?}");
    }
    assert_eq!(found.len(), 7);
}

#[test]
fn a_peer_has_one_state_and_a_lag_for_each_kind_that_it_publishes() {
    let statuses = statuses(&["rome"]);
    statuses.update(&"rome".try_into().unwrap(), |status, now| {
        status.enter(PeerState::Ready, now);
        status
            .kinds
            .entry(Resource::Services)
            .or_default()
            .published = true;
        status.kinds.entry(Resource::Nodes).or_default();
        status.note_head(12, now - jiff::SignedDuration::from_secs(60));
    });

    assert_eq!(
        samples(&statuses, "tombolo_peer_state{"),
        [r#"tombolo_peer_state{cluster="rome",state="Ready"} 1"#]
    );
    assert_eq!(
        samples(&statuses, "tombolo_peer_lag_revisions"),
        [r#"tombolo_peer_lag_revisions{cluster="rome",kind="services"} 12.0"#]
    );
    let lag = samples(&statuses, "tombolo_peer_lag_seconds");
    let seconds: f64 = lag[0].rsplit(' ').next().unwrap().parse().unwrap();
    assert!((60.0..70.0).contains(&seconds), "{lag:?}");
}

#[test]
fn what_was_removed_and_refused_is_counted_by_evidence_and_goes_with_the_peer() {
    let statuses = statuses(&["oslo", "rome"]);
    let (rome, kind) = ("rome".try_into().unwrap(), Resource::Services);
    statuses.count_removed(&rome, kind, Evidence::KeyDeleted { revision: 7 }, 2);
    statuses.count_removed(&rome, kind, Evidence::PeerIdChanged, 1);
    statuses.count_removed(&rome, kind, Evidence::KeyDeleted { revision: 8 }, 0);
    statuses.count_refused(&rome, kind);

    let mut found = samples(&statuses, "tombolo_mesh_records_removed_total");
    found.sort();
    assert_eq!(
        found,
        [
            r#"tombolo_mesh_records_removed_total{cluster="rome",kind="services",evidence="KeyDeleted"} 2"#,
            r#"tombolo_mesh_records_removed_total{cluster="rome",kind="services",evidence="PeerIdChanged"} 1"#,
        ]
    );
    assert_eq!(
        samples(&statuses, "tombolo_mesh_records_refused_total").len(),
        1
    );

    statuses.configure(&BTreeSet::from(["oslo".try_into().unwrap()]));

    assert_eq!(samples(&statuses, "rome"), Vec::<String>::new());
}

#[test]
fn a_peer_that_expires_is_counted_as_a_revocation_each_time() {
    let statuses = statuses(&["rome"]);
    let rome = "rome".try_into().unwrap();
    for state in [
        PeerState::Expired,
        PeerState::Expired,
        PeerState::Ready,
        PeerState::Expired,
    ] {
        statuses.update(&rome, |status, now| status.enter(state, now));
    }

    assert_eq!(statuses.revocations(&rome), 2);
}
