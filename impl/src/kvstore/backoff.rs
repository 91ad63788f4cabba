//! Waiting times between attempts: doubling, with jitter, so that many clients of one store do not come back together.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// Waiting times that double from `first` to `most`, each drawn from the upper half of its range.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Begins at `first` and never waits longer than `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            next: first,
        }
    }

    /// How long to wait before the next attempt.
    pub fn wait(&mut self) -> Duration {
        self.wait_drawn(random())
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    fn wait_drawn(&mut self, drawn: u64) -> Duration {
        let range = self.next;
        self.next = (range * 2).min(self.most);
        let part = u32::try_from(drawn % 1024).expect("invariant: below 1024");
        range / 2 + range / 2 * part / 1024
    }
}

/// A random number, good enough to spread load.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_times_double_up_to_the_limit_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));

        let waits: Vec<_> = (0..4).map(|_| backoff.wait_drawn(0).as_millis()).collect();
        backoff.reset();

        assert_eq!(waits, [50, 100, 175, 175]);
        assert_eq!(backoff.wait_drawn(0).as_millis(), 50);
    }

    #[test]
    fn jitter_stays_between_half_and_all_of_the_range() {
        for drawn in [0, 1, 512, 1023, 1024, u64::MAX] {
            let wait =
                Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).wait_drawn(drawn);
            assert!(
                wait >= Duration::from_millis(500) && wait < Duration::from_secs(1),
                "{wait:?}"
            );
        }
    }

    /// How many of the waits of 511 clients of one store fall in each sixteenth of what is possible.
    fn spread(range: Duration, draw: impl Fn(u64) -> u64) -> [u32; 16] {
        let mut slots = [0; 16];
        for client in 0..511 {
            let wait = Backoff::new(range, range).wait_drawn(draw(client));
            let part = wait.saturating_sub(range / 2).as_nanos() * 16 / (range / 2).as_nanos();
            slots[usize::try_from(part).unwrap()] += 1;
        }
        slots
    }

    #[test]
    fn five_hundred_clients_of_one_store_do_not_come_back_together() {
        // The finaliser of splitmix64: numbers as a good generator draws them, the same in every run.
        let draw = |client: u64| {
            let mixed = (client + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed ^ (mixed >> 27)
        };
        for range in [50, 400, 5000] {
            let slots = spread(Duration::from_millis(range), draw);
            assert!(
                slots.iter().all(|count| (12..=60).contains(count)),
                "{slots:?}"
            );
        }
    }

    #[test]
    fn the_numbers_that_are_drawn_spread_clients_over_the_whole_range() {
        let slots = spread(Duration::from_secs(5), |_| random());

        // An empty sixteenth would come once in 10^13 runs.
        assert!(slots.iter().all(|count| *count > 0), "{slots:?}");
    }
}
