//! Writes under a condition.

use std::time::Duration;

use super::super::{
    Attempt, Condition, Entry, KvStore, LeaseId,
    testing::{Subject, battery},
};

battery![
    a_key_is_made_once_however_many_try,
    a_key_that_was_made_anew_is_another,
    what_is_deleted_under_a_condition_is_what_was_meant,
    an_equal_value_on_the_same_lease_is_not_written_again,
    one_condition_that_fails_refuses_the_write_and_all_are_told,
    a_lost_lease_is_told_by_writes_under_a_condition,
];

fn absent(key: &str) -> Condition {
    Condition::Absent(key.to_owned())
}

fn made_at(key: &str, create_revision: i64) -> Condition {
    let key = key.to_owned();
    Condition::MadeAt {
        key,
        create_revision,
    }
}

/// What an attempt found under the key of its first condition.
fn found<T: std::fmt::Debug>(attempt: Attempt<T>) -> Option<Entry> {
    match attempt {
        Attempt::Refused(mut reads) => reads.remove(0).entry,
        Attempt::Done(done) => panic!("was carried out: {done:?}"),
    }
}

fn done<T: std::fmt::Debug>(attempt: Attempt<T>) -> T {
    match attempt {
        Attempt::Done(done) => done,
        Attempt::Refused(reads) => panic!("was refused: {reads:?}"),
    }
}

async fn value<S: KvStore>(store: &S, key: &str) -> Option<Vec<u8>> {
    store.get(key).await.unwrap().entry.map(|entry| entry.value)
}

async fn a_key_is_made_once_however_many_try<S: Subject>(subject: S) {
    let store = subject.store();
    let attempts = (0..8).map(async |number: u8| {
        let store = subject.store();
        let put = store.put_if(&[absent("k")], "k", vec![number], None).await;
        (number, put.unwrap())
    });

    let attempts = futures::future::join_all(attempts).await;

    let first = value(&store, "k").await.unwrap();
    let made: Vec<_> = attempts
        .iter()
        .filter(|(_, attempt)| matches!(attempt, Attempt::Done(_)))
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(made, first, "one, and its value is there");
    for (number, attempt) in attempts {
        if first != [number] {
            assert_eq!(found(attempt).unwrap().value, first);
        }
    }
}

async fn a_key_that_was_made_anew_is_another<S: Subject>(subject: S) {
    let store = subject.store();
    let lock = store.put("lock", Vec::new(), None).await.unwrap();
    let guard = [made_at("lock", lock)];

    let held = store.put_if(&guard, "k", b"1".to_vec(), None).await;
    store.put("lock", b"touched".to_vec(), None).await.unwrap();
    let still_held = store.put_if(&guard, "k", b"2".to_vec(), None).await;
    store.delete("lock").await.unwrap();
    let gone = store.put_if(&guard, "k", b"3".to_vec(), None).await;
    let anew = store.put("lock", Vec::new(), None).await.unwrap();
    let another = store.put_if(&guard, "k", b"4".to_vec(), None).await;

    assert!(done(held.unwrap()) < done(still_held.unwrap()));
    assert_eq!(found(gone.unwrap()), None);
    assert_eq!(found(another.unwrap()).unwrap().create_revision, anew);
    assert_eq!(value(&store, "k").await.unwrap(), b"2");
}

async fn what_is_deleted_under_a_condition_is_what_was_meant<S: Subject>(subject: S) {
    let store = subject.store();
    let first = store.put("k", b"1".to_vec(), None).await.unwrap();
    store.delete("k").await.unwrap();
    let second = store.put("k", b"2".to_vec(), None).await.unwrap();

    let stale = store.delete_if(&[made_at("k", first)], "k").await.unwrap();
    let meant = store.delete_if(&[made_at("k", second)], "k").await.unwrap();
    let nothing_there = store.delete_if(&[absent("k")], "k").await.unwrap();

    assert_eq!(found(stale).unwrap().value, b"2");
    assert_eq!(done(meant), (second + 1, true));
    assert_eq!(done(nothing_there), (second + 1, false));
    assert_eq!(value(&store, "k").await, None);
}

async fn an_equal_value_on_the_same_lease_is_not_written_again<S: Subject>(subject: S) {
    let store = subject.store();
    let lease = store.grant(Duration::from_mins(1)).await.unwrap();
    let put = async |value: &[u8], lease: Option<LeaseId>| {
        store
            .put_if_different("k", value.to_vec(), lease)
            .await
            .unwrap()
    };

    let made = done(put(b"", Some(lease)).await);
    let same = found(put(b"", Some(lease)).await).unwrap();
    let without_lease = done(put(b"", None).await);
    let same_again = found(put(b"", None).await).unwrap();
    let other = done(put(b"other", None).await);

    assert_eq!((same.mod_revision, same.lease), (made, Some(lease)));
    assert_eq!(
        (same_again.mod_revision, same_again.lease),
        (without_lease, None)
    );
    assert_eq!((without_lease, other), (made + 1, made + 2));
}

async fn one_condition_that_fails_refuses_the_write_and_all_are_told<S: Subject>(subject: S) {
    let store = subject.store();
    let lock = store.put("lock", Vec::new(), None).await.unwrap();
    let first = store.put("k", b"1".to_vec(), None).await.unwrap();
    let conditions = |mod_revision| {
        let key = "k".to_owned();
        [
            made_at("lock", lock),
            Condition::WrittenAt { key, mod_revision },
        ]
    };

    let put = async |value: &[u8], conditions: [Condition; 2]| {
        let put = store.put_if(&conditions, "k", value.to_vec(), None);
        put.await.unwrap()
    };
    let stale = put(b"2", conditions(lock)).await;
    let fresh = done(put(b"3", conditions(first)).await);

    let Attempt::Refused(reads) = stale else {
        panic!("was carried out");
    };
    let found: Vec<_> = reads
        .into_iter()
        .map(|read| read.entry.unwrap().key)
        .collect();
    assert_eq!(found, ["lock", "k"]);
    assert_eq!(fresh, first + 1);
    assert_eq!(value(&store, "k").await.unwrap(), b"3");
}

async fn a_lost_lease_is_told_by_writes_under_a_condition<S: Subject>(subject: S) {
    let store = subject.store();
    let lease = store.grant(Duration::from_mins(1)).await.unwrap();
    store.revoke(lease).await.unwrap();

    let conditional = store
        .put_if(&[absent("k")], "k", Vec::new(), Some(lease))
        .await;
    let different = store.put_if_different("k", Vec::new(), Some(lease)).await;

    for error in [conditional.unwrap_err(), different.unwrap_err()] {
        assert_eq!(error.reason(), "LeaseNotFound", "{error}");
    }
    assert_eq!(value(&store, "k").await, None);
}
