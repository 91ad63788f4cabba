//! Waiting on conditions, with a budget, and an error that shows what was seen last.
//!
//! Never wait by sleeping: name the condition.

use std::{
    env,
    time::{Duration, Instant},
};

use crate::run;

/// Shortest and longest pause between two looks at a condition. In between it is a part of the time waited so far: servers
/// that are slow to do something are not kept from it by being asked.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// That part.
const PART: u32 = 10;
/// Longest that the first look at a state that is to last may take: connections are made.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// Environment variable with the factor of [`patience`].
const PATIENCE: &str = "TOMBOLO_PATIENCE";

/// A condition was not met, or did not last.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The budget is spent.
    #[error("waited {elapsed:.1?} for {what}, last seen: {last}")]
    NotSeen {
        /// The condition.
        what: String,
        /// How long was waited.
        elapsed: Duration,
        /// What the last look found.
        last: String,
    },
    /// A condition that had to stay true became false.
    #[error("after {elapsed:.1?}, no longer true: {what}, seen: {seen}")]
    Ended {
        /// The condition.
        what: String,
        /// How long it held.
        elapsed: Duration,
        /// What was found instead.
        seen: String,
    },
}

/// How many times as long as their budget waits of tests may take: the whole number of 1 to 10 in `TOMBOLO_PATIENCE`, for
/// machines that do much at the same time. 1 when it is not set, or is anything else.
pub fn patience() -> u32 {
    let text = env::var(PATIENCE).unwrap_or_default();
    let number = text.parse().ok();
    number.filter(|it| (1..=10).contains(it)).unwrap_or(1)
}

fn pause(waited: Duration) -> Duration {
    let [shortest, longest] = PAUSES;
    (waited / PART).clamp(shortest, longest)
}

/// Looks until `probe` says `Ok`, at most for `budget` times [`patience`]. `what` and the `Err` of the last look are in the
/// error.
///
/// A look that does not return is given up at the end of the budget. A spent budget keeps the logs of the clusters.
pub async fn eventually<T, F>(budget: Duration, what: &str, mut probe: F) -> Result<T, WaitError>
where
    F: AsyncFnMut() -> Result<T, String>,
{
    let budget = budget * patience();
    let start = Instant::now();
    let mut last = "nothing: the first look did not return".to_owned();
    loop {
        let left = budget.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last = seen,
            Err(_) => last = format!("{last} (the look after that did not return)"),
        }
        let pause = pause(start.elapsed());
        if start.elapsed() + pause >= budget {
            run::keep_all("a wait was in vain");
            return Err(WaitError::NotSeen {
                what: what.to_owned(),
                elapsed: start.elapsed(),
                last,
            });
        }
        tokio::time::sleep(pause).await;
    }
}

/// Looks again and again for `duration` from the end of the first look on; every look must say `Ok`.
///
/// The last look may be given up when the time is over. The first may take 10 s, times [`patience`]: when it does not
/// return, nothing was proven and that is an error.
pub async fn stays_for<F>(duration: Duration, what: &str, mut probe: F) -> Result<(), WaitError>
where
    F: AsyncFnMut() -> Result<(), String>,
{
    let mut looks = 0;
    let mut start = Instant::now();
    loop {
        let left = match looks {
            0 => FIRST_LOOK * patience(),
            _ => duration.saturating_sub(start.elapsed()),
        };
        let seen = match tokio::time::timeout(left, probe()).await {
            Ok(Ok(())) => None,
            Ok(Err(seen)) => Some(seen),
            Err(_) if looks > 0 => return Ok(()),
            Err(_) => Some("nothing: the first look did not return".to_owned()),
        };
        if let Some(seen) = seen {
            run::keep_all("a state did not last");
            let elapsed = start.elapsed();
            return Err(WaitError::Ended {
                what: what.to_owned(),
                elapsed,
                seen,
            });
        }
        if looks == 0 {
            start = Instant::now();
        }
        looks += 1;
        let [pause, _] = PAUSES;
        if start.elapsed() + pause >= duration {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
    }
}
