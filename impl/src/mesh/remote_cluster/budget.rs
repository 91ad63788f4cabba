//! What one peer may take of this cluster, so that a noisy one disturbs itself and nobody else.

use std::time::Duration;

use tokio::time::Instant;
use tombolo_core::peer_status::Limit;

/// The limits of each peer. The defaults take a peer with 100 000 pods, or 50 000 services, and bound 511 peers at their worst to
/// 16 GiB of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most records of all kinds together.
    pub records: usize,
    /// Most bytes of their keys and values together.
    pub bytes: usize,
    /// Most events per second, on average; ten times as many may come at once.
    pub events_per_second: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            records: 100_000,
            bytes: 32 * 1024 * 1024,
            events_per_second: 500,
        }
    }
}

impl Budget {
    /// The limit that one more record of this size, beside those that there are, would exceed.
    pub(super) fn exceeded(
        &self,
        records: usize,
        bytes: usize,
        size: Option<usize>,
    ) -> Option<Limit> {
        let size = size?;
        if records >= self.records {
            Some(Limit::Records)
        } else if bytes + size > self.bytes {
            Some(Limit::Bytes)
        } else {
            None
        }
    }

    /// A limit's value, and the flag that sets it.
    pub(super) fn of(&self, limit: Limit) -> (u64, &'static str) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        match limit {
            Limit::Records => (count(self.records), "--peer-max-records"),
            Limit::Bytes => (count(self.bytes), "--peer-max-bytes"),
            Limit::EventRate => (
                self.events_per_second.into(),
                "--peer-max-events-per-second",
            ),
        }
    }
}

/// How many seconds' worth of events may come at once: a peer that fills its store again does not wait for it.
const BURST_SECONDS: f64 = 10.0;

/// How many events may be taken now: a bucket that fills at a constant rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventRate {
    tokens: f64,
    at: Instant,
    /// Set when the bucket was empty; until it is half full again.
    throttled: bool,
}

impl EventRate {
    /// A full bucket.
    pub(super) fn full(budget: &Budget, now: Instant) -> Self {
        Self {
            tokens: f64::from(budget.events_per_second) * BURST_SECONDS,
            at: now,
            throttled: false,
        }
    }

    /// Takes events that came together. They are never refused: the next ones wait.
    pub(super) fn take(&mut self, budget: &Budget, events: usize, now: Instant) {
        self.refill(budget, now);
        self.tokens -= f64::from(u32::try_from(events).unwrap_or(u32::MAX));
        self.throttled |= self.tokens <= 0.0;
    }

    /// Takes events that nobody waits for: they empty the bucket at most, and are not paid for afterwards.
    pub(super) fn take_at_most(&mut self, budget: &Budget, events: usize, now: Instant) {
        self.refill(budget, now);
        let left = self.tokens.min(0.0);
        self.take(budget, events, now);
        self.tokens = self.tokens.max(left);
    }

    /// When the next events may be taken; none when at once.
    pub(super) fn opens(&self, budget: &Budget) -> Option<Instant> {
        if self.tokens > 0.0 {
            return None;
        }
        let missing = (1.0 - self.tokens) / f64::from(budget.events_per_second.max(1));
        Some(self.at + Duration::from_secs_f64(missing))
    }

    /// Fills the bucket for the time that passed.
    pub(super) fn refill(&mut self, budget: &Budget, now: Instant) {
        let rate = f64::from(budget.events_per_second);
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(rate * BURST_SECONDS);
        self.at = now;
        if self.tokens >= rate * BURST_SECONDS / 2.0 {
            self.throttled = false;
        }
    }

    /// Whether events had to wait lately.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let budget = Budget {
            events_per_second: 10,
            ..Budget::default()
        };
        let begin = Instant::now();
        let mut rate = EventRate::full(&budget, begin);

        rate.take(&budget, 100, begin);
        assert!(rate.is_throttled());
        let opens = rate.opens(&budget).unwrap();
        assert_eq!((opens - begin).as_millis(), 100);
        rate.refill(&budget, opens + Duration::from_millis(1));
        assert_eq!(rate.opens(&budget), None);
        assert!(rate.is_throttled(), "until it is half full");
        rate.refill(&budget, begin + Duration::from_secs(6));
        assert!(!rate.is_throttled());
    }

    #[test]
    fn events_that_nobody_waits_for_leave_no_debt() {
        let budget = Budget {
            events_per_second: 10,
            ..Budget::default()
        };
        let begin = Instant::now();
        let mut rate = EventRate::full(&budget, begin);

        rate.take_at_most(&budget, 1000, begin);

        assert!(rate.is_throttled());
        let opens = rate.opens(&budget).unwrap();
        assert_eq!((opens - begin).as_millis(), 100);
        rate.take(&budget, 10, begin);
        rate.take_at_most(&budget, 1000, begin);
        let opens = rate.opens(&budget).unwrap();
        assert_eq!((opens - begin).as_millis(), 1100, "what was owed stays");
    }

    #[test]
    fn one_large_batch_is_taken_and_paid_for_afterwards() {
        let budget = Budget {
            events_per_second: 10,
            ..Budget::default()
        };
        let begin = Instant::now();
        let mut rate = EventRate::full(&budget, begin);

        rate.take(&budget, 200, begin);

        let opens = rate.opens(&budget).unwrap();
        assert_eq!((opens - begin).as_secs(), 10);
    }
}
