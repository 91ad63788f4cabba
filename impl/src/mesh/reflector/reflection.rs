//! Where peers' records arrive: turned into marks, without waiting.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tombolo_core::{
    evidence::{Complete, Evidence},
    names::ClusterName,
    wire::{
        self,
        cluster_config::{self, ClusterConfig},
        key::Resource,
    },
};

use super::{
    copies::{Copies, copy_key},
    state::State,
};
use crate::{
    mesh::remote_cluster::{Origin, Outcome, RawChange, Records, Refusal, Untaken},
    queue::Queue,
};

/// Most bytes of key and value that are copied: etcd's limit holds for the whole request, so room is left for the lock.
const COPY_MAX_BYTES: usize = wire::MAX_VALUE_BYTES - 4 * 1024;

/// What peers say and what has become of it. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Reflection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// How long the copy of a peer stays that was taken out; none: for good.
    grace: Option<Duration>,
    /// Peers of which something beside records may have to be written.
    steps: Queue<ClusterName>,
    /// Records are to be written.
    work: Notify,
    /// The store is to be listed anew.
    restart: Notify,
    /// Somebody has a grace, or no more.
    graces: Notify,
    /// Something was written.
    progress: watch::Sender<u64>,
}

impl Reflection {
    /// Nothing is known yet. `grace` is how long the copy of a peer stays that was taken out of the configuration; without, it stays for good.
    pub(super) fn new(grace: Option<Duration>) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                grace,
                steps: Queue::new(),
                work: Notify::new(),
                restart: Notify::new(),
                graces: Notify::new(),
                progress: watch::Sender::new(0),
            }),
        }
    }

    /// What is known.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Peers of which something beside records may have to be written.
    pub(super) fn steps(&self) -> &Queue<ClusterName> {
        &self.shared.steps
    }

    /// Waits until records may have to be written.
    pub(super) async fn work(&self) {
        self.shared.work.notified().await;
    }

    /// Records may have to be written.
    pub(super) fn wake(&self) {
        self.shared.work.notify_one();
    }

    /// Asks for a new list of the store: what is known of it is not true any more.
    pub(super) fn lose_store(&self) {
        self.state().listed = false;
        self.shared.restart.notify_one();
    }

    /// Waits until a new list is asked for.
    pub(super) async fn restart(&self) {
        self.shared.restart.notified().await;
    }

    /// Waits until the store was listed once.
    pub(super) async fn seeded(&self) {
        let mut progress = self.progress();
        while !self.state().seeded {
            if progress.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Changes whenever something was written.
    pub(super) fn progress(&self) -> watch::Receiver<u64> {
        self.shared.progress.subscribe()
    }

    /// Something was written.
    pub(super) fn progressed(&self) {
        self.shared.progress.send_modify(|count| *count += 1);
    }

    /// These are the configured peers. The copies of others go after their grace.
    pub(super) fn configure(&self, names: &BTreeSet<ClusterName>) {
        let now = Instant::now();
        let mut state = self.state();
        let changed = state.copies.configure(names, self.shared.grace, now);
        drop(state);
        for peer in changed {
            tracing::info!(%peer, grace = ?self.shared.grace, "the peer was taken out of, or back into, the configuration");
            self.touch(&peer);
        }
    }

    /// Ends graces when their time has come, for ever.
    pub(super) async fn end_graces(&self) {
        loop {
            let next = self.state().copies.next_end();
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.shared.graces.notified() => continue,
            }
            let mut state = self.state();
            let ended = state.copies.end_grace(Instant::now());
            for peer in &ended {
                tracing::info!(%peer, "the peer was taken out of the configuration: its copy is deleted");
                state.mark_peer(peer);
            }
            drop(state);
            for peer in ended {
                self.touch(&peer);
            }
        }
    }

    /// Something about a peer changed.
    fn touch(&self, peer: &ClusterName) {
        self.shared.steps.add(peer.clone());
        self.shared.graces.notify_one();
        self.wake();
    }
}

impl Records for Reflection {
    fn kinds(&self) -> &'static [Resource] {
        &Resource::ALL
    }

    fn accepted(&self, peer: &ClusterName, config: &ClusterConfig) {
        let (_, bytes) = cluster_config::encode(peer, &copied(config));
        let before = self.state().copies.id(peer);
        if let Some(before) = before.filter(|before| *before != config.id) {
            tracing::warn!(%peer, %before, id = %config.id, "the peer has another id than its copy: it is another cluster; the copy is deleted first");
            self.drain(peer, &Resource::ALL, Evidence::PeerIdChanged);
        }
        self.state().copies.accept(peer, config.id, bytes);
        self.touch(peer);
    }

    fn apply(&self, origin: &Origin<'_>, changes: &[RawChange<'_>]) -> Vec<Outcome> {
        let (peer, kind) = (origin.peer, origin.kind);
        let feed = (peer.clone(), kind);
        let mut state = self.state();
        let mut lacks = false;
        let mut apply = |change: &RawChange<'_>| {
            let key = copy_key(peer, kind, change.key());
            let outcome = match change {
                RawChange::Set { key: suffix, entry } => {
                    if let Some(refusal) = refuse(suffix, key.len() + entry.value.len()) {
                        lacks |= is_lacking(&state.copies, origin, suffix);
                        return Outcome::Refused(refusal);
                    }
                    state.copies.set(peer, kind, key.clone(), &entry.value);
                    Outcome::Held
                }
                RawChange::Withhold { .. } => {
                    lacks = true;
                    return Outcome::Withheld;
                }
                RawChange::Remove { evidence, .. } => {
                    state.copies.remove(peer, kind, &key, *evidence);
                    Outcome::Gone
                }
            };
            state.mark(&feed, &key);
            outcome
        };
        let outcomes = changes.iter().map(&mut apply).collect();
        if lacks {
            // Before anything is written that was marked here.
            state.copies.lack(peer, kind);
        }
        drop(state);
        if lacks {
            self.touch(peer);
        } else {
            self.wake();
        }
        outcomes
    }

    fn retain_listed(
        &self,
        origin: &Origin<'_>,
        present: &BTreeSet<String>,
        untaken: &Untaken,
        complete: Complete,
    ) -> usize {
        let key = |suffix: &String| copy_key(origin.peer, origin.kind, suffix);
        let present: BTreeSet<_> = present.iter().map(key).collect();
        let mut state = self.state();
        let gone = state
            .copies
            .complete(origin.peer, origin.kind, &present, complete);
        let lacking = |suffix| is_lacking(&state.copies, origin, suffix);
        if untaken.over_count() > 0 || untaken.has_unnamed() || untaken.refused().any(lacking) {
            state.copies.lack(origin.peer, origin.kind);
        }
        let feed = (origin.peer.clone(), origin.kind);
        for key in &gone {
            state.mark(&feed, key);
        }
        drop(state);
        self.touch(origin.peer);
        gone.len()
    }

    fn awaits_list(&self, origin: &Origin<'_>) -> bool {
        self.state().copies.lacks(origin.peer, origin.kind)
    }

    fn not_published(&self, peer: &ClusterName, kind: Resource) {
        self.state().copies.not_published(peer, kind);
        self.touch(peer);
    }

    fn drain(&self, peer: &ClusterName, kinds: &[Resource], evidence: Evidence) {
        match evidence {
            // The configuration tells, also of peers that an earlier life has copied; there is a grace.
            Evidence::PeerRemoved => return,
            Evidence::KeyDeleted { .. }
            | Evidence::AbsentFrom(_)
            | Evidence::Expired { .. }
            | Evidence::CapabilityWithdrawn { .. }
            | Evidence::PeerIdChanged => {}
        }
        let mut state = self.state();
        state.copies.drain(peer, kinds, evidence);
        for kind in kinds {
            state.mark_kind(peer, *kind);
        }
        drop(state);
        self.touch(peer);
    }
}

/// A peer's cluster-config as it is copied: what is unknown of it is lost, as in Cilium.
fn copied(config: &ClusterConfig) -> ClusterConfig {
    let mut config = config.clone();
    config.capabilities.cached = true;
    config.capabilities.synced_canaries = true;
    config
}

/// Whether a record that was refused leaves a hole: there is no older copy of it to go on with, and its key names something.
fn is_lacking(copies: &Copies, origin: &Origin<'_>, suffix: &str) -> bool {
    let key = copy_key(origin.peer, origin.kind, suffix);
    !suffix.is_empty() && !copies.holds(origin.peer, origin.kind, &key)
}

/// Why a record cannot be copied, given the bytes of its copy. What it says is nobody's business here.
fn refuse(suffix: &str, size: usize) -> Option<Refusal> {
    let (reason, text) = if suffix.is_empty() {
        let text = "the key names no record; the peer has to delete it";
        ("KeyEmpty", text.to_owned())
    } else if size > COPY_MAX_BYTES {
        let text = format!(
            "{size} bytes with its key, at most {COPY_MAX_BYTES} can be copied; the peer has to publish less under this key"
        );
        ("RecordTooLarge", text)
    } else {
        return None;
    };
    Some(Refusal { reason, text })
}
