//! All peers: one task for each file in the configuration directory, for as long as the file is there.
//!
//! A changed file makes its peer connect anew and keeps the rows. Rows of a peer go, with the evidence that it was removed, only
//! when its file is gone at two looks in a row; a broken or empty file, or a directory that cannot be read, removes nothing.
//!
//! A task that panics takes nobody with it: its peer is suspect at once, and followed again after a pause.

mod panics;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tombolo_core::{evidence::Evidence, names::ClusterName};

use self::panics::Panics;
use super::{
    config_dir::{Changes, ConfigDir, Error, Scan},
    peers::{LocalCluster, RemoteState},
    remote_cluster::{Memory, Options, Records, RemoteCluster},
    reservations::Reservations,
    statuses::Statuses,
};
use crate::kvstore::{config::EtcdConfig, etcd::EtcdStore};

/// Time between two looks at the directory that no change causes.
const REREAD_INTERVAL: Duration = Duration::from_secs(30);

/// How long a file has to be gone before its peer is removed: some programs replace a file by deleting it first.
const GONE_FOR: Duration = Duration::from_millis(100);

/// Follows every peer in the directory until cancelled. Rows and states are in `state`, also afterwards.
///
/// An error when the directory cannot be read or watched at the start; later that is only logged.
pub async fn run_peers(
    config_dir: PathBuf,
    local: LocalCluster,
    state: RemoteState,
    options: Options,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let statuses = state.statuses().clone();
    let follow = Follow {
        local,
        records: state,
        statuses,
        options,
    };
    follow_peers(config_dir, follow, cancel).await
}

/// What is followed by whom, and what is done with it.
#[derive(Debug)]
pub(crate) struct Follow<R> {
    /// The cluster that follows.
    pub(crate) local: LocalCluster,
    /// What is done with the peers' records.
    pub(crate) records: R,
    /// Where it is told how far each peer can be trusted.
    pub(crate) statuses: Statuses,
    /// How peers are followed.
    pub(crate) options: Options,
}

/// As [`run_peers`], for whatever is done with the peers' records.
pub(crate) async fn follow_peers(
    config_dir: PathBuf,
    follow: Follow<impl Records>,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let dir = ConfigDir::new(config_dir, follow.local.name.clone());
    // Looked at before it is watched, for the better error when it is missing; and again after, to miss nothing.
    dir.scan()?;
    let mut changes = dir.watch()?;
    let mut scan = dir.scan()?;
    let (tell_panic, mut panicked) = mpsc::unbounded_channel();
    let mut peering = Peering {
        follow,
        reservations: Reservations::default(),
        running: BTreeMap::new(),
        panics: Panics::default(),
        tell_panic,
        told: BTreeSet::new(),
    };
    loop {
        peering.reconcile(&dir, scan).await;
        let reread = Instant::now() + REREAD_INTERVAL;
        let woken = async {
            loop {
                tokio::select! {
                    () = changes.next() => break,
                    Some((peer, panic)) = panicked.recv() => peering.suspect(&peer, &panic),
                    () = peering.panics.pause_over() => peering.follow_again().await,
                    () = tokio::time::sleep_until(reread) => break,
                }
            }
            peering.look_anew(&dir, &mut changes).await
        };
        let Some(found) = cancel.run_until_cancelled(woken).await else {
            break;
        };
        scan = found;
    }
    peering.stop_all().await;
    Ok(())
}

struct Peering<R> {
    follow: Follow<R>,
    reservations: Reservations,
    running: BTreeMap<ClusterName, Running>,
    panics: Panics,
    tell_panic: mpsc::UnboundedSender<(ClusterName, String)>,
    /// What is wrong with the directory and was logged.
    told: BTreeSet<String>,
}

/// A peer that is followed.
struct Running {
    config: EtcdConfig,
    cancel: CancellationToken,
    task: JoinHandle<Memory>,
}

impl<R: Records> Peering<R> {
    /// Watches the directory anew and reads it: it may be another one under the same path by now, and the watch of one that was
    /// moved or removed tells nothing any more.
    async fn look_anew(&mut self, dir: &ConfigDir, changes: &mut Changes) -> Scan {
        loop {
            let watched = dir.watch();
            let found = self.look(dir).await;
            match watched {
                Ok(anew) => *changes = anew,
                // It could be read in the end, so it can be watched.
                Err(Error::Directory { .. }) => continue,
                Err(error) => self.tell(vec![error]),
            }
            return found;
        }
    }

    /// Reads the directory; again when a followed peer's file is gone or the directory cannot be read.
    async fn look(&mut self, dir: &ConfigDir) -> Scan {
        loop {
            let found = dir.scan();
            self.follow.statuses.set_readable(found.is_ok());
            match found {
                Ok(scan) if self.gone(&scan).is_empty() => return scan,
                Ok(first) => {
                    tokio::time::sleep(GONE_FOR).await;
                    if let Ok(second) = dir.scan()
                        && self.gone(&second) == self.gone(&first)
                    {
                        return second;
                    }
                }
                Err(error) => {
                    self.tell(vec![error]);
                    tokio::time::sleep(REREAD_INTERVAL / 30).await;
                }
            }
        }
    }

    /// Names of peers that have no file any more.
    fn gone(&self, scan: &Scan) -> BTreeSet<ClusterName> {
        let there =
            |name: &ClusterName| scan.peers.contains_key(name) || scan.hollow.contains(name);
        let known = self
            .follow
            .statuses
            .peers()
            .into_iter()
            .map(|peer| peer.cluster);
        known.filter(|name| !there(name)).collect()
    }

    /// Makes the running tasks those of the directory.
    async fn reconcile(&mut self, dir: &ConfigDir, scan: Scan) {
        let removed = self.gone(&scan);
        for peer in &removed {
            tracing::info!(%peer, "the peer's file is gone: it is removed with its rows");
            self.stop(peer).await;
            self.follow
                .records
                .drain(peer, self.follow.records.kinds(), Evidence::PeerRemoved);
            self.reservations.release(peer);
            self.panics.forget(peer);
        }
        let hollow: BTreeSet<_> = scan
            .hollow
            .into_iter()
            .filter(|name| self.running.contains_key(name))
            .collect();
        let names = scan.peers.keys().chain(&hollow).cloned().collect();
        self.follow.statuses.configure(&names);
        let mut problems = scan.problems;
        let hollow = hollow.into_iter().map(|name| {
            let file = dir.file(&name);
            (name, Err(Error::Hollow { file }))
        });
        for (peer, config) in scan.peers.into_iter().chain(hollow) {
            match config {
                Ok(config) => {
                    self.tell_file(&peer, None);
                    self.follow(peer, config).await;
                }
                Err(error) => {
                    self.tell_file(&peer, Some(error.to_string()));
                    problems.push(error);
                }
            }
        }
        self.tell(problems);
    }

    /// Says what is wrong with a peer's file.
    fn tell_file(&self, peer: &ClusterName, error: Option<String>) {
        let statuses = &self.follow.statuses;
        statuses.update(peer, |status, _| status.file_error = error);
    }

    /// Follows a peer with this configuration; it learns on from what was learnt with the last one.
    async fn follow(&mut self, peer: ClusterName, config: EtcdConfig) {
        if self
            .running
            .get(&peer)
            .is_some_and(|running| running.config == config && !running.task.is_finished())
        {
            return;
        }
        if let Some(running) = self.running.get_mut(&peer)
            && self.panics.pauses(&peer)
            && running.task.is_finished()
        {
            running.config = config;
            return;
        }
        let mut memory = self.stop(&peer).await.unwrap_or_default();
        // Other endpoints may be another store with the same numbers.
        memory.forget_positions();
        tracing::info!(%peer, endpoints = config.endpoints(), "following a peer");
        let cancel = CancellationToken::new();
        let mut remote = RemoteCluster {
            peer: peer.clone(),
            local: self.follow.local.clone(),
            store: EtcdStore::new(config.clone()),
            records: self.follow.records.clone(),
            statuses: self.follow.statuses.clone(),
            options: self.follow.options,
            reservations: self.reservations.clone(),
            memory,
        };
        let (tell, stop) = (self.tell_panic.clone(), cancel.clone());
        let task = tokio::spawn(async move {
            let follow = Box::pin(remote.follow_peer(stop));
            if let Err(panic) = panics::caught(follow).await {
                // Nobody listens any more when everything ends.
                let _ended = tell.send((remote.peer.clone(), panic));
            }
            remote.memory
        });
        self.running.insert(
            peer,
            Running {
                config,
                cancel,
                task,
            },
        );
    }

    /// Ends a peer's task; rows stay.
    async fn stop(&mut self, peer: &ClusterName) -> Option<Memory> {
        let running = self.running.remove(peer)?;
        running.cancel.cancel();
        running.task.await.ok()
    }

    /// The task of a peer panicked.
    fn suspect(&mut self, peer: &ClusterName, panic: &str) {
        let pause = self.panics.note(peer, Instant::now());
        panics::tell(&self.follow.statuses, peer, panic, pause);
    }

    /// Follows the peers again whose task panicked, once their pause is over, with what was learnt of them.
    async fn follow_again(&mut self) {
        for peer in self.panics.take_due(Instant::now()) {
            if let Some(running) = self.running.get(&peer) {
                let config = running.config.clone();
                self.follow(peer, config).await;
            }
        }
    }

    async fn stop_all(&mut self) {
        for running in self.running.values() {
            running.cancel.cancel();
        }
        while let Some(peer) = self.running.keys().next().cloned() {
            self.stop(&peer).await;
        }
    }

    /// Logs what is wrong, once each.
    fn tell(&mut self, problems: Vec<Error>) {
        let texts: BTreeSet<_> = problems.iter().map(Error::to_string).collect();
        for text in texts.difference(&self.told) {
            tracing::error!("{text}");
        }
        self.told = texts;
    }
}

impl<R> Drop for Peering<R> {
    fn drop(&mut self) {
        for running in self.running.values() {
            running.cancel.cancel();
        }
    }
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod testkit;
