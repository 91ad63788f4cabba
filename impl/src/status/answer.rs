//! The answer to `/v1/status`: one JSON object, made anew for each question. Members are added, never renamed or removed; a
//! reader takes an answer without one of today's members for unknown. That holds for members that may be null too: `null` is
//! said, a missing member is not.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tombolo_core::{peer_status::PeerStatus, wire::key::Resource};

mod api_server;
mod copies;
mod operator;

pub use api_server::{ApiServer, Watched};
pub use copies::{Copies, PeerCopy};
pub use operator::{Leadership, Work};

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
    #[serde(deserialize_with = "Option::deserialize")]
    pub cluster: Option<Member>,
    /// How long the process has run, in seconds.
    pub up_seconds: u64,
    /// The checks of `/readyz`.
    pub ready: Vec<Ready>,
    /// Parts that are stuck, as `/livez` has them.
    pub stuck: Vec<String>,
    /// What is heard of the API server of this cluster.
    pub api_server: ApiServer,
    /// Which replica writes to the API server; none when the role writes nothing there.
    #[serde(deserialize_with = "Option::deserialize")]
    pub leadership: Option<Leadership>,
    /// Names that are still to be worked on, by controller; empty when the role has no controllers.
    pub queues: Vec<Work>,
    /// The peers; none when the role follows none.
    #[serde(deserialize_with = "Option::deserialize")]
    pub peers: Option<Peers>,
    /// The own store; none when the role writes none.
    #[serde(deserialize_with = "Option::deserialize")]
    pub store: Option<OwnStore>,
    /// The copies of the peers in the own store; none when the role makes none.
    #[serde(deserialize_with = "Option::deserialize")]
    pub copies: Option<Copies>,
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
    #[serde(deserialize_with = "Option::deserialize")]
    pub failure: Option<String>,
    /// Whether the process is unready for it.
    pub counts: bool,
}

/// The peers of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peers {
    /// Whether the configuration was read when it was looked at last, so that these are all.
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
    #[serde(deserialize_with = "Option::deserialize")]
    pub head: Option<i64>,
    /// Why it is not known.
    #[serde(deserialize_with = "Option::deserialize")]
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
    #[serde(deserialize_with = "Option::deserialize")]
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
    /// Names of which something cannot be published as it is.
    pub left_out: LeftOut,
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

/// What cannot be published as it is: too large, or not understood.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// How many names.
    pub count: u64,
    /// What is wrong with the first of them.
    #[serde(deserialize_with = "Option::deserialize")]
    pub first: Option<String>,
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
    #[serde(deserialize_with = "Option::deserialize")]
    pub confirmed_seconds_ago: Option<f64>,
}

impl Lease {
    /// So many leases with this time-to-live, and when the store confirmed all of them last.
    pub fn of((held, confirmed): (usize, Option<Instant>), ttl: Duration) -> Self {
        Self {
            ttl_seconds: ttl.as_secs(),
            held: u64::try_from(held).unwrap_or(u64::MAX),
            confirmed_seconds_ago: confirmed.map(|at| at.elapsed().as_secs_f64()),
        }
    }
}
