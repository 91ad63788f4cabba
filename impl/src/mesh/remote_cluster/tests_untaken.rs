//! Records that are not taken: what they are about is not taken for gone, and the rest is not held up by them.

use std::{
    collections::BTreeSet,
    io::Write,
    sync::{Arc, Mutex},
};

use tombolo_core::wire::{
    key::{self, Resource},
    service_export,
};

use super::{
    super::peers::{PeerState, RecordKind, RemoteState},
    Memory,
    testkit::{Follower, Writer, battery, export, service},
};
use crate::kvstore::{
    KvStore,
    memory::MemoryStore,
    testing::{Memory as InMemory, Subject, eventually},
};

battery![
    after_a_restart_what_a_refused_record_is_about_is_held_and_the_rest_is_not,
    a_refused_record_that_names_nothing_holds_nothing,
    what_is_over_the_limits_is_held_by_name,
    a_record_under_a_very_long_key_is_refused_and_not_remembered,
];

/// Key of an export.
fn export_key<S: KvStore>(writer: &Writer<S>, name: &str) -> String {
    key::service_export_key(&writer.name, &service(name))
}

/// Whether the silence of the peer about the export of a name means something.
fn may_remove<S: KvStore>(follower: &Follower<S>, name: &str) -> bool {
    let (state, peer) = (&follower.state, &follower.peer);
    state.may_remove(peer, RecordKind::Exports, &service(name))
}

fn refused<S: KvStore>(follower: &Follower<S>) -> u64 {
    let kinds = follower.status().kinds;
    let kind = kinds.get(&Resource::ServiceExports);
    kind.map_or(0, |kind| kind.refused)
}

fn refused_now<S: KvStore>(follower: &Follower<S>) -> u64 {
    follower.status().kinds[&Resource::ServiceExports].refused_now
}

async fn after_a_restart_what_a_refused_record_is_about_is_held_and_the_rest_is_not<S: Subject>(
    subject: S,
) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart", "web"]).await;
    let bad = export_key(&writer, "cart");
    writer.put(&bad, b"{ broken".to_vec()).await;
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    let (rows, services) = (follower.rows(), RecordKind::Services);
    let of_services = follower
        .state
        .may_remove(&follower.peer, services, &service("cart"));
    let held = ["cart", "other"].map(|name| !may_remove(&follower, name));
    let telling = ["cart", "other"].map(|name| {
        follower
            .state
            .all_telling(RecordKind::Exports, &service(name))
    });
    let standing = refused_now(&follower);
    follower.take_dirty();
    writer.unexport("cart").await;

    assert_eq!((rows, standing), (vec!["web".to_owned()], 1));
    assert_eq!(held, [true, false]);
    assert_eq!(telling, [false, true]);
    assert!(of_services, "the other kind tells");
    eventually("it is known that there is none", async || {
        may_remove(&follower, "cart")
    })
    .await;
    eventually("that is reported", async || {
        follower.take_dirty() == ["cart"]
    })
    .await;
    eventually("it is refused no longer", async || {
        refused_now(&follower) == 0
    })
    .await;
    assert_eq!(refused(&follower), 1);
}

async fn a_refused_record_that_names_nothing_holds_nothing<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["web"]).await;
    let prefix = key::service_exports_prefix(&writer.name, false);
    for suffix in ["", "no-name", "shop/UPPER", "shop/web/more"] {
        writer
            .put(&format!("{prefix}{suffix}"), b"{}".to_vec())
            .await;
    }
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;

    assert_eq!(refused(&follower), 4);
    for name in ["no-name", "other", "more"] {
        assert!(may_remove(&follower, name), "{name}");
    }
}

async fn what_is_over_the_limits_is_held_by_name<S: Subject>(subject: S) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["cart"]).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.budget.records = 1;
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;

    writer.export("web", 1).await;
    follower.until_error("--peer-max-records").await;
    let held = ["web", "other"].map(|name| !may_remove(&follower, name));
    writer.unexport("cart").await;
    follower.until_rows(&["web"]).await;
    follower.until_state(PeerState::Ready).await;

    assert_eq!(held, [true, false]);
    assert!(may_remove(&follower, "web"));
}

async fn a_record_under_a_very_long_key_is_refused_and_not_remembered<S: Subject>(subject: S) {
    let log = Log::default();
    let _capturing = log.capture();
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&["web"]).await;
    let key = export_key(&writer, &"x".repeat(63)) + &"/more".repeat(20_000);
    writer.put(&key, b"{}".to_vec()).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.options.budget.bytes = 10_000;

    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    let listed = refused(&follower);
    writer.put(&key, b"{}".to_vec()).await;
    writer.put(&(key.clone() + "!"), b"{}".to_vec()).await;
    eventually("more are counted", async || refused(&follower) > 1).await;
    assert!(writer.store.delete(&key).await.unwrap().1);
    writer.export("last", 1).await;
    follower.until_rows(&["last", "web"]).await;

    assert_eq!(listed, 1);
    let status = follower.status();
    assert_eq!(status.state, PeerState::Ready);
    assert_eq!(status.kinds[&Resource::ServiceExports].over_limit, 0);
    assert!(may_remove(&follower, "other"));
    assert_eq!(log.lines("KeyTooLong"), 1, "for one list, and what follows");
    assert!(log.longest() < 1000, "{}", log.longest());
}

/// Lines of the log while it lives.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || lines.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn lines(&self, with: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(with)).count()
    }

    fn longest(&self) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::len).max().unwrap_or_default()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// 1,000 are remembered.
#[tokio::test(start_paused = true)]
async fn more_refused_records_than_are_remembered_hold_the_kind_until_they_are_fewer() {
    let log = Log::default();
    let _capturing = log.capture();
    let subject = InMemory::start().await;
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&[]).await;
    for number in 0..1003 {
        let key = export_key(&writer, &format!("bad-{number:04}"));
        writer.put(&key, b"{ broken".to_vec()).await;
    }
    let mut follower = Follower::new("rome", subject.store());

    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    let (held, counted) = (!may_remove(&follower, "other"), refused(&follower));
    let (one_by_one, together) = (
        log.lines("a record is refused"),
        log.lines("more records are"),
    );
    let memory = follower.stop().await;
    // Another list of the same.
    writer.export("web", 1).await;
    writer.export("web", 2).await;
    subject.compact().await;
    follower.start(memory);
    follower.until_rows(&["web"]).await;
    eventually("the list is told", async || {
        log.lines("more records are") == 2
    })
    .await;
    let again = log.lines("a record is refused");
    let counted_again = refused(&follower);
    for number in 0..3 {
        writer.unexport(&format!("bad-{number:04}")).await;
    }
    eventually("the rest is remembered", async || {
        may_remove(&follower, "other")
    })
    .await;

    assert!(held);
    assert_eq!((counted, one_by_one, together), (1003, 1000, 1));
    assert_eq!((counted_again, again), (1003, 1000));
    assert!(!may_remove(&follower, "bad-1002"));
    assert!(may_remove(&follower, "bad-0000"));
}

#[tokio::test(start_paused = true)]
async fn keys_count_for_the_limit_of_bytes() {
    let subject = InMemory::start().await;
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(&[]).await;
    let (key, value) = service_export::encode(&export(&writer.name, "web", 1));
    let mut follower = Follower::new("rome", subject.store());
    follower.options.budget.bytes = key.len() + value.len() - 1;
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;

    writer.put(&key, value).await;

    follower.until_error("--peer-max-bytes").await;
    assert_eq!(follower.rows(), Vec::<String>::new());
}

/// Its first page tells of a record that is taken now, its second, which does not come, of one that still is not.
#[tokio::test(start_paused = true)]
async fn a_list_that_broke_off_is_begun_again() {
    let store = MemoryStore::new("rome");
    let mut writer = Writer::new("rome", store.clone());
    let names: Vec<_> = (0..300).map(|number| format!("s{number:03}")).collect();
    writer
        .fill(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let mut follower = Follower::new("rome", store.clone());
    follower.options.budget.records = names.len();
    let cut = store.clone();
    follower.state = RemoteState::new(Arc::new(move |dirty| {
        if dirty.name == service("first") {
            cut.set_reachable(false);
        }
    }));
    let peers = BTreeSet::from([follower.peer.clone()]);
    follower.state.statuses().configure(&peers);
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    writer.export("first", 1).await;
    writer.export("z-last", 1).await;
    follower.until_error("--peer-max-records").await;

    writer.unexport("s000").await;
    eventually("the list breaks off", async || !follower.status().connected).await;
    store.set_reachable(true);
    follower.until_error("--peer-max-records").await;

    assert_eq!(follower.rows().len(), names.len());
    assert!(!may_remove(&follower, "z-last"));
    let kinds = follower.status().kinds;
    assert_eq!(kinds[&Resource::ServiceExports].over_limit, 1);
}
