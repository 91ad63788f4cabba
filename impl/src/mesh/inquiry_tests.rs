use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex as StdMutex},
};

use tokio_util::sync::CancellationToken;
use tombolo_core::{
    evidence::{Complete, Evidence},
    peer_status::PeerState,
};

use super::*;
use crate::{
    kvstore::{
        memory::MemoryStore,
        testing::{budget, eventually},
    },
    mesh::{
        peer::LocalCluster,
        remote_cluster::{
            Memory, Options, Origin, Outcome, RawChange, Records, RemoteCluster, Untaken,
            testkit::{Follower, Writer, battery, followed},
        },
        reservations::Reservations,
        statuses::Statuses,
    },
};

/// How long an answer is waited for that does not come.
const BOUND: Duration = Duration::from_secs(2);
const BOTH: [Resource; 2] = [Resource::ServiceExports, Resource::Services];

battery![
    a_follower_that_is_up_to_date_shows_it_although_nothing_was_written,
    a_follower_shows_that_it_took_in_what_was_written_just_before_the_question,
];

async fn found(statuses: &Statuses, bound: Duration) -> Found {
    let mut all = statuses.inquiries().ask_all(bound).await;
    all.pop_first().expect("one peer").1
}

async fn a_follower_that_is_up_to_date_shows_it_although_nothing_was_written<
    S: crate::kvstore::testing::Subject,
>(
    subject: S,
) {
    let (_writer, follower) = followed(&subject, &["web"]).await;
    let head = subject.store().get("anything").await.unwrap().revision;

    let found = found(follower.state.statuses(), budget()).await;

    assert_eq!(found.head, Ok(head));
    let current: BTreeSet<_> = found.current.into_iter().collect();
    assert_eq!(current, BTreeSet::from(BOTH));
}

async fn a_follower_shows_that_it_took_in_what_was_written_just_before_the_question<
    S: crate::kvstore::testing::Subject,
>(
    subject: S,
) {
    let (writer, follower) = followed(&subject, &["web"]).await;
    writer.export("api", 2).await;
    writer.unexport("web").await;

    let found = found(follower.state.statuses(), budget()).await;

    assert_eq!(found.current.len(), 2, "{found:?}");
    assert_eq!(follower.rows(), ["api"]);
}

#[tokio::test]
async fn a_store_that_does_not_answer_leaves_the_head_unknown() {
    let store = MemoryStore::new("rome");
    let mut writer = Writer::new("rome", store.clone());
    writer.fill(&["web"]).await;
    let mut follower = Follower::new("rome", store.clone());
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;

    store.set_reachable(false);
    let found = found(follower.state.statuses(), budget()).await;

    assert!(found.head.is_err(), "{found:?}");
    assert_eq!(found.current, []);
}

#[tokio::test]
async fn a_peer_that_is_not_followed_any_more_is_not_answered_for() {
    let store = MemoryStore::new("rome");
    let mut follower = Follower::new("rome", store);
    follower.start(Memory::default());
    let statuses = follower.state.statuses().clone();
    eventually("the follower is there", async || {
        !statuses.inquiries().lock().is_empty()
    })
    .await;

    follower.stop().await;

    assert!(statuses.inquiries().ask_all(budget()).await.is_empty());
}

/// Records whose taking in hangs as soon as it is told to, as a deadlock would make it.
#[derive(Debug, Clone, Default)]
struct Stuck(Arc<(StdMutex<bool>, Condvar)>);

impl Stuck {
    fn hang(&self, hangs: bool) {
        *self.0.0.lock().unwrap() = hangs;
        self.0.1.notify_all();
    }
}

impl Records for Stuck {
    fn kinds(&self) -> &'static [Resource] {
        &BOTH
    }

    fn apply(&self, _: &Origin<'_>, changes: &[RawChange<'_>]) -> Vec<Outcome> {
        let hangs = self.0.0.lock().unwrap();
        let goes_on = self.0.1.wait_while(hangs, |hangs| *hangs);
        drop(goes_on.unwrap());
        changes.iter().map(|_| Outcome::Held).collect()
    }

    fn retain_listed(
        &self,
        _: &Origin<'_>,
        _: &BTreeSet<String>,
        _: &Untaken,
        _: Complete,
    ) -> usize {
        0
    }

    fn drain(&self, _: &ClusterName, _: &[Resource], _: Evidence) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reader_that_hangs_is_not_current_although_its_peer_was_ready() {
    let store = MemoryStore::new("rome");
    let mut writer = Writer::new("rome", store.clone());
    writer.fill(&["web"]).await;
    let (records, statuses) = (Stuck::default(), Statuses::default());
    let peer = writer.name.clone();
    statuses.configure(&BTreeSet::from([peer.clone()]));
    let remote = RemoteCluster {
        peer,
        local: LocalCluster {
            name: "here".try_into().unwrap(),
            id: 1.try_into().unwrap(),
            max_connected: 255,
        },
        store,
        records: records.clone(),
        statuses: statuses.clone(),
        options: Options::default(),
        reservations: Reservations::default(),
        memory: Memory::default(),
    };
    let cancel = CancellationToken::new();
    let task = tokio::spawn(remote.run(cancel.clone()));
    eventually("ready", async || {
        statuses.peers()[0].state == PeerState::Ready
    })
    .await;
    assert_eq!(found(&statuses, budget()).await.current.len(), 2);

    records.hang(true);
    writer.export("api", 2).await;
    let hanging = found(&statuses, BOUND).await;
    let state = statuses.peers()[0].state;
    records.hang(false);

    assert_eq!(state, PeerState::Ready, "its last word was good");
    assert!(hanging.head.is_ok(), "{hanging:?}");
    // Services may have answered before the reader came to the export that it hangs on.
    assert!(
        !hanging.current.contains(&Resource::ServiceExports),
        "but it does not read: {hanging:?}"
    );
    assert_eq!(found(&statuses, budget()).await.current.len(), 2);
    cancel.cancel();
    task.await.unwrap();
}
