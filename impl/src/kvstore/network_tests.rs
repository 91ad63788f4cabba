//! A real etcd behind a bad network: calls end in time and never with less than the truth; watches end with an error and go on
//! without loss; leases are kept or told to be lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all};

use super::{
    Error, Event, KvStore, Scope,
    config::EtcdConfig,
    etcd::EtcdStore,
    lease::Leases,
    testing::{BUDGET, Etcd, Subject, eventually},
    testing_proxy::{Network, Proxy},
};

/// Longest time that a call may take, whatever the network does: 10 s for the answer, or 4 s for the connection, and some
/// for a busy machine.
const CALL_BOUND: Duration = Duration::from_secs(15);

struct Behind {
    etcd: Etcd,
    proxy: Proxy,
}

impl Behind {
    async fn start() -> Self {
        let etcd = Etcd::start().await;
        let proxy = Proxy::start(etcd.url().trim_start_matches("http://")).await;
        Self { etcd, proxy }
    }

    /// A client behind the network.
    fn store(&self) -> EtcdStore {
        EtcdStore::new(EtcdConfig::from_urls(&[self.proxy.url()]).unwrap())
    }

    /// A client beside it.
    fn direct(&self) -> EtcdStore {
        self.etcd.store()
    }
}

fn prefix(text: &str) -> Scope {
    Scope::Prefix(text.to_owned())
}

/// The outcome of a call, which must come in time.
fn bounded<T>(
    call: impl Future<Output = Result<T, Error>>,
) -> impl Future<Output = Result<T, Error>> {
    let call = tokio::time::timeout(CALL_BOUND, Box::pin(call));
    async { call.await.expect("every call is bounded in time") }
}

#[tokio::test]
async fn every_call_ends_in_time_when_the_network_swallows_everything() {
    let behind = Behind::start().await;
    let store = behind.store();
    let lease = store.grant(Duration::from_mins(1)).await.unwrap();
    let fresh = behind.store();
    behind.proxy.set(Network::Swallow);

    let list = async { store.list("p/").await.map(drop) };
    let outcomes = tokio::join!(
        bounded(async { store.get("a").await.map(drop) }),
        bounded(list),
        bounded(async { store.watch(&prefix("p/"), 0).await.map(drop) }),
        bounded(async { store.put("a", Vec::new(), None).await.map(drop) }),
        bounded(async { store.delete("a").await.map(drop) }),
        bounded(async { store.grant(Duration::from_mins(1)).await.map(drop) }),
        bounded(store.keep_alive(lease)),
        bounded(async { store.lease_exists(lease).await.map(drop) }),
        bounded(store.revoke(lease)),
        bounded(async { fresh.get("a").await.map(drop) }),
    );
    let outcomes = [
        outcomes.0, outcomes.1, outcomes.2, outcomes.3, outcomes.4, outcomes.5, outcomes.6,
        outcomes.7, outcomes.8, outcomes.9,
    ];
    behind.proxy.set(Network::Good);

    for outcome in outcomes {
        let reason = outcome.unwrap_err().reason();
        assert!(["Unreachable", "TimedOut"].contains(&reason), "{reason}");
    }
    eventually("the same client works again", async || {
        store.get("a").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_cut_is_an_error_and_never_a_shorter_one() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    let value = |number: usize| vec![u8::try_from(number % 251).unwrap(); 2000];
    for number in 0..300 {
        let key = format!("p/{number:03}");
        direct.put(&key, value(number), None).await.unwrap();
    }
    let (mut failed, mut complete) = (0, 0);

    for bytes in [
        1, 9, 40, 200, 1_000, 9_000, 70_000, 300_000, 510_000, 590_000, 2_000_000,
    ] {
        behind.proxy.set(Network::Good);
        let store = behind.store();
        store.get("a").await.unwrap();
        behind.proxy.set(Network::CutAfter(bytes));
        match bounded(store.list("p/")).await {
            Ok(listing) => {
                complete += 1;
                assert_eq!(listing.entries.len(), 300, "{bytes}");
            }
            Err(error) => {
                failed += 1;
                assert_eq!(error.reason(), "Unreachable", "{bytes}: {error}");
            }
        }
        match bounded(store.get("p/007")).await {
            Ok(read) => assert_eq!(read.entry.unwrap().value, value(7), "{bytes}"),
            Err(error) => assert_eq!(error.reason(), "Unreachable", "{bytes}: {error}"),
        }
    }

    assert!(
        failed >= 5 && complete >= 1,
        "{failed} failed, {complete} complete"
    );
}

/// Follows a prefix as the contract of a watch says: after an error, from the revision of the last batch on.
struct Follower {
    store: EtcdStore,
    from: i64,
    seen: BTreeMap<i64, String>,
    again: BTreeSet<i64>,
    ended: usize,
}

impl Follower {
    async fn until(&mut self, last: i64) {
        let deadline = Instant::now() + BUDGET;
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
    }
}

#[tokio::test]
async fn a_watch_that_is_cut_again_and_again_goes_on_without_loss_or_duplicate() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    let first = direct.put("p/000", vec![b'x'; 500], None).await.unwrap();
    let write = async {
        let mut last = first;
        for number in 1..400 {
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
    assert!(follower.ended >= 3, "{} ends", follower.ended);
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
async fn refused_connections_fail_at_once_and_are_tried_again_by_the_next_call() {
    let behind = Behind::start().await;
    let store = behind.store();
    store.get("a").await.unwrap();
    behind.proxy.set(Network::Refuse);

    for _ in 0..3 {
        let error = bounded(store.get("a")).await.unwrap_err();
        assert_eq!(error.reason(), "Unreachable", "{error}");
        assert!(
            error.to_string().starts_with(&behind.proxy.url()),
            "{error}"
        );
    }
    behind.proxy.set(Network::Good);

    eventually("the same client works again", async || {
        store.get("a").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn connections_that_are_served_in_another_order_get_their_own_answers() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    for number in 0..8 {
        direct
            .put(&format!("p/{number}"), vec![number], None)
            .await
            .unwrap();
    }
    behind.proxy.set(Network::Reverse(8));
    let stores: Vec<_> = (0..8).map(|_| behind.store()).collect();

    let reads = join_all(stores.iter().zip(0_u8..).map(async |(store, number)| {
        let read = bounded(store.get(&format!("p/{number}"))).await;
        (number, read)
    }))
    .await;

    for (number, read) in reads {
        assert_eq!(read.unwrap().entry.unwrap().value, [number]);
    }
}

#[tokio::test]
async fn keys_of_a_lease_that_ended_behind_a_dead_network_are_reported_and_put_again() {
    let behind = Behind::start().await;
    let direct = behind.direct();
    let leases = Leases::new(behind.store(), Duration::from_secs(2));
    for key in ["p/a", "p/b"] {
        leases.put(key, b"1".to_vec()).await.unwrap();
    }

    behind.proxy.set(Network::Swallow);
    eventually("the lease ends", async || {
        direct.list("p/").await.unwrap().entries.is_empty()
    })
    .await;
    behind.proxy.set(Network::Good);
    let lost = tokio::time::timeout(BUDGET, leases.lost()).await.unwrap();
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

#[tokio::test]
async fn another_etcd_behind_the_same_address_is_told_and_never_mixed_in() {
    let behind = Behind::start().await;
    let other = Etcd::launch_as("other");
    eventually("the other answers", async || {
        other.store().get("a").await.is_ok()
    })
    .await;
    behind
        .direct()
        .put("p/a", b"first".to_vec(), None)
        .await
        .unwrap();
    let store = behind.store();
    let before = store.get("p/a").await.unwrap();
    let mut watch = store
        .watch(&prefix("p/"), before.revision + 1)
        .await
        .unwrap();
    other
        .store()
        .put("p/a", b"other".to_vec(), None)
        .await
        .unwrap();

    behind
        .proxy
        .redirect(other.url().trim_start_matches("http://"));
    behind.proxy.set(Network::Refuse);
    let ended = tokio::time::timeout(BUDGET, watch.next()).await.unwrap();
    behind.proxy.set(Network::Good);

    assert!(ended.unwrap().is_err());
    let mut reasons = BTreeSet::new();
    eventually(
        "the other one is read, with its own id",
        async || match store.get("p/a").await {
            Err(error) => {
                reasons.insert(error.reason());
                false
            }
            Ok(read) => {
                assert_ne!(read.store_id, before.store_id);
                assert_eq!(read.entry.unwrap().value, b"other");
                true
            }
        },
    )
    .await;
    assert!(
        reasons.is_subset(&BTreeSet::from(["Unreachable", "StoreChanged"])),
        "{reasons:?}"
    );
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
    let reached = tokio::time::timeout(BUDGET, reached)
        .await
        .expect("progress is reported");

    assert_eq!(reached, elsewhere);
}
