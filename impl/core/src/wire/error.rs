//! Why a record is refused.

use thiserror::Error;

use super::{MAX_DEPTH, MAX_VALUE_BYTES, endpoint_slice::MAX_MESSAGE_BYTES};
use crate::{names::InvalidName, service::IpFamily};

/// Why a record was refused, or a part of it dropped. Texts up to the size are those of Cilium.
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
    /// The record names another service, slice or node than its key.
    #[error("{what} does not match key: got {got}, expected {expected}")]
    KeyMismatch {
        /// The sort of name.
        what: &'static str,
        /// In the record.
        got: String,
        /// In the key.
        expected: String,
    },
    /// The record names another address than its key.
    #[error("IP address does not match key: expected {expected}, got {got}")]
    IpKeyMismatch {
        /// In the key.
        expected: String,
        /// In the record.
        got: String,
    },
    /// A label of a security identity that must be there is missing.
    #[error("could not find expected label {0}")]
    LabelMissing(&'static str),
    /// The label that names an identity's cluster comes from somewhere else than Kubernetes.
    #[error("unexpected source for cluster label: got {got}, expected {expected}")]
    LabelSource {
        /// In the record.
        got: String,
        /// What it must be.
        expected: &'static str,
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
    /// An address of a node or of an identity is none.
    #[error("invalid IP address: {0}")]
    Ip(String),
    /// A slice has addresses of another kind than IPv4 or IPv6.
    #[error("address type is invalid")]
    AddressType,
    /// An address of a slice is none of its family.
    #[error("invalid {family} endpoint address: {address}")]
    EndpointAddress {
        /// The family of the slice.
        family: IpFamily,
        /// The address, cut.
        address: String,
    },
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
    /// The value is not a frame of zstd, or asks for more memory than a reader gives.
    #[error("the value is not a zstd frame with a window of at most 16 MiB: {0}")]
    Frame(String),
    /// What is in the frame is larger than [`MAX_MESSAGE_BYTES`].
    #[error("the value unpacks to more than {MAX_MESSAGE_BYTES} bytes")]
    MessageTooLarge,
    /// What is in the frame is no message of protobuf.
    #[error("the value is not a protobuf message: {0}")]
    Message(String),
    /// The value is nested deeper than [`MAX_DEPTH`].
    #[error("the value is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The value is not UTF-8.
    #[error("the value is not UTF-8 text")]
    Encoding,
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
            Self::KeyMismatch { .. } | Self::IpKeyMismatch { .. } => "WrongKey",
            Self::LabelMissing(_) | Self::LabelSource { .. } => "WrongClusterLabel",
            Self::ReservedClusterId(_) | Self::ClusterId { .. } => "WrongClusterId",
            Self::AddressZone(_)
            | Self::Address(_)
            | Self::Ip(_)
            | Self::AddressType
            | Self::EndpointAddress { .. } => "InvalidAddress",
            Self::TooLarge { .. } | Self::MessageTooLarge => "TooLarge",
            Self::Frame(_) => "InvalidFrame",
            Self::Message(_) => "InvalidMessage",
            Self::TooMany { .. } => "TooMany",
            Self::Syntax(_) => "InvalidJson",
            Self::TooDeep => "TooDeep",
            Self::Encoding => "InvalidText",
            Self::Type { .. } => "WrongType",
            Self::Rule { .. } => "BreaksRule",
            Self::Name(_) => "InvalidName",
        }
    }
}
