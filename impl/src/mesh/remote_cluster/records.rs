//! Records of a peer as changes of rows. A record that is malformed or lies about its origin changes nothing: it is skipped,
//! named in the log, counted, and the row that it was to replace stays.

use tombolo_core::{
    evidence::Evidence,
    names::{ClusterId, ClusterName, NamespacedName},
    wire::{self, cluster_service, service_export},
};

use super::super::peers::{Change, RecordKind, RemoteState, Row};
use crate::kvstore::Entry;

/// Reads records of one kind of one peer.
pub(super) struct Reader<'a> {
    pub(super) peer: &'a ClusterName,
    /// The id that the peer was accepted with.
    pub(super) id: Option<ClusterId>,
    pub(super) kind: RecordKind,
    pub(super) prefix: &'a str,
    pub(super) state: &'a RemoteState,
}

impl Reader<'_> {
    /// The service that a key is about, if it is about one.
    pub(super) fn name(&self, key: &str) -> Option<NamespacedName> {
        let (namespace, name) = key.strip_prefix(self.prefix)?.split_once('/')?;
        NamespacedName::parse(namespace, name).ok()
    }

    /// What a record changes.
    pub(super) fn change(&self, entry: &Entry) -> Option<Change> {
        let suffix = entry.key.strip_prefix(self.prefix)?;
        match self.decode(suffix, entry) {
            Ok(change) => Some(change),
            Err(error) => {
                let (peer, kind, key, reason) = (self.peer, self.kind, &entry.key, error.reason());
                tracing::warn!(%peer, %kind, key, %error, reason, "a record is refused; what it said before stays");
                self.state.count_refused(self.peer, self.kind);
                None
            }
        }
    }

    fn decode(&self, suffix: &str, entry: &Entry) -> Result<Change, wire::Error> {
        match self.kind {
            RecordKind::Exports => {
                let export = service_export::decode(self.peer, suffix, &entry.value)?;
                Ok(Change::Set(
                    export.name.clone(),
                    Row::Export(Box::new(export)),
                ))
            }
            RecordKind::Services => {
                let mut dropped = Vec::new();
                let service =
                    cluster_service::decode(self.peer, suffix, &entry.value, &mut dropped)?;
                for error in dropped {
                    let (peer, key, reason) = (self.peer, &entry.key, error.reason());
                    tracing::warn!(%peer, key, %error, reason, "a part of a record is left out");
                }
                if let Some(id) = self.id {
                    cluster_service::check_cluster_id(&service, id)?;
                }
                if service.shared {
                    return Ok(Change::Set(
                        service.name.clone(),
                        Row::Service(Box::new(service)),
                    ));
                }
                // The peer itself says that nothing is shared any more.
                let revision = entry.mod_revision;
                Ok(Change::Remove(
                    self.kind,
                    service.name,
                    Evidence::KeyDeleted { revision },
                ))
            }
        }
    }
}
