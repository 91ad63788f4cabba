//! Builders for the tests of the operator.

use serde::de::DeserializeOwned;
use tombolo_core::names::{ClusterName, NamespacedName};

/// An object from YAML.
pub(super) fn object<K: DeserializeOwned>(yaml: &str) -> K {
    serde_saphyr::from_str(yaml).unwrap()
}

pub(super) fn cluster(name: &str) -> ClusterName {
    name.try_into().unwrap()
}

pub(super) fn named(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::parse(namespace, name).unwrap()
}
