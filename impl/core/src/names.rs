//! Names: newtypes that can only hold what Kubernetes, KEP-1645 and Cilium allow.
//!
//! A name that was parsed here never needs to be checked again. Each type says its limit and the limit's source.

use std::{fmt, str::FromStr};

use data_encoding::BASE32HEX_NOPAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Longest cluster name, in bytes. Cilium refuses longer ones (`--cluster-name`).
pub const CLUSTER_NAME_MAX: usize = 32;

/// Longest DNS label, in bytes. RFC 1123 §2.1, RFC 1035 §2.3.4.
pub const DNS_LABEL_MAX: usize = 63;

/// Largest cluster id of a mesh with the larger of Cilium's two `maxConnectedClusters` (255 or 511).
pub const CLUSTER_ID_MAX: u32 = 511;

/// A name that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct InvalidName {
    /// What was being parsed, for instance `cluster name`.
    pub what: &'static str,
    /// The text that was refused, at most 80 characters of it.
    pub value: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

const DNS_LABEL_RULE: &str = "expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit";
const CLUSTER_NAME_RULE: &str =
    "expected 1 to 32 of a-z, 0-9 and '-', beginning and ending with a letter or digit";

fn invalid(what: &'static str, value: &str, rule: &'static str) -> InvalidName {
    InvalidName {
        what,
        value: value.chars().take(80).collect(),
        rule,
    }
}

/// Whether `text` is an RFC 1123 label of at most `max` bytes.
fn is_dns_label(text: &str, max: usize) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            bytes.len() <= max
                && alphanumeric(first)
                && alphanumeric(last)
                && bytes.iter().all(|&byte| alphanumeric(byte) || byte == b'-')
        }
        _ => false,
    }
}

macro_rules! label_newtype {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $rule:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidName;

            fn try_from(text: &str) -> Result<Self, InvalidName> {
                if is_dns_label(text, $max) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(invalid($what, text, $rule))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::try_from(text.as_str())
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::try_from(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

label_newtype!(
    /// Name of a member cluster, for instance `paris`. An RFC 1123 label (`KEP-1645#4`) of at most 32 bytes (Cilium).
    ClusterName, "cluster name", CLUSTER_NAME_MAX, CLUSTER_NAME_RULE
);
label_newtype!(
    /// Name of a namespace, for instance `shop`. An RFC 1123 label of at most 63 bytes (Kubernetes).
    Namespace, "namespace", DNS_LABEL_MAX, DNS_LABEL_RULE
);
label_newtype!(
    /// Name of a Service, ServiceExport or ServiceImport, for instance `checkout`. An RFC 1123 label of at most 63 bytes (Kubernetes).
    ServiceName, "service name", DNS_LABEL_MAX, DNS_LABEL_RULE
);

/// Name of a service port, for instance `http`; empty for the one unnamed port. A DNS label otherwise (Kubernetes).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortName(String);

impl PortName {
    /// The name as text; empty for an unnamed port.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the port has no name.
    pub fn is_unnamed(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<&str> for PortName {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || is_dns_label(text, DNS_LABEL_MAX) {
            Ok(Self(text.to_owned()))
        } else {
            Err(invalid("port name", text, DNS_LABEL_RULE))
        }
    }
}

impl TryFrom<String> for PortName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::try_from(text.as_str())
    }
}

impl From<PortName> for String {
    fn from(name: PortName) -> Self {
        name.0
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Numeric id of a member cluster, 1 to 511, unique in the mesh. Cilium's `--cluster-id`; 0 is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct ClusterId(u32);

impl ClusterId {
    /// The id as a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for ClusterId {
    type Error = InvalidName;

    fn try_from(id: u32) -> Result<Self, InvalidName> {
        if (1..=CLUSTER_ID_MAX).contains(&id) {
            Ok(Self(id))
        } else {
            Err(invalid(
                "cluster id",
                &id.to_string(),
                "expected a number from 1 to 511",
            ))
        }
    }
}

impl FromStr for ClusterId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let rule = "expected a number from 1 to 511";
        let id: u32 = text
            .parse()
            .map_err(|_| invalid("cluster id", text, rule))?;
        Self::try_from(id)
    }
}

impl From<ClusterId> for u32 {
    fn from(id: ClusterId) -> Self {
        id.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A namespace and a Service name: what "the same service" means in every cluster (`KEP-1645#3`, `KEP-1645#12`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: Namespace,
    /// The Service's name.
    pub name: ServiceName,
}

impl NamespacedName {
    /// Parses both parts.
    ///
    /// ```
    /// use tombolo_core::names::NamespacedName;
    /// let checkout = NamespacedName::parse("shop", "checkout").unwrap();
    /// assert_eq!(checkout.to_string(), "shop/checkout");
    /// assert!(NamespacedName::parse("shop", "Checkout").is_err());
    /// ```
    pub fn parse(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        Ok(Self {
            namespace: namespace.try_into()?,
            name: name.try_into()?,
        })
    }

    /// Name of the derived Service of this import: `derived-` and the first ten characters of the lower-case, unpadded
    /// base32hex of SHA-256 over `namespace/name`. Equal in all clusters, as in the reference controller of MCS-API and in Cilium.
    ///
    /// ```
    /// use tombolo_core::names::NamespacedName;
    /// let full = NamespacedName::parse("default", "full").unwrap();
    /// assert_eq!(full.derived().name.as_str(), "derived-9jo8ljlgl7");
    /// ```
    pub fn derived(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: ServiceName(format!("derived-{}", short_hash(&self.to_string()))),
        }
    }
}

/// Ten characters of `a` to `v` and digits that stand for a text: the first of the lower-case, unpadded base32hex of its
/// SHA-256. STABLE: names of objects are made of it.
///
/// ```
/// assert_eq!(tombolo_core::names::short_hash("default/full"), "9jo8ljlgl7");
/// ```
pub fn short_hash(text: &str) -> String {
    let digest = BASE32HEX_NOPAD.encode(&Sha256::digest(text));
    digest[..10].to_ascii_lowercase()
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_names_equal_those_that_cilium_makes() {
        let cases = [
            ("default", "full", "derived-9jo8ljlgl7"),
            ("default", "port-filter", "derived-rot6lodnc8"),
            ("default", "my-svc", "derived-b8s174v3sn"),
            ("m01-basic", "web", "derived-2pm2vsv69j"),
        ];

        for (namespace, name, expected) in cases {
            let derived = NamespacedName::parse(namespace, name).unwrap().derived();
            assert_eq!(derived.to_string(), format!("{namespace}/{expected}"));
        }
    }

    #[test]
    fn labels_are_checked_at_their_limits() {
        assert!(ClusterName::try_from("a".repeat(32).as_str()).is_ok());
        assert!(ClusterName::try_from("a".repeat(33).as_str()).is_err());
        assert!(ServiceName::try_from("a".repeat(63).as_str()).is_ok());
        assert!(ServiceName::try_from("a".repeat(64).as_str()).is_err());
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é"] {
            assert!(Namespace::try_from(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn cluster_ids_are_1_to_511() {
        assert!(ClusterId::try_from(0).is_err());
        assert!(ClusterId::try_from(1).is_ok());
        assert!(ClusterId::try_from(511).is_ok());
        assert!(ClusterId::try_from(512).is_err());
        assert!("x".parse::<ClusterId>().is_err());
    }
}
