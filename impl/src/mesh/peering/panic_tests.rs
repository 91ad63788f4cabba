//! What panics at the record of one peer disturbs that peer alone.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tombolo_core::{evidence::Complete, wire::key::Resource};

use super::{
    super::{
        peers::PeerState,
        remote_cluster::{Origin, Outcome, RawChange, Untaken},
    },
    testkit::{Here, file_of, peer},
    *,
};
use crate::kvstore::testing::eventually;

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

/// As [`Here::start`], with rows that can be told to panic.
fn start_fragile(prepare: impl FnOnce(&Path)) -> (Here, Arc<AtomicBool>) {
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
    (Here::start_with(prepare, follow), broken)
}

#[tokio::test]
async fn a_panic_makes_its_peer_suspect_at_once_and_it_is_followed_again_later() {
    let (etcd, rome) = peer("rome", 2, &["cart"]).await;
    let (oslo_etcd, oslo) = peer("oslo", 3, &["desk"]).await;
    let (here, broken) = start_fragile(|dir| {
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
