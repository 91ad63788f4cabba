//! Canaries and the heartbeat: keys whose value is a time that nobody reads.
//!
//! A canary is written once every key of its kind was flushed, never when a list failed.

use jiff::Timestamp;

use super::key::{self, Resource};
use crate::names::ClusterName;

/// The canary of one kind, written at `now`.
///
/// ```
/// use tombolo_core::wire::{canary, key::Resource};
/// let now = "2026-11-29T15:01:39Z".parse().unwrap();
/// let (key, value) = canary::encode(&"c2".try_into().unwrap(), Resource::Nodes, now);
/// assert_eq!(key, "cilium/synced/c2/cilium/state/nodes/v1");
/// assert_eq!(value, b"2026-11-29T15:01:39Z");
/// ```
pub fn encode(cluster: &ClusterName, resource: Resource, now: Timestamp) -> (String, Vec<u8>) {
    let key = key::canary_key(cluster, resource, false);
    (key, value(now))
}

/// The value of a canary, written at `now`.
pub fn value(now: Timestamp) -> Vec<u8> {
    seconds(now).into_bytes()
}

/// The heartbeat, written at `now`.
pub fn heartbeat(now: Timestamp) -> (String, Vec<u8>) {
    (key::HEARTBEAT.to_owned(), seconds(now).into_bytes())
}

/// A time in RFC 3339, UTC, whole seconds: how Go's `time.RFC3339` prints it.
pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_whole_seconds() {
        let now: Timestamp = "2026-11-29T15:01:39.999Z".parse().unwrap();

        assert_eq!(heartbeat(now).1, b"2026-11-29T15:01:39Z");
    }
}
