//! When the copies are good enough to be read: everything of every peer that can be reached is there.
//!
//! As long as the process is not ready, its store is no endpoint of the mesh's Service, and nobody reads half of a copy. Once ready
//! it stays so: a peer that is lost later has a copy.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};
use tombolo_core::names::ClusterName;
use tracing::{info, warn};

use super::{copies::PeerCopy, reflection::Reflection};
use crate::mesh::statuses::Statuses;

/// How long peers are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A peer that was not accepted within this time is not waited for. Cilium's `--per-cluster-ready-timeout`: 15 s.
    pub per_cluster: Duration,
    /// After this time no peer is waited for. Cilium's `--global-ready-timeout`: 10 min.
    pub global: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            per_cluster: Duration::from_secs(15),
            global: Duration::from_mins(10),
        }
    }
}

/// Where a peer is on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not accepted since the start.
    Absent,
    /// Accepted, and not everything is copied.
    Copying,
    /// Everything is copied.
    Copied,
}

/// Who is still waited for. None before the configuration was read, unless the time is over.
pub(super) fn awaited(
    peers: Option<&[(ClusterName, Progress)]>,
    patience: Patience,
    waited: Duration,
) -> Option<Vec<ClusterName>> {
    if waited >= patience.global {
        return Some(Vec::new());
    }
    let awaited = |progress: Progress| match progress {
        Progress::Absent => waited < patience.per_cluster,
        Progress::Copying => true,
        Progress::Copied => false,
    };
    let peers = peers?.iter();
    let late = peers.filter(|(_, progress)| awaited(*progress));
    Some(late.map(|(peer, _)| peer.clone()).collect())
}

/// Waits until the copies are good enough.
pub(super) async fn wait(reflection: &Reflection, statuses: &Statuses, patience: Patience) {
    let began = Instant::now();
    let (mut written, mut changed) = (reflection.progress(), statuses.changes());
    loop {
        let peers = statuses.is_loaded().then(|| progress(reflection, statuses));
        let waited = began.elapsed();
        let late = awaited(peers.as_deref(), patience, waited);
        if late.is_some_and(|late| late.is_empty()) {
            tell(&peers.unwrap_or_default(), waited);
            return;
        }
        let next = [patience.per_cluster, patience.global];
        let next = next.into_iter().filter(|due| *due > waited).min();
        tokio::select! {
            () = news(&mut written) => {}
            () = news(&mut changed) => {}
            () = tokio::time::sleep_until(began + next.unwrap_or(patience.global)) => {}
        }
    }
}

fn progress(reflection: &Reflection, statuses: &Statuses) -> Vec<(ClusterName, Progress)> {
    let state = reflection.state();
    let of = |peer: tombolo_core::peer_status::PeerStatus| {
        let accepted = state
            .copies
            .get(&peer.cluster)
            .is_some_and(PeerCopy::is_accepted);
        let progress = match (accepted, peer.synced && state.is_reflected(&peer.cluster)) {
            (_, true) => Progress::Copied,
            (true, false) => Progress::Copying,
            (false, false) => Progress::Absent,
        };
        (peer.cluster, progress)
    };
    statuses.peers().into_iter().map(of).collect()
}

fn tell(peers: &[(ClusterName, Progress)], waited: Duration) {
    for (peer, progress) in peers {
        if *progress != Progress::Copied {
            warn!(%peer, ?progress, ?waited, "not waited for any longer: its copy may be old or incomplete");
        }
    }
    info!(
        peers = peers.len(),
        ?waited,
        "the copies are ready to be read"
    );
}

async fn news(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_peer_that_may_still_come(Progress::Absent, 14, true)]
    #[case::a_peer_that_is_away(Progress::Absent, 15, false)]
    #[case::a_peer_that_is_being_copied(Progress::Copying, 599, true)]
    #[case::a_peer_that_takes_too_long(Progress::Copying, 600, false)]
    #[case::a_peer_that_is_copied(Progress::Copied, 0, false)]
    fn a_peer_is_waited_for_as_long_as_it_makes_sense(
        #[case] progress: Progress,
        #[case] seconds: u64,
        #[case] expected: bool,
    ) {
        let peers = [("paris".try_into().unwrap(), progress)];

        let late = awaited(
            Some(&peers),
            Patience::default(),
            Duration::from_secs(seconds),
        );

        assert_eq!(late.unwrap().len(), usize::from(expected));
    }

    #[test]
    fn before_the_configuration_was_read_nothing_is_ready_but_not_for_ever() {
        let wait = |seconds| awaited(None, Patience::default(), Duration::from_secs(seconds));

        assert_eq!(wait(599), None);
        assert_eq!(wait(600), Some(Vec::new()));
    }

    #[test]
    fn without_peers_the_copies_are_ready_at_once() {
        assert_eq!(
            awaited(Some(&[]), Patience::default(), Duration::ZERO),
            Some(Vec::new())
        );
    }
}
