//! How far the peer can be trusted, as told to everybody else.

use tombolo_core::{
    peer_status::{Failure, KindStatus, PeerState, PeerStatus},
    wire::key::Resource,
};

use super::{
    super::statuses::Deadlines, Error, Records, RemoteCluster, config::Accepted, session::Feeds,
};
use crate::kvstore::KvStore;

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Following begins.
    pub(super) fn report_start(&self) {
        let endpoint = self.store.endpoint();
        self.statuses
            .set_deadlines(&self.peer, Deadlines::default());
        self.statuses.update(&self.peer, |status, _| {
            status.endpoint = endpoint;
            for kind in self.records.kinds() {
                status.kinds.entry(*kind).or_default();
            }
        });
    }

    /// The session failed: nothing is known of the peer's present.
    pub(super) fn report_failure(&self, error: &Error, last: &mut Option<&'static str>) {
        let (peer, reason) = (&self.peer, error.reason());
        if last.replace(reason) == Some(reason) {
            tracing::debug!(%peer, %error, reason, "the peer still cannot be followed");
        } else {
            tracing::warn!(%peer, %error, reason, "the peer cannot be followed; its rows stay; trying again");
        }
        self.statuses.update(&self.peer, |status, now| {
            status.connected = false;
            note_failure(status, error, now);
        });
    }

    /// The peer is not accepted.
    pub(super) fn report_refusal(&self, error: &Error) {
        self.statuses.update(&self.peer, |status, now| {
            if status.last_error.as_deref() == Some(error.to_string().as_str()) {
                return;
            }
            tracing::warn!(peer = %self.peer, %error, reason = error.reason(), "the peer is not accepted");
            note_failure(status, error, now);
        });
    }

    /// The store answered.
    pub(super) fn report_contact(&self) {
        self.statuses
            .update(&self.peer, |status, now| self.note_contact(status, now));
    }

    /// The peer is accepted; its records are still to be read.
    pub(super) fn report_accepted(&self, accepted: &Accepted, feeds: &Feeds) {
        let trusted = self.is_complete(accepted, feeds);
        self.statuses.update(&self.peer, |status, now| {
            status.config = Some(accepted.config.clone());
            match (status.synced, trusted) {
                // A peer that was ready stays so until something speaks against it.
                (true, true) => {}
                (true, false) => status.enter(PeerState::Suspect, now),
                (false, _) => status.enter(PeerState::Listing, now),
            }
        });
    }

    /// Tells how far the peer can be trusted now.
    pub(super) fn report(&self, accepted: &Accepted, feeds: &Feeds) {
        let complete = self.is_complete(accepted, feeds);
        let state = match (complete, self.statuses.is_synced(&self.peer)) {
            (true, _) => PeerState::Ready,
            (false, true) => PeerState::Suspect,
            (false, false) => PeerState::Listing,
        };
        if self.statuses.state_of(&self.peer) != Some(state) {
            tracing::info!(peer = %self.peer, state = state.as_str(), "the peer's state changed");
        }
        self.statuses.update(&self.peer, |status, now| {
            if status.state != state && complete {
                status.synced = true;
                status.last_error = None;
            }
            status.enter(state, now);
            for (kind, status) in &mut status.kinds {
                status.published = feeds.get(*kind).is_some();
                self.note_kind(*kind, status);
            }
            self.note_contact(status, now);
        });
    }

    /// Whether the rows are exactly what the peer says.
    fn is_complete(&self, accepted: &Accepted, feeds: &Feeds) -> bool {
        accepted.present.is_some()
            && self.records.kinds().iter().all(|kind| {
                let memory = self.memory.feed(*kind);
                match feeds.get(*kind) {
                    Some(_) => memory.is_some_and(|memory| memory.synced.is_some()),
                    // A capability that was withdrawn leaves rows behind that nobody vouches for.
                    None => self.has_nothing_of(*kind),
                }
            })
    }

    fn note_contact(&self, status: &mut PeerStatus, now: jiff::Timestamp) {
        status.connected = true;
        status.last_contact = Some(now);
        if let Some(seen) = self.memory.seen() {
            status.store_id = Some(format!("{:x}", seen.store_id));
            status.note_head(seen.revision, now);
        }
    }

    fn note_kind(&self, kind: Resource, status: &mut KindStatus) {
        let Some(memory) = self.memory.feed(kind) else {
            return;
        };
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        status.synced = memory.synced.is_some();
        status.records = count(memory.holdings.len());
        status.bytes = count(memory.holdings.bytes());
        status.revision = memory.followed;
        status.held_deletions = memory.held_deletions;
        status.refused = self.statuses.records_refused(&self.peer, kind);
    }
}

fn note_failure(status: &mut PeerStatus, error: &Error, now: jiff::Timestamp) {
    let state = if status.synced {
        PeerState::Suspect
    } else {
        PeerState::Connecting
    };
    status.enter(state, now);
    status.last_error = Some(error.to_string());
    status.failures += 1;
    status.last_failure = Some(Failure {
        at: now,
        reason: error.reason().to_owned(),
        text: error.to_string(),
    });
}
