//! Since when a peer was not heard of: it is not connected, or its cluster-config or heartbeat is missing.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

/// Since when a peer was not heard of. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Unheard {
    since: Arc<watch::Sender<Option<Instant>>>,
}

impl Unheard {
    /// The peer is heard of now.
    pub(super) fn heard(&self) {
        self.since.send_if_modified(|since| since.take().is_some());
    }

    /// The peer is not heard of; the time counts from the first call.
    pub(super) fn not_heard(&self, now: Instant) {
        self.since.send_if_modified(|since| {
            let begins = since.is_none();
            since.get_or_insert(now);
            begins
        });
    }

    /// The time counts from now.
    pub(super) fn restart(&self, now: Instant) {
        self.since.send_replace(Some(now));
    }

    /// When it will have been for this long; never for zero.
    pub(super) fn ends(&self, ttl: Duration) -> Option<Instant> {
        let since = *self.since.borrow();
        since.filter(|_| !ttl.is_zero()).map(|since| since + ttl)
    }

    /// Waits until the peer was not heard of for this long; for ever when that is zero.
    pub(super) async fn longer_than(&self, ttl: Duration) {
        let mut changes = self.since.subscribe();
        loop {
            changes.mark_unchanged();
            let ends = self.ends(ttl);
            let over = async {
                match ends {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                // The sender is this value's: it does not go.
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_first_silence_and_ends_with_a_word() {
        let unheard = Unheard::default();
        let begin = Instant::now();
        unheard.not_heard(begin);
        tokio::time::advance(TTL / 2).await;
        unheard.not_heard(Instant::now());
        assert_eq!(unheard.ends(TTL), Some(begin + TTL));

        let waiting = unheard.clone();
        let over = tokio::spawn(async move { waiting.longer_than(TTL).await });
        tokio::task::yield_now().await;
        unheard.heard();
        tokio::time::advance(TTL).await;
        assert!(!over.is_finished(), "it was heard of");
        let again = Instant::now();
        unheard.not_heard(again);
        over.await.unwrap();

        assert_eq!(again.elapsed().as_secs(), TTL.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_to_live_nothing_ends() {
        let unheard = Unheard::default();
        unheard.not_heard(Instant::now());

        let over = unheard.longer_than(Duration::ZERO);

        assert!(tokio::time::timeout(TTL * 1000, over).await.is_err());
    }
}
