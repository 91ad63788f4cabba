//! The records that clusters leave for each other in etcd, as bytes.
//!
//! One file per stored kind. What `encode` writes equals what Cilium 1.20 writes, byte for byte; what `decode` accepts is
//! what Cilium 1.18 to 1.20 write, and what Go's lenient JSON reading lets pass. Everything a peer wrote is untrusted:
//! size and counts are bounded, nothing here panics, and a record that would break the importer is refused with the field
//! and the rule. Domain types come out; no JSON type leaves this module.

pub mod canary;
pub mod cluster_config;
pub mod cluster_service;
pub mod endpoint_slice;
mod error;
#[cfg(test)]
mod generators;
mod go_json;
#[cfg(test)]
mod hostile_tests;
pub mod identity;
pub mod ip;
mod json;
pub mod key;
pub mod node;
pub(crate) mod rules;
pub mod service_export;
#[cfg(test)]
mod testkit;

pub use error::Error;

use crate::names::ClusterName;

/// Largest value that is read or written, in bytes: etcd's default limit of a request (`--max-request-bytes`, 1.5 MiB).
pub const MAX_VALUE_BYTES: usize = 1_572_864;

/// Most ports of one service. Far above any real service; keeps work per record bounded.
pub const MAX_PORTS: usize = 4_096;

/// Most frontend or backend addresses of one record. A record of [`MAX_VALUE_BYTES`] can hold about as many.
pub const MAX_ADDRESSES: usize = 32_768;

/// Most labels, annotations or selector entries of one record.
pub const MAX_ENTRIES: usize = 4_096;

/// Deepest nesting of JSON that is read. The parser's own limit; no record has more than five levels.
pub const MAX_DEPTH: usize = 127;

/// Checks that a record names the cluster it came from.
fn check_cluster_name(got: &str, expected: &ClusterName) -> Result<(), Error> {
    if got == expected.as_str() {
        return Ok(());
    }
    Err(Error::ClusterName {
        got: clip(got),
        expected: expected.to_string(),
    })
}

/// Checks that a record names the cluster it came from, and the same as its key; `what` is the sort of name, in Cilium's words.
fn check_names(
    cluster: &ClusterName,
    key_suffix: &str,
    got_cluster: &str,
    (what, name): (&'static str, &str),
) -> Result<(), Error> {
    check_cluster_name(got_cluster, cluster)?;
    if name == key_suffix {
        return Ok(());
    }
    Err(Error::KeyMismatch {
        what,
        got: clip(name),
        expected: clip(key_suffix),
    })
}

/// A text of a peer as it may appear in logs: at most 80 characters of it, none of which can end a line or change a terminal.
fn clip(text: &str) -> String {
    let mut clipped = String::new();
    for character in text.chars().take(80) {
        if character.is_control() {
            clipped.extend(character.escape_default());
        } else {
            clipped.push(character);
        }
    }
    clipped
}
