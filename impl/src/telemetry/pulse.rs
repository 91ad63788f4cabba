//! Deadmen: which parts of the process have had a piece of work in hand for longer than it can take.
//!
//! A part that waits is never stuck, however long it waits; a part says when it begins a piece of work, and every step of that
//! work is bounded in time. So work that is in hand for longer than its bound is a bug (a deadlock, an endless loop), and a
//! restart is the cure. Time is counted in ticks of this process's own clock task: a process that was stopped or starved does
//! not take itself for stuck when it goes on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};

/// Time between two ticks.
const TICK: Duration = Duration::from_secs(1);

/// The parts of a process that are watched. Clones are the same parts.
#[derive(Debug, Clone, Default)]
pub struct Pulses {
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    next: u64,
    by_number: BTreeMap<u64, Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    bound: u64,
    /// Ticks since the work in hand began or went on; none while it waits.
    in_work: Option<u64>,
}

/// A part that has been in work for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The part.
    pub part: String,
    /// For how long nothing was heard of the work in hand.
    pub silent: Duration,
    /// The longest that a step of its work can take.
    pub bound: Duration,
}

/// One part. Dropping it ends the watch over it.
#[derive(Debug)]
pub struct Pulse {
    pulses: Pulses,
    number: u64,
}

/// A piece of work in hand. Dropping it says that the part waits again.
#[derive(Debug)]
pub struct Work<'a>(&'a Pulse);

impl Pulses {
    /// Watches over a part, no step of whose work takes longer than `bound` (whole seconds).
    pub fn part(&self, name: impl Into<String>, bound: Duration) -> Pulse {
        let mut parts = self.lock();
        let number = parts.next;
        parts.next += 1;
        let part = Part {
            name: name.into(),
            bound: bound.as_secs(),
            in_work: None,
        };
        parts.by_number.insert(number, part);
        Pulse {
            pulses: self.clone(),
            number,
        }
    }

    /// The parts that are stuck.
    pub fn stuck(&self) -> Vec<Stuck> {
        let parts = self.lock();
        let stuck = parts.by_number.values().filter_map(|part| {
            let silent = part.in_work.filter(|&ticks| ticks > part.bound)?;
            Some(Stuck {
                part: part.name.clone(),
                silent: Duration::from_secs(silent),
                bound: Duration::from_secs(part.bound),
            })
        });
        stuck.collect()
    }

    /// Counts the time for ever. One task of the process does.
    pub async fn count(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for part in self.lock().by_number.values_mut() {
                part.in_work = part.in_work.map(|ticks| ticks.saturating_add(1));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, number: u64, in_work: Option<u64>) {
        if let Some(part) = self.lock().by_number.get_mut(&number) {
            part.in_work = in_work;
        }
    }
}

impl Pulse {
    /// A piece of work begins; it lasts until the value is dropped.
    pub fn begin(&self) -> Work<'_> {
        self.pulses.set(self.number, Some(0));
        Work(self)
    }

    /// A step of the work in hand, if there is any, is done, and the next begins.
    pub fn goes_on(&self) {
        if let Some(part) = self.pulses.lock().by_number.get_mut(&self.number) {
            part.in_work = part.in_work.map(|_| 0);
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.pulses.lock().by_number.remove(&self.number);
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.pulses.set(self.0.number, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_mins(1);

    async fn pass(pulses: &Pulses, time: Duration) {
        let _counted = tokio::time::timeout(time, pulses.count()).await;
    }

    fn stuck(pulses: &Pulses) -> Vec<String> {
        pulses.stuck().into_iter().map(|it| it.part).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_waits_is_never_stuck() {
        let pulses = Pulses::default();
        let _idle = pulses.part("idle", BOUND);

        pass(&pulses, BOUND * 100).await;

        assert_eq!(pulses.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn work_in_hand_for_longer_than_its_bound_is_stuck_until_it_ends() {
        let pulses = Pulses::default();
        let part = pulses.part("reader", BOUND);
        let work = part.begin();

        pass(&pulses, BOUND * 9 / 10).await;
        assert_eq!(pulses.stuck(), []);
        pass(&pulses, BOUND / 5).await;
        assert_eq!(stuck(&pulses), ["reader"]);

        drop(work);
        assert_eq!(pulses.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_goes_on_step_by_step_is_not_stuck_however_long_it_is() {
        let pulses = Pulses::default();
        let part = pulses.part("list of many pages", BOUND);
        let _work = part.begin();

        for _page in 0..10 {
            pass(&pulses, BOUND / 2).await;
            part.goes_on();
        }

        assert_eq!(pulses.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_did_not_run_does_not_count() {
        let pulses = Pulses::default();
        let part = pulses.part("reader", BOUND);
        let _work = part.begin();

        let clock = pulses.clone();
        let counter = tokio::spawn(async move { clock.count().await });
        tokio::task::yield_now().await;
        // No task runs meanwhile, as after SIGSTOP.
        tokio::time::advance(BOUND * 10).await;
        tokio::time::sleep(TICK * 3).await;

        assert_eq!(pulses.stuck(), []);
        counter.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_gone_is_not_watched() {
        let pulses = Pulses::default();
        let part = pulses.part("removed peer", BOUND);
        std::mem::forget(part.begin());

        drop(part);
        pass(&pulses, BOUND * 2).await;

        assert_eq!(pulses.stuck(), []);
    }
}
