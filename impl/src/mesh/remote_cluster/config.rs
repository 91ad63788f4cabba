//! The cluster-config of a peer: whether the peer is accepted, and what of it is to be followed.

use tokio::time::Instant;
use tombolo_core::{
    evidence::Evidence,
    wire::{
        cluster_config::{self, Capabilities, ClusterConfig, EndpointSlicesExportMode},
        key::{self, Resource},
    },
};

use super::{Error, RawChange, Records, RemoteCluster, memory::Mark};
use crate::kvstore::{Entry, KvStore};

/// Cilium's default of `maxConnectedClusters`. A cluster with the default accepts any value of its peers.
const MAX_CONNECTED_DEFAULT: u32 = 255;

/// A cluster-config to go by.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) config: ClusterConfig,
    /// The entry it is in; none when it is gone or broken and the last good one is gone by. Then nothing is removed.
    pub(super) present: Option<Mark>,
}

/// Where the records of one kind are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Resource,
    /// Prefix of the records.
    pub(super) prefix: String,
    /// Key that says that all of them were written, and by its presence that their writer lives: the canary, or the
    /// cluster-config of a peer that writes no canaries.
    pub(super) canary: String,
    /// Whether that is a canary.
    pub(super) has_canary: bool,
}

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// Key of the peer's cluster-config.
    pub(super) fn config_key(&self) -> String {
        key::cluster_config_key(&self.peer)
    }

    /// Checks the cluster-config. A new id empties the peer's rows: it is another cluster.
    pub(super) fn accept(&mut self, entry: Option<&Entry>) -> Result<Accepted, Error> {
        let config = match self.decode_config(entry) {
            Ok(config) => config,
            Err(error) => return self.go_by_last_config(error),
        };
        self.check_config(&config)?;
        if self.known_id().is_some_and(|known| known != config.id) {
            tracing::warn!(peer = %self.peer, id = %config.id, "the peer has another id: it is another cluster; its rows are removed");
            self.memory.forget_positions();
            self.drain(self.records.kinds(), Evidence::PeerIdChanged);
        }
        // Only now may another peer take the id that this one had: nothing is left under it.
        self.reservations.keep_only(config.id, &self.peer);
        if self.memory.config.as_ref() != Some(&config)
            && config.capabilities.service_exports_enabled.is_none()
            && self.records.kinds().contains(&Resource::ServiceExports)
        {
            tracing::warn!(peer = %self.peer, "the peer does not support MCS-API service export resources; its exports are not followed");
        }
        self.memory.config = Some(config.clone());
        self.records.accepted(&self.peer, &config);
        Ok(Accepted {
            config,
            present: entry.map(Mark::of),
        })
    }

    fn decode_config(&self, entry: Option<&Entry>) -> Result<ClusterConfig, Error> {
        let key = self.config_key();
        let Some(entry) = entry else {
            return Err(Error::NoConfig { key });
        };
        cluster_config::decode(&entry.value).map_err(|source| Error::BadConfig { key, source })
    }

    /// The config is gone or broken: the last one still says where the records are.
    fn go_by_last_config(&self, error: Error) -> Result<Accepted, Error> {
        let Some(config) = self.memory.config.clone() else {
            return Err(error);
        };
        tracing::warn!(peer = %self.peer, %error, reason = error.reason(), "the peer is suspect; nothing of it is removed");
        self.report_suspicion(&error);
        Ok(Accepted {
            config,
            present: None,
        })
    }

    fn check_config(&self, config: &ClusterConfig) -> Result<(), Error> {
        let (key, id) = (self.config_key(), config.id);
        let (local, remote) = (
            self.local.max_connected,
            config.capabilities.max_connected_clusters,
        );
        if id.get() > local {
            return Err(Error::IdTooLarge {
                key,
                id,
                max: local,
            });
        }
        if local != MAX_CONNECTED_DEFAULT && local != remote {
            return Err(Error::MaxMismatch { key, local, remote });
        }
        if id == self.local.id {
            return Err(Error::IdLocal { key, id });
        }
        self.reservations
            .take(id, &self.peer)
            .map_err(|holder| Error::IdTaken { key, id, holder })
    }

    /// Where the peer's records of this kind are; none when it publishes none. The kinds, prefixes and canaries of Cilium's
    /// kvstoremesh.
    pub(super) fn place(&self, capabilities: &Capabilities, kind: Resource) -> Option<Place> {
        use EndpointSlicesExportMode::{EndpointSlicesOnly, ServicesOnly};
        let mode = &capabilities.endpoint_slices_export_mode;
        let published = match kind {
            Resource::ServiceExports => capabilities.service_exports_enabled.is_some(),
            Resource::Services => *mode != EndpointSlicesOnly,
            Resource::EndpointSlices => *mode != ServicesOnly,
            Resource::Nodes | Resource::Identities | Resource::Ip => true,
        };
        let (cached, has_canary) = (capabilities.cached, capabilities.synced_canaries);
        let canary = if has_canary {
            key::canary_key(&self.peer, kind, cached)
        } else {
            self.config_key()
        };
        published.then(|| Place {
            kind,
            prefix: key::records_prefix(&self.peer, kind, cached),
            canary,
            has_canary,
        })
    }

    /// Notes whether the peer withdrew what it published before: the kind, or the canaries that proved lists of it complete.
    pub(super) fn note_withdrawal(&mut self, kind: Resource, place: Option<&Place>) {
        let nothing = self.has_nothing_of(kind);
        let memory = self.memory.feed_mut(kind);
        let withdrawn = match place {
            None => !nothing,
            Some(place) => memory.by_canary && !place.has_canary,
        };
        if !withdrawn {
            memory.withdrawn = None;
        } else if memory.withdrawn.is_none() {
            memory.withdrawn = Some(Instant::now());
            let (records, stay) = (memory.holdings.len(), self.options.withdrawn_for);
            tracing::warn!(peer = %self.peer, kind = kind.name(), records, ?stay, "the peer withdrew a capability: its records stay for this long (zero: for ever); check whether it was meant");
        }
    }
}

impl Place {
    /// The part of a key after the prefix, if it is one of these records.
    pub(super) fn suffix<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.prefix)
    }

    /// What entries of the prefix say.
    pub(super) fn changes<'a>(&self, entries: &'a [Entry]) -> Vec<RawChange<'a>> {
        let set = |entry: &'a Entry| {
            let key = self.suffix(&entry.key)?;
            Some(RawChange::Set { key, entry })
        };
        entries.iter().filter_map(set).collect()
    }
}
