//! Median and percentiles of measured times. Pure.

use std::time::Duration;

/// Measured times, sorted.
#[derive(Debug, Clone)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Sorts the times; none when there are none.
    pub fn new(mut times: Vec<Duration>) -> Option<Self> {
        times.sort();
        (!times.is_empty()).then_some(Self(times))
    }

    /// The smallest time that at least `percent` of all do not exceed (nearest rank).
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0[rank.min(self.0.len()) - 1]
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// A time in milliseconds with one decimal.
pub fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times = Times::new((1..=50).rev().map(Duration::from_millis).collect()).unwrap();

        assert_eq!(times.percentile(50), Duration::from_millis(25));
        assert_eq!(times.percentile(99), Duration::from_millis(50));
        assert_eq!(times.percentile(0), Duration::from_millis(1));
    }

    #[test]
    fn nothing_measured_has_no_percentile() {
        assert!(Times::new(Vec::new()).is_none());
    }
}
