//! When a cluster counts as having taken its peer up.

use tombolo_core::peer_status::PeerState;

use super::{
    progress::{Goal, missing},
    testkit::cluster,
};
use crate::{
    cli::status::{Process, Report},
    status::{
        Answer, Verdict,
        testkit::{copier, operator, peer},
    },
};

fn report(answers: Vec<Answer>) -> Report {
    let processes = answers.into_iter().map(|answer| Process {
        address: "default/pod:9879".to_owned(),
        answer: Some(Box::new(answer)),
        error: None,
    });
    Report {
        verdict: Verdict::Well,
        summary: String::new(),
        processes: processes.collect(),
        findings: Vec::new(),
    }
}

fn synced(report: &Report) -> Option<String> {
    missing(report, &cluster("rome"), Goal::Synced, true)
}

#[test]
fn a_peer_that_both_roles_have_read_is_synced() {
    let both = || {
        vec![
            operator(vec![peer("rome", 2)]),
            copier(vec![peer("rome", 2)]),
        ]
    };

    assert_eq!(synced(&report(both())), None);
    let gone = missing(&report(both()), &cluster("rome"), Goal::Gone, true);
    assert!(gone.unwrap().contains("still follows rome"));
}

#[test]
fn a_role_that_does_not_answer_or_has_not_heard_of_it_is_waited_for() {
    let only_operator = report(vec![operator(vec![peer("rome", 2)])]);
    let unheard = report(vec![operator(vec![peer("rome", 2)]), copier(Vec::new())]);

    assert!(
        synced(&report(Vec::new()))
            .unwrap()
            .contains("no operator has answered")
    );
    assert!(
        synced(&only_operator)
            .unwrap()
            .contains("no mesh role has answered")
    );
    assert!(
        synced(&unheard)
            .unwrap()
            .contains("mesh: has not heard of rome yet")
    );
    assert_eq!(
        missing(&only_operator, &cluster("rome"), Goal::Synced, false),
        None
    );
}

#[test]
fn a_peer_that_is_followed_but_not_read_is_told_with_its_error() {
    let mut unread = peer("rome", 2);
    unread.status.state = PeerState::Connecting;
    unread.status.last_error = Some("connection refused by 192.0.2.1:1".to_owned());

    let told = synced(&report(vec![
        operator(vec![peer("rome", 2)]),
        copier(vec![unread]),
    ]));

    let told = told.unwrap();
    assert!(
        told.contains("mesh: ") && told.contains("connection refused by 192.0.2.1:1"),
        "{told}"
    );
}
