//! Records that go while something else is under way: the canaries still get another lease.

use tombolo_core::wire::key::Resource;

use super::*;
use crate::kvstore::{
    LeaseId,
    testing::{Etcd, Subject, battery},
};

battery![a_list_that_was_begun_before_records_went_does_not_bring_their_fence_back,];

fn options() -> Options {
    Options {
        publishing: Publishing {
            cluster: "paris".try_into().unwrap(),
            id: 7.try_into().unwrap(),
            default_global_namespace: true,
        },
        max_connected_clusters: 255,
        lease_ttl: Duration::from_mins(15),
        metrics: Metrics::default(),
        view: View::default(),
        gate: None,
    }
}

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
        let key = tombolo_core::wire::key::canary_key(
            &publisher.options.publishing.cluster,
            resource,
            false,
        );
        let canary = subject.store().get(&key).await.unwrap().entry;
        assert_eq!(
            canary.and_then(|canary| canary.lease),
            Some(second),
            "{key}"
        );
    }
}
