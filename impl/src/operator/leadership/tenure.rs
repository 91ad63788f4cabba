//! The right to write: given by the election, prolonged by renewals, over when its time is.
//!
//! A right ends by the clock alone: nobody has to notice. Whoever writes asks right before sending. The clock runs while the
//! process is stopped and while its machine is suspended.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use thiserror::Error;
use tokio::sync::watch;

use crate::clock::Moment;

/// Why there is no right to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Lapsed {
    /// Another replica leads, or nobody yet.
    #[error("this replica does not lead; the one that does will write")]
    Standby,
    /// The Lease could not be renewed in time, or this process or its machine stood still.
    #[error("the Lease of this replica was not renewed in time; whoever leads next will write")]
    Expired,
}

impl Lapsed {
    /// Short name for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Standby => "NotLeading",
            Self::Expired => "LeaseExpired",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// There is no election.
    Sole,
    Standby,
    Until(Moment),
}

impl Standing {
    fn check(self) -> Result<(), Lapsed> {
        match self {
            Self::Standby => Err(Lapsed::Standby),
            Self::Until(until) if until.has_passed() => Err(Lapsed::Expired),
            Self::Sole | Self::Until(_) => Ok(()),
        }
    }
}

/// The right to write, as of now. Cloning gives another handle on the same right.
#[derive(Debug, Clone)]
pub struct Tenure {
    standing: Arc<watch::Sender<Standing>>,
}

impl Tenure {
    /// A right that never ends: there is only one replica.
    pub fn sole() -> Self {
        Self::of(Standing::Sole)
    }

    /// No right, until the Lease is held.
    pub fn standby() -> Self {
        Self::of(Standing::Standby)
    }

    fn of(standing: Standing) -> Self {
        Self {
            standing: Arc::new(watch::Sender::new(standing)),
        }
    }

    /// Whether there is a right to write now.
    pub fn check(&self) -> Result<(), Lapsed> {
        self.standing.borrow().check()
    }

    /// Drives `sending` as long as there is a right to write, and drops it when there is none: the clock is read each time
    /// before `sending` goes on. What it has handed to the connection by then cannot be called back.
    pub async fn guard<F: Future>(&self, sending: F) -> Result<F::Output, Lapsed> {
        let (mut sending, mut lapsed) = (pin!(sending), pin!(self.lapsed()));
        poll_fn(|cx| {
            self.check()?;
            if lapsed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(self.check().err().unwrap_or(Lapsed::Expired)));
            }
            sending.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Waits until there is a right to write.
    pub async fn begun(&self) {
        let mut standing = self.standing.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = standing.wait_for(|standing| standing.check().is_ok()).await;
    }

    /// Waits until there is none, be it that nobody has noticed yet. Late after a suspension of the machine: [`Self::check`] is not.
    pub async fn lapsed(&self) {
        let mut standing = self.standing.subscribe();
        loop {
            let now = *standing.borrow_and_update();
            let until = match now {
                Standing::Standby => return,
                Standing::Sole => None,
                Standing::Until(until) if until.has_passed() => return,
                Standing::Until(until) => Some(until.instant()),
            };
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                changed = standing.changed() => if changed.is_err() { return },
            }
        }
    }

    /// There is a right to write until then.
    pub(super) fn prolong(&self, until: Moment) {
        self.standing.send_replace(Standing::Until(until));
    }

    /// There is none any more.
    pub(super) fn end(&self) {
        self.standing.send_replace(Standing::Standby);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::clock::testing::suspend;

    const TERM: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_right_ends_by_the_clock_although_nobody_says_so() {
        let tenure = Tenure::standby();
        assert_eq!(tenure.check(), Err(Lapsed::Standby));

        tenure.prolong(Moment::now() + TERM);
        tokio::time::advance(TERM * 99 / 100).await;
        assert_eq!(tenure.check(), Ok(()));

        tokio::time::advance(TERM / 100).await;
        assert_eq!(tenure.check(), Err(Lapsed::Expired));
        tokio::time::timeout(Duration::from_millis(1), tenure.lapsed())
            .await
            .expect("an expired right is seen without a word");
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_prolonged_goes_on() {
        let tenure = Tenure::standby();
        tenure.prolong(Moment::now() + TERM);
        let waiting = tokio::spawn({
            let tenure = tenure.clone();
            async move {
                tenure.lapsed().await;
                Instant::now()
            }
        });
        let begin = Instant::now();

        tokio::time::sleep(TERM / 2).await;
        tenure.prolong(Moment::now() + TERM);

        let lapsed = waiting.await.unwrap();
        assert_eq!(lapsed - begin, TERM / 2 + TERM);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_sent_when_the_right_ends_is_dropped() {
        let tenure = Tenure::standby();
        tenure.prolong(Moment::now() + TERM);

        let sent = tenure.guard(tokio::time::sleep(TERM * 2)).await;

        assert_eq!(sent, Err(Lapsed::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stood_still_sends_nothing_when_it_goes_on() {
        let tenure = Tenure::standby();
        tenure.prolong(Moment::now() + TERM);
        let steps = std::cell::Cell::new(0);
        let sending = poll_fn(|cx| {
            steps.set(steps.get() + 1);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let mut guarded = pin!(tenure.guard(sending));
        assert!(futures::poll!(guarded.as_mut()).is_pending());

        tokio::time::advance(TERM * 2).await;
        let outcome = futures::poll!(guarded.as_mut());

        assert_eq!(outcome, Poll::Ready(Err(Lapsed::Expired)));
        assert_eq!(steps.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_suspended_sends_nothing_when_it_wakes_up() {
        let tenure = Tenure::standby();
        tenure.prolong(Moment::now() + TERM);
        let steps = std::cell::Cell::new(0);
        let sending = poll_fn(|cx| {
            steps.set(steps.get() + 1);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let mut guarded = pin!(tenure.guard(sending));
        assert!(futures::poll!(guarded.as_mut()).is_pending());

        suspend(TERM * 2);
        let outcome = futures::poll!(guarded.as_mut());

        assert_eq!(outcome, Poll::Ready(Err(Lapsed::Expired)));
        assert_eq!(steps.get(), 1);
        assert_eq!(tenure.check(), Err(Lapsed::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sole_replica_may_always_write() {
        let tenure = Tenure::sole();

        tenure.begun().await;
        assert_eq!(tenure.guard(async { 7 }).await, Ok(7));
        let lapsed = tokio::time::timeout(TERM * 1000, tenure.lapsed()).await;
        assert!(lapsed.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_right_wakes_who_waits_for_it() {
        let tenure = Tenure::standby();
        let waiting = tokio::spawn({
            let tenure = tenure.clone();
            async move {
                tenure.begun().await;
                tenure.lapsed().await;
                tenure.check()
            }
        });
        tokio::task::yield_now().await;

        tenure.prolong(Moment::now() + TERM);
        tokio::task::yield_now().await;
        tenure.end();

        assert_eq!(waiting.await.unwrap(), Err(Lapsed::Standby));
    }
}
