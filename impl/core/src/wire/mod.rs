//! The records that clusters leave for each other in etcd, as bytes.
//!
//! One file per stored kind. What `encode` writes equals what Cilium 1.20 writes, byte for byte; what `decode` accepts is
//! what Cilium 1.18 to 1.20 write, and what Go's lenient JSON reading lets pass. Everything a peer wrote is untrusted:
//! size and counts are bounded, nothing here panics, and a record that would break the importer is refused with the field
//! and the rule. Domain types come out; no JSON type leaves this module.

pub mod canary;
pub mod cluster_config;
pub mod cluster_service;
mod go_json;
mod json;
pub mod key;
pub(crate) mod rules;
pub mod service_export;
#[cfg(test)]
mod testkit;

use thiserror::Error;

use crate::names::InvalidName;

/// Largest value that is read or written, in bytes: etcd's default limit of a request (`--max-request-bytes`, 1.5 MiB).
pub const MAX_VALUE_BYTES: usize = 1_572_864;

/// Most ports of one service. Far above any real service; keeps work per record bounded.
pub const MAX_PORTS: usize = 4_096;

/// Most frontend or backend addresses of one record. A record of [`MAX_VALUE_BYTES`] can hold about as many.
pub const MAX_ADDRESSES: usize = 32_768;

/// Most labels, annotations or selector entries of one record.
pub const MAX_ENTRIES: usize = 4_096;

/// Why a record was refused, or a part of it dropped. Texts up to the key mismatch are those of Cilium.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// A member that must be there is missing or empty.
    #[error("{0} is unset")]
    Unset(&'static str),
    /// A member has a value that this format does not know.
    #[error("{what} is unknown: {value}")]
    Unknown {
        /// The member, in words.
        what: &'static str,
        /// Its value, cut.
        value: String,
    },
    /// The record names another cluster than the one whose store it was in.
    #[error("unexpected cluster name: got {got}, expected {expected}")]
    ClusterName {
        /// In the record.
        got: String,
        /// Of the store.
        expected: String,
    },
    /// The record names another service than its key.
    #[error("namespaced name does not match key: got {got}, expected {expected}")]
    KeyMismatch {
        /// In the record.
        got: String,
        /// In the key.
        expected: String,
    },
    /// The record has the id 0.
    #[error("ClusterID {0} is reserved")]
    ReservedClusterId(i64),
    /// The record has another id than its cluster.
    #[error("unexpected cluster ID: got {got}, expected {expected}")]
    ClusterId {
        /// In the record.
        got: u32,
        /// Of the cluster.
        expected: u32,
    },
    /// An address has an IPv6 zone.
    #[error("unsupported IPv6 zone in address {0}")]
    AddressZone(String),
    /// An address is none.
    #[error("ParseAddr({0:?}): unable to parse IP")]
    Address(String),
    /// The value is larger than [`MAX_VALUE_BYTES`].
    #[error("the value has {size} bytes, at most {MAX_VALUE_BYTES} are accepted")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// A list or map is longer than any real one.
    #[error("{field} has {count} entries, at most {max} are accepted")]
    TooMany {
        /// The member.
        field: &'static str,
        /// Its length.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// The value is not JSON.
    #[error("the value is not JSON: {0}")]
    Syntax(String),
    /// A member has another JSON type, or a number is out of its range.
    #[error("{field}: expected {expected}")]
    Type {
        /// The member.
        field: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// A member breaks a rule of Kubernetes, so that objects made from it would be refused.
    #[error("{field} {value:?}: {rule}")]
    Rule {
        /// The member.
        field: &'static str,
        /// Its value, cut.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl Error {
    /// Short name for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unset(_) => "Unset",
            Self::Unknown { .. } => "UnknownValue",
            Self::ClusterName { .. } => "WrongClusterName",
            Self::KeyMismatch { .. } => "WrongKey",
            Self::ReservedClusterId(_) | Self::ClusterId { .. } => "WrongClusterId",
            Self::AddressZone(_) | Self::Address(_) => "InvalidAddress",
            Self::TooLarge { .. } => "TooLarge",
            Self::TooMany { .. } => "TooMany",
            Self::Syntax(_) => "InvalidJson",
            Self::Type { .. } => "WrongType",
            Self::Rule { .. } => "BreaksRule",
            Self::Name(_) => "InvalidName",
        }
    }
}

/// A text of a peer as it may appear in logs: at most 80 characters of it.
fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}
