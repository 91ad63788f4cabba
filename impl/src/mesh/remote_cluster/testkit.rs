//! For tests: a peer that writes records, and a cluster that follows it.

mod tapped;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tombolo_core::{
    names::{ClusterName, NamespacedName, PortName},
    service::{
        ClusterService, ExportSpec, ImportType, IpFamily, Protocol, ServicePort, SessionAffinity,
    },
    wire::{
        canary, cluster_config,
        cluster_config::{Capabilities, ClusterConfig},
        cluster_service,
        key::{self, Resource},
        service_export,
    },
};

use super::{
    super::{
        peers::{Dirty, LocalCluster, PeerState, PeerStatus, RemoteState},
        reservations::Reservations,
    },
    Memory, Options, RemoteCluster,
};
use crate::kvstore::{
    KvStore, LeaseId,
    testing::{Subject, eventually},
};

pub(crate) use tapped::Tapped;

/// Runs each behaviour on a store in memory and on a real etcd.
macro_rules! battery {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(<crate::kvstore::testing::Memory as crate::kvstore::testing::Subject>::start().await).await;
            })+
        }
        mod etcd {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(<crate::kvstore::testing::Etcd as crate::kvstore::testing::Subject>::start().await).await;
            })+
        }
    };
}
pub(crate) use battery;

/// The service `shop/NAME`.
pub(crate) fn service(name: &str) -> NamespacedName {
    NamespacedName::parse("shop", name).unwrap()
}

/// An export of `shop/NAME`, made in this second of 1970.
pub(crate) fn export(cluster: &ClusterName, name: &str, second: i64) -> ExportSpec {
    ExportSpec {
        cluster: cluster.clone(),
        name: service(name),
        created_at: Timestamp::from_second(second).unwrap(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        ports: vec![ServicePort {
            name: PortName::default(),
            protocol: Protocol::Tcp,
            app_protocol: None,
            port: 80,
        }],
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4],
        internal_traffic_policy: None,
        traffic_distribution: None,
    }
}

/// The capabilities of a peer like this program.
pub(crate) fn capable() -> Capabilities {
    Capabilities {
        synced_canaries: true,
        max_connected_clusters: 255,
        service_exports_enabled: Some(true),
        ..Capabilities::default()
    }
}

/// Writes a peer's records, all under one lease.
pub(crate) struct Writer<S> {
    pub(crate) name: ClusterName,
    pub(crate) store: S,
    lease: Option<LeaseId>,
}

impl<S: KvStore> Writer<S> {
    /// A peer that has written nothing.
    pub(crate) fn new(name: &str, store: S) -> Self {
        Self {
            name: name.try_into().unwrap(),
            store,
            lease: None,
        }
    }

    /// Begins a new lease, as a writer does that starts anew or lost its store.
    pub(crate) async fn new_lease(&mut self) {
        self.lease = Some(self.store.grant(Duration::from_hours(1)).await.unwrap());
    }

    /// Ends the lease, as a writer's death does.
    pub(crate) async fn end_lease(&mut self) {
        self.store.revoke(self.lease.take().unwrap()).await.unwrap();
    }

    /// Writes everything: cluster-config, exports, canaries, under a new lease.
    pub(crate) async fn fill(&mut self, exports: &[&str]) {
        self.new_lease().await;
        self.config(2, capable()).await;
        for name in exports {
            self.export(name, 1).await;
        }
        self.canaries().await;
    }

    /// Begins another lease beside the one before, which it returns.
    pub(crate) async fn another_lease(&mut self) -> LeaseId {
        let before = self.lease.take().unwrap();
        self.new_lease().await;
        before
    }

    pub(crate) async fn put(&self, key: &str, value: Vec<u8>) {
        self.store.put(key, value, self.lease).await.unwrap();
    }

    pub(crate) async fn config(&self, id: u32, capabilities: Capabilities) {
        let id = id.try_into().unwrap();
        let (key, value) = cluster_config::encode(&self.name, &ClusterConfig { id, capabilities });
        self.put(&key, value).await;
    }

    pub(crate) async fn export(&self, name: &str, second: i64) {
        let (key, value) = service_export::encode(&export(&self.name, name, second));
        self.put(&key, value).await;
    }

    pub(crate) async fn unexport(&self, name: &str) {
        let key = key::service_export_key(&self.name, &service(name));
        assert!(self.store.delete(&key).await.unwrap().1, "{key} is there");
    }

    pub(crate) async fn service(&self, name: &str, shared: bool) {
        self.service_of(2, name, shared).await;
    }

    /// A service that says it is of the cluster with this id.
    pub(crate) async fn service_of(&self, id: u32, name: &str, shared: bool) {
        let record = ClusterService {
            cluster: self.name.clone(),
            cluster_id: id.try_into().unwrap(),
            name: service(name),
            frontends: BTreeMap::new(),
            backends: BTreeMap::new(),
            hostnames: BTreeMap::new(),
            zones: BTreeMap::new(),
            labels: BTreeMap::new(),
            selector: BTreeMap::new(),
            shared,
        };
        let (key, value) = cluster_service::encode(&record);
        self.put(&key, value).await;
    }

    pub(crate) async fn canary(&self, resource: Resource) {
        let (key, value) = canary::encode(&self.name, resource, Timestamp::UNIX_EPOCH);
        self.put(&key, value).await;
    }

    pub(crate) async fn canaries(&self) {
        self.canary(Resource::Services).await;
        self.canary(Resource::ServiceExports).await;
    }
}

impl<S: KvStore> Writer<S> {
    /// Writes the heartbeat.
    pub(crate) async fn beat(&self) {
        let (key, value) = canary::heartbeat(Timestamp::UNIX_EPOCH);
        self.put(&key, value).await;
    }

    /// Writes the heartbeat every minute, until aborted.
    pub(crate) fn keep_beating(&self) -> JoinHandle<()> {
        let store = self.store.clone();
        let (key, value) = canary::heartbeat(Timestamp::UNIX_EPOCH);
        tokio::spawn(async move {
            loop {
                // Fails while the store is cut off, as a writer's would.
                let _revision = store.put(&key, value.clone(), None).await;
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
        })
    }
}

/// A cluster `here` with id 1 that follows a peer.
pub(crate) struct Follower<S> {
    pub(crate) peer: ClusterName,
    pub(crate) state: RemoteState,
    pub(crate) reservations: Reservations,
    pub(crate) max_connected: u32,
    pub(crate) options: Options,
    dirty: Arc<Mutex<Vec<Dirty>>>,
    store: S,
    running: Option<(CancellationToken, JoinHandle<Memory>)>,
}

impl<S: KvStore> Follower<S> {
    /// Not following yet.
    pub(crate) fn new(peer: &str, store: S) -> Self {
        let peer: ClusterName = peer.try_into().unwrap();
        let dirty = Arc::<Mutex<Vec<Dirty>>>::default();
        let told = Arc::clone(&dirty);
        let state = RemoteState::new(Arc::new(move |name| told.lock().unwrap().push(name)));
        state.statuses().configure(&BTreeSet::from([peer.clone()]));
        Self {
            peer,
            state,
            reservations: Reservations::default(),
            max_connected: 255,
            options: Options::default(),
            dirty,
            store,
            running: None,
        }
    }

    /// What follows, not yet running.
    pub(crate) fn remote(&self, memory: Memory) -> RemoteCluster<S, RemoteState> {
        RemoteCluster {
            peer: self.peer.clone(),
            local: LocalCluster {
                name: "here".try_into().unwrap(),
                id: 1.try_into().unwrap(),
                max_connected: self.max_connected,
            },
            store: self.store.clone(),
            records: self.state.clone(),
            statuses: self.state.statuses().clone(),
            options: self.options,
            reservations: self.reservations.clone(),
            memory,
        }
    }

    /// Follows from now on.
    pub(crate) fn start(&mut self, memory: Memory) {
        let cancel = CancellationToken::new();
        let task = tokio::spawn(self.remote(memory).run(cancel.clone()));
        self.running = Some((cancel, task));
    }

    /// Stops following, as if cut off.
    pub(crate) async fn stop(&mut self) -> Memory {
        let (cancel, task) = self.running.take().unwrap();
        cancel.cancel();
        task.await.unwrap()
    }

    pub(crate) fn status(&self) -> PeerStatus {
        self.state.peers().remove(0)
    }

    /// Names that the peer has a row for, without the namespace.
    pub(crate) fn rows(&self) -> Vec<String> {
        let names = self.state.names();
        names.iter().map(|name| name.name.to_string()).collect()
    }

    /// Second in which the peer's export was made.
    pub(crate) fn second(&self, name: &str) -> Option<i64> {
        let rows = self.state.exports(&service(name));
        rows.first().map(|row| row.created_at.as_second())
    }

    /// Names that were reported since the last call.
    pub(crate) fn take_dirty(&self) -> Vec<String> {
        let dirty = std::mem::take(&mut *self.dirty.lock().unwrap());
        dirty
            .iter()
            .map(|dirty| dirty.name.name.to_string())
            .collect()
    }

    pub(crate) async fn until_state(&self, state: PeerState) {
        eventually(state.as_str(), async || self.status().state == state).await;
    }

    pub(crate) async fn until_error(&self, text: &str) {
        eventually(text, async || {
            let error = self.status().last_error;
            error.is_some_and(|error| error.contains(text))
        })
        .await;
    }

    pub(crate) async fn until_rows(&self, rows: &[&str]) {
        eventually(&format!("rows {rows:?}"), async || self.rows() == rows).await;
    }
}

/// A peer `rome` with these exports, followed until ready.
pub(crate) async fn followed<S: Subject>(
    subject: &S,
    exports: &[&str],
) -> (Writer<S::Store>, Follower<S::Store>) {
    let mut writer = Writer::new("rome", subject.store());
    writer.fill(exports).await;
    let mut follower = Follower::new("rome", subject.store());
    follower.start(Memory::default());
    follower.until_state(PeerState::Ready).await;
    assert_eq!(follower.rows(), exports);
    (writer, follower)
}
