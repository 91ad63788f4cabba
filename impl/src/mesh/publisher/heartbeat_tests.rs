//! The sign of life of a mesh etcd.

use tokio::time::Instant;

use super::*;
use crate::kvstore::{Event, Scope, memory::MemoryStore};
use futures::StreamExt;

#[tokio::test(start_paused = true)]
async fn the_heartbeat_is_written_at_once_and_every_minute_under_a_lease() {
    let store = MemoryStore::new("memory");
    let publisher = Publisher::new(store.clone(), testkit::options());
    let scope = Scope::Key(HEARTBEAT.to_owned());
    let mut watch = store.watch(&scope, 0).await.unwrap();
    let begun = Instant::now();
    let watching = async {
        let mut seconds = Vec::new();
        while seconds.len() < 4 {
            for event in watch.next().await.unwrap().unwrap().events {
                let Event::Put(entry) = event else {
                    panic!("the heartbeat goes: {event:?}");
                };
                assert!(entry.lease.is_some());
                let time = String::from_utf8(entry.value).unwrap();
                time.parse::<jiff::Timestamp>().expect("RFC 3339");
                seconds.push(begun.elapsed().as_secs());
            }
        }
        seconds
    };

    let seconds = tokio::select! {
        () = publisher.beat() => panic!("it goes on for ever"),
        seconds = watching => seconds,
    };

    assert_eq!(seconds, [0, 60, 120, 180]);
}
