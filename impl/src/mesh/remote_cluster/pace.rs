//! How often a peer can make this cluster do something expensive: at once while that is seldom, then with pauses that grow.
//!
//! An honest peer writes canaries and cluster-config when it starts and when it changes; one that writes them in a loop is broken,
//! or means harm.

use std::time::Duration;

use tokio::time::Instant;

/// How many times in a row there is no pause. When a peer starts anew its cluster-config goes and comes, and a kind is listed up to
/// twice: so it may do that three times.
const FREE: u32 = 6;

/// The first pause.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// The longest pause. A peer is looked at so often, whatever it does: who takes over from a broken writer is noticed within it.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How many times are remembered: with as many the pause is the longest.
const TIMES_MAX: u32 = FREE + 6;

/// When something was done, and how often of late: one time is forgotten for every [`PAUSE_MAX`] that has passed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    times: u32,
}

impl Pace {
    /// When it may be done again; `now` when at once.
    pub(super) fn opens(&self, now: Instant) -> Instant {
        self.last
            .map_or(now, |last| now.max(last + pause(self.times)))
    }

    /// It was done.
    pub(super) fn took(&mut self, now: Instant) {
        let passed = self
            .last
            .replace(now)
            .map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let forgotten = passed.as_secs() / PAUSE_MAX.as_secs();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
        self.times = (self.times.saturating_sub(forgotten) + 1).min(TIMES_MAX);
    }
}

fn pause(times: u32) -> Duration {
    match times.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(more) => (PAUSE_FIRST * 2u32.pow(more)).min(PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses of what is done as often as it may be.
    fn pauses(pace: &mut Pace, now: &mut Instant, count: usize) -> Vec<u128> {
        let mut pause = || {
            let opens = pace.opens(*now);
            let waited = (opens - *now).as_millis();
            *now = opens;
            pace.took(opens);
            waited
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn the_first_times_are_at_once_and_then_pauses_double_up_to_the_longest() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());

        let pauses = pauses(&mut pace, &mut now, 15);

        assert_eq!(pauses[..6], [0; 6]);
        assert_eq!(
            pauses[6..],
            [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]
        );
    }

    #[test]
    fn what_is_seldom_never_waits() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());

        for _ in 0..100 {
            assert_eq!(pace.opens(now), now);
            pace.took(now);
            now += PAUSE_MAX;
        }
    }

    #[test]
    fn everything_is_forgotten_in_time() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pauses(&mut pace, &mut now, 20);

        now += PAUSE_MAX * TIMES_MAX;

        assert_eq!(pauses(&mut pace, &mut now, 7), [0, 0, 0, 0, 0, 0, 100]);
    }
}
