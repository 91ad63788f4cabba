//! Who leads, what is still to be done, and whether the API server answers.

use super::*;
use crate::status::{
    answer::{ApiServer, Leadership, Work},
    testkit::leader,
};

/// The verdict on a replica with this part in the election.
fn leading(leadership: Leadership) -> Verdict {
    let mut answer = operator(Vec::new());
    answer.leadership = Some(leadership);
    verdict(&answer)
}

#[test]
fn a_leader_is_well_and_a_standby_that_sees_one_renew_too() {
    let sole = Leadership {
        elected: false,
        identity: None,
        holder: None,
        ..leader()
    };

    assert_eq!(leading(leader()), Verdict::Well);
    assert_eq!(leading(standby()), Verdict::Well);
    assert_eq!(leading(sole), Verdict::Well);
}

#[rstest]
#[case::nobody_holds_the_lease(|it: &mut Leadership| it.holder = None)]
#[case::the_holder_was_never_seen_to_renew(|it: &mut Leadership| it.renewed_seconds_ago = None)]
#[case::the_holder_does_not_renew(|it: &mut Leadership| it.renewed_seconds_ago = Some(15.1))]
#[case::the_renewal_is_in_the_future(|it: &mut Leadership| it.renewed_seconds_ago = Some(-1.0))]
#[case::it_holds_the_lease_and_may_not_write(|it: &mut Leadership| it.identity.clone_from(&it.holder))]
#[case::there_is_no_election_and_it_may_not_write(|it: &mut Leadership| it.elected = false)]
fn a_standby_is_unknown_when(#[case] spoil: fn(&mut Leadership)) {
    let mut leadership = standby();

    spoil(&mut leadership);

    assert_eq!(leading(leadership), Verdict::Unknown);
}

#[rstest]
#[case::names_wait(|it: &mut Work| it.waiting = 3)]
#[case::a_name_is_in_work(|it: &mut Work| it.working = 1)]
#[case::a_name_fails(|it: &mut Work| it.retrying = 1)]
#[case::nothing_is_handed_out(|it: &mut Work| it.held = true)]
fn a_leader_is_behind_when(#[case] spoil: fn(&mut Work)) {
    let mut answer = operator(Vec::new());
    spoil(&mut answer.queues[1]);
    let by_leader = verdict(&answer);
    answer.leadership = Some(standby());

    assert_eq!(by_leader, Verdict::Behind);
    assert_eq!(verdict(&answer), Verdict::Well, "a standby does not work");
}

#[test]
fn what_waits_is_told_with_its_number_and_age() {
    let mut answer = operator(Vec::new());
    answer.queues[0].waiting = 7;
    answer.queues[0].oldest_seconds = Some(65.0);

    let found = findings(&answer);

    assert_eq!(found[0].subject, "controller service-import");
    assert!(
        found[0].what.contains("7 wait, the oldest for 1m 5s"),
        "{found:?}"
    );
}

#[rstest]
#[case::it_does_not_answer(|it: &mut ApiServer| it.error = Some("refused".to_owned()))]
#[case::it_never_answered(|it: &mut ApiServer| it.answered_seconds_ago = None)]
#[case::it_answered_long_ago(|it: &mut ApiServer| it.answered_seconds_ago = Some(10.5))]
#[case::it_answered_in_the_future(|it: &mut ApiServer| it.answered_seconds_ago = Some(-1.0))]
#[case::a_watch_is_dead(|it: &mut ApiServer| it.watches[1].begun_seconds_ago = 41.0)]
#[case::a_watch_fails(|it: &mut ApiServer| it.watches[0].failure = Some("403".to_owned()))]
#[case::nothing_is_watched(|it: &mut ApiServer| it.watches.clear())]
fn the_api_server_is_unknown_when(#[case] spoil: fn(&mut ApiServer)) {
    for mut answer in [operator(Vec::new()), mesh(store())] {
        spoil(&mut answer.api_server);
        assert_eq!(verdict(&answer), Verdict::Unknown, "{}", answer.role);
    }
}

#[rstest]
#[case::an_operator_with_a_store(|it: &mut Answer| it.store = Some(store()))]
#[case::an_operator_without_an_election(|it: &mut Answer| it.leadership = None)]
#[case::an_operator_without_queues(|it: &mut Answer| it.queues.clear())]
#[case::no_checks(|it: &mut Answer| it.ready.clear())]
#[case::no_checks_that_count(|it: &mut Answer| it.ready[0].counts = false)]
#[case::a_mesh_role_without_a_store(|it: &mut Answer| it.role = "mesh".to_owned())]
fn an_answer_that_contradicts_its_role_is_unknown(#[case] spoil: fn(&mut Answer)) {
    let mut answer = operator(vec![peer("rome", 2)]);

    spoil(&mut answer);

    assert_eq!(verdict(&answer), Verdict::Unknown);
}

#[test]
fn a_mesh_role_that_says_nothing_of_its_copies_or_peers_is_unknown() {
    let mut without_copies = copier(vec![peer("rome", 2)]);
    without_copies.copies = None;
    let mut without_peers = copier(vec![peer("rome", 2)]);
    without_peers.peers = None;
    let mut leading = mesh(store());
    leading.leadership = Some(leader());

    for answer in [without_copies, without_peers, leading] {
        assert_eq!(verdict(&answer), Verdict::Unknown);
    }
}

#[test]
fn a_clock_that_goes_back_makes_nothing_well() {
    for mut peers in [vec![late("oslo", 3)], vec![lost("rome", 2)]] {
        let before = verdict(&operator(peers.clone()));
        for peer in &mut peers {
            peer.status.last_contact = Some(ago(-7200));
            peer.status.since = ago(-7200);
            for kind in peer.status.kinds.values_mut() {
                kind.behind_since = kind.behind_since.map(|_| ago(-7200));
            }
        }
        assert_eq!(verdict(&operator(peers)), before);
    }
}
