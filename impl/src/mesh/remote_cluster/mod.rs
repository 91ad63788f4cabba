//! One peer: connects to its store, reads its cluster-config, then follows what it exports for as long as it is configured.
//!
//! What the peer says is set as soon as it arrives. What it no longer says is removed only when it provably meant to: its canary
//! stands, and is the one under which the list was found complete. Everything else (no connection, no canary, no cluster-config,
//! an emptied store) makes the peer suspect and removes nothing. One task per peer; peers never wait for each other.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tombolo_core::names::{ClusterId, ClusterName};

use super::{peer::LocalCluster, reservations::Reservations, statuses::Statuses};
use crate::kvstore::{KvStore, backoff::Backoff};

mod budget;
mod config;
mod error;
mod feed;
mod happening;
mod heartbeat;
mod holdings;
mod memory;
mod options;
mod pace;
mod records;
mod report;
mod session;
mod taking;
#[cfg(test)]
pub(super) mod testkit;
#[cfg(test)]
mod tests_budget;
#[cfg(test)]
mod tests_config;
#[cfg(test)]
mod tests_leases;
#[cfg(test)]
mod tests_life;
#[cfg(test)]
mod tests_pace;
#[cfg(test)]
mod tests_rows;
#[cfg(test)]
mod tests_untaken;
#[cfg(test)]
mod tests_withdrawn;
mod timers;
mod unheard;
mod untaken;
mod verdict;

pub use budget::Budget;
pub(crate) use error::Error;
pub(crate) use memory::Memory;
pub use options::Options;
pub(crate) use records::{Origin, Outcome, RawChange, Records, Refusal};
pub(crate) use untaken::Untaken;

/// Wait before the second attempt to connect.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait between attempts. A peer that is back is noticed within this time.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// A peer to be followed.
#[derive(Debug)]
pub(crate) struct RemoteCluster<S, R> {
    /// Its name.
    pub(crate) peer: ClusterName,
    /// The cluster that follows.
    pub(crate) local: LocalCluster,
    /// The peer's store.
    pub(crate) store: S,
    /// What is done with its records.
    pub(crate) records: R,
    /// Where it is told how far it can be trusted.
    pub(crate) statuses: Statuses,
    /// How it is followed.
    pub(crate) options: Options,
    /// The ids that are taken in the mesh.
    pub(crate) reservations: Reservations,
    /// What was learnt earlier.
    pub(crate) memory: Memory,
}

impl<S: KvStore, R: Records> RemoteCluster<S, R> {
    /// As [`Self::follow_peer`]; returns what was learnt.
    #[cfg(test)]
    pub(crate) async fn run(mut self, cancel: CancellationToken) -> Memory {
        self.follow_peer(cancel).await;
        self.memory
    }

    /// Follows the peer until cancelled. Rows stay, and what was learnt stays in `memory`, for who follows the peer next, also
    /// when this panics.
    pub(crate) async fn follow_peer(&mut self, cancel: CancellationToken) {
        let inquiries = self.statuses.inquiries().clone();
        let respondent = inquiries.register(&self.peer, self.store.clone(), self.config_key());
        let follow = async {
            let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX);
            let mut last = None;
            let (unheard, ttl) = (self.memory.unheard.clone(), self.options.cache_ttl);
            unheard.not_heard(Instant::now());
            self.report_start();
            loop {
                let session = async {
                    let outcome = self.session(&respondent, &mut backoff).await;
                    respondent.end();
                    if let Err(error) = &outcome {
                        self.report_failure(error, &mut last);
                        tokio::time::sleep(backoff.wait()).await;
                    } else {
                        last = None;
                    }
                };
                tokio::select! {
                    () = session => {}
                    () = unheard.longer_than(ttl) => {
                        respondent.end();
                        self.expire();
                    }
                }
            }
        };
        let _cancelled: Option<()> = cancel.run_until_cancelled(follow).await;
        inquiries.unregister(&self.peer, &respondent);
    }

    /// The id that the peer was accepted with.
    fn known_id(&self) -> Option<ClusterId> {
        self.memory.config.as_ref().map(|config| config.id)
    }
}
