//! The heartbeat of a peer's store: who writes it lives.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Longest time between two heartbeats. Twice the interval at which they are written (1 min), as in Cilium.
const SILENCE_MAX: Duration = Duration::from_mins(2);

/// What is known of a peer's heartbeat.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    /// Revision of the last one; none when the key was not there.
    revision: Option<i64>,
    /// When that was first seen.
    at: Option<(Instant, Timestamp)>,
}

impl Heartbeat {
    /// The key was seen with this revision, or was not there. A store that is looked at for the first time has the whole time to
    /// show one: the first comes a minute after its writer starts.
    pub(super) fn seen(&mut self, revision: Option<i64>, now: Instant, time: Timestamp) {
        let beats = revision.is_some() && revision != self.revision;
        if beats || self.at.is_none() {
            self.at = Some((now, time));
        }
        if revision.is_some() {
            self.revision = revision;
        }
    }

    /// Whether it has been silent for too long.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.silent_from().is_some_and(|from| from <= now)
    }

    /// When it will have been silent for too long.
    pub(super) fn silent_from(&self) -> Option<Instant> {
        self.at.map(|(at, _)| at + SILENCE_MAX)
    }

    /// When it was seen to beat last.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.at
            .filter(|_| self.revision.is_some())
            .map(|(_, time)| time)
    }

    /// Revisions of another store mean nothing.
    pub(super) fn forget_revision(&mut self) {
        self.revision = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn the_same_heartbeat_seen_again_is_no_sign_of_life() {
        let begin = Instant::now();
        let mut heartbeat = Heartbeat::default();
        let after = |seconds| begin + Duration::from_secs(seconds);

        heartbeat.seen(Some(5), begin, TIME);
        heartbeat.seen(Some(5), after(60), TIME);
        assert!(!heartbeat.is_silent(after(119)));
        assert!(heartbeat.is_silent(after(120)));
        heartbeat.seen(Some(6), after(130), TIME);
        assert!(!heartbeat.is_silent(after(249)));
        heartbeat.seen(None, after(200), TIME);
        assert!(heartbeat.is_silent(after(250)), "a key that went is none");
    }

    #[test]
    fn a_store_without_one_has_two_minutes_to_show_one() {
        let begin = Instant::now();
        let mut heartbeat = Heartbeat::default();

        assert!(!heartbeat.is_silent(begin));
        heartbeat.seen(None, begin, TIME);
        heartbeat.seen(None, begin + Duration::from_secs(90), TIME);

        assert_eq!(heartbeat.last(), None);
        assert!(heartbeat.is_silent(begin + SILENCE_MAX));
    }
}
