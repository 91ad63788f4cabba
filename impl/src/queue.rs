//! Coalescing work queue: names that are dirty, each handed to one worker at a time.
//!
//! Adding a name that already waits changes nothing; adding one that is being worked on hands it out once more afterwards.
//! A name that is handed out has no retry pending any more: however often it is added while it fails, it is retried once.
//! The queue is as long as there are distinct names, never longer. It decides nothing about the work itself.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

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

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    waiting: BTreeSet<K>,
    working: BTreeSet<K>,
    again: BTreeSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    /// When each delayed name is due: the same as `delayed`, found by name.
    due: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
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
        let state = State {
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            working: BTreeSet::new(),
            again: BTreeSet::new(),
            delayed: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        let shared = Shared {
            state: Mutex::new(state),
            wake: Notify::new(),
            jitter: RandomState::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Marks a name dirty, to be worked on as soon as a worker is free.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.shared.wake.notify_one();
    }

    /// Marks a name dirty once `delay` has passed, or earlier if that was asked for before.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.state().delay(key, Instant::now() + delay);
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

    /// How many names wait, are delayed or in work.
    pub fn len(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.working.len() + state.delayed.len()
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

enum Taken<K> {
    Key { key: K, more: bool },
    WaitUntil(Option<Instant>),
}

impl<K: Ord + Clone> State<K> {
    fn add(&mut self, key: K) {
        if self.working.contains(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Hands a name out at `due`, or when it is due already if that is earlier.
    fn delay(&mut self, key: K, due: Instant) {
        match self.due.get(&key).copied() {
            Some(earlier) if earlier <= due => return,
            Some(later) => {
                self.delayed.remove(&(later, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), due);
        self.delayed.insert((due, key));
    }

    fn take(&mut self, now: Instant) -> Taken<K> {
        while self.delayed.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
        match self.ready.pop_front() {
            Some(key) => {
                self.waiting.remove(&key);
                if let Some(due) = self.due.remove(&key) {
                    self.delayed.remove(&(due, key.clone()));
                }
                self.working.insert(key.clone());
                Taken::Key {
                    key,
                    more: !self.ready.is_empty(),
                }
            }
            None => Taken::WaitUntil(self.delayed.first().map(|(due, _)| *due)),
        }
    }

    fn release(&mut self, key: &K) {
        self.working.remove(key);
        if let Some(key) = self.again.take(key) {
            self.add(key);
        }
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
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_that_waits_is_handed_out_once() {
        let queue = Queue::new();

        queue.add("a");
        queue.add("a");
        queue.add("b");

        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
        queue.done(&"a");
        queue.done(&"b");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_in_work_that_is_added_again_is_handed_out_after_it_is_done() {
        let queue = Queue::new();
        queue.add("a");
        let key = queue.next().await;

        queue.add("a");
        let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        queue.done(&key);

        assert!(early.is_err(), "one name was in work twice at once");
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_success_resets_them() {
        let queue = Queue::new();
        queue.add("a");
        let mut delays = Vec::new();
        for _ in 0..12 {
            let key = queue.next().await;
            delays.push(queue.retry(&key));
        }

        assert!(delays[0] >= RETRY_FIRST && delays[0] < RETRY_FIRST * 2);
        assert!(delays[1] > delays[0]);
        assert!(*delays.last().unwrap() <= RETRY_MAX * 5 / 4);

        let key = queue.next().await;
        queue.done(&key);
        queue.add("a");
        let key = queue.next().await;
        assert!(queue.retry(&key) < RETRY_FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_fails_is_retried_once_however_often_it_was_added_meanwhile() {
        let queue = Queue::new();
        for _ in 0..100 {
            queue.add("a");
            let key = queue.next().await;
            queue.retry(&key);
        }
        assert_eq!(queue.len(), 1);

        let key = queue.next().await;
        queue.done(&key);

        assert!(queue.is_empty(), "{} left", queue.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_succeeds_early_leaves_no_retry_behind() {
        let queue = Queue::new();
        queue.add("a");
        let key = queue.next().await;
        queue.retry(&key);

        queue.add("a");
        let key = queue.next().await;
        queue.done(&key);

        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn two_workers_are_both_woken() {
        let queue: Queue<u32> = Queue::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;

        queue.add(1);
        queue.add(2);

        let mut taken = Vec::new();
        for worker in workers {
            taken.push(worker.await.unwrap());
        }
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    }
}
