//! Keys of the copies in this cluster's store: which cluster one is of, and what it holds.

use tombolo_core::{
    names::ClusterName,
    wire::key::{self, Resource},
};

/// What a key of a copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The cluster-config.
    Config,
    /// The canary of a kind.
    Canary(Resource),
    /// A record of a kind.
    Record(Resource),
}

/// The cluster and part that a key of a copy is about; none for keys that are not copies. A cluster-config is one only when its
/// value says so.
pub(super) fn place(key: &str) -> Option<(ClusterName, Part)> {
    if let Some(cluster) = below(key, key::CLUSTER_CONFIG) {
        return Some((cluster.try_into().ok()?, Part::Config));
    }
    if let Some(rest) = below(key, key::SYNCED) {
        let (cluster, canary) = rest.split_once('/')?;
        let kind = below(canary, key::CACHE)?;
        let resource = Resource::ALL.into_iter().find(|of| of.as_str() == kind)?;
        return Some((cluster.try_into().ok()?, Part::Canary(resource)));
    }
    let rest = below(key, key::CACHE)?;
    let (resource, rest) = Resource::ALL
        .into_iter()
        .find_map(|of| Some((of, below(rest, of.as_str())?)))?;
    let (cluster, record) = rest.split_once('/')?;
    let cluster = ClusterName::try_from(cluster).ok()?;
    let prefix = key::records_prefix(&cluster, resource, true);
    let is_record = !record.is_empty() && key.strip_prefix(prefix.as_str()).is_some();
    is_record.then_some((cluster, Part::Record(resource)))
}

/// The rest of a key below a directory.
fn below<'a>(key: &'a str, directory: &str) -> Option<&'a str> {
    key.strip_prefix(directory)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_that_is_written_is_recognised() {
        let paris: ClusterName = "paris".try_into().unwrap();
        for resource in Resource::ALL {
            let record = key::records_prefix(&paris, resource, true) + "x/y";
            let canary = key::canary_key(&paris, resource, true);

            assert_eq!(
                place(&record),
                Some((paris.clone(), Part::Record(resource)))
            );
            assert_eq!(
                place(&canary),
                Some((paris.clone(), Part::Canary(resource)))
            );
        }
        let config = key::cluster_config_key(&paris);
        assert_eq!(place(&config), Some((paris, Part::Config)));
    }

    #[test]
    fn keys_that_are_no_copies_are_left_alone() {
        for key in [
            "cilium/.heartbeat",
            "cilium/state/services/v1/paris/shop/web",
            "cilium/synced/paris/cilium/state/services/v1",
            "cilium/synced/paris/cilium/cache/unknown/v1",
            "cilium/cache/unknown/v1/paris/x",
            "cilium/cache/services/v1/PARIS/shop/web",
            "cilium/cache/services/v1/paris",
            "cilium/cache/identities/v1/paris/value/x",
            "cilium/cache-of-another/services/v1/paris/x",
            "cilium/kvstoremesh-lock/1aa6a227d35abc28",
        ] {
            assert_eq!(place(key), None, "{key}");
        }
    }
}
