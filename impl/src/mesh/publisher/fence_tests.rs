//! Records that go while something else is under way: the canaries still get another lease.

use tombolo_core::wire::key::Resource;

use super::{
    testkit::{CONFIG, EXPORT, SERVICE, canary, options},
    *,
};
use crate::kvstore::{
    Entry, LeaseId,
    testing::{Etcd, Subject, battery},
};

battery![
    a_list_that_was_begun_before_records_went_does_not_bring_their_fence_back,
    what_was_lent_and_is_not_in_a_list_is_gone,
    without_the_configuration_that_was_lent_canaries_get_another_lease,
];

/// Lists as often as it takes, as [`Publisher::follow_store`] does.
async fn list<S: KvStore>(publisher: &Publisher<S>) -> LeaseId {
    loop {
        let seen = publisher.state().fence.seen();
        let lease = publisher.fence(seen).await.unwrap();
        if publisher.begin(seen, lease, Vec::new()) {
            return lease;
        }
    }
}

async fn a_list_that_was_begun_before_records_went_does_not_bring_their_fence_back<S: Subject>(
    subject: S,
) {
    let publisher = Publisher::new(subject.store(), options());
    let first = list(&publisher).await;

    let seen = publisher.state().fence.seen();
    let prolonged = publisher.fence(seen).await.unwrap();
    publisher.state().fence.outdate();
    let begun = publisher.begin(seen, prolonged, Vec::new());

    assert_eq!(prolonged, first, "the lease still lives");
    assert!(!begun, "the list is to be made again");
    assert_ne!(list(&publisher).await, first);
}

/// An entry that another publisher has written alike.
fn lent<S: KvStore>(publisher: &Publisher<S>, key: &str) -> Entry {
    let ledger = &mut publisher.state().ledger;
    ledger.written(key, b"alike".to_vec(), 5);
    let entry = Entry {
        key: key.to_owned(),
        value: b"alike".to_vec(),
        create_revision: 5,
        mod_revision: 6,
        lease: Some(LeaseId(7)),
    };
    assert!(ledger.lend(&entry, false));
    entry
}

async fn what_was_lent_and_is_not_in_a_list_is_gone<S: Subject>(subject: S) {
    let publisher = Publisher::new(subject.store(), options());
    let lease = list(&publisher).await;
    let kept = lent(&publisher, EXPORT);
    lent(&publisher, SERVICE);
    lent(&publisher, &canary(Resource::Services));

    let seen = publisher.state().fence.seen();
    let begun = publisher.begin(seen, lease, vec![kept]);

    let state = publisher.state();
    assert!(begun, "it may have been deleted by the other");
    assert!(
        state.lent_gone.iter().eq([SERVICE]),
        "{:?}",
        state.lent_gone
    );
    assert_eq!(state.fence.lease(), Some(lease));
}

async fn without_the_configuration_that_was_lent_canaries_get_another_lease<S: Subject>(
    subject: S,
) {
    let publisher = Publisher::new(subject.store(), options());
    let lease = list(&publisher).await;
    lent(&publisher, CONFIG);

    let seen = publisher.state().fence.seen();
    let begun = publisher.begin(seen, lease, Vec::new());

    assert!(!begun, "the list is to be made again");
    assert_ne!(list(&publisher).await, lease);
}

#[tokio::test]
async fn a_canary_that_was_on_its_way_when_records_went_is_written_again() {
    let subject = Etcd::start().await;
    let publisher = Publisher::new(subject.store(), options());
    let first = list(&publisher).await;
    {
        let mut state = publisher.state();
        (state.services_ready, state.exports_ready) = (true, true);
    }

    // The first future waits for etcd when the second has its turn.
    let (finished, ()) = tokio::join!(publisher.finish_incarnation(), async {
        publisher.state().fence.outdate();
    });
    finished.unwrap();
    let second = list(&publisher).await;
    publisher.finish_incarnation().await.unwrap();

    assert_ne!(first, second);
    for resource in Resource::ALL {
        let key = canary(resource);
        let entry = subject.store().get(&key).await.unwrap().entry;
        assert_eq!(entry.and_then(|entry| entry.lease), Some(second), "{key}");
    }
}
