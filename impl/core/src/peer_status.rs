//! What is known of a peer, for people: one value that `/metrics`, the command line and the operator's own decisions read.
//!
//! STABLE: serialised as JSON, members in camelCase. Members may be added; none changes its meaning.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    names::ClusterName,
    wire::{cluster_config::ClusterConfig, key::Resource},
};

/// How far a peer can be trusted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PeerState {
    /// Never synced, and not connected.
    Connecting,
    /// Never synced; connected and reading.
    Listing,
    /// Everything it says was read, and changes are followed.
    Ready,
    /// It was synced, but its connection, its heartbeat, its canary, its cluster-config or a capability is gone: rows are kept
    /// and used, and nothing is removed.
    Suspect,
    /// It was not heard of for longer than the cache time-to-live: its services, exports and slices were removed. What it says
    /// when it is back is shown again.
    Expired,
}

impl PeerState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Connecting,
        Self::Listing,
        Self::Ready,
        Self::Suspect,
        Self::Expired,
    ];

    /// Short name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::Listing => "Listing",
            Self::Ready => "Ready",
            Self::Suspect => "Suspect",
            Self::Expired => "Expired",
        }
    }
}

impl fmt::Display for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A configured peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// Its name.
    pub cluster: ClusterName,
    /// How far it can be trusted.
    pub state: PeerState,
    /// Since when it is in that state.
    pub since: Timestamp,
    /// Where its store is: the endpoints of its file.
    pub endpoint: String,
    /// Whether its store answered last.
    pub connected: bool,
    /// Id of the etcd cluster that answered last, in hexadecimal as etcd's own tools print it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Whether it was synced once since this process began (or since it expired), so that what it lacks is known to be lacking.
    pub synced: bool,
    /// What it says of itself, once accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ClusterConfig>,
    /// When its store answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<Timestamp>,
    /// When its heartbeat was seen to change last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<Timestamp>,
    /// Connections that failed or were lost, and refusals, since this process began.
    pub failures: u64,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// What is wrong now, with the next step; none as soon as the peer is ready again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What is wrong with its file, with the next step; it is followed as the file said before, if it ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    /// Revision of its store when it answered last. Other writers of the store count: compare [`KindStatus::behind_since`].
    pub head: i64,
    /// Its records, by kind: every kind that is wanted of peers.
    pub kinds: BTreeMap<Resource, KindStatus>,
    /// Seconds until it expires, while it is not heard of and there is a cache time-to-live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
    /// The limits that it exceeds now: what is beyond them is not taken over, or later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<Limit>,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// When.
    pub at: Timestamp,
    /// Short name, for instance `Unreachable`.
    pub reason: String,
    /// What happened and what to do.
    pub text: String,
}

/// The records of one kind of one peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindStatus {
    /// Whether the peer publishes this kind, as far as its cluster-config says.
    pub published: bool,
    /// Whether the records are exactly what the peer says: its canary stands, and a list under it was finished.
    pub synced: bool,
    /// Records that are held.
    pub records: u64,
    /// Size of their keys and values in the peer's store, in bytes.
    pub bytes: u64,
    /// Revision of the peer's store up to which this kind was followed.
    pub revision: i64,
    /// Since when the store is ahead of [`Self::revision`]; none while everything that it said was taken over. The lag in
    /// revisions is [`PeerStatus::head`] less [`Self::revision`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// Keys that went without evidence that the peer meant it; their records are kept.
    pub held_deletions: u64,
    /// Records that were refused since this process began: malformed, not the peer's to write, or over its limits.
    pub refused: u64,
    /// Records that are refused as they stand in the peer's store: what they are about is unknown, and what was known of it is
    /// kept. Without those whose key names nothing since it is too long.
    pub refused_now: u64,
    /// Records that are not taken over now because the peer exceeds a limit.
    pub over_limit: u64,
    /// Seconds until the records of a capability that the peer withdrew are removed; none when nothing was withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn_for_seconds: Option<u64>,
}

/// What one peer may take of this cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// Records of all kinds.
    Records,
    /// Bytes of their keys and values.
    Bytes,
    /// Events per second.
    EventRate,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 3] = [Self::Records, Self::Bytes, Self::EventRate];

    /// Short name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "Records",
            Self::Bytes => "Bytes",
            Self::EventRate => "EventRate",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PeerStatus {
    /// A peer that was just configured, and of which nothing is known.
    pub fn new(cluster: ClusterName, now: Timestamp) -> Self {
        Self {
            cluster,
            state: PeerState::Connecting,
            since: now,
            endpoint: String::new(),
            connected: false,
            store_id: None,
            synced: false,
            config: None,
            last_contact: None,
            last_heartbeat: None,
            failures: 0,
            last_failure: None,
            last_error: None,
            file_error: None,
            head: 0,
            kinds: BTreeMap::new(),
            expires_in_seconds: None,
            limited: Vec::new(),
        }
    }

    /// Enters a state; entering the present one changes nothing.
    pub fn enter(&mut self, state: PeerState, now: Timestamp) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
    }

    /// What is wrong with it now, and what to do: with its file before all else.
    pub fn error(&self) -> Option<&str> {
        let error = self.file_error.as_ref().or(self.last_error.as_ref());
        error.map(String::as_str)
    }

    /// Whether it means anything that this peer has no record: it was read completely once, or it expired.
    ///
    /// ```
    /// use tombolo_core::peer_status::{PeerState, PeerStatus};
    /// let mut rome = PeerStatus::new("rome".try_into().unwrap(), jiff::Timestamp::UNIX_EPOCH);
    /// assert!(!rome.is_telling());
    /// rome.enter(PeerState::Expired, jiff::Timestamp::UNIX_EPOCH);
    /// assert!(rome.is_telling());
    /// ```
    pub fn is_telling(&self) -> bool {
        self.synced || self.state == PeerState::Expired
    }

    /// Revisions by which a kind is behind the store; 0 when everything was taken over.
    pub fn lag_revisions(&self, kind: Resource) -> i64 {
        self.kinds
            .get(&kind)
            .filter(|status| status.behind_since.is_some())
            .map_or(0, |status| (self.head - status.revision).max(0))
    }

    /// Notes the revision that its store is at, and since when a kind is behind it.
    pub fn note_head(&mut self, head: i64, now: Timestamp) {
        self.head = head;
        for kind in self.kinds.values_mut().filter(|kind| kind.published) {
            if kind.revision >= head {
                kind.behind_since = None;
            } else {
                kind.behind_since.get_or_insert(now);
            }
        }
    }
}

#[cfg(test)]
#[path = "peer_status_tests.rs"]
mod tests;
