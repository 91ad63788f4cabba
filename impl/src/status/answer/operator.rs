//! What an operator says of itself: whether it writes, or who does, and what it still has to do.

use serde::{Deserialize, Serialize};

/// Which replica writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leadership {
    /// Whether replicas elect one by a Lease; else this one takes itself for the only one.
    pub elected: bool,
    /// Whether this replica may write now.
    pub leads: bool,
    /// What this replica is called in the Lease; none when there is no election.
    #[serde(deserialize_with = "Option::deserialize")]
    pub identity: Option<String>,
    /// Who holds the Lease, as it was seen last; none when nobody does, or it was not seen.
    #[serde(deserialize_with = "Option::deserialize")]
    pub holder: Option<String>,
    /// Time since this replica saw the Lease being renewed or claimed, in seconds; none when it saw neither. That a Lease is there
    /// says nothing of whether its holder lives.
    #[serde(deserialize_with = "Option::deserialize")]
    pub renewed_seconds_ago: Option<f64>,
    /// For how long a holder is believed without a renewal, in seconds.
    pub believed_seconds: f64,
    /// Why the Lease could not be read or written at the last attempt; none when it could.
    #[serde(deserialize_with = "Option::deserialize")]
    pub failure: Option<String>,
}

/// What a controller still has to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// The controller.
    pub controller: String,
    /// Names that wait for a worker.
    pub waiting: u64,
    /// Names in work.
    pub working: u64,
    /// Names that failed and wait for their next attempt.
    pub retrying: u64,
    /// For how long the oldest of those that wait or are in work has been dirty, in seconds; none when there are none, or the
    /// queue is held.
    #[serde(deserialize_with = "Option::deserialize")]
    pub oldest_seconds: Option<f64>,
    /// Whether nothing is handed out, since this replica does not lead, or does not yet.
    pub held: bool,
}
