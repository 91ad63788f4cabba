//! What every store does, as functions over the trait; run on the store in memory and on a real etcd, and by
//! `impl/tests/containers.rs` on an etcd in a container.

use std::time::Duration;

use futures::{StreamExt, future::join_all};

use super::{
    Error, Event, KvStore, Scope, Watch,
    lease::{KEYS_PER_LEASE, Leases},
    testing::{Subject, battery, brief_ttl, budget, eventually},
};

pub(crate) mod conditional;

battery![
    a_key_is_read_back_with_its_revisions,
    deleting_tells_whether_the_key_was_there,
    all_pages_of_a_list_are_of_one_revision,
    a_list_whose_revision_was_compacted_says_so,
    large_values_make_pages_smaller,
    a_watch_delivers_changes_from_its_revision_on,
    a_watch_of_a_key_leaves_out_longer_keys,
    a_watch_from_a_compacted_revision_asks_for_a_new_list,
    a_wiped_store_refuses_a_watch_at_a_revision_it_has_not_reached,
    the_end_of_a_lease_takes_its_keys_in_one_revision,
    a_lease_ends_without_keep_alive_and_lives_with_it,
    a_lost_lease_is_told_by_keep_alive_and_put,
    a_store_that_goes_away_ends_watches_and_fails_calls_until_it_is_back,
    a_lease_carries_at_most_a_thousand_keys,
    keys_of_a_lost_lease_are_reported_and_can_be_put_again,
    keys_of_an_earlier_life_live_on_under_their_own_lease,
];

fn prefix(text: &str) -> Scope {
    Scope::Prefix(text.to_owned())
}

/// The next `count` events of a watch.
async fn events(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let next = tokio::time::timeout(budget(), watch.next()).await;
        events.extend(
            next.expect("in time")
                .expect("the watch goes on")
                .expect("a batch")
                .events,
        );
    }
    events
}

/// The error that a watch ends with.
async fn end(watch: &mut Watch) -> Error {
    loop {
        let next = tokio::time::timeout(budget(), watch.next()).await;
        if let Err(error) = next.expect("in time").expect("an error before the end") {
            return error;
        }
    }
}

fn keys(events: &[Event]) -> Vec<&str> {
    events.iter().map(Event::key).collect()
}

async fn a_key_is_read_back_with_its_revisions<S: Subject>(subject: S) {
    let store = subject.store();
    let first = store.put("a/1", b"\xff\x00".to_vec(), None).await.unwrap();
    let second = store.put("a/1", b"two".to_vec(), None).await.unwrap();

    let read = store.get("a/1").await.unwrap();
    let none = store.get("a").await.unwrap();

    let entry = read.entry.unwrap();
    assert_eq!(entry.value, b"two");
    assert_eq!((entry.create_revision, entry.mod_revision), (first, second));
    assert_eq!((entry.lease, none.entry), (None, None));
    assert_eq!((none.revision, none.store_id), (second, read.store_id));
}

async fn deleting_tells_whether_the_key_was_there<S: Subject>(subject: S) {
    let store = subject.store();
    let put = store.put("a", Vec::new(), None).await.unwrap();

    assert_eq!(store.delete("a").await.unwrap(), (put + 1, true));
    assert_eq!(store.delete("a").await.unwrap(), (put + 1, false));
}

async fn all_pages_of_a_list_are_of_one_revision<S: Subject>(subject: S) {
    let store = subject.store();
    for number in 0..600 {
        store
            .put(&format!("p/{number:03}"), Vec::new(), None)
            .await
            .unwrap();
    }
    store.put("p0", Vec::new(), None).await.unwrap();

    let first = store.page("p/", None).await.unwrap();
    store.delete("p/599").await.unwrap();
    store.put("p/600", Vec::new(), None).await.unwrap();
    let second = store.page("p/", first.next.clone()).await.unwrap();
    let third = store.page("p/", second.next.clone()).await.unwrap();
    let listing = store.list("p/").await.unwrap();

    let sizes = [&first, &second, &third].map(|page| (page.entries.len(), page.revision));
    assert_eq!(
        sizes,
        [
            (250, first.revision),
            (250, first.revision),
            (100, first.revision)
        ]
    );
    assert_eq!(third.entries[99].key, "p/599");
    assert_eq!(third.next, None);
    assert_eq!(listing.entries.len(), 600);
    assert_eq!(listing.revision, first.revision + 2);
}

async fn a_list_whose_revision_was_compacted_says_so<S: Subject>(subject: S) {
    let store = subject.store();
    for number in 0..300 {
        store
            .put(&format!("p/{number}"), Vec::new(), None)
            .await
            .unwrap();
    }
    let first = store.page("p/", None).await.unwrap();
    store.put("p/x", Vec::new(), None).await.unwrap();
    subject.compact().await;

    let error = store.page("p/", first.next).await.unwrap_err();

    assert_eq!(error.reason(), "Compacted", "{error}");
}

async fn large_values_make_pages_smaller<S: Subject>(subject: S) {
    let store = subject.store();
    for number in 10..34 {
        let value = vec![b'x'; 1024 * 1024];
        store
            .put(&format!("p/{number}"), value, None)
            .await
            .unwrap();
    }

    let first = store.page("p/", None).await.unwrap();
    let second = store.page("p/", first.next.clone()).await.unwrap();
    let listing = store.list("p/").await.unwrap();

    // Of 24 MiB 16 fit into one page; a quarter of a page's most entries, again and again, are the first that do.
    assert_eq!(first.entries.len(), 15);
    assert_eq!(second.entries.len(), 3, "they should have 4 MiB");
    assert_eq!(second.entries[0].key, "p/25");
    assert_eq!(listing.entries.len(), 24);
}

async fn a_watch_delivers_changes_from_its_revision_on<S: Subject>(subject: S) {
    let store = subject.store();
    store.put("p/old", Vec::new(), None).await.unwrap();
    let from = store.put("p/a", b"1".to_vec(), None).await.unwrap();
    store.put("q/other", Vec::new(), None).await.unwrap();

    let mut watch = store.watch(&prefix("p/"), from).await.unwrap();
    let (deleted, _) = store.delete("p/a").await.unwrap();
    store.put("p/b", b"2".to_vec(), None).await.unwrap();

    let events = events(&mut watch, 3).await;
    assert_eq!(keys(&events), ["p/a", "p/a", "p/b"]);
    assert!(
        matches!(&events[0], Event::Put(entry) if entry.value == b"1" && entry.mod_revision == from)
    );
    let key = "p/a".to_owned();
    assert_eq!(
        events[1],
        Event::Delete {
            key,
            mod_revision: deleted
        }
    );
    assert!(matches!(&events[2], Event::Put(entry) if entry.create_revision == deleted + 1));
}

async fn a_watch_of_a_key_leaves_out_longer_keys<S: Subject>(subject: S) {
    let store = subject.store();
    let revision = store.put("c1", Vec::new(), None).await.unwrap();

    let mut watch = store
        .watch(&Scope::Key("c1".to_owned()), revision + 1)
        .await
        .unwrap();
    store.put("c11", Vec::new(), None).await.unwrap();
    store.put("c1", b"new".to_vec(), None).await.unwrap();

    assert_eq!(keys(&events(&mut watch, 1).await), ["c1"]);
}

async fn a_watch_from_a_compacted_revision_asks_for_a_new_list<S: Subject>(subject: S) {
    let store = subject.store();
    let from = store.put("p/a", Vec::new(), None).await.unwrap();
    store.put("p/a", Vec::new(), None).await.unwrap();
    store.put("p/a", Vec::new(), None).await.unwrap();
    subject.compact().await;

    let error = match store.watch(&prefix("p/"), from).await {
        Ok(mut watch) => end(&mut watch).await,
        Err(error) => error,
    };

    assert_eq!(error.reason(), "Compacted", "{error}");
}

async fn a_wiped_store_refuses_a_watch_at_a_revision_it_has_not_reached<S: Subject>(
    mut subject: S,
) {
    let store = subject.store();
    for _ in 0..5 {
        store.put("p/a", Vec::new(), None).await.unwrap();
    }
    let before = store.get("p/a").await.unwrap();
    subject.wipe().await;
    let after = subject.store().get("p/a").await.unwrap();

    let error = subject
        .store()
        .watch(&prefix("p/"), before.revision + 1)
        .await
        .unwrap_err();

    assert_eq!(after.store_id, before.store_id);
    assert!(after.revision < before.revision && after.entry.is_none());
    assert_eq!(error.reason(), "StoreBehind", "{error}");
}

async fn the_end_of_a_lease_takes_its_keys_in_one_revision<S: Subject>(subject: S) {
    let store = subject.store();
    let lease = store.grant(Duration::from_mins(1)).await.unwrap();
    let mut last = 0;
    for key in ["p/a", "p/b", "p/c"] {
        last = store.put(key, Vec::new(), Some(lease)).await.unwrap();
    }
    assert_eq!(
        store.get("p/a").await.unwrap().entry.unwrap().lease,
        Some(lease)
    );
    let mut watch = store.watch(&prefix("p/"), last + 1).await.unwrap();

    store.revoke(lease).await.unwrap();
    store.revoke(lease).await.unwrap();

    let events = events(&mut watch, 3).await;
    assert!(
        events.iter().all(|event| event.mod_revision() == last + 1),
        "{events:?}"
    );
}

async fn a_lease_ends_without_keep_alive_and_lives_with_it<S: Subject>(subject: S) {
    let store = subject.store();
    // The one that lives would be the first to end.
    let lives = store.grant(brief_ttl()).await.unwrap();
    let dies = store.grant(brief_ttl()).await.unwrap();
    store.put("dies", Vec::new(), Some(dies)).await.unwrap();
    store.put("lives", Vec::new(), Some(lives)).await.unwrap();

    eventually("the lease ends", async || {
        store.keep_alive(lives).await.unwrap();
        store.get("dies").await.unwrap().entry.is_none()
    })
    .await;

    assert!(store.get("lives").await.unwrap().entry.is_some());
}

async fn a_lost_lease_is_told_by_keep_alive_and_put<S: Subject>(subject: S) {
    let store = subject.store();
    let lease = store.grant(Duration::from_mins(1)).await.unwrap();
    store.revoke(lease).await.unwrap();

    let kept = store.keep_alive(lease).await.unwrap_err();
    let put = store.put("a", Vec::new(), Some(lease)).await.unwrap_err();

    assert!(!store.lease_exists(lease).await.unwrap());
    let other = store.grant(Duration::from_mins(1)).await.unwrap();
    assert!(store.lease_exists(other).await.unwrap());
    for error in [kept, put] {
        assert!(
            matches!(&error, Error::LeaseNotFound { lease: of, .. } if *of == lease),
            "{error}"
        );
    }
}

async fn a_store_that_goes_away_ends_watches_and_fails_calls_until_it_is_back<S: Subject>(
    mut subject: S,
) {
    let store = subject.store();
    let revision = store.put("p/a", Vec::new(), None).await.unwrap();
    let mut watch = store.watch(&prefix("p/"), revision + 1).await.unwrap();

    subject.stop().await;
    let ended = end(&mut watch).await;
    let failed = store.get("p/a").await.unwrap_err();
    subject.resume().await;

    assert_eq!(ended.reason(), "Unreachable", "{ended}");
    assert_eq!(failed.reason(), "Unreachable", "{failed}");
    assert!(
        failed.to_string().starts_with(&store.endpoint()),
        "{failed}"
    );
    eventually("the same client reads again", async || {
        store
            .get("p/a")
            .await
            .is_ok_and(|read| read.entry.is_some())
    })
    .await;
    store.watch(&prefix("p/"), revision + 1).await.unwrap();
}

async fn a_lease_carries_at_most_a_thousand_keys<S: Subject>(subject: S) {
    let store = subject.store();
    let leases = Leases::new(store.clone(), Duration::from_mins(1));
    let put = async |number: usize| {
        let key = format!("p/{number:04}");
        leases.put(&key, Vec::new()).await.unwrap();
    };
    put(0).await;
    let rest: Vec<_> = (1..KEYS_PER_LEASE).collect();
    for numbers in rest.chunks(50) {
        join_all(numbers.iter().map(|&number| put(number))).await;
    }
    put(KEYS_PER_LEASE).await;
    leases.put("p/0000", b"again".to_vec()).await.unwrap();

    let listing = store.list("p/").await.unwrap();

    let lease_of = |key: &str| listing.entries[key].lease;
    assert!(lease_of("p/0000").is_some());
    assert_eq!(lease_of("p/0000"), lease_of("p/0999"));
    assert_ne!(lease_of("p/0000"), lease_of("p/1000"));
}

async fn keys_of_a_lost_lease_are_reported_and_can_be_put_again<S: Subject>(mut subject: S) {
    let store = subject.store();
    let leases = Leases::new(store.clone(), brief_ttl());
    leases.put("p/a", Vec::new()).await.unwrap();
    leases.put("p/b", Vec::new()).await.unwrap();
    leases.delete("p/b").await.unwrap();

    subject.wipe().await;
    let lost = tokio::time::timeout(budget(), leases.lost()).await.unwrap();
    leases.put("p/a", Vec::new()).await.unwrap();

    assert_eq!(lost.into_iter().collect::<Vec<_>>(), ["p/a"]);
    assert!(
        store
            .get("p/a")
            .await
            .unwrap()
            .entry
            .unwrap()
            .lease
            .is_some()
    );
}

async fn keys_of_an_earlier_life_live_on_under_their_own_lease<S: Subject>(subject: S) {
    let store = subject.store();
    let ttl = brief_ttl();
    let earlier = Leases::new(store.clone(), ttl);
    let put = earlier.put("p/a", Vec::new()).await.unwrap();
    let entry = store.get("p/a").await.unwrap().entry.unwrap();
    // It ends after the other would have.
    let left = store.grant(ttl).await.unwrap();
    store.put("left", Vec::new(), Some(left)).await.unwrap();
    drop(earlier);

    let leases = Leases::new(store.clone(), ttl);
    leases.adopt([("p/a".to_owned(), entry.lease.unwrap())]);
    eventually("the lease that nobody took over ends", async || {
        store.get("left").await.unwrap().entry.is_none()
    })
    .await;
    let kept = store.get("p/a").await.unwrap().entry.unwrap();
    store.revoke(entry.lease.unwrap()).await.unwrap();
    let lost = tokio::time::timeout(budget(), leases.lost());

    assert_eq!((kept.mod_revision, kept.lease), (put, entry.lease));
    assert!(lost.await.unwrap().contains("p/a"));
}
