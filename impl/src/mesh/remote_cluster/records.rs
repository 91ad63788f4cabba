//! What is done with a peer's records: the seam between following a peer and what is made of it.

use std::collections::BTreeSet;

use tombolo_core::{
    evidence::{Complete, Evidence},
    names::{ClusterId, ClusterName},
    peer_status::Limit,
    wire::{cluster_config::ClusterConfig, key::Resource},
};

use super::untaken::Untaken;
use crate::kvstore::Entry;

/// Whose records, and of which kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The peer.
    pub(crate) peer: &'a ClusterName,
    /// The id that the peer was accepted with.
    pub(crate) id: Option<ClusterId>,
    /// The kind.
    pub(crate) kind: Resource,
}

/// A change of one record. Keys are without the prefix of the kind (`key::records_prefix`).
#[derive(Debug)]
pub(crate) enum RawChange<'a> {
    /// The peer says this.
    Set {
        /// The key after the prefix.
        key: &'a str,
        /// The entry of the peer's store.
        entry: &'a Entry,
    },
    /// The peer says something that is not taken since it exceeds a limit. What it said before stays; what it says now is unknown.
    Withhold {
        /// The key after the prefix.
        key: &'a str,
        /// The entry of the peer's store.
        entry: &'a Entry,
        /// The limit.
        limit: Limit,
    },
    /// The peer no longer says anything, provably.
    Remove {
        /// The key after the prefix.
        key: &'a str,
        /// The proof.
        evidence: Evidence,
    },
}

impl RawChange<'_> {
    /// The key after the prefix.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Set { key, .. } | Self::Withhold { key, .. } | Self::Remove { key, .. } => key,
        }
    }
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The record is held.
    Held,
    /// Nothing is held under the key (any more).
    Gone,
    /// The record was not taken; what was held before under its key is still held. Its absence means nothing.
    Refused(Refusal),
    /// It is known that the record is not taken; the same holds.
    Withheld,
}

/// Why a record was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Short name for metrics and logs.
    pub(crate) reason: &'static str,
    /// What is wrong with it.
    pub(crate) text: String,
}

/// What is done with peers' records. Implemented by the operator's tables and by the reflector.
///
/// Calls never wait. Those for one peer come one after the other, from that peer's task. Records leave only by
/// [`RawChange::Remove`], [`Self::retain_listed`] and [`Self::drain`], each with its proof.
pub(crate) trait Records: Clone + Send + Sync + 'static {
    /// The kinds that are followed, in the order in which they are read. Not empty.
    fn kinds(&self) -> &'static [Resource];

    /// A peer was accepted with this cluster-config: comes before anything else of a connection, and again when it changes.
    fn accepted(&self, _peer: &ClusterName, _config: &ClusterConfig) {}

    /// Applies changes in order; answers each. At no time between is it taken for gone what one of them refuses or withholds.
    fn apply(&self, origin: &Origin<'_>, changes: &[RawChange<'_>]) -> Vec<Outcome>;

    /// A list is complete: everything that is held of this kind and not in `present` is gone, and what is held is exactly what the
    /// peer says (the reader's side of a canary), but for what is `untaken`. Returns how many records went.
    fn retain_listed(
        &self,
        origin: &Origin<'_>,
        present: &BTreeSet<String>,
        untaken: &Untaken,
        complete: Complete,
    ) -> usize;

    /// Whether what is held of a kind counts as incomplete, because something was not taken, until there is another list.
    fn awaits_list(&self, _origin: &Origin<'_>) -> bool {
        false
    }

    /// The peer does not publish this kind, and nothing of it is held: that is all there is to know. Comes once per connection,
    /// and after the drain of a kind that was withdrawn.
    fn not_published(&self, _peer: &ClusterName, _kind: Resource) {}

    /// Everything of these kinds that is held of the peer goes.
    fn drain(&self, peer: &ClusterName, kinds: &[Resource], evidence: Evidence);
}
