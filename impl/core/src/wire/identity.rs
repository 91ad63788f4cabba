//! `identities` records: the labels behind a numeric security identity. Cilium, `GlobalIdentity`.
//!
//! The value is text, not JSON: the labels sorted by key, each as `source:key=value;`. Tombolo gives no identities; it reads
//! and copies those of its peers.

use std::collections::BTreeMap;

use super::{Error, MAX_ENTRIES, MAX_VALUE_BYTES, check_cluster_name, clip, key, rules};
use crate::names::ClusterName;

/// Label of every identity that names its cluster. Cilium, `PolicyLabelCluster`.
pub const CLUSTER_LABEL: &str = "io.cilium.k8s.policy.cluster";

/// Source of labels that come from Kubernetes.
pub const KUBERNETES: &str = "k8s";

const RESERVED: &str = "reserved";

/// A security identity and its labels, by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The number that packets and `ip` records carry.
    pub id: u32,
    /// Its labels.
    pub labels: BTreeMap<String, Label>,
}

/// Source and value of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where it comes from, for instance `k8s`.
    pub source: String,
    /// Its value; may be empty.
    pub value: String,
}

/// Key and value of an identity.
pub fn encode(identity: &Identity) -> (String, Vec<u8>) {
    let mut text = String::new();
    for (key, Label { source, value }) in &identity.labels {
        for part in [source, ":", key, "=", value, ";"] {
            text.push_str(part);
        }
    }
    (key::identity_key(identity.id), text.into_bytes())
}

/// Reads an identity of `cluster` from the value of its key; `key_suffix` is the key after the prefix, a number.
///
/// Checks the label that names the cluster, as Cilium's agents do. Whether the number is one that the cluster may give is for
/// who uses identities.
///
/// ```
/// use tombolo_core::wire::identity::decode;
/// let value = b"k8s:app=cart;k8s:io.cilium.k8s.policy.cluster=paris;";
/// let cart = decode(&"paris".try_into().unwrap(), "461234", value).unwrap();
/// assert_eq!(cart.labels["app"].value, "cart");
/// ```
pub fn decode(cluster: &ClusterName, key_suffix: &str, bytes: &[u8]) -> Result<Identity, Error> {
    if bytes.len() > MAX_VALUE_BYTES {
        return Err(Error::TooLarge { size: bytes.len() });
    }
    let text = str::from_utf8(bytes).map_err(|_| Error::Encoding)?;
    let id = parse_id(key_suffix)?;
    let mut labels = BTreeMap::new();
    for (key, label) in text.split(';').filter_map(parse_label) {
        labels.insert(key.to_owned(), label);
    }
    if labels.len() > MAX_ENTRIES {
        return Err(Error::TooMany {
            field: "labels",
            count: labels.len(),
            max: MAX_ENTRIES,
        });
    }
    check_cluster(&labels, cluster)?;
    Ok(Identity { id, labels })
}

fn parse_id(text: &str) -> Result<u32, Error> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|_| digits);
    id.ok_or_else(|| rules::broken("key", text, "expected a numeric identity of 32 bits"))
}

/// One label as Cilium's `ParseLabel` reads it; none without a key, or with one that would not come back. `$host` is short
/// for `reserved:host`.
fn parse_label(text: &str) -> Option<(&str, Label)> {
    let (source, rest) = match text.strip_prefix('$') {
        Some(rest) => (RESERVED, rest),
        None => text
            .split_once(':')
            .or_else(|| Some((RESERVED, text.strip_prefix("reserved.")?)))
            .unwrap_or(("", text)),
    };
    let source = if source.is_empty() { "unspec" } else { source };
    let (key, value) = match rest.split_once('=') {
        Some(("", key)) if source == RESERVED => (key, ""),
        Some((key, value)) => (key, value),
        None => (rest, ""),
    };
    let label = Label {
        source: source.to_owned(),
        value: value.to_owned(),
    };
    let can_be_written = !key.is_empty() && !key.contains('=');
    can_be_written.then_some((key, label))
}

fn check_cluster(labels: &BTreeMap<String, Label>, cluster: &ClusterName) -> Result<(), Error> {
    let label = labels
        .get(CLUSTER_LABEL)
        .ok_or(Error::LabelMissing(CLUSTER_LABEL))?;
    if label.source != KUBERNETES {
        return Err(Error::LabelSource {
            got: clip(&label.source),
            expected: KUBERNETES,
        });
    }
    check_cluster_name(&label.value, cluster)
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
