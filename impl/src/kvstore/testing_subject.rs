//! For tests: what a store has to offer to be tested, and waiting on conditions.
//!
//! Compiled into the unit tests, and into `impl/tests/containers.rs` with another kind of store.

use std::time::{Duration, Instant};

use tombolo_testbed::patience;

use super::KvStore;

/// How long a condition may take on a busy machine.
pub(crate) fn budget() -> Duration {
    Duration::from_secs(30) * patience()
}

/// Time-to-live of a lease that is to end within a test when nobody prolongs it, and not when somebody does.
pub(crate) fn brief_ttl() -> Duration {
    Duration::from_secs(4) * patience()
}

/// Waits until the condition holds; fails the test when it does not within [`budget`].
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let budget = budget();
    let deadline = Instant::now() + budget;
    let mut pause = Duration::from_millis(5);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {budget:?}: {what}");
        tokio::time::sleep(pause).await;
        // Where time is paused, conditions that take many minutes are looked at hundreds of times, not tens of thousands.
        pause = (pause * 5 / 4).min(Duration::from_millis(250));
    }
}

/// A store and the ways to break it.
pub(crate) trait Subject: Sized {
    /// The store's type.
    type Store: KvStore;
    /// A running, empty store.
    async fn start() -> Self;
    /// A new client of it.
    fn store(&self) -> Self::Store;
    /// Forgets all events before the present revision.
    async fn compact(&self);
    /// Makes it unreachable.
    async fn stop(&mut self);
    /// Makes it reachable again, with its data.
    async fn resume(&mut self);
    /// Empties it and starts it again with the same id.
    async fn wipe(&mut self);
}
