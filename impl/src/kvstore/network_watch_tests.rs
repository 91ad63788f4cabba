//! A real etcd behind a bad network: watches end with an error and go on without loss; leases are kept or told to be lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;

use super::{
    Event, KvStore,
    etcd::EtcdStore,
    lease::Leases,
    network_tests::{Behind, CALL_BOUND, bounded, prefix},
    testing::{Etcd, Subject, brief_ttl, budget, eventually},
    testing_proxy::Network,
};

/// Follows a prefix as the contract of a watch says: after an error, from the revision of the last batch on.
struct Follower {
    store: EtcdStore,
    from: i64,
    seen: BTreeMap<i64, String>,
    again: BTreeSet<i64>,
    ended: usize,
    /// The newest revision seen, for whoever writes.
    newest: Arc<AtomicI64>,
}

impl Follower {
    async fn until(&mut self, last: i64) {
        let deadline = Instant::now() + 2 * budget();
        while !self.seen.contains_key(&last) {
            assert!(Instant::now() < deadline, "{} seen", self.seen.len());
            let Ok(mut watch) = self.store.watch(&prefix("p/"), self.from).await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let resumed = self.from;
            while let Some(batch) = watch.next().await {
                let Ok(batch) = batch else {
                    self.ended += 1;
                    break;
                };
                self.from = batch.revision;
                for event in batch.events {
                    self.take(&event, resumed);
                }
                if self.seen.contains_key(&last) {
                    return;
                }
            }
        }
    }

    fn take(&mut self, event: &Event, resumed: i64) {
        let revision = event.mod_revision();
        if let Some(newest) = self.seen.keys().next_back()
            && revision <= *newest
        {
            assert_eq!(
                revision, resumed,
                "only the revision resumed from may come again"
            );
            assert!(self.again.insert(revision), "{revision} came a third time");
            return;
        }
        self.seen.insert(revision, event.key().to_owned());
        self.newest.store(revision, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_watch_that_is_cut_again_and_again_goes_on_without_loss_or_duplicate() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    let first = direct.put("p/000", vec![b'x'; 500], None).await.unwrap();
    let newest = Arc::new(AtomicI64::new(0));
    let write = async {
        let mut last = first;
        for number in 1..400 {
            if number % 40 == 0 {
                // Whoever follows is there, and is cut off within the next record; in between it may be late and miss cuts.
                behind.proxy.set(Network::Good);
                let caught_up = async || newest.load(Ordering::Relaxed) == last;
                eventually("the follower has caught up", caught_up).await;
                let connections = behind.proxy.accepted();
                behind.proxy.set(Network::CutAfter(number));
                let key = format!("p/{number:03}");
                last = direct.put(&key, vec![b'x'; 500], None).await.unwrap();
                let again = async || behind.proxy.accepted() > connections;
                eventually("the follower connects again", again).await;
                continue;
            }
            // The cut comes after another number of bytes each time.
            behind.proxy.set(match number % 5 {
                0 => Network::CutAfter(number * 7),
                1 => Network::Slow(13, Duration::from_micros(100)),
                _ => Network::Good,
            });
            let key = format!("p/{number:03}");
            last = direct.put(&key, vec![b'x'; 500], None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        behind.proxy.set(Network::Good);
        last
    };
    let mut follower = Follower {
        store: behind.store(),
        from: first,
        seen: BTreeMap::new(),
        again: BTreeSet::new(),
        ended: 0,
        newest: Arc::clone(&newest),
    };
    let end = first + 399;

    let (last, ()) = tokio::join!(write, follower.until(end));

    assert_eq!(last, end);
    let keys: Vec<_> = follower.seen.values().cloned().collect();
    let all: Vec<_> = (0..400).map(|number| format!("p/{number:03}")).collect();
    assert_eq!(keys, all);
    println!(
        "{} ends, {} connections",
        follower.ended,
        behind.proxy.accepted()
    );
    assert!(follower.ended >= 9, "{} ends", follower.ended);
}

#[tokio::test]
async fn a_half_closed_connection_ends_its_watch_and_is_replaced() {
    let behind = Behind::start().await;
    let store = behind.store();
    let mut watch = store.watch(&prefix("p/"), 0).await.unwrap();

    behind.proxy.set(Network::HalfClose);
    let ended = tokio::time::timeout(CALL_BOUND, watch.next()).await;
    let error = ended.expect("noticed").unwrap().unwrap_err();
    let call = bounded(store.get("a")).await;
    behind.proxy.set(Network::Good);

    assert_eq!(error.reason(), "Unreachable", "{error}");
    assert!(watch.next().await.is_none());
    assert!(call.is_err());
    eventually("another connection", async || store.get("a").await.is_ok()).await;
}

#[tokio::test]
async fn a_quiet_watch_reports_how_far_the_store_has_come() {
    let etcd = Etcd::launch_with(&["--watch-progress-notify-interval=100ms"]);
    eventually("etcd answers", async || etcd.store().get("a").await.is_ok()).await;
    let store = etcd.store();
    let mut watch = store.watch(&prefix("quiet/"), 0).await.unwrap();
    let elsewhere = store.put("loud/a", Vec::new(), None).await.unwrap();

    let reached = async {
        loop {
            let batch = watch.next().await.unwrap().unwrap();
            assert!(batch.events.is_empty());
            if batch.revision >= elsewhere {
                return batch.revision;
            }
        }
    };
    let reached = tokio::time::timeout(budget(), reached)
        .await
        .expect("progress is reported");

    assert_eq!(reached, elsewhere);
}

#[tokio::test]
async fn keys_of_a_lease_that_ended_behind_a_dead_network_are_reported_and_put_again() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    let leases = Leases::new(behind.store(), brief_ttl());
    for key in ["p/a", "p/b"] {
        leases.put(key, b"1".to_vec()).await.unwrap();
    }

    behind.proxy.set(Network::Swallow);
    eventually("the lease ends", async || {
        direct.list("p/").await.unwrap().entries.is_empty()
    })
    .await;
    behind.proxy.set(Network::Good);
    let lost = tokio::time::timeout(budget(), leases.lost()).await.unwrap();
    for key in &lost {
        leases.put(key, b"1".to_vec()).await.unwrap();
    }

    assert_eq!(
        lost.iter().map(String::as_str).collect::<Vec<_>>(),
        ["p/a", "p/b"]
    );
    assert_eq!(direct.list("p/").await.unwrap().entries.len(), 2);
}

#[tokio::test]
async fn a_lease_outlives_a_network_that_cuts_often() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    let leases = Leases::new(behind.store(), Duration::from_secs(8));
    leases.put("p/a", Vec::new()).await.unwrap();
    let created = direct
        .get("p/a")
        .await
        .unwrap()
        .entry
        .unwrap()
        .create_revision;

    // Twice its time-to-live.
    let until = Instant::now() + Duration::from_secs(16);
    while Instant::now() < until {
        behind.proxy.set(Network::Refuse);
        tokio::time::sleep(Duration::from_millis(100)).await;
        behind.proxy.set(Network::Good);
        tokio::time::sleep(Duration::from_millis(900)).await;
    }

    let entry = direct
        .get("p/a")
        .await
        .unwrap()
        .entry
        .expect("it was kept alive");
    assert_eq!(entry.create_revision, created);
}
