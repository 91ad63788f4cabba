//! A real etcd behind a bad network: calls end in time and never with less than the truth.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, future::join_all};

use super::{
    Error, KvStore, Scope,
    config::EtcdConfig,
    etcd::EtcdStore,
    testing::{Etcd, Subject, budget, eventually},
    testing_proxy::{Network, Proxy},
};

/// Longest time that a call may take, whatever the network does: 10 s for the answer, or 4 s for the connection, and some
/// for a busy machine.
pub(super) const CALL_BOUND: Duration = Duration::from_secs(15);

/// An etcd and the network before it.
pub(super) struct Behind {
    etcd: Etcd,
    pub(super) proxy: Proxy,
}

impl Behind {
    pub(super) async fn start() -> Self {
        let etcd = Etcd::start().await;
        let proxy = Proxy::start(etcd.url().trim_start_matches("http://")).await;
        Self { etcd, proxy }
    }

    /// A client behind the network.
    pub(super) fn store(&self) -> EtcdStore {
        EtcdStore::new(EtcdConfig::from_urls(&[self.proxy.url()]).unwrap())
    }

    /// A client beside it.
    pub(super) fn direct(&self) -> EtcdStore {
        self.etcd.store()
    }
}

pub(super) fn prefix(text: &str) -> Scope {
    Scope::Prefix(text.to_owned())
}

/// The outcome of a call, which must come in time.
pub(super) fn bounded<T>(
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
    // It may have told before how far it was.
    let ended = async {
        while let Ok(batch) = watch
            .next()
            .await
            .expect("it does not end without an error")
        {
            assert!(batch.events.is_empty(), "{batch:?}");
        }
    };
    tokio::time::timeout(budget(), ended).await.unwrap();
    behind.proxy.set(Network::Good);

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
