//! What is seen of the copies from outside, and what is made of it.

use std::collections::BTreeSet;

use super::*;
use crate::{
    kvstore::testing::{Etcd, Subject, battery},
    status::{
        Verdict,
        answer::Copies,
        judge,
        testkit::{copier, peer as well},
    },
};

/// How long stores and writers have for an answer.
const BOUND: Duration = Duration::from_secs(5);

battery![
    complete_copies_are_shown_to_be_current,
    a_copy_of_a_peer_that_lacks_a_canary_has_none_either,
    a_process_that_stands_by_names_who_copies_and_a_sole_one_nobody,
];

impl<S: KvStore> Here<S> {
    async fn copies(&self) -> Copies {
        self.running().view.ask(BOUND).await
    }

    /// Waits until what is seen of the copies is so; returns it as it was seen then.
    async fn seen(&self, what: &str, holds: impl Fn(&Copies) -> bool) -> Copies {
        let mut seen = None;
        eventually(what, async || {
            seen = Some(self.copies().await).filter(&holds);
            seen.is_some()
        })
        .await;
        seen.expect("it was seen")
    }
}

/// What these copies come to when all else is well.
fn verdict(copies: Copies) -> Verdict {
    let mut answer = copier(vec![well("rome", 2)]);
    answer.copies = Some(copies);
    Verdict::of(&judge::findings(&answer))
}

async fn complete_copies_are_shown_to_be_current<S: Subject>(subject: S) {
    let rome = peer("rome", &["a", "b"]).await;
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    let copies = here
        .seen("everything is shown to be well", |copies| {
            verdict(copies.clone()) == Verdict::Well
        })
        .await;

    let current: BTreeSet<_> = copies.asked.current.iter().copied().collect();
    assert_eq!(current, BTreeSet::from(Resource::ALL));
    assert!(
        copies.leads && copies.listed && copies.lease.held > 0,
        "{copies:?}"
    );
    assert_eq!(copies.peers.len(), 1);
    assert_eq!(copies.peers[0].canaries, Resource::ALL);
}

async fn a_copy_of_a_peer_that_lacks_a_canary_has_none_either<S: Subject>(subject: S) {
    let mut rome = Writer::new("rome", MemoryStore::new("rome"));
    rome.new_lease().await;
    rome.config(2, capable()).await;
    rome.export("a", 1).await;
    for kind in Resource::ALL {
        if kind != Resource::Services {
            rome.canary(kind).await;
        }
    }
    let mut here = Here::new(subject.store());
    here.start(&[("rome", rome.store.clone())]);
    let others = Resource::ALL.len() - 1;
    let copies = here
        .seen("all other canaries stand", |copies| {
            let copy = copies.peers.first();
            copy.is_some_and(|copy| copy.canaries.len() == others)
        })
        .await;
    rome.canary(Resource::Services).await;

    assert!(!copies.peers[0].canaries.contains(&Resource::Services));
    assert_eq!(verdict(copies), Verdict::Behind);
    eventually("everything is well", async || {
        verdict(here.copies().await) == Verdict::Well
    })
    .await;
}

async fn a_process_that_stands_by_names_who_copies_and_a_sole_one_nobody<S: Subject>(subject: S) {
    let rome = peer("rome", &["a"]).await;
    let (mut first, mut second) = (Here::new(subject.store()), Here::new(subject.store()));
    let before = View::default().ask(BOUND).await;
    first.start(&[("rome", rome.store.clone())]);
    first.until_ready().await;
    second.start(&[("rome", rome.store.clone())]);

    let standby = second
        .seen("the standby names the holder", |copies| {
            copies.holder.is_some()
        })
        .await;
    first.stop().await;
    eventually("the standby copies", async || second.copies().await.leads).await;

    assert!(!before.leads && before.holder.is_none(), "{before:?}");
    assert_eq!(verdict(before), Verdict::Unknown);
    assert!(
        !standby.leads && standby.asked.head.is_some(),
        "{standby:?}"
    );
    assert!(standby.holder.unwrap().starts_with(key::KVSTOREMESH_LOCK));
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_not_well_until_what_came_meanwhile_is_copied() {
    let (rome, store) = (peer("rome", &["a"]).await, MemoryStore::new("here"));
    let mut here = Here::new(store.clone());
    here.lock_ttl = Duration::from_mins(1);
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    store.set_reachable(false);
    rome.export("b", 1).await;
    let away = here
        .seen("the store is known to be away", |copies| {
            assert_ne!(verdict(copies.clone()), Verdict::Well, "{copies:?}");
            !copies.listed && copies.failures.count > 0
        })
        .await;
    store.set_reachable(true);

    assert!(
        away.asked.head.is_none() && away.asked.error.is_some(),
        "{away:?}"
    );
    assert_eq!(verdict(away), Verdict::Problem, "calls to the store fail");
    eventually("everything is well", async || {
        verdict(here.copies().await) == Verdict::Well
    })
    .await;
    assert!(here.entry(&export_of("rome", "b")).await.is_some());
}

#[tokio::test]
async fn a_record_that_the_store_does_not_take_waits_and_is_a_problem() {
    let own = Etcd::launch_with(&["--max-request-bytes=4096"]);
    let rome = peer("rome", &["a"]).await;
    let mut here = Here::new(own.store());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;

    let node = key::records_prefix(&name("rome"), Resource::Nodes, false) + "large";
    rome.put(&node, vec![b'x'; 8192]).await;
    let failing = here
        .seen("writing it has failed", |copies| {
            copies.listed && copies.waiting > 0 && copies.failures.count > 0
        })
        .await;
    assert!(rome.store.delete(&node).await.unwrap().1);

    let copy = &failing.peers[0];
    assert!(failing.listed && copy.waiting > 0, "{failing:?}");
    assert!(!copy.canaries.contains(&Resource::Nodes), "{copy:?}");
    assert_eq!(verdict(failing), Verdict::Problem);
    eventually("everything is well", async || {
        verdict(here.copies().await) == Verdict::Well
    })
    .await;
}

#[tokio::test]
async fn a_store_that_was_emptied_without_a_word_is_unknown() {
    let (rome, store) = (peer("rome", &["a"]).await, MemoryStore::new("here"));
    let mut here = Here::new(store.clone());
    here.lock_ttl = Duration::from_mins(1);
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    eventually("everything is well", async || {
        verdict(here.copies().await) == Verdict::Well
    })
    .await;

    store.wipe_silently();
    let copies = here.copies().await;

    assert!(copies.asked.head.is_none(), "{copies:?}");
    assert_ne!(verdict(copies), Verdict::Well);
}

#[tokio::test]
async fn a_copy_of_an_earlier_life_is_not_taken_for_followed() {
    let (rome, store) = (peer("rome", &["a"]).await, MemoryStore::new("here"));
    let mut here = Here::new(store.clone());
    here.start(&[("rome", rome.store.clone())]);
    here.until_ready().await;
    here.kill().await;

    rome.store.set_reachable(false);
    here.start(&[("rome", rome.store.clone())]);
    let copies = here
        .seen("the copy is there", |copies| {
            let copy = copies.peers.first();
            copy.is_some_and(|copy| copy.canaries.len() == Resource::ALL.len())
        })
        .await;

    assert!(!copies.peers[0].accepted, "{copies:?}");
    assert_ne!(verdict(copies), Verdict::Well);
}
