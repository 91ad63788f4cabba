//! Coalescing work queue: names that are dirty, each handed to one worker at a time.
//!
//! Adding a name that already waits changes nothing; adding one that is being worked on hands it out once more afterwards.
//! A name that is handed out has no retry pending any more: however often it is added while it fails, it is retried once.
//! Names of which something was taken away go before the others, but never keep them waiting for ever.
//! The queue is as long as there are distinct names, never longer. It decides nothing about the work itself.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

mod state;

use state::{State, Taken};

/// Delay before the first retry of a failed name. Doubled for each further failure.
pub const RETRY_FIRST: Duration = Duration::from_millis(50);

/// Longest delay between retries, before jitter.
pub const RETRY_MAX: Duration = Duration::from_secs(15);

/// A coalescing work queue. Cloning gives another handle on the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    jitter: RandomState,
}

/// How full a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    /// Names that wait for a worker.
    pub waiting: usize,
    /// Names in work.
    pub working: usize,
    /// Names that failed and are not due yet.
    pub delayed: usize,
    /// For how long the oldest of those that wait or are in work has been dirty; none when there are none, or the queue is held.
    pub oldest: Option<Duration>,
    /// Whether nothing is handed out.
    pub held: bool,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Ord + Clone + Hash> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Hash> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        let shared = Shared {
            state: Mutex::new(State::new(Instant::now())),
            wake: Notify::new(),
            jitter: RandomState::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Marks a name dirty, to be worked on as soon as a worker is free.
    pub fn add(&self, key: K) {
        self.state().add(key, false, Instant::now());
        self.shared.wake.notify_one();
    }

    /// The same for a name of which something was taken away: it goes before those that were added with [`Self::add`].
    pub fn add_first(&self, key: K) {
        self.state().add(key, true, Instant::now());
        self.shared.wake.notify_one();
    }

    /// Waits for a dirty name. It is in work until [`Self::done`] or [`Self::retry`] is called with it.
    ///
    /// Cancel-safe: a name is taken only when the call returns.
    pub async fn next(&self) -> K {
        loop {
            let wait = match self.state().take(Instant::now()) {
                Taken::Key { key, more } => {
                    if more {
                        self.shared.wake.notify_one();
                    }
                    return key;
                }
                Taken::WaitUntil(due) => due,
            };
            match wait {
                Some(due) => {
                    tokio::select! {
                        () = self.shared.wake.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                None => self.shared.wake.notified().await,
            }
        }
    }

    /// The work on a name succeeded: its failures are forgotten.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        state.failures.remove(key);
        state.release(key);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// The work on a name failed: it is handed out again after a back-off, which is returned.
    ///
    /// The delay doubles from [`RETRY_FIRST`] to [`RETRY_MAX`], with up to a quarter of it as jitter.
    pub fn retry(&self, key: &K) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        *failures = failures.saturating_add(1);
        let delay = backoff(*failures, self.shared.jitter.hash_one((key, *failures)));
        state.delay(key.clone(), Instant::now() + delay);
        state.release(key);
        drop(state);
        self.shared.wake.notify_one();
        delay
    }

    /// Hands out nothing until [`Self::resume`]. Names are still collected.
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Hands out names again. Their age counts from now: nobody was to work on them before.
    pub fn resume(&self) {
        self.state().resume(Instant::now());
        self.shared.wake.notify_one();
    }

    /// How full it is.
    pub fn fill(&self) -> Fill {
        self.state().fill(Instant::now())
    }

    /// How many names wait, are delayed or in work.
    pub fn len(&self) -> usize {
        let fill = self.fill();
        fill.waiting + fill.working + fill.delayed
    }

    /// Whether nothing waits, is delayed or in work.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared
            .state
            .lock()
            .expect("no code panics while it holds the queue")
    }
}

/// Delay after this many failures in a row; `noise` picks the jitter.
pub fn backoff(failures: u32, noise: u64) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1_u32 << failures.saturating_sub(1).min(16));
    let delay = doubled.min(RETRY_MAX);
    let per_mille = u32::try_from(noise % 250).expect("a remainder of 250 fits");
    delay + delay * per_mille / 1000
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
