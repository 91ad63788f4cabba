//! Copies of peers in the own store.

use super::*;
use crate::status::answer::{Copies, PeerCopy};

/// The verdict on a mesh role that copies one peer, after something about its copies was spoilt.
fn copying(spoil: impl FnOnce(&mut Copies)) -> Verdict {
    let mut answer = copier(vec![peer("rome", 2)]);
    spoil(answer.copies.as_mut().unwrap());
    verdict(&answer)
}

#[rstest]
#[case::the_own_store_does_not_answer(|it: &mut Copies| it.asked.head = None, Verdict::Unknown)]
#[case::the_own_store_was_asked_long_ago(|it: &mut Copies| it.asked.age_seconds = 11.0, Verdict::Unknown)]
#[case::the_own_store_is_not_listed(|it: &mut Copies| it.listed = false, Verdict::Behind)]
#[case::no_copy_was_seen(|it: &mut Copies| it.asked.current.clear(), Verdict::Behind)]
#[case::copies_of_one_kind_were_not_seen(|it: &mut Copies| it.asked.current.truncate(5), Verdict::Behind)]
#[case::records_wait(|it: &mut Copies| it.waiting = 1, Verdict::Behind)]
#[case::leases_run_out(|it: &mut Copies| it.lease = lease(Some(451.0)), Verdict::Problem)]
#[case::leases_are_not_confirmed(|it: &mut Copies| it.lease = lease(None), Verdict::Unknown)]
#[case::copies_hang_on_no_lease(|it: &mut Copies| it.lease.held = 0, Verdict::Well)]
#[case::nobody_knows_whether_leases_live(|it: &mut Copies| {
    it.lease = lease(None);
    it.lease.held = 0;
}, Verdict::Unknown)]
#[case::nothing_is_said_of_a_peer(|it: &mut Copies| it.peers.clear(), Verdict::Behind)]
#[case::an_old_failure_means_nothing(|it: &mut Copies| it.failures = failed(1.0), Verdict::Well)]
fn copies_are_judged(#[case] spoil: fn(&mut Copies), #[case] expected: Verdict) {
    assert_eq!(copying(spoil), expected);
}

#[rstest]
#[case::it_is_taken_out(|it: &mut PeerCopy| it.stays = false)]
#[case::it_is_of_an_earlier_life(|it: &mut PeerCopy| it.accepted = false)]
#[case::it_has_no_cluster_config(|it: &mut PeerCopy| it.config = false)]
#[case::records_wait(|it: &mut PeerCopy| it.waiting = 2)]
#[case::a_canary_is_to_be_written(|it: &mut PeerCopy| it.steps = 1)]
#[case::one_canary_does_not_stand(|it: &mut PeerCopy| it.canaries.truncate(5))]
#[case::no_canary_stands(|it: &mut PeerCopy| it.canaries.clear())]
#[case::it_is_of_another_peer(|it: &mut PeerCopy| it.cluster = "oslo".try_into().unwrap())]
fn a_copy_is_behind_when(#[case] spoil: fn(&mut PeerCopy)) {
    let spoil_one = |copies: &mut Copies| spoil(&mut copies.peers[0]);
    let failing = |copies: &mut Copies| {
        spoil_one(copies);
        copies.failures = failed(1.0);
    };

    assert_eq!(copying(spoil_one), Verdict::Behind);
    assert_eq!(
        copying(failing),
        Verdict::Problem,
        "calls to the store fail"
    );
}

#[test]
fn what_a_copy_lacks_is_named() {
    let mut answer = copier(vec![peer("rome", 2)]);
    let copy = &mut answer.copies.as_mut().unwrap().peers[0];
    copy.waiting = 3;
    copy.canaries.retain(|kind| *kind != Resource::Services);

    let found = findings(&answer);

    assert_eq!(found[0].subject, "copy of rome");
    let what = &found[0].what;
    assert!(what.contains("3 records wait"), "{what}");
    assert!(what.contains("no canary stands for services"), "{what}");
}

#[test]
fn what_is_left_of_a_peer_that_was_taken_out_is_no_matter_unless_it_is_to_be_deleted() {
    let leaving = |steps| {
        let mut answer = copier(vec![peer("rome", 2)]);
        answer.peers.as_mut().unwrap().peers.clear();
        let copy = &mut answer.copies.as_mut().unwrap().peers[0];
        (copy.stays, copy.config, copy.steps) = (false, false, steps);
        verdict(&answer)
    };

    assert_eq!(leaving(0), Verdict::Well);
    assert_eq!(leaving(1), Verdict::Behind);
}

#[test]
fn a_replica_that_stands_by_is_well_only_when_the_store_names_another_that_copies() {
    let standing_by = |spoil: &dyn Fn(&mut Copies)| {
        let mut answer = copier(Vec::new());
        answer.peers.as_mut().unwrap().configured = false;
        let copies = answer.copies.as_mut().unwrap();
        (copies.leads, copies.listed) = (false, false);
        copies.holder = Some("cilium/.kvstoremesh/1".to_owned());
        copies.asked.current.clear();
        spoil(copies);
        verdict(&answer)
    };

    assert_eq!(standing_by(&|_| ()), Verdict::Well);
    assert_eq!(standing_by(&|it| it.holder = None), Verdict::Unknown);
    assert_eq!(standing_by(&|it| it.asked.head = None), Verdict::Unknown);
    assert_eq!(
        standing_by(&|it| it.asked.age_seconds = 60.0),
        Verdict::Unknown
    );
}
