//! `identities` records: the labels behind a numeric security identity. Cilium, `GlobalIdentity`.
//!
//! The value is text, not JSON: the labels sorted by key, each as `source:key=value;`. Tombolo gives no identities; it reads
//! and copies those of its peers.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{Error, MAX_ENTRIES, MAX_VALUE_BYTES, clip, key, rules};
use crate::names::{ClusterId, ClusterName};

/// Label of every identity that names its cluster. Cilium, `PolicyLabelCluster`.
pub const CLUSTER_LABEL: &str = "io.cilium.k8s.policy.cluster";

/// Source of labels that come from Kubernetes.
pub const KUBERNETES: &str = "k8s";

/// Identities below this number are the same in every cluster. Cilium, `MinimalNumericIdentity`.
pub const FIRST_ALLOCATED: u32 = 256;

const RESERVED: &str = "reserved";

/// The larger of the two sizes that a mesh can have; with it, identities have 15 bits for each cluster, otherwise 16.
const LARGE_MESH: u32 = 511;

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
/// Checks what Cilium's agents check: the label that names the cluster. Whether the number is one that the cluster may give
/// is the question of [`check_range`].
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
    if label.value != cluster.as_str() {
        return Err(Error::ClusterName {
            got: clip(&label.value),
            expected: cluster.to_string(),
        });
    }
    Ok(())
}

/// The numeric identities that a cluster may give, in a mesh of at most `max_connected_clusters` (255, 511, or 0 for the
/// default, 255).
///
/// ```
/// use tombolo_core::wire::identity::allocation_range;
/// let third = 3.try_into().unwrap();
/// assert_eq!(allocation_range(third, 255), 196_608..=262_143);
/// assert_eq!(allocation_range(third, 511), 98_304..=131_071);
/// ```
pub fn allocation_range(cluster: ClusterId, max_connected_clusters: u32) -> RangeInclusive<u32> {
    let bits = if max_connected_clusters == LARGE_MESH {
        15
    } else {
        16
    };
    let first = cluster.get() << bits;
    first..=first + ((1 << bits) - 1)
}

/// Checks that a cluster may give this identity.
pub fn check_range(id: u32, cluster: ClusterId, max_connected_clusters: u32) -> Result<(), Error> {
    if allocation_range(cluster, max_connected_clusters).contains(&id) {
        return Ok(());
    }
    Err(Error::IdentityRange {
        id,
        cluster: cluster.get(),
    })
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
