//! Evidence: why something that a peer exported may be removed.
//!
//! Absence is not deletion. A row of a peer leaves a table only together with a value of [`Evidence`]; a lost connection,
//! an unfinished list, an expired lease or an emptied store produce none.

use jiff::SignedDuration;

/// A reason that is good enough to remove what a peer exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The peer deleted the key, at this revision of its store, while its canary stood (made by [`Canary::deletion`]); or it wrote
    /// there, at this revision, that the record counts as deleted.
    KeyDeleted {
        /// Revision of the peer's store.
        revision: i64,
    },
    /// A finished list of a synced store did not contain the key.
    AbsentFrom(Complete),
    /// The peer was not heard of for longer than the cache time-to-live.
    Expired {
        /// How long.
        age: SignedDuration,
    },
    /// The peer withdrew the capability to publish records of this kind, and has not taken that back for long enough.
    CapabilityWithdrawn {
        /// How long ago.
        age: SignedDuration,
    },
    /// The peer was taken out of this cluster's configuration.
    PeerRemoved,
    /// The peer came back with another numeric id: it is another cluster.
    PeerIdChanged,
}

impl Evidence {
    /// Short name for metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::KeyDeleted { .. } => "KeyDeleted",
            Self::AbsentFrom(_) => "AbsentFromList",
            Self::Expired { .. } => "Expired",
            Self::CapabilityWithdrawn { .. } => "CapabilityWithdrawn",
            Self::PeerRemoved => "PeerRemoved",
            Self::PeerIdChanged => "PeerIdChanged",
        }
    }
}

/// A sync canary that was read from a peer's store: the peer had written everything of one prefix when it put this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary {
    create_revision: i64,
}

impl Canary {
    /// The canary as read: `create_revision` is the store's revision at which the key was made.
    pub fn seen(create_revision: i64) -> Self {
        Self { create_revision }
    }

    /// The store's revision at which the canary was made.
    pub fn create_revision(self) -> i64 {
        self.create_revision
    }

    /// Evidence for a deletion at `revision`, given that this canary is in the store **now**.
    ///
    /// A lease that ends takes the canary with it, in the same revision as the keys. So a canary that stands and was made
    /// before the deletion proves that the deletion was meant. One that was made later proves nothing: the store was
    /// lost and refilled, and only a new list can tell.
    ///
    /// ```
    /// use tombolo_core::evidence::{Canary, Evidence};
    /// let canary = Canary::seen(10);
    /// assert_eq!(canary.deletion(12), Some(Evidence::KeyDeleted { revision: 12 }));
    /// assert_eq!(canary.deletion(9), None);
    /// ```
    pub fn deletion(self, revision: i64) -> Option<Evidence> {
        (self.create_revision < revision).then_some(Evidence::KeyDeleted { revision })
    }
}

/// Proof that a list of a prefix was finished while the prefix was known to be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complete {
    revision: i64,
}

impl Complete {
    /// Proof from a finished list at `list_revision`, or none when the canary is younger than the list.
    ///
    /// ```
    /// use tombolo_core::evidence::{Canary, Complete};
    /// assert!(Complete::from_list(Canary::seen(10), 11).is_some());
    /// assert!(Complete::from_list(Canary::seen(10), 9).is_none());
    /// ```
    pub fn from_list(canary: Canary, list_revision: i64) -> Option<Self> {
        (canary.create_revision <= list_revision).then_some(Self {
            revision: list_revision,
        })
    }

    /// Revision of the peer's store at which the list was made.
    pub fn revision(self) -> i64 {
        self.revision
    }
}
