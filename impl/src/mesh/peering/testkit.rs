//! For tests: a cluster that follows peers by files, and peers on real etcds.

use std::{fs, path::Path, sync::Arc};

use tempfile::TempDir;

use super::{
    super::{
        peers::{PeerState, PeerStatus},
        remote_cluster::testkit::{Writer, capable},
    },
    *,
};
use crate::kvstore::testing::{Etcd, Subject, eventually};

/// A cluster `here` with a directory of peers.
pub(super) struct Here {
    pub(super) dir: TempDir,
    pub(super) state: RemoteState,
    pub(super) cancel: CancellationToken,
    pub(super) task: JoinHandle<Result<(), Error>>,
}

impl Here {
    pub(super) fn start(prepare: impl FnOnce(&Path)) -> Self {
        Self::start_with(prepare, |dir, local, state, cancel| {
            tokio::spawn(run_peers(dir, local, state, Options::default(), cancel))
        })
    }

    pub(super) fn start_with(
        prepare: impl FnOnce(&Path),
        follow: impl FnOnce(
            PathBuf,
            LocalCluster,
            RemoteState,
            CancellationToken,
        ) -> JoinHandle<Result<(), Error>>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let state = RemoteState::new(Arc::new(|_| {}));
        let local = LocalCluster {
            name: "here".try_into().unwrap(),
            id: 1.try_into().unwrap(),
            max_connected: 255,
        };
        let cancel = CancellationToken::new();
        let path = dir.path().to_owned();
        let task = follow(path, local, state.clone(), cancel.clone());
        Self {
            dir,
            state,
            cancel,
            task,
        }
    }

    pub(super) fn status(&self, peer: &str) -> Option<PeerStatus> {
        let peers = self.state.peers();
        peers
            .into_iter()
            .find(|status| status.cluster.as_str() == peer)
    }

    pub(super) fn rows(&self) -> Vec<String> {
        let names = self.state.names();
        names.iter().map(|name| name.name.to_string()).collect()
    }

    /// Waits until all peers were synced, or until the time is over; true when they were.
    pub(super) async fn synced_within(&self, time_out: Duration) -> bool {
        let mut changes = self.state.changes();
        let synced = async {
            while !self.state.statuses().all_synced() {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(time_out, synced).await.is_ok()
    }

    pub(super) async fn until_rows(&self, rows: &[&str]) {
        eventually(&format!("rows {rows:?}"), async || self.rows() == rows).await;
    }

    pub(super) async fn until_state(&self, peer: &str, state: PeerState) {
        eventually(&format!("{peer} is {}", state.as_str()), async || {
            self.status(peer)
                .is_some_and(|status| status.state == state)
        })
        .await;
    }

    pub(super) async fn until_error(&self, peer: &str, text: &str) {
        eventually(text, async || {
            let status = self.status(peer);
            status.is_some_and(|it| it.error().is_some_and(|error| error.contains(text)))
        })
        .await;
    }

    /// Puts a file in place at once, as a well-behaved editor does.
    pub(super) fn put(&self, peer: &str, content: &str) {
        let draft = self.dir.path().join(".draft");
        fs::write(&draft, content).unwrap();
        fs::rename(draft, self.dir.path().join(peer)).unwrap();
    }
}

/// The file of a peer whose store this is.
pub(super) fn file_of(etcd: &Etcd) -> String {
    format!("endpoints:\n- {}\n", etcd.url())
}

/// A peer with its etcd and these exports.
pub(super) async fn peer(name: &str, id: u32, exports: &[&str]) -> (Etcd, Writer<EtcdStore>) {
    let etcd = Etcd::start().await;
    let mut writer = Writer::new(name, etcd.store());
    writer.new_lease().await;
    writer.config(id, capable()).await;
    for export in exports {
        writer.export(export, 1).await;
    }
    writer.canaries().await;
    (etcd, writer)
}
