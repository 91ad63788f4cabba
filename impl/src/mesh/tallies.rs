//! What happened to each peer's records since the process began, as counters. They go with the peer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tombolo_core::{evidence::Evidence, names::ClusterName, wire::key::Resource};

use crate::telemetry::series::Metric;

const REMOVED: Metric = Metric::new(
    "tombolo_mesh_records_removed",
    "Records of a peer that were removed, by the evidence that it was meant",
);

/// Counters of all peers. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Tallies {
    by_peer: Arc<Mutex<BTreeMap<ClusterName, Tally>>>,
}

#[derive(Debug, Default)]
struct Tally {
    removed: BTreeMap<(Resource, &'static str), u64>,
    revocations: u64,
}

impl Tallies {
    /// Records of a peer were removed.
    pub(super) fn removed(
        &self,
        peer: &ClusterName,
        kind: Resource,
        evidence: Evidence,
        count: u64,
    ) {
        if count > 0 {
            let mut peers = self.lock();
            let tally = peers.entry(peer.clone()).or_default();
            *tally.removed.entry((kind, evidence.reason())).or_default() += count;
        }
    }

    /// Everything of a peer was removed because it was not heard of for too long.
    pub(super) fn revoked(&self, peer: &ClusterName) {
        self.lock().entry(peer.clone()).or_default().revocations += 1;
    }

    /// How often that happened.
    pub(super) fn revocations(&self, peer: &ClusterName) -> u64 {
        self.lock().get(peer).map_or(0, |tally| tally.revocations)
    }

    /// These are the peers.
    pub(super) fn retain(&self, peers: &BTreeSet<ClusterName>) {
        self.lock().retain(|peer, _| peers.contains(peer));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Tally>> {
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Tallies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut series = REMOVED.counter(&mut encoder)?;
        for (peer, tally) in &*self.lock() {
            for ((kind, evidence), count) in &tally.removed {
                let labels = [
                    ("cluster", peer.as_str()),
                    ("kind", kind.name()),
                    ("evidence", *evidence),
                ];
                series.count(&labels, *count)?;
            }
        }
        Ok(())
    }
}
