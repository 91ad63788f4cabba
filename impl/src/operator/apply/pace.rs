//! How fast the operator writes at most, whatever happens in the mesh: a bucket of permits that fills at a steady rate.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

/// Writes per second, and how many at once after a while of silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Writes per second.
    pub per_second: NonZeroU32,
    /// Writes that may be made at once.
    pub burst: NonZeroU32,
}

/// Gives writers their turn. Cloning gives another handle on the same pace.
#[derive(Debug, Clone)]
pub struct Pace {
    bucket: Option<Arc<Mutex<Bucket>>>,
}

/// When the next turn is, as if all turns since ever were one interval apart; it may lie in the past by at most a burst.
#[derive(Debug)]
struct Bucket {
    interval: Duration,
    burst: Duration,
    next: Instant,
}

impl Bucket {
    /// When the turn is of who asks at `now`.
    fn turn(&mut self, now: Instant) -> Instant {
        let earliest = now.checked_sub(self.burst).unwrap_or(now);
        let turn = self.next.max(earliest);
        self.next = turn + self.interval;
        turn
    }
}

impl Pace {
    /// No limit.
    pub fn unlimited() -> Self {
        Self { bucket: None }
    }

    /// At most so fast.
    pub fn limited(rate: Rate) -> Self {
        let interval = Duration::from_secs(1) / rate.per_second.get();
        let bucket = Bucket {
            interval,
            burst: interval * (rate.burst.get() - 1),
            next: Instant::now(),
        };
        Self {
            bucket: Some(Arc::new(Mutex::new(bucket))),
        }
    }

    /// Waits for one's turn. Turns are given in the order in which they were asked for; one that is not used is lost.
    pub async fn turn(&self) {
        let Some(bucket) = &self.bucket else {
            return;
        };
        let turn = bucket
            .lock()
            .expect("no code panics while it holds the bucket")
            .turn(Instant::now());
        tokio::time::sleep_until(turn).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(per_second: u32, burst: u32) -> Pace {
        Pace::limited(Rate {
            per_second: per_second.try_into().unwrap(),
            burst: burst.try_into().unwrap(),
        })
    }

    /// How many turns there are within a time.
    async fn turns_within(pace: &Pace, time: Duration) -> usize {
        let end = Instant::now() + time;
        let mut turns = 0;
        while tokio::time::timeout_at(end, pace.turn()).await.is_ok() {
            turns += 1;
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_burst_turns_come_at_the_rate() {
        let pace = limited(10, 5);
        tokio::time::advance(Duration::from_mins(1)).await;

        assert_eq!(turns_within(&pace, Duration::from_millis(1)).await, 5);
        let turns = turns_within(&pace, Duration::from_secs(10)).await;
        assert!((99..=101).contains(&turns), "{turns}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_silence_saves_no_more_than_one_burst() {
        let pace = limited(10, 5);
        for _ in 0..2 {
            tokio::time::advance(Duration::from_hours(1)).await;
            assert_eq!(turns_within(&pace, Duration::from_millis(1)).await, 5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_writers_share_one_pace() {
        let pace = limited(100, 1);
        let begin = Instant::now();

        let writers = (0..20).map(|_| pace.turn());
        futures::future::join_all(writers).await;

        assert!(
            begin.elapsed() >= Duration::from_millis(190),
            "{:?}",
            begin.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nobody_waits() {
        let begin = Instant::now();
        for _ in 0..1000 {
            Pace::unlimited().turn().await;
        }

        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
