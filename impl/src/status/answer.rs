//! The answer to `/v1/status`: one JSON object, made anew for each question. Members are added, never renamed or removed; a
//! reader takes an answer without one of today's members for unknown.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tombolo_core::{peer_status::PeerStatus, wire::key::Resource};

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The number that came with the question. An answer with another one is to another question.
    pub nonce: String,
    /// The time of the answer, by the clock of the process. All other times are by that clock too.
    pub at: Timestamp,
    /// Version of Tombolo.
    pub version: String,
    /// `operator`, `mesh` or `kvstoremesh`.
    pub role: String,
    /// Who this cluster is; none as long as the process does not know.
    pub cluster: Option<Member>,
    /// How long the process has run, in seconds.
    pub up_seconds: u64,
    /// The checks of `/readyz`.
    pub ready: Vec<Ready>,
    /// Parts that are stuck, as `/livez` has them.
    pub stuck: Vec<String>,
    /// The peers; none when the role follows none.
    pub peers: Option<Peers>,
    /// The own store; none when the role writes none.
    pub store: Option<OwnStore>,
    /// The copies of the peers in the own store; none when the role makes none.
    pub copies: Option<Copies>,
}

/// Copies of peers' records in the own store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Copies {
    /// Whether this replica makes them; else it stands by, and follows no peers.
    pub leads: bool,
    /// Records that wait to be written, at least.
    pub waiting: u64,
}

/// A cluster by name and id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u32,
}

/// A check of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// Its name.
    pub check: String,
    /// Whether all is well.
    pub ok: bool,
    /// Why it is not.
    pub failure: Option<String>,
    /// Whether the process is unready for it.
    pub counts: bool,
}

/// The peers of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peers {
    /// Whether the configuration was read, so that these are all.
    pub configured: bool,
    /// The peers, by name.
    pub peers: Vec<Peer>,
}

/// One peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// What the process knows of it.
    pub status: PeerStatus,
    /// What was found out when the question came.
    pub asked: Asked,
}

/// How far a store is, and whether a process has kept up with it, as found out when the question came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Revision of the store; none when it is not known.
    pub head: Option<i64>,
    /// Why it is not known.
    pub error: Option<String>,
    /// When the store was asked, in seconds before the answer.
    pub age_seconds: f64,
    /// The kinds of which the process has shown, after the question, that it took in everything up to that revision.
    pub current: Vec<Resource>,
}

/// Failures of writing the own store, since the process began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failures {
    /// How many.
    pub count: u64,
    /// The last one.
    pub last: Option<Failure>,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Its short name.
    pub reason: String,
    /// What happened, and what to check.
    pub message: String,
    /// When, in seconds before the answer.
    pub seconds_ago: f64,
}

/// The store that this cluster publishes into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnStore {
    /// Its endpoints.
    pub endpoints: String,
    /// What was found out when the question came; `current` names the kinds that were seen up to the head.
    pub asked: Asked,
    /// Whether everything that is known was written, its canaries last.
    pub published: bool,
    /// Keys that are held, by kind.
    pub keys: Vec<Keys>,
    /// Names that wait to be published, are tried again later or are in work.
    pub waiting: u64,
    /// The leases that the keys hang on.
    pub lease: Lease,
    /// What went wrong.
    pub failures: Failures,
}

/// Keys of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keys {
    /// `services`, `exports`, `canaries`, `config`.
    pub kind: String,
    /// How many.
    pub count: u64,
}

/// Leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Their time-to-live, in seconds.
    pub ttl_seconds: u64,
    /// How many are held.
    pub held: u64,
    /// Time since the store last confirmed all of them, in seconds; none when it never did.
    pub confirmed_seconds_ago: Option<f64>,
}
