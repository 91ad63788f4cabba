//! The lock and what it guards, on the store in memory and on a real etcd.

use std::time::Duration;

use etcd_client::LockOptions;

use super::{
    Attempt, Condition, Error, KvStore,
    fenced::Fenced,
    lease::Leases,
    mutex::Lock,
    testing::{Etcd, Subject, battery, brief_ttl, budget, eventually},
};

battery![
    the_lock_goes_down_the_line_in_order,
    a_lock_whose_holder_died_is_free_when_its_lease_ends,
    a_lock_whose_key_or_lease_is_taken_away_is_lost,
    a_store_that_is_away_for_longer_than_the_lease_loses_the_lock,
    one_who_lost_the_lock_cannot_write_even_what_was_in_hand,
    conditions_of_a_write_are_told_apart_from_the_lock,
];

const NAME: &str = "cilium/kvstoremesh-lock";
/// As Cilium has it; no machine is so busy that a lease of this ends while somebody prolongs it.
const TTL: Duration = Duration::from_secs(25);

async fn enter<S: KvStore>(store: S) -> Lock<S> {
    Lock::enter(store, NAME, TTL).await.unwrap()
}

/// Enters the line with a lease whose end a test can wait for.
async fn enter_briefly<S: KvStore>(store: S) -> Lock<S> {
    Lock::enter(store, NAME, brief_ttl()).await.unwrap()
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(budget(), what).await.expect("in time")
}

fn key<S: KvStore>(lock: &Lock<S>) -> String {
    lock.condition().key().to_owned()
}

async fn the_lock_goes_down_the_line_in_order<S: Subject>(subject: S) {
    let first = enter(subject.store()).await;
    let (second, third) = (enter(subject.store()).await, enter(subject.store()).await);
    let mut ahead = Vec::new();

    first.first(|_| panic!("nobody is ahead")).await.unwrap();
    let entry = subject
        .store()
        .get(&key(&first))
        .await
        .unwrap()
        .entry
        .unwrap();
    let held_by = key(&first);
    let turn = async {
        second
            .first(|holder| ahead.push(holder.to_owned()))
            .await
            .unwrap();
        second.release().await.unwrap();
    };
    let release = async {
        let waits = third.first(|_| {});
        assert!(
            tokio::time::timeout(Duration::from_millis(50), waits)
                .await
                .is_err()
        );
        first.release().await.unwrap();
    };
    in_time(futures::future::join(turn, release)).await;
    in_time(third.first(|_| {})).await.unwrap();

    assert_eq!(entry.value, b"");
    assert_eq!(entry.key, format!("{NAME}/{}", entry.lease.unwrap()));
    assert_eq!(ahead, [held_by]);
}

/// Somebody who takes the lock by etcd's own lock service, which makes its keys as etcd's client library does: as Cilium.
struct Another {
    client: etcd_client::Client,
    lease: i64,
}

impl Another {
    async fn of(etcd: &Etcd) -> Self {
        let mut client = etcd_client::Client::connect([etcd.url()], None)
            .await
            .unwrap();
        let lease = client.lease_grant(60, None).await.unwrap().id();
        Self { client, lease }
    }

    /// Waits for the lock; returns its key.
    async fn lock(&self) -> String {
        let options = LockOptions::new().with_lease(self.lease);
        let mut locks = self.client.lock_client();
        let held = locks.lock(NAME, Some(options)).await.unwrap();
        String::from_utf8(held.key().to_vec()).unwrap()
    }

    async fn unlock(&self, key: &str) {
        self.client.lock_client().unlock(key).await.unwrap();
    }

    /// Its key, wherever in the line it is.
    fn key(&self) -> String {
        format!("{NAME}/{:x}", self.lease)
    }
}

#[tokio::test]
async fn who_holds_the_lock_by_etcds_own_service_is_waited_for() {
    let etcd = Etcd::start().await;
    let another = Another::of(&etcd).await;
    let held = another.lock().await;
    let ours = enter(etcd.store()).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();

    let turn = ours.first(|holder| tell.send(holder.to_owned()).unwrap());
    let release = async {
        let ahead = told.recv().await.unwrap();
        another.unlock(&held).await;
        ahead
    };
    let both = futures::future::join(Box::pin(turn), release);
    let (turn, ahead) = in_time(both).await;

    turn.unwrap();
    assert_eq!(ahead, held);
    assert_eq!(held, another.key());
}

#[tokio::test]
async fn who_comes_by_etcds_own_service_waits_for_the_lock() {
    let etcd = Etcd::start().await;
    let ours = enter(etcd.store()).await;
    ours.first(|_| panic!("nobody is ahead")).await.unwrap();
    let another = Another::of(&etcd).await;

    let mut lock = Box::pin(another.lock());
    let in_line = eventually("it is in the line", async || {
        let store = etcd.store();
        store.get(&another.key()).await.unwrap().entry.is_some()
    });
    tokio::select! {
        key = &mut lock => panic!("it has the lock as {key}, which is held"),
        () = in_line => {}
    }
    let early = tokio::time::timeout(Duration::from_millis(300), &mut lock).await;
    let still_held = key(&ours);
    ours.release().await.unwrap();
    let held = in_time(lock).await;

    assert!(early.is_err(), "{early:?} while {still_held} held the lock");
    assert_eq!(held, another.key());
}

async fn a_lock_whose_holder_died_is_free_when_its_lease_ends<S: Subject>(subject: S) {
    let dead = enter_briefly(subject.store()).await;
    dead.first(|_| {}).await.unwrap();
    let next = enter(subject.store()).await;

    // As a process that is killed: nobody prolongs, nobody releases.
    drop(dead);

    in_time(next.first(|_| {})).await.unwrap();
}

async fn a_lock_whose_key_or_lease_is_taken_away_is_lost<S: Subject>(mut subject: S) {
    let lock = enter(subject.store()).await;
    lock.first(|_| {}).await.unwrap();
    subject.store().delete(&key(&lock)).await.unwrap();
    let without_key = in_time(lock.lost()).await;

    let lock = enter(subject.store()).await;
    lock.first(|_| {}).await.unwrap();
    subject.wipe().await;
    let without_lease = in_time(lock.lost()).await;

    for error in [without_key, without_lease] {
        assert_eq!(error.reason(), "LockLost", "{error}");
    }
}

async fn a_store_that_is_away_for_longer_than_the_lease_loses_the_lock<S: Subject>(mut subject: S) {
    let lock = enter_briefly(subject.store()).await;
    lock.first(|_| {}).await.unwrap();

    subject.stop().await;
    let error = in_time(lock.lost()).await;

    assert_eq!(error.reason(), "LockLost", "{error}");
}

async fn one_who_lost_the_lock_cannot_write_even_what_was_in_hand<S: Subject>(subject: S) {
    let old = enter(subject.store()).await;
    old.first(|_| {}).await.unwrap();
    let fenced = Fenced::new(&old);
    let leases = Leases::new(fenced.clone(), Duration::from_mins(1));
    leases.put("k", b"old".to_vec()).await.unwrap();

    subject.store().delete(&key(&old)).await.unwrap();
    let new = enter(subject.store()).await;
    in_time(new.first(|_| {})).await.unwrap();
    let store = Fenced::new(&new);
    store.put("k", b"new".to_vec(), None).await.unwrap();
    let late = [
        leases.put("k", b"late".to_vec()).await.unwrap_err(),
        fenced.delete("k").await.unwrap_err(),
        fenced
            .put_if_different("k", b"late".to_vec(), None)
            .await
            .unwrap_err(),
    ];

    assert_eq!(late.each_ref().map(Error::reason), ["LockLost"; 3]);
    assert_eq!(fenced.get("k").await.unwrap().entry.unwrap().value, b"new");
}

async fn conditions_of_a_write_are_told_apart_from_the_lock<S: Subject>(subject: S) {
    let lock = enter(subject.store()).await;
    lock.first(|_| {}).await.unwrap();
    let store = Fenced::new(&lock);
    let absent = [Condition::Absent("k".to_owned())];

    let made = store
        .put_if(&absent, "k", b"1".to_vec(), None)
        .await
        .unwrap();
    let there = store
        .put_if(&absent, "k", b"2".to_vec(), None)
        .await
        .unwrap();
    let deleted = store.delete("k").await.unwrap();

    assert!(matches!(made, Attempt::Done(_)), "{made:?}");
    assert!(
        matches!(&there, Attempt::Refused(reads) if reads.len() == 1),
        "{there:?}"
    );
    assert!(deleted.1);
}
