//! Peers whose task panicked: suspect at once, and followed again after a pause that grows.

use std::{any::Any, collections::BTreeMap, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;
use tombolo_core::{
    names::ClusterName,
    peer_status::{Failure, PeerState},
};

use super::super::statuses::{Deadlines, Statuses};
use crate::kvstore::backoff::Backoff;

/// First and longest pause. What panics once mostly does so again, and each time everything of the peer is read.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// After so long without another panic the pauses begin anew.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// The peers whose task panicked of late.
#[derive(Debug, Default)]
pub(super) struct Panics {
    peers: BTreeMap<ClusterName, Panicked>,
}

#[derive(Debug)]
struct Panicked {
    backoff: Backoff,
    last: Instant,
    /// When the peer is followed again; none while it is.
    again: Option<Instant>,
}

impl Panics {
    /// The task of a peer panicked; returns the pause.
    pub(super) fn note(&mut self, peer: &ClusterName, now: Instant) -> Duration {
        let known = self.peers.entry(peer.clone()).or_insert_with(|| Panicked {
            backoff: Backoff::new(PAUSE.0, PAUSE.1),
            last: now,
            again: None,
        });
        if now.saturating_duration_since(known.last) >= FORGOTTEN {
            known.backoff.reset();
        }
        let pause = known.backoff.wait();
        known.last = now;
        known.again = Some(now + pause);
        pause
    }

    /// Whether a peer is not followed for now.
    pub(super) fn pauses(&self, peer: &ClusterName) -> bool {
        let known = self.peers.get(peer);
        known.is_some_and(|known| known.again.is_some())
    }

    /// Waits until a peer is to be followed again.
    pub(super) async fn pause_over(&self) {
        let pauses = self.peers.values().filter_map(|known| known.again);
        match pauses.min() {
            Some(again) => tokio::time::sleep_until(again).await,
            None => std::future::pending().await,
        }
    }

    /// The peers that are to be followed again now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ClusterName> {
        let mut due = Vec::new();
        for (peer, known) in &mut self.peers {
            if known.again.take_if(|again| *again <= now).is_some() {
                due.push(peer.clone());
            }
        }
        due
    }

    /// The peer is not followed any more.
    pub(super) fn forget(&mut self, peer: &ClusterName) {
        self.peers.remove(peer);
    }
}

/// What the work ends with, or what it said when it panicked. What is shared with others is behind locks that are held for single
/// calls: nothing that the work leaves behind is half done.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.map_err(|panic| text_of(&*panic))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned()));
    text.unwrap_or_else(|| "it says nothing".to_owned())
}

/// Says of a peer that following it panicked: nothing is known of its present.
pub(super) fn tell(statuses: &Statuses, peer: &ClusterName, panic: &str, pause: Duration) {
    tracing::error!(%peer, panic, ?pause, reason = "Panicked", "following the peer panicked: a defect of this program; its rows stay, and it is followed again after a pause; report it with the log");
    let text = format!(
        "following the peer panicked: {panic}: a defect of this program; its rows stay, and it is followed again within {:?}; report it with the log",
        PAUSE.1
    );
    statuses.set_deadlines(peer, Deadlines::default());
    statuses.update(peer, |status, at| {
        let state = match (status.state, status.synced) {
            (PeerState::Expired, _) => PeerState::Expired,
            (_, true) => PeerState::Suspect,
            (_, false) => PeerState::Connecting,
        };
        status.enter(state, at);
        status.connected = false;
        status.failures += 1;
        status.last_error = Some(text.clone());
        status.last_failure = Some(Failure {
            at,
            reason: "Panicked".to_owned(),
            text,
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_begin_anew_after_a_long_peace() {
        let (mut panics, rome) = (Panics::default(), "rome".try_into().unwrap());
        let mut now = Instant::now();

        let mut pause = |after: Duration| {
            now += after;
            let pause = panics.note(&rome, now);
            assert!(panics.pauses(&rome));
            assert_eq!(panics.take_due(now + pause / 2), []);
            assert_eq!(panics.take_due(now + pause).first(), Some(&rome));
            assert!(!panics.pauses(&rome));
            pause
        };

        assert!(pause(Duration::ZERO) <= PAUSE.0);
        for _ in 0..10 {
            pause(PAUSE.1);
        }
        assert!(pause(PAUSE.1) >= PAUSE.1 / 2);
        assert!(pause(FORGOTTEN) <= PAUSE.0);
    }
}
