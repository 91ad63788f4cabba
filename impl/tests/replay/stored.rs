//! Every recorded key, read as a peer's and written again: what Cilium wrote has to come back, what its readers refuse has to
//! be refused.

use data_encoding::BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};
use tombolo_core::{
    names::ClusterName,
    wire::{
        canary, cluster_config, cluster_service, endpoint_slice, identity, ip,
        key::{self, Resource},
        node, service_export,
    },
};

use crate::{
    facts::{Facts, pruned},
    recording::{self, Scenario, Store, Version},
};

/// The scenario with the hand-written peer, all of whose clusters have names that begin so.
const READER: &str = "r01-reader";
const HAND_WRITTEN: &str = "hm";

/// Keys that are no records: who holds a lock is in them.
const LOCKS: &str = "cilium/kvstoremesh-lock/";

/// What Cilium has under each key of a store, and what we read and would write again.
pub(crate) fn compare(
    scenario: &Scenario,
    version: Version,
    store: &Store,
) -> Result<(Facts, Facts), String> {
    let (mut cilium, mut ours) = (Facts::new(), Facts::new());
    for (key, value) in store.read()? {
        if key.starts_with(LOCKS) {
            continue;
        }
        let place = Place::parse(&store.cluster, &key)
            .ok_or_else(|| format!("a key of no known kind: {key}"))?;
        let read = place.read_and_write(&value);
        let (recorded, made) = if place.is_hand_written(scenario) {
            (outcome_of_cilium(scenario, &place)?, outcome(read.err()))
        } else {
            (
                again(version, &place, &value)?,
                again_or_refusal(version, &place, read)?,
            )
        };
        cilium.insert(format!("stored/{key}"), recorded);
        ours.insert(format!("stored/{key}"), made);
    }
    Ok((cilium, ours))
}

/// What Cilium's operator did with a key of the hand-written peer.
fn outcome_of_cilium(scenario: &Scenario, place: &Place) -> Result<Value, String> {
    let refusals = recording::refusals(&scenario.sibling(READER))?;
    let key = (place.cluster.to_string(), place.suffix.clone());
    Ok(outcome(refusals.get(&key).cloned()))
}

fn outcome(refusal: Option<String>) -> Value {
    let read = refusal.map_or("accepted".to_owned(), |why| format!("refused: {why}"));
    json!({ "read": read })
}

fn again_or_refusal(
    version: Version,
    place: &Place,
    read: Result<Vec<u8>, String>,
) -> Result<Value, String> {
    match read {
        Ok(value) => again(version, place, &value),
        Err(why) => Ok(json!({ "value": format!("refused: {why}") })),
    }
}

/// A value that is compared: of a slice its message, of others the exact bytes. What 1.18 wrote in a shape of its own is
/// compared by members.
fn again(version: Version, place: &Place, value: &[u8]) -> Result<Value, String> {
    if place.kind == Kind::Of(Resource::EndpointSlices) {
        let message = endpoint_slice::unpack(value).map_err(|error| error.to_string())?;
        return Ok(json!({ "message": BASE64.encode(&message) }));
    }
    let text = str::from_utf8(value).map_err(|error| error.to_string())?;
    Ok(json!({ "value": shaped(version, text) }))
}

/// A record of a service or an export as it is compared: byte by byte, but for 1.18, whose shape differs.
pub(crate) fn shaped(version: Version, text: &str) -> Value {
    let members = || serde_json::from_str(text).ok().map(pruned);
    match version {
        Version::V1_18 => members().unwrap_or_else(|| text.into()),
        Version::V1_19 | Version::V1_20 => text.into(),
    }
}

/// What is under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heartbeat,
    Config,
    Canary(Resource),
    Of(Resource),
}

/// What a key says.
struct Place {
    kind: Kind,
    /// Whose record.
    cluster: ClusterName,
    /// The key after the prefix of its kind and cluster.
    suffix: String,
}

impl Place {
    /// What a key in the store of the cluster `own` says.
    fn parse(own: &str, key: &str) -> Option<Self> {
        let place = |kind, cluster: &str, suffix: &str| {
            let cluster = ClusterName::try_from(cluster).ok()?;
            let suffix = suffix.to_owned();
            Some(Self {
                kind,
                cluster,
                suffix,
            })
        };
        if key == key::HEARTBEAT {
            return place(Kind::Heartbeat, own, "");
        }
        if let Some(cluster) = below(key, key::CLUSTER_CONFIG) {
            return place(Kind::Config, cluster, "");
        }
        if let Some(rest) = below(key, key::SYNCED) {
            let (cluster, rest) = rest.split_once('/')?;
            let (of, ..) = resource(rest)?;
            return place(Kind::Canary(of), cluster, "");
        }
        let (of, cached, rest) = resource(key)?;
        let (first, rest) = rest.split_once('/')?;
        let (cluster, suffix) = match (of, cached) {
            (Resource::Identities | Resource::Ip, false) => (own, rest),
            (Resource::Identities, true) => (first, rest.strip_prefix("id/")?),
            _ => (first, rest),
        };
        place(Kind::Of(of), cluster, suffix)
    }

    /// Whether somebody wrote the value to see what readers do. Copies of a configuration are Cilium's own, though.
    fn is_hand_written(&self, scenario: &Scenario) -> bool {
        let of_peer = self.cluster.as_str().starts_with(HAND_WRITTEN);
        scenario.name == READER || (of_peer && matches!(self.kind, Kind::Of(_)))
    }

    /// Reads a value as that of a peer, and writes what was understood.
    fn read_and_write(&self, value: &[u8]) -> Result<Vec<u8>, String> {
        let (cluster, suffix) = (&self.cluster, self.suffix.as_str());
        let mut dropped = Vec::new();
        let written = match self.kind {
            Kind::Heartbeat => Ok(canary::heartbeat(time(value)?)),
            Kind::Canary(of) => Ok(canary::encode(cluster, of, time(value)?)),
            Kind::Config => {
                cluster_config::decode(value).map(|it| cluster_config::encode(cluster, &it))
            }
            Kind::Of(Resource::Services) => {
                cluster_service::decode(cluster, suffix, value, &mut dropped)
                    .map(|it| cluster_service::encode(&it))
            }
            Kind::Of(Resource::ServiceExports) => {
                service_export::decode(cluster, suffix, value).map(|it| service_export::encode(&it))
            }
            Kind::Of(Resource::EndpointSlices) => {
                endpoint_slice::decode(cluster, suffix, value, &mut dropped)
                    .map(|it| endpoint_slice::encode(&it))
            }
            Kind::Of(Resource::Nodes) => {
                node::decode(cluster, suffix, value).map(|it| node::encode(&it))
            }
            Kind::Of(Resource::Identities) => {
                identity::decode(cluster, suffix, value).map(|it| identity::encode(&it))
            }
            Kind::Of(Resource::Ip) => {
                ip::decode(suffix, value, &mut dropped).map(|it| ip::encode(&it))
            }
        };
        let (_, value) = written.map_err(|error| error.to_string())?;
        Ok(value)
    }
}

fn below<'a>(key: &'a str, root: &str) -> Option<&'a str> {
    key.strip_prefix(root)?.strip_prefix('/')
}

/// The kind that a key is about, whether it is a copy, and the rest of the key.
fn resource(key: &str) -> Option<(Resource, bool, &str)> {
    let (cached, rest) = match below(key, key::STATE) {
        Some(rest) => (false, rest),
        None => (true, below(key, key::CACHE)?),
    };
    let mut all = Resource::ALL.into_iter();
    all.find_map(|of| {
        let rest = rest.strip_prefix(of.as_str())?;
        Some((of, cached, rest.trim_start_matches('/')))
    })
}

fn time(value: &[u8]) -> Result<Timestamp, String> {
    let text = str::from_utf8(value).map_err(|error| error.to_string())?;
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}
