use rstest::rstest;
use tombolo_core::{
    peer_status::{Limit, PeerState},
    wire::key::Resource,
};

use super::*;
use crate::status::{
    answer::{Failure, Failures, LeftOut, Peer, Ready},
    testkit::{ago, copier, late, lost, mesh, operator, peer, standby, store},
};

fn verdict(answer: &Answer) -> Verdict {
    Verdict::of(&findings(answer))
}

/// The verdict on an operator whose only peer was spoilt.
fn spoilt(spoil: impl FnOnce(&mut Peer)) -> Verdict {
    let mut rome = peer("rome", 2);
    spoil(&mut rome);
    verdict(&operator(vec![rome]))
}

#[test]
fn all_is_well_only_when_everything_is_known_and_good() {
    assert_eq!(findings(&operator(vec![peer("rome", 2)])), []);
    assert_eq!(findings(&operator(Vec::new())), []);
    assert_eq!(findings(&mesh(store())), []);
    assert_eq!(findings(&copier(vec![peer("rome", 2)])), []);
    assert_eq!(findings(&copier(Vec::new())), []);
}

#[rstest]
#[case::the_head_is_not_known(|peer: &mut Peer| peer.asked.head = None)]
#[case::the_head_was_read_long_ago(|peer: &mut Peer| peer.asked.age_seconds = 10.5)]
#[case::the_age_of_the_head_is_nonsense(|peer: &mut Peer| peer.asked.age_seconds = f64::NAN)]
#[case::the_age_of_the_head_is_in_the_future(|peer: &mut Peer| peer.asked.age_seconds = -1.0)]
#[case::nothing_is_said_of_its_kinds(|peer: &mut Peer| peer.status.kinds.clear())]
#[case::nothing_is_said_of_one_kind(|peer: &mut Peer| { peer.status.kinds.pop_first(); })]
#[case::exports_are_enabled_and_not_followed(|peer: &mut Peer| {
    peer.status.kinds.get_mut(&Resource::ServiceExports).unwrap().published = false;
})]
#[case::it_is_ready_and_not_connected(|peer: &mut Peer| peer.status.connected = false)]
#[case::it_is_ready_and_was_never_synced(|peer: &mut Peer| peer.status.synced = false)]
#[case::its_config_is_not_known(|peer: &mut Peer| peer.status.config = None)]
fn a_peer_is_unknown_when(#[case] spoil: fn(&mut Peer)) {
    assert_eq!(spoilt(spoil), Verdict::Unknown);
}

#[rstest]
#[case::one_kind_is_not_at_the_head(|peer: &mut Peer| peer.asked.current.truncate(1))]
#[case::no_kind_is_at_the_head(|peer: &mut Peer| peer.asked.current.clear())]
#[case::a_kind_is_not_synced(|peer: &mut Peer| {
    peer.status.kinds.get_mut(&Resource::Services).unwrap().synced = false;
})]
#[case::it_is_read_for_the_first_time(|peer: &mut Peer| peer.status.state = PeerState::Listing)]
#[case::it_was_never_connected(|peer: &mut Peer| peer.status.state = PeerState::Connecting)]
#[case::a_record_of_it_is_refused_as_it_stands(|peer: &mut Peer| {
    peer.status.kinds.get_mut(&Resource::Services).unwrap().refused_now = 1;
})]
fn a_peer_is_behind_when(#[case] spoil: fn(&mut Peer)) {
    assert_eq!(spoilt(spoil), Verdict::Behind);
}

#[rstest]
#[case::it_is_suspect(|peer: &mut Peer| peer.status.state = PeerState::Suspect)]
#[case::it_expired(|peer: &mut Peer| peer.status.state = PeerState::Expired)]
#[case::it_cannot_be_connected(|peer: &mut Peer| {
    peer.status.state = PeerState::Connecting;
    peer.status.last_error = Some("no route to host".to_owned());
})]
#[case::its_file_is_broken(|peer: &mut Peer| {
    peer.status.file_error = Some("the file is empty".to_owned());
})]
#[case::something_is_wrong_although_it_is_followed(|peer: &mut Peer| {
    peer.status.last_error = Some("who knows".to_owned());
})]
#[case::it_exceeds_a_limit(|peer: &mut Peer| peer.status.limited = vec![Limit::Records])]
#[case::records_are_over_a_limit(|peer: &mut Peer| {
    peer.status.kinds.get_mut(&Resource::Services).unwrap().over_limit = 3;
})]
fn a_peer_is_a_problem_when(#[case] spoil: fn(&mut Peer)) {
    assert_eq!(spoilt(spoil), Verdict::Problem);
}

#[test]
fn records_refused_before_and_a_peer_that_publishes_nothing_are_worth_knowing_only() {
    let refused = |peer: &mut Peer| {
        peer.status
            .kinds
            .get_mut(&Resource::Services)
            .unwrap()
            .refused = 2;
    };
    let silent = |peer: &mut Peer| {
        let config = peer.status.config.as_mut().unwrap();
        config.capabilities.service_exports_enabled = None;
        for kind in peer.status.kinds.values_mut() {
            kind.published = false;
        }
    };

    assert_eq!(
        (spoilt(refused), spoilt(silent)),
        (Verdict::Well, Verdict::Well)
    );
    let mut rome = peer("rome", 2);
    refused(&mut rome);
    assert_eq!(findings(&operator(vec![rome])).len(), 1);
}

#[rstest]
#[case::peers(|answer: &mut Answer| answer.peers = None)]
#[case::role(|answer: &mut Answer| answer.role = "dns".to_owned())]
#[case::cluster(|answer: &mut Answer| answer.cluster = None)]
#[case::configuration(|answer: &mut Answer| answer.peers.as_mut().unwrap().configured = false)]
fn a_process_is_unknown_when_it_does_not_say(#[case] spoil: fn(&mut Answer)) {
    let mut answer = operator(vec![peer("rome", 2)]);

    spoil(&mut answer);

    assert_eq!(verdict(&answer), Verdict::Unknown);
}

#[test]
fn a_process_that_is_stuck_or_unready_is_not_well() {
    let mut stuck = operator(Vec::new());
    stuck.stuck.push("peer/rome".to_owned());
    let mut unready = operator(Vec::new());
    unready.ready[0].ok = false;
    let mut uncounted = unready.clone();
    let gate = uncounted.ready[0].clone();
    uncounted.ready[0].counts = false;
    uncounted.ready.push(Ready { ok: true, ..gate });

    assert_eq!(verdict(&stuck), Verdict::Problem);
    assert_eq!(verdict(&unready), Verdict::Behind);
    assert_eq!(verdict(&uncounted), Verdict::Well);
}

#[rstest]
#[case::the_head_is_not_known(|it: &mut OwnStore| it.asked.head = None, Verdict::Unknown)]
#[case::the_watch_has_not_answered(|it: &mut OwnStore| it.asked.current.clear(), Verdict::Behind)]
#[case::names_wait(|it: &mut OwnStore| it.waiting = 1, Verdict::Behind)]
#[case::not_all_is_published(|it: &mut OwnStore| it.published = false, Verdict::Behind)]
#[case::publishing_fails(|it: &mut OwnStore| {
    it.published = false;
    it.failures = failed(1.0);
}, Verdict::Problem)]
#[case::an_old_failure_means_nothing(|it: &mut OwnStore| it.failures = failed(1.0), Verdict::Well)]
#[case::something_is_left_out(|it: &mut OwnStore| {
    it.left_out = LeftOut { count: 1, first: Some("too large".to_owned()) };
}, Verdict::Problem)]
#[case::leases_run_out(|it: &mut OwnStore| it.lease = lease(Some(451.0)), Verdict::Problem)]
#[case::one_kind_was_not_seen(|it: &mut OwnStore| it.asked.current.truncate(1), Verdict::Behind)]
#[case::leases_are_confirmed_in_the_future(|it: &mut OwnStore| it.lease = lease(Some(-3.0)), Verdict::Problem)]
#[case::leases_are_not_confirmed(|it: &mut OwnStore| it.lease = lease(None), Verdict::Unknown)]
fn a_store_is_judged(#[case] spoil: fn(&mut OwnStore), #[case] expected: Verdict) {
    let mut own = store();

    spoil(&mut own);

    assert_eq!(verdict(&mesh(own)), expected);
}

fn failed(seconds_ago: f64) -> Failures {
    let last = Failure {
        reason: "Unreachable".to_owned(),
        message: "no connection".to_owned(),
        seconds_ago,
    };
    Failures {
        count: 1,
        last: Some(last),
    }
}

fn lease(confirmed_seconds_ago: Option<f64>) -> Lease {
    Lease {
        ttl_seconds: 900,
        held: 1,
        confirmed_seconds_ago,
    }
}

#[test]
fn the_worst_finding_decides() {
    let peers = vec![late("oslo", 3), lost("rome", 2), peer("bern", 4)];

    assert_eq!(verdict(&operator(peers)), Verdict::Problem);
    assert_eq!(verdict(&operator(vec![late("oslo", 3)])), Verdict::Behind);
}

#[test]
fn what_is_behind_says_how_far_and_since_when() {
    let found = findings(&operator(vec![late("oslo", 3)]));

    assert_eq!(found.len(), 1);
    assert!(
        found[0].what.contains("17 revisions behind, for 1m 35s"),
        "{found:?}"
    );
    assert!(ago(0) > ago(1));
}

#[test]
fn every_finding_says_what_to_do_next() {
    let peers = vec![late("oslo", 3), lost("rome", 2)];
    let mut answer = operator(peers);
    answer.stuck.push("peer/rome".to_owned());
    answer.cluster = None;
    answer.api_server.error = Some("no route".to_owned());
    answer.leadership = Some(standby());

    for finding in findings(&answer) {
        assert!(finding.next.len() > 5, "{finding:?}");
    }
}

#[test]
fn lengths_of_time_have_two_units_at_most() {
    let cases = [
        (0.2, "less than 1s"),
        (12.9, "12s"),
        (185.0, "3m 5s"),
        (3600.0, "1h"),
        (8_060.0, "2h 14m"),
        (273_600.0, "3d 4h"),
        (f64::NAN, "an unknown time"),
        (-3.0, "less than 1s"),
    ];
    for (seconds, text) in cases {
        assert_eq!(span(seconds), text);
    }
}

#[path = "judge_tests/copies.rs"]
mod copies;
#[path = "judge_tests/operator.rs"]
mod operator;
