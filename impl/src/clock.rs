//! Time that goes on while the machine is suspended.
//!
//! The monotonic clock, and with it tokio's, stands still during a suspension: who judges by it how long others believe in a right
//! believes in it for longer than they do.

use std::{ops::Add, time::Duration};

use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::time::Instant;

/// A moment, by a clock that runs while the machine is suspended and while the process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    instant: Instant,
    /// For how long the machine had been suspended since it was started.
    suspended: Duration,
}

impl Moment {
    /// The present one.
    pub(crate) fn now() -> Self {
        Self {
            instant: Instant::now(),
            suspended: suspended(),
        }
    }

    /// Whether it lies in the past.
    pub(crate) fn has_passed(self) -> bool {
        let since = suspended().saturating_sub(self.suspended);
        self.instant <= Instant::now() + since
    }

    /// For how long it has been past; zero while it is to come.
    pub(crate) fn elapsed(self) -> Duration {
        let since = suspended().saturating_sub(self.suspended);
        (Instant::now() + since).saturating_duration_since(self.instant)
    }

    /// When it comes, or came, by tokio's clock: suspensions do not count.
    pub(crate) fn awake(self) -> Instant {
        self.instant
    }

    /// When it comes if the machine is not suspended from now on, on tokio's clock: to wait for. Whoever waits through a
    /// suspension wakes late, and has to ask [`Self::has_passed`] before acting.
    pub(crate) fn instant(self) -> Instant {
        let since = suspended().saturating_sub(self.suspended);
        self.instant.checked_sub(since).unwrap_or_else(Instant::now)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self {
            instant: self.instant + duration,
            ..self
        }
    }
}

/// For how long the machine has been suspended since it was started; exact to the time between two readings of clocks.
fn suspended() -> Duration {
    let awake = read(ClockId::Monotonic);
    let suspended = read(ClockId::Boottime).saturating_sub(awake);
    #[cfg(test)]
    let suspended = suspended + testing::suspended();
    suspended
}

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let seconds = u64::try_from(tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// Suspensions of the machine, for tests on one thread.
#[cfg(test)]
pub(crate) mod testing {
    use std::{cell::Cell, time::Duration};

    thread_local! {
        static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// The machine is suspended for so long.
    pub(crate) fn suspend(duration: Duration) {
        SUSPENDED.set(SUSPENDED.get() + duration);
    }

    pub(super) fn suspended() -> Duration {
        SUSPENDED.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_moment_passes_awake_suspended_or_both() {
        let moment = Moment::now() + TERM;
        assert!(!moment.has_passed());

        tokio::time::advance(TERM / 2).await;
        assert!(!moment.has_passed());
        testing::suspend(TERM / 4);
        assert!(!moment.has_passed());
        let left = moment.instant() - Instant::now();
        assert!(left.abs_diff(TERM / 4) < TERM / 10, "{left:?}");
        testing::suspend(TERM / 2);

        assert!(moment.has_passed());
    }

    #[test]
    fn the_clocks_of_this_machine_agree_while_it_is_awake() {
        let before = suspended();

        let after = suspended();

        assert!(after.abs_diff(before) < Duration::from_secs(1));
    }
}
