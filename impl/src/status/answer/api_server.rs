//! What a process hears of the API server of its cluster.

use serde::{Deserialize, Serialize};

/// Whether the API server answers, and whether its watches live.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServer {
    /// Time since it answered last, in seconds: a question, a watch that began, a renewal of the Lease. None when it never did.
    #[serde(deserialize_with = "Option::deserialize")]
    pub answered_seconds_ago: Option<f64>,
    /// Why it did not answer when the question came; none when it did.
    #[serde(deserialize_with = "Option::deserialize")]
    pub error: Option<String>,
    /// The watches of whole kinds.
    pub watches: Vec<Watched>,
}

/// A kind of objects that is watched. Each watch is asked to end after 25 s and is then begun anew, so that one of which nothing
/// is heard for longer brings nothing any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watched {
    /// Its path, such as `/api/v1/services`.
    pub path: String,
    /// Time since the watch was begun last, in seconds.
    pub begun_seconds_ago: f64,
    /// Why it could not be begun since; none when there was no failure.
    #[serde(deserialize_with = "Option::deserialize")]
    pub failure: Option<String>,
}
