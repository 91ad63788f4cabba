//! A peer's records as rows of the operator. A record that is malformed or lies about its origin is refused.

use tombolo_core::{
    evidence::Evidence,
    names::{InvalidName, NamespacedName},
    service::{ClusterService, ExportSpec},
    wire::{self, cluster_service, key::Resource, service_export},
};

use super::{
    peer::RecordKind,
    remote_cluster::{Origin, RawChange, Refusal},
};
use crate::kvstore::Entry;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Row {
    /// Of an export.
    Export(Box<ExportSpec>),
    /// Of a global service.
    Service(Box<ClusterService>),
}

/// A change of one row of a peer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// The peer says this.
    Set(NamespacedName, Row),
    /// What the peer says is not taken.
    Unknown(RecordKind, NamespacedName),
    /// The peer no longer says anything, provably.
    Remove(RecordKind, NamespacedName, Evidence),
}

/// The kind of row that records of a stored kind become.
pub(super) fn kind(resource: Resource) -> Option<RecordKind> {
    RecordKind::ALL
        .into_iter()
        .find(|kind| kind.resource() == resource)
}

/// The service that a key is about, by its part after the prefix.
pub(super) fn name(key: &str) -> Result<NamespacedName, InvalidName> {
    let (namespace, name) = key.split_once('/').unwrap_or((key, ""));
    NamespacedName::parse(namespace, name)
}

/// What a record changes.
pub(super) fn read(origin: &Origin<'_>, change: &RawChange<'_>) -> Result<Change, Refusal> {
    let kind = kind(origin.kind).ok_or_else(|| Refusal {
        reason: "UnknownKind",
        text: format!("the operator has no rows of {}", origin.kind),
    })?;
    match change {
        RawChange::Set { key, entry } => Ok(decode(origin, kind, key, entry)?),
        RawChange::Withhold { key, .. } => Ok(Change::Unknown(kind, named(key)?)),
        RawChange::Remove { key, evidence } => Ok(Change::Remove(kind, named(key)?, *evidence)),
    }
}

fn named(key: &str) -> Result<NamespacedName, Refusal> {
    name(key).map_err(|error| Refusal {
        reason: "InvalidName",
        text: error.to_string(),
    })
}

fn decode(
    origin: &Origin<'_>,
    kind: RecordKind,
    suffix: &str,
    entry: &Entry,
) -> Result<Change, wire::Error> {
    let peer = origin.peer;
    match kind {
        RecordKind::Exports => {
            let export = service_export::decode(peer, suffix, &entry.value)?;
            let name = export.name.clone();
            Ok(Change::Set(name, Row::Export(Box::new(export))))
        }
        RecordKind::Services => {
            let mut dropped = Vec::new();
            let service = cluster_service::decode(peer, suffix, &entry.value, &mut dropped)?;
            for error in dropped {
                let (key, reason) = (&entry.key, error.reason());
                tracing::debug!(%peer, key, %error, reason, "a part of a record is left out");
            }
            if let Some(id) = origin.id {
                cluster_service::check_cluster_id(&service, id)?;
            }
            if service.shared {
                let name = service.name.clone();
                return Ok(Change::Set(name, Row::Service(Box::new(service))));
            }
            // The peer itself says that nothing is shared any more.
            let revision = entry.mod_revision;
            let evidence = Evidence::KeyDeleted { revision };
            Ok(Change::Remove(kind, service.name, evidence))
        }
    }
}

impl From<wire::Error> for Refusal {
    fn from(error: wire::Error) -> Self {
        Self {
            reason: error.reason(),
            text: error.to_string(),
        }
    }
}
