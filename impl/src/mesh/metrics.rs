//! What is measured of peers: Cilium's metrics of remote clusters under Cilium's names, and our own.
//!
//! Made of the statuses when they are asked for, so that what belongs to a peer goes with it.

use std::fmt;

use jiff::{Timestamp, Unit};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue},
    registry::Registry,
};
use tombolo_core::{
    peer_status::{KindStatus, PeerState, PeerStatus},
    wire::key::Resource,
};

use super::statuses::Statuses;
use crate::telemetry::series::Metric;

/// The program of Cilium whose metrics are shown, since the role does what that program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counterpart {
    /// `cilium-operator`.
    Operator,
    /// `clustermesh-apiserver kvstoremesh`.
    KvStoreMesh,
}

/// Shows what is known of the peers.
pub fn register(registry: &mut Registry, statuses: &Statuses, counterpart: Counterpart) {
    let cilium = match counterpart {
        Counterpart::Operator => &OPERATOR,
        Counterpart::KvStoreMesh => &KVSTOREMESH,
    };
    registry.register_collector(Box::new(Peers {
        statuses: statuses.clone(),
        cilium,
    }));
}

/// Cilium's metrics of remote clusters. All are gauges, as in Cilium, those that count too: a counter would get another name.
#[derive(Debug)]
struct Cilium {
    clusters: Metric,
    failures: Metric,
    last_failure: Metric,
    ready: Metric,
    revocations: Metric,
    /// Records by kind, which only the operator has.
    records: &'static [(Resource, Metric)],
}

const CLUSTERS: &str = "Peers that are configured";
const FAILURES: &str = "Failures of following a peer since the process began";
const LAST_FAILURE: &str = "When following a peer failed last, in seconds since 1970; 0 for never";
const READY: &str = "Whether a peer is connected and was read completely: 1, else 0";
const REVOCATIONS: &str =
    "How often everything of a peer was removed because the cache time-to-live was over";

static OPERATOR: Cilium = Cilium {
    clusters: Metric::new("cilium_operator_clustermesh_remote_clusters", CLUSTERS),
    failures: Metric::new(
        "cilium_operator_clustermesh_remote_cluster_failures",
        FAILURES,
    ),
    last_failure: Metric::new(
        "cilium_operator_clustermesh_remote_cluster_last_failure_ts",
        LAST_FAILURE,
    ),
    ready: Metric::new(
        "cilium_operator_clustermesh_remote_cluster_readiness_status",
        READY,
    ),
    revocations: Metric::new(
        "cilium_operator_clustermesh_remote_cluster_cache_revocations",
        REVOCATIONS,
    ),
    records: &[
        (
            Resource::Services,
            Metric::new(
                "cilium_operator_clustermesh_remote_cluster_services",
                "Global services of a peer that are held",
            ),
        ),
        (
            Resource::ServiceExports,
            Metric::new(
                "cilium_operator_clustermesh_remote_cluster_service_exports",
                "Exports of a peer that are held",
            ),
        ),
    ],
};

static KVSTOREMESH: Cilium = Cilium {
    clusters: Metric::new("cilium_kvstoremesh_remote_clusters", CLUSTERS),
    failures: Metric::new("cilium_kvstoremesh_remote_cluster_failures", FAILURES),
    last_failure: Metric::new(
        "cilium_kvstoremesh_remote_cluster_last_failure_ts",
        LAST_FAILURE,
    ),
    ready: Metric::new("cilium_kvstoremesh_remote_cluster_readiness_status", READY),
    revocations: Metric::new(
        "cilium_kvstoremesh_remote_cluster_cache_revocations",
        REVOCATIONS,
    ),
    records: &[],
};

#[derive(Debug)]
struct Peers {
    statuses: Statuses,
    cilium: &'static Cilium,
}

impl Collector for Peers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (peers, now) = (self.statuses.peers(), Timestamp::now());
        self.cilium(&mut encoder, &peers)?;
        own(&mut encoder, &peers, now)?;
        kinds(&mut encoder, &peers, now)
    }
}

impl Peers {
    fn cilium(
        &self,
        e: &mut DescriptorEncoder<'_>,
        peers: &[PeerStatus],
    ) -> Result<(), fmt::Error> {
        let cilium = self.cilium;
        let nothing: [(&str, &str); 0] = [];
        cilium.clusters.gauge(e)?.set(&nothing, peers.len())?;
        each(e, &cilium.failures, peers, |peer| Some(peer.failures))?;
        each(e, &cilium.last_failure, peers, |peer| {
            let last = peer.last_failure.as_ref();
            Some(last.map_or(0, |last| last.at.as_second()))
        })?;
        each(e, &cilium.ready, peers, |peer| {
            Some(u32::from(peer.connected && peer.state == PeerState::Ready))
        })?;
        each(e, &cilium.revocations, peers, |peer| {
            Some(self.statuses.revocations(&peer.cluster))
        })?;
        for (kind, metric) in cilium.records {
            each(e, metric, peers, |peer| {
                Some(peer.kinds.get(kind).map_or(0, |known| known.records))
            })?;
        }
        Ok(())
    }
}

/// One series for each peer that has a value, by Cilium's label.
fn each<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric,
    peers: &[PeerStatus],
    value: impl Fn(&PeerStatus) -> Option<V>,
) -> Result<(), fmt::Error> {
    labelled(encoder, metric, "target_cluster", peers, value)
}

fn labelled<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric,
    label: &'static str,
    peers: &[PeerStatus],
    value: impl Fn(&PeerStatus) -> Option<V>,
) -> Result<(), fmt::Error> {
    let mut series = metric.gauge(encoder)?;
    for peer in peers {
        if let Some(value) = value(peer) {
            series.set(&[(label, peer.cluster.as_str())], value)?;
        }
    }
    Ok(())
}

const STATE: Metric = Metric::new("tombolo_peer_state", "1 for the state that a peer is in");
const STATE_AGE: Metric = Metric::new(
    "tombolo_peer_state_seconds",
    "Since when a peer has been in its state, in seconds",
);
const CONNECTED: Metric = Metric::new(
    "tombolo_peer_store_connected",
    "Whether the store of a peer answered last",
);
const SILENT: Metric = Metric::new(
    "tombolo_peer_store_silent_seconds",
    "Time since the store of a peer answered last",
);
const EXPIRES: Metric = Metric::new(
    "tombolo_peer_expires_seconds",
    "Time until what a peer exported is no longer used; only while it runs",
);
const HEAD: Metric = Metric::new(
    "tombolo_peer_store_revision",
    "Revision of the store of a peer when it answered last",
);

fn own(
    e: &mut DescriptorEncoder<'_>,
    peers: &[PeerStatus],
    now: Timestamp,
) -> Result<(), fmt::Error> {
    let mut state = STATE.gauge(e)?;
    for peer in peers {
        let labels = [
            ("cluster", peer.cluster.as_str()),
            ("state", peer.state.as_str()),
        ];
        state.set(&labels, 1)?;
    }
    let by_cluster = "cluster";
    labelled(e, &STATE_AGE, by_cluster, peers, |peer| {
        Some(seconds(peer.since, now))
    })?;
    labelled(e, &CONNECTED, by_cluster, peers, |peer| {
        Some(u32::from(peer.connected))
    })?;
    labelled(e, &SILENT, by_cluster, peers, |peer| {
        peer.last_contact.map(|at| seconds(at, now))
    })?;
    labelled(e, &EXPIRES, by_cluster, peers, |peer| {
        peer.expires_in_seconds
    })?;
    labelled(e, &HEAD, by_cluster, peers, |peer| {
        peer.last_contact.map(|_| peer.head)
    })
}

/// What is shown of a kind of a peer.
type OfKind = fn(&PeerStatus, Resource, &KindStatus, Timestamp) -> f64;

const KINDS: [(Metric, OfKind); 8] = [
    (
        Metric::new(
            "tombolo_peer_synced",
            "Whether what is held of a kind is exactly what the peer says",
        ),
        |_, _, known, _| f64::from(u8::from(known.synced)),
    ),
    (
        Metric::new("tombolo_peer_records", "Records that are held"),
        |_, _, known, _| count(known.records),
    ),
    (
        Metric::new(
            "tombolo_peer_records_bytes",
            "Size of the values of these records in the store of the peer",
        ),
        |_, _, known, _| count(known.bytes),
    ),
    (
        Metric::new(
            "tombolo_peer_followed_revision",
            "Revision of the store of the peer up to which a kind was followed",
        ),
        |_, _, known, _| count(u64::try_from(known.revision).unwrap_or_default()),
    ),
    (
        Metric::new(
            "tombolo_peer_lag_revisions",
            "Revisions by which a kind is behind the store, those of other keys included",
        ),
        |peer, kind, _, _| count(u64::try_from(peer.lag_revisions(kind)).unwrap_or_default()),
    ),
    (
        Metric::new(
            "tombolo_peer_lag_seconds",
            "For how long a kind has been behind the store",
        ),
        |_, _, known, now| known.behind_since.map_or(0.0, |since| seconds(since, now)),
    ),
    (
        Metric::new(
            "tombolo_peer_held_deletions",
            "Keys that went without evidence that the peer meant it; their records are kept",
        ),
        |_, _, known, _| count(known.held_deletions),
    ),
    (
        Metric::new(
            "tombolo_peer_records_over_limit",
            "Records that are not taken over because the peer exceeds a limit",
        ),
        |_, _, known, _| count(known.over_limit),
    ),
];

fn kinds(
    e: &mut DescriptorEncoder<'_>,
    peers: &[PeerStatus],
    now: Timestamp,
) -> Result<(), fmt::Error> {
    for (metric, value) in &KINDS {
        let mut series = metric.gauge(e)?;
        for peer in peers {
            let published = peer.kinds.iter().filter(|(_, known)| known.published);
            for (kind, known) in published {
                let labels = [("cluster", peer.cluster.as_str()), ("kind", kind.name())];
                series.set(&labels, value(peer, *kind, known, now))?;
            }
        }
    }
    Ok(())
}

fn seconds(since: Timestamp, now: Timestamp) -> f64 {
    (now - since)
        .total(Unit::Second)
        .unwrap_or_default()
        .max(0.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no count or revision here reaches 2^52"
)]
fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
