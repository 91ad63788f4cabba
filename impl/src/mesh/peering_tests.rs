//! Peers by files, on real etcds.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tombolo_core::{evidence::Complete, wire::key::Resource};

use super::{
    super::{
        peers::{PeerState, PeerStatus},
        remote_cluster::{
            Origin, Outcome, RawChange, Untaken,
            testkit::{Writer, capable, service},
        },
    },
    *,
};
use crate::kvstore::testing::{Etcd, Subject, eventually};

/// A cluster `here` with a directory of peers.
struct Here {
    dir: TempDir,
    state: RemoteState,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

/// The rows of the peers, until told to panic when a record comes.
#[derive(Debug, Clone)]
struct Fragile {
    rows: RemoteState,
    broken: Arc<AtomicBool>,
}

impl Records for Fragile {
    fn kinds(&self) -> &'static [Resource] {
        self.rows.kinds()
    }

    fn apply(&self, origin: &Origin<'_>, changes: &[RawChange<'_>]) -> Vec<Outcome> {
        let broken = self.broken.load(Ordering::Relaxed) && !changes.is_empty();
        assert!(!broken, "a record that nobody thought of");
        self.rows.apply(origin, changes)
    }

    fn retain_listed(
        &self,
        origin: &Origin<'_>,
        present: &BTreeSet<String>,
        untaken: &Untaken,
        complete: Complete,
    ) -> usize {
        self.rows.retain_listed(origin, present, untaken, complete)
    }

    fn drain(&self, peer: &ClusterName, kinds: &[Resource], evidence: Evidence) {
        self.rows.drain(peer, kinds, evidence);
    }
}

impl Here {
    /// As [`Self::start`], with rows that can be told to panic.
    fn start_fragile(prepare: impl FnOnce(&Path)) -> (Self, Arc<AtomicBool>) {
        let broken = Arc::<AtomicBool>::default();
        let told = Arc::clone(&broken);
        let follow = move |dir, local, state: RemoteState, cancel| {
            let follow = Follow {
                local,
                statuses: state.statuses().clone(),
                records: Fragile {
                    rows: state,
                    broken: told,
                },
                options: Options::default(),
            };
            tokio::spawn(follow_peers(dir, follow, cancel))
        };
        (Self::start_with(prepare, follow), broken)
    }

    fn start(prepare: impl FnOnce(&Path)) -> Self {
        Self::start_with(prepare, |dir, local, state, cancel| {
            tokio::spawn(run_peers(dir, local, state, Options::default(), cancel))
        })
    }

    fn start_with(
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

    fn status(&self, peer: &str) -> Option<PeerStatus> {
        let peers = self.state.peers();
        peers
            .into_iter()
            .find(|status| status.cluster.as_str() == peer)
    }

    fn rows(&self) -> Vec<String> {
        let names = self.state.names();
        names.iter().map(|name| name.name.to_string()).collect()
    }

    /// Waits until all peers were synced, or until the time is over; true when they were.
    async fn synced_within(&self, time_out: Duration) -> bool {
        let mut changes = self.state.changes();
        let synced = async {
            while !self.state.statuses().all_synced() {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(time_out, synced).await.is_ok()
    }

    async fn until_rows(&self, rows: &[&str]) {
        eventually(&format!("rows {rows:?}"), async || self.rows() == rows).await;
    }

    async fn until_state(&self, peer: &str, state: PeerState) {
        eventually(&format!("{peer} is {}", state.as_str()), async || {
            self.status(peer)
                .is_some_and(|status| status.state == state)
        })
        .await;
    }

    async fn until_error(&self, peer: &str, text: &str) {
        eventually(text, async || {
            let status = self.status(peer);
            status.is_some_and(|it| it.error().is_some_and(|error| error.contains(text)))
        })
        .await;
    }

    /// Puts a file in place at once, as a well-behaved editor does.
    fn put(&self, peer: &str, content: &str) {
        let draft = self.dir.path().join(".draft");
        fs::write(&draft, content).unwrap();
        fs::rename(draft, self.dir.path().join(peer)).unwrap();
    }
}

fn file_of(etcd: &Etcd) -> String {
    format!("endpoints:\n- {}\n", etcd.url())
}

/// A peer with its etcd and these exports.
async fn peer(name: &str, id: u32, exports: &[&str]) -> (Etcd, Writer<EtcdStore>) {
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

#[tokio::test]
async fn peers_come_change_and_go_with_their_files() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|_| {});
    assert!(
        here.synced_within(Duration::from_secs(20)).await,
        "no peers, all synced"
    );

    here.put("rome", &file_of(&etcd));
    here.until_rows(&["cart"]).await;
    here.put("rome", &format!("# another text\n{}", file_of(&etcd)));
    rome.export("web", 1).await;
    here.until_rows(&["cart", "web"]).await;
    fs::remove_file(here.dir.path().join("rome")).unwrap();

    here.until_rows(&[]).await;
    eventually("the peer is forgotten", async || {
        here.status("rome").is_none()
    })
    .await;
    here.cancel.cancel();
    here.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_file_that_names_another_store_keeps_the_rows_until_that_one_is_complete() {
    let (old, _) = peer("rome", 2, &["cart", "gone"]).await;
    let new = Etcd::start().await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&old)).unwrap());
    here.until_state("rome", PeerState::Ready).await;

    here.put("rome", &file_of(&new));
    here.until_error("rome", "cilium/cluster-config/rome is missing")
        .await;
    let (rows, status) = (here.rows(), here.status("rome").unwrap());
    Writer::new("rome", new.store())
        .fill(&["cart", "new"])
        .await;

    assert_eq!(rows, ["cart", "gone"]);
    assert_eq!(status.state, PeerState::Suspect);
    here.until_rows(&["cart", "new"]).await;
}

#[tokio::test]
async fn two_peers_do_not_disturb_each_other() {
    let (mut rome_etcd, _) = peer("rome", 2, &["cart", "rome-only"]).await;
    let (oslo_etcd, oslo) = peer("oslo", 3, &["cart"]).await;
    let here = Here::start(|dir| {
        fs::write(dir.join("rome"), file_of(&rome_etcd)).unwrap();
        fs::write(dir.join("oslo"), file_of(&oslo_etcd)).unwrap();
        fs::write(dir.join("paris"), "endpoints: nowhere").unwrap();
    });
    here.until_state("rome", PeerState::Ready).await;
    here.until_state("oslo", PeerState::Ready).await;
    assert_eq!(here.state.exports(&service("cart")).len(), 2);

    rome_etcd.wipe().await;
    oslo.unexport("cart").await;
    oslo.export("web", 1).await;

    here.until_rows(&["cart", "rome-only", "web"]).await;
    here.until_state("rome", PeerState::Suspect).await;
    assert_eq!(here.status("oslo").unwrap().state, PeerState::Ready);
    here.until_error("paris", "/paris: ").await;
}

#[tokio::test]
async fn two_peers_with_one_id_are_not_both_accepted() {
    let (rome_etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let (oslo_etcd, _oslo) = peer("oslo", 2, &["web"]).await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&rome_etcd)).unwrap());
    here.until_rows(&["cart"]).await;

    here.put("oslo", &file_of(&oslo_etcd));
    here.until_error("oslo", "clusterID 2 is already used by rome")
        .await;
    let rows = here.rows();
    fs::remove_file(here.dir.path().join("rome")).unwrap();

    assert_eq!(rows, ["cart"]);
    here.until_rows(&["web"]).await;
}

#[tokio::test]
async fn a_mounted_secret_that_is_swapped_changes_the_peers() {
    let (rome_etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let (oslo_etcd, _oslo) = peer("oslo", 3, &["web"]).await;
    let here = Here::start(|dir| {
        fs::create_dir(dir.join("..v1")).unwrap();
        fs::write(dir.join("..v1/rome"), file_of(&rome_etcd)).unwrap();
        symlink("..v1", dir.join("..data")).unwrap();
        symlink("..data/rome", dir.join("rome")).unwrap();
    });
    here.until_rows(&["cart"]).await;

    let dir = here.dir.path();
    fs::create_dir(dir.join("..v2")).unwrap();
    fs::write(dir.join("..v2/oslo"), file_of(&oslo_etcd)).unwrap();
    symlink("..v2", dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    symlink("..data/oslo", dir.join("oslo")).unwrap();
    fs::remove_file(dir.join("rome")).unwrap();
    fs::remove_dir_all(dir.join("..v1")).unwrap();

    here.until_rows(&["web"]).await;
}

#[tokio::test]
async fn a_file_that_is_empty_or_broken_for_a_while_keeps_its_peer() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&etcd)).unwrap());
    here.until_state("rome", PeerState::Ready).await;

    for (broken, complaint) in [("", "endpoints: missing"), ("endpoints: [", "is not valid")] {
        fs::write(here.dir.path().join("rome"), broken).unwrap();
        here.until_error("rome", complaint).await;
        assert_eq!(here.rows(), ["cart"]);
    }
    rome.export("web", 1).await;

    here.until_rows(&["cart", "web"]).await;
    let status = here.status("rome").unwrap();
    assert_eq!(status.state, PeerState::Ready, "it is followed as before");
    let error = status.file_error.expect("and its file is still broken");
    assert!(error.contains("is not valid"), "{error}");
    here.put("rome", &file_of(&etcd));
    eventually("the file is mended", async || {
        here.status("rome").unwrap().file_error.is_none()
    })
    .await;
}

#[tokio::test]
async fn a_file_that_becomes_a_link_to_nowhere_or_a_directory_keeps_its_peer() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|dir| fs::write(dir.join("rome"), file_of(&etcd)).unwrap());
    here.until_state("rome", PeerState::Ready).await;
    let file = here.dir.path().join("rome");

    fs::remove_file(&file).unwrap();
    symlink("..data/rome", &file).unwrap();
    here.until_error("rome", "cannot be read").await;
    rome.export("web", 1).await;
    here.until_rows(&["cart", "web"]).await;
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    here.until_error("rome", "endpoints: missing").await;
    rome.export("desk", 1).await;

    here.until_rows(&["cart", "desk", "web"]).await;
}

#[tokio::test]
async fn an_unsynced_peer_holds_removals_back_and_all_are_synced_when_it_is() {
    let (etcd, _rome) = peer("rome", 2, &["cart"]).await;
    let here = Here::start(|dir| {
        fs::write(dir.join("rome"), file_of(&etcd)).unwrap();
        fs::write(dir.join("oslo"), "endpoints: ['http://127.0.0.1:1']").unwrap();
    });
    let (rome, oslo, other) = (
        "rome".try_into().unwrap(),
        "oslo".try_into().unwrap(),
        "other".try_into().unwrap(),
    );

    here.until_rows(&["cart"]).await;
    eventually("rome is synced", async || {
        here.state.statuses().may_remove(&rome)
    })
    .await;
    let in_time = here.synced_within(Duration::from_millis(50)).await;

    assert!(!in_time);
    assert!(!here.state.statuses().may_remove(&oslo));
    assert!(here.state.statuses().may_remove(&other));
    fs::remove_file(here.dir.path().join("oslo")).unwrap();
    assert!(here.synced_within(Duration::from_secs(20)).await);
}

#[tokio::test]
async fn a_panic_makes_its_peer_suspect_at_once_and_it_is_followed_again_later() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let (oslo_etcd, oslo) = peer("oslo", 3, &["desk"]).await;
    let (here, broken) = Here::start_fragile(|dir| {
        fs::write(dir.join("rome"), file_of(&etcd)).unwrap();
        fs::write(dir.join("oslo"), file_of(&oslo_etcd)).unwrap();
    });
    here.until_state("rome", PeerState::Ready).await;
    here.until_state("oslo", PeerState::Ready).await;

    broken.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    rome.export("web", 1).await;
    // In one look: it is tried again, and connected then.
    let mut seen = None;
    eventually("rome is suspect and not connected", async || {
        let status = here.status("rome");
        seen = status.filter(|it| it.state == PeerState::Suspect && !it.connected);
        seen.is_some()
    })
    .await;
    let noticed = begin.elapsed();
    let (rows, status) = (here.rows(), seen.unwrap());
    broken.store(false, Ordering::Relaxed);
    // A file that is broken meanwhile does not matter.
    fs::write(here.dir.path().join("rome"), "").unwrap();
    here.until_rows(&["cart", "desk", "web"]).await;
    here.until_state("rome", PeerState::Ready).await;
    oslo.export("lamp", 1).await;
    here.until_rows(&["cart", "desk", "lamp", "web"]).await;

    assert!(noticed < REREAD_INTERVAL / 3, "{noticed:?}");
    assert_eq!(rows, ["cart", "desk"]);
    let failure = status.last_failure.unwrap();
    assert_eq!(failure.reason, "Panicked");
    let text = status.last_error.unwrap();
    assert!(
        text.contains("a record that nobody thought of") && text.contains("report it"),
        "{text}"
    );
}

#[tokio::test]
async fn a_missing_directory_is_an_error_at_once() {
    let local = LocalCluster {
        name: "here".try_into().unwrap(),
        id: 1.try_into().unwrap(),
        max_connected: 255,
    };
    let state = RemoteState::new(Arc::new(|_| {}));

    let outcome = run_peers(
        "/nowhere/at/all".into(),
        local,
        state,
        Options::default(),
        CancellationToken::new(),
    )
    .await;

    assert!(
        outcome
            .unwrap_err()
            .to_string()
            .starts_with("/nowhere/at/all: ")
    );
}

#[tokio::test]
async fn a_directory_that_is_gone_for_a_while_is_no_longer_current() {
    let here = Here::start(|_| {});
    let current = || here.state.statuses().is_current();
    eventually("the directory was read", async || current()).await;

    fs::remove_dir(here.dir.path()).unwrap();
    eventually("that it is gone is known", async || !current()).await;
    assert!(here.state.statuses().is_loaded(), "what was read stays");
    fs::create_dir(here.dir.path()).unwrap();

    eventually("it was read again", async || current()).await;
}
