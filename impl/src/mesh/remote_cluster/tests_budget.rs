//! Limits of a peer: what is beyond is not taken, what was taken stays, and nothing is lost for good.

use std::time::Duration;

use tokio::time::Instant;
use tombolo_core::{
    peer_status::Limit,
    wire::{
        key::{self, Resource},
        service_export,
    },
};

use super::{
    super::peers::PeerState,
    Memory,
    testkit::{Follower, Writer, battery, export},
};
use crate::kvstore::{
    KvStore,
    testing::{Memory as InMemory, Subject, eventually},
};

battery![
    records_beyond_the_limit_are_taken_as_soon_as_the_peer_shrinks,
    a_record_that_grows_beyond_the_limit_keeps_what_it_said_before,
    what_was_taken_stays_when_who_follows_anew_may_take_less,
];

async fn records_beyond_the_limit_are_taken_as_soon_as_the_peer_shrinks<S: Subject>(subject: S) {
    let names: Vec<_> = (0..10).map(|number| format!("s{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&names).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.budget.records = 6;

    follower.start(Memory::default());
    let over = |follower: &Follower<S::Store>| {
        let status = follower.status();
        let kind = status.kinds.get(&Resource::ServiceExports);
        kind.map_or(0, |kind| kind.over_limit)
    };
    eventually("four are too many", async || over(&follower) == 4).await;
    follower.until_error("--peer-max-records").await;
    let (rows, status) = (follower.rows(), follower.status());
    writer.export("s0", 7).await;
    writer.export("t-late", 1).await;
    eventually("five are too many", async || over(&follower) == 5).await;
    eventually("what is held is followed", async || {
        follower.second("s0") == Some(7)
    })
    .await;
    for name in &names[..5] {
        writer.unexport(name).await;
    }

    assert_eq!(rows, names[..6]);
    assert_eq!(status.limited, [Limit::Records]);
    assert_eq!(
        status.state,
        PeerState::Listing,
        "its silence means nothing"
    );
    follower
        .until_rows(&["s5", "s6", "s7", "s8", "s9", "t-late"])
        .await;
    follower.until_state(PeerState::Ready).await;
    let status = follower.status();
    assert_eq!((status.limited, status.last_error), (Vec::new(), None));
}

async fn a_record_that_grows_beyond_the_limit_keeps_what_it_said_before<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    let mut large = export(&writer.name, "cart", 9);
    large.annotations.insert("text".to_owned(), "x".repeat(300));
    let (key, large) = service_export::encode(&large);
    writer.fill(&["cart", "web"]).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.budget.bytes = key.len() + large.len() + 10;
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;

    writer.put(&key, large).await;
    follower.until_state(PeerState::Suspect).await;
    let (second, status) = (follower.second("cart"), follower.status());
    writer.unexport("web").await;

    assert_eq!(second, Some(1));
    assert_eq!(status.limited, [Limit::Bytes]);
    assert_eq!(status.kinds[&Resource::ServiceExports].records, 2);
    follower.until_rows(&["cart"]).await;
    eventually("there is room", async || follower.second("cart") == Some(9)).await;
    follower.until_state(PeerState::Ready).await;
}

/// As after a restart of who copies: rows are there, and nothing is remembered of them.
async fn what_was_taken_stays_when_who_follows_anew_may_take_less<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["a", "b", "c", "d"]).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    follower.stop().await;

    let (broken, _) = service_export::encode(&export(&writer.name, "a", 1));
    writer.put(&broken, b"{}".to_vec()).await;
    writer.unexport("b").await;
    follower.options.budget.records = 1;
    follower.start(Memory::default());

    follower.until_rows(&["a", "c", "d"]).await;
    follower.until_error("--peer-max-records").await;
    assert_eq!(follower.rows(), ["a", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_rate_wait_and_signs_of_life_do_not() {
    let subject = InMemory::start().await;
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&[]).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.budget.events_per_second = 10;
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    let _beating = writer.keep_beating();

    let begin = Instant::now();
    for number in 0..300 {
        writer.export(&format!("s{number}"), 1).await;
    }
    eventually("the burst", async || follower.rows().len() >= 100).await;
    let canary = key::canary_key(&writer.name, Resource::Services, false);
    writer.store.delete(&canary).await.unwrap();
    follower.until_state(PeerState::Suspect).await;
    let (noticed, rows) = (begin.elapsed(), follower.rows().len());
    let limited = follower.status().limited;
    eventually("all", async || follower.rows().len() == 300).await;
    let all = begin.elapsed();
    writer.canary(Resource::Services).await;

    assert!(noticed < Duration::from_secs(3), "{noticed:?}");
    assert!(rows < 150, "{rows}");
    assert_eq!(limited, [Limit::EventRate]);
    assert!((19..=22).contains(&all.as_secs()), "{all:?}");
    follower.until_state(PeerState::Ready).await;
    eventually("it is quiet again", async || {
        follower.status().limited.is_empty()
    })
    .await;
}
