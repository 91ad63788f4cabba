//! How far the peer can be trusted, as told to everybody else.

use tombolo_core::{
    peer_status::{Failure, KindStatus, PeerState, PeerStatus},
    wire::key::{HEARTBEAT, Resource},
};

use tokio::time::Instant;

use super::{
    super::statuses::Deadlines, Error, Records, RemoteCluster, config::Accepted, happening::Feeds,
    pace::PAUSE_MAX,
};
use crate::kvstore::KvStore;

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Following begins.
    pub(super) fn report_start(&self) {
        let endpoint = self.store.endpoint();
        self.statuses.update(&self.peer, |status, _| {
            status.endpoint = endpoint;
            for kind in self.records.kinds() {
                status.kinds.entry(*kind).or_default();
            }
        });
        self.report_deadlines();
    }

    /// The session failed: nothing is known of the peer's present.
    pub(super) fn report_failure(&self, error: &Error, last: &mut Option<&'static str>) {
        let (peer, reason) = (&self.peer, error.reason());
        if last.replace(reason) == Some(reason) {
            tracing::debug!(%peer, %error, reason, "the peer still cannot be followed");
        } else {
            tracing::warn!(%peer, %error, reason, "the peer cannot be followed; its rows stay; trying again");
        }
        self.memory.unheard.not_heard(Instant::now());
        let state = self.state_without_word();
        self.statuses.update(&self.peer, |status, now| {
            status.connected = false;
            status.enter(state, now);
            note_failure(status, error, now);
        });
        self.report_deadlines();
    }

    /// The peer is not accepted.
    pub(super) fn report_refusal(&self, error: &Error) {
        self.memory.unheard.not_heard(Instant::now());
        let state = self.state_without_word();
        self.statuses.update(&self.peer, |status, now| {
            if status.last_error.as_deref() == Some(error.to_string().as_str()) {
                return;
            }
            tracing::warn!(peer = %self.peer, %error, reason = error.reason(), "the peer is not accepted");
            status.enter(state, now);
            note_failure(status, error, now);
        });
        self.report_deadlines();
    }

    /// Its cluster-config cannot be gone by any more; the last one is.
    pub(super) fn report_suspicion(&self, error: &Error) {
        let state = self.state_without_word();
        self.statuses.update(&self.peer, |status, now| {
            if status.synced {
                status.enter(state, now);
            }
            status.last_error = Some(error.to_string());
        });
    }

    /// It was not heard of for longer than the cache time-to-live.
    pub(super) fn report_expired(&self) {
        self.statuses.update(&self.peer, |status, now| {
            status.enter(PeerState::Expired, now);
            status.synced = false;
            for (kind, status) in &mut status.kinds {
                self.note_kind(*kind, status);
            }
        });
        self.report_deadlines();
    }

    /// The store answered.
    pub(super) fn report_contact(&self) {
        self.statuses
            .update(&self.peer, |status, now| self.note_contact(status, now));
    }

    /// The peer is accepted; its records are still to be read.
    pub(super) fn report_accepted(&self, accepted: &Accepted, feeds: &Feeds) {
        let trusted = self.is_complete(accepted, feeds);
        let heard = self.is_heard(accepted);
        self.statuses.update(&self.peer, |status, now| {
            status.config = Some(accepted.config.clone());
            match (status.synced, trusted) {
                // A peer that was ready stays so until something speaks against it.
                (true, true) => {}
                (true, false) => status.enter(PeerState::Suspect, now),
                (false, _) if status.state == PeerState::Expired && !heard => {}
                (false, _) => status.enter(PeerState::Listing, now),
            }
        });
    }

    /// Tells how far the peer can be trusted now.
    pub(super) fn report(&mut self, accepted: &Accepted, feeds: &Feeds) {
        self.review_limits();
        if self.is_heard(accepted) {
            self.memory.unheard.heard();
        } else {
            self.memory.unheard.not_heard(Instant::now());
        }
        let complete = self.is_complete(accepted, feeds);
        let before = self.statuses.state_of(&self.peer);
        let state = match (complete, self.statuses.is_synced(&self.peer)) {
            (true, _) => PeerState::Ready,
            (false, true) => PeerState::Suspect,
            (false, false) if !self.is_heard(accepted) && self.is_expired() => PeerState::Expired,
            (false, false) => PeerState::Listing,
        };
        if before != Some(state) {
            tracing::info!(peer = %self.peer, state = state.as_str(), "the peer's state changed");
        }
        let complaint = self.complaint(accepted, feeds);
        self.statuses.update(&self.peer, |status, now| {
            status.synced |= complete;
            if complete {
                status.last_error = None;
            } else if complaint.is_some() {
                status.last_error = complaint;
            }
            status.enter(state, now);
            status.limited = self.memory.limited.iter().copied().collect();
            status.last_heartbeat = self.memory.heartbeat.last();
            for (kind, status) in &mut status.kinds {
                status.published = feeds.get(*kind).is_some();
                self.note_kind(*kind, status);
            }
            self.note_contact(status, now);
        });
        self.report_deadlines();
    }

    /// Whether the peer lives, as far as can be told: its cluster-config is there and its heartbeat goes on.
    pub(super) fn is_heard(&self, accepted: &Accepted) -> bool {
        accepted.present.is_some() && !self.memory.heartbeat.is_silent(Instant::now())
    }

    /// Whether it expired and nothing of it came back since.
    pub(super) fn is_expired(&self) -> bool {
        self.memory.expiring_records() == 0
            && self.statuses.state_of(&self.peer) == Some(PeerState::Expired)
    }

    /// The state of a peer that says nothing.
    fn state_without_word(&self) -> PeerState {
        if self.is_expired() {
            PeerState::Expired
        } else if self.statuses.is_synced(&self.peer) {
            PeerState::Suspect
        } else {
            PeerState::Connecting
        }
    }

    /// Whether the rows are exactly what the peer says, and the peer lives.
    fn is_complete(&self, accepted: &Accepted, feeds: &Feeds) -> bool {
        self.is_heard(accepted)
            && self.memory.config_at.is_none()
            && self.memory.over() == 0
            && self.records.kinds().iter().all(|kind| {
                let memory = self.memory.feed(*kind);
                match feeds.get(*kind) {
                    Some(_) => memory.is_some_and(|memory| memory.synced.is_some()),
                    // A capability that was withdrawn leaves rows behind that nobody vouches for.
                    None => self.has_nothing_of(*kind),
                }
            })
    }

    /// Why the rows are not exactly what the peer says; none when that was said already, or when nothing is wrong.
    fn complaint(&self, accepted: &Accepted, feeds: &Feeds) -> Option<String> {
        accepted.present?;
        if self.memory.heartbeat.is_silent(Instant::now()) {
            return Some(format!(
                "{HEARTBEAT} has not changed for 2 min; check that the peer's mesh role runs"
            ));
        }
        if let Some(limit) = self.memory.limited.iter().find(|_| self.memory.over() > 0) {
            let (allowed, flag) = self.options.budget.of(*limit);
            let over = self.memory.over();
            return Some(format!(
                "{over} records are not taken over: the peer exceeds the limit {limit} of {allowed}; make it publish less, or raise {flag}"
            ));
        }
        if self.memory.config_at.is_some() {
            let key = self.config_key();
            return Some(format!(
                "{key} changes again and again: it is looked at again within {PAUSE_MAX:?}; check that one mesh role writes it and no other"
            ));
        }
        let kinds = self.records.kinds().iter();
        kinds.copied().find_map(|kind| {
            let memory = self.memory.feed(kind)?;
            let (kind, place) = (kind.name(), feeds.get(kind).map(|feed| &feed.place));
            match (memory.withdrawn, place) {
                (None, Some(place)) if memory.list_at.is_some() => Some(format!(
                    "{kind}: {} changes again and again, or keys go and come: they are listed again within {PAUSE_MAX:?}; check that one mesh role writes them and no other",
                    place.canary
                )),
                (Some(_), _) => Some(format!(
                    "{kind}: the peer withdrew the capability to publish them, or to write canaries; what was known stays for a while; check whether it was meant"
                )),
                (None, Some(place)) if memory.synced.is_none() => Some(format!(
                    "{kind}: {} is missing or new; waiting until the peer has written everything; check that its mesh role runs",
                    place.canary
                )),
                (None, _) => None,
            }
        })
    }

    /// What will happen to its records unless something changes.
    fn report_deadlines(&self) {
        let long = self.options.withdrawn_for;
        let withdrawn = self.records.kinds().iter().filter_map(|kind| {
            let since = self.memory.feed(*kind)?.withdrawn?;
            (!long.is_zero()).then_some((*kind, since + long))
        });
        let deadlines = Deadlines {
            expires: self.memory.unheard.ends(self.options.cache_ttl),
            withdrawn: withdrawn.collect(),
        };
        self.statuses.set_deadlines(&self.peer, deadlines);
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
        status.over_limit = count(memory.holdings.over());
        status.refused_now = count(memory.holdings.untaken().refused_count());
        status.refused = self.statuses.records_refused(&self.peer, kind);
    }
}

fn note_failure(status: &mut PeerStatus, error: &Error, now: jiff::Timestamp) {
    status.last_error = Some(error.to_string());
    status.failures += 1;
    status.last_failure = Some(Failure {
        at: now,
        reason: error.reason().to_owned(),
        text: error.to_string(),
    });
}
