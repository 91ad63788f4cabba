//! Peers whose words are written by the test.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use jiff::Timestamp;
use tokio::sync::watch;
use tombolo::{
    mesh::peers::{Dirty, RecordKind},
    operator::{remote::Remote, triggers::Queues},
};
use tombolo_core::{
    names::{ClusterId, ClusterName, NamespacedName, PortName},
    service::{
        ClusterService, ExportSpec, ImportType, IpFamily, L4Port, Protocol, ServicePort,
        SessionAffinity,
    },
};

/// What all peers say.
#[derive(Clone)]
pub(crate) struct FakePeers {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    queues: Queues,
}

#[derive(Default)]
struct State {
    exports: BTreeMap<(NamespacedName, ClusterName), ExportSpec>,
    services: BTreeMap<(NamespacedName, ClusterName), ClusterService>,
    loading: BTreeSet<ClusterName>,
    refused: BTreeSet<(ClusterName, RecordKind, NamespacedName)>,
}

impl FakePeers {
    /// Peers that say nothing, and are all synced.
    pub(crate) fn new(queues: &Queues) -> Self {
        Self {
            state: Arc::default(),
            changed: watch::Sender::new(0),
            queues: queues.clone(),
        }
    }

    /// A peer exports this.
    pub(crate) fn export(&self, spec: ExportSpec) {
        let name = spec.name.clone();
        let key = (name.clone(), spec.cluster.clone());
        self.state().exports.insert(key, spec);
        self.report(RecordKind::Exports, name);
    }

    /// A peer exports this no more.
    pub(crate) fn withdraw(&self, cluster: &str, name: &NamespacedName) {
        let cluster = ClusterName::try_from(cluster).unwrap();
        self.state().exports.remove(&(name.clone(), cluster));
        self.report(RecordKind::Exports, name.clone());
    }

    /// A peer has this global service.
    pub(crate) fn serve(&self, service: ClusterService) {
        let name = service.name.clone();
        let key = (name.clone(), service.cluster.clone());
        self.state().services.insert(key, service);
        self.report(RecordKind::Services, name);
    }

    /// A peer has this global service no more.
    pub(crate) fn unserve(&self, cluster: &str, name: &NamespacedName) {
        let cluster = ClusterName::try_from(cluster).unwrap();
        self.state().services.remove(&(name.clone(), cluster));
        self.report(RecordKind::Services, name.clone());
    }

    /// These peers are loading, all others are synced or none.
    pub(crate) fn set_loading(&self, clusters: &[&str]) {
        let names = clusters
            .iter()
            .map(|name| ClusterName::try_from(*name).unwrap());
        self.state().loading = names.collect();
        self.changed.send_modify(|version| *version += 1);
    }

    /// A record of a peer that is synced is not taken.
    pub(crate) fn refuse(&self, cluster: &str, kind: RecordKind, name: &NamespacedName) {
        let cluster = ClusterName::try_from(cluster).unwrap();
        self.state().refused.insert((cluster, kind, name.clone()));
    }

    /// The peer has deleted that record.
    pub(crate) fn delete_refused(&self, cluster: &str, kind: RecordKind, name: &NamespacedName) {
        let cluster = ClusterName::try_from(cluster).unwrap();
        let refused = &mut self.state().refused;
        assert!(refused.remove(&(cluster, kind, name.clone())));
        self.report(kind, name.clone());
    }

    fn report(&self, kind: RecordKind, name: NamespacedName) {
        self.queues.remote(&Dirty {
            kind,
            name,
            lost: false,
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Remote for FakePeers {
    fn exports(&self, name: &NamespacedName) -> Vec<ExportSpec> {
        let state = self.state();
        let rows = state.exports.iter().filter(|((row, _), _)| row == name);
        rows.map(|(_, export)| export.clone()).collect()
    }

    fn services(&self, name: &NamespacedName) -> Vec<ClusterService> {
        let state = self.state();
        let rows = state.services.iter().filter(|((row, _), _)| row == name);
        rows.map(|(_, service)| service.clone()).collect()
    }

    fn names(&self) -> BTreeSet<NamespacedName> {
        let state = self.state();
        let names = state.exports.keys().chain(state.services.keys());
        names.map(|(name, _)| name.clone()).collect()
    }

    fn may_remove(&self, cluster: &ClusterName, kind: RecordKind, name: &NamespacedName) -> bool {
        let (state, refused) = (self.state(), (cluster.clone(), kind, name.clone()));
        !state.loading.contains(cluster) && !state.refused.contains(&refused)
    }

    fn all_telling(&self, kind: RecordKind, name: &NamespacedName) -> bool {
        let state = self.state();
        let about = |(_, of, refused): &(_, RecordKind, _)| *of == kind && refused == name;
        state.loading.is_empty() && !state.refused.iter().any(about)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// An export of a service with the TCP port `http` 80, made long ago.
pub(crate) fn export_from(cluster: &str, name: &NamespacedName) -> ExportSpec {
    ExportSpec {
        cluster: cluster.try_into().unwrap(),
        name: name.clone(),
        created_at: Timestamp::UNIX_EPOCH,
        labels: [("team".to_owned(), "pay".to_owned())].into(),
        annotations: BTreeMap::new(),
        ports: vec![ServicePort {
            name: "http".try_into().unwrap(),
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

/// A global service with these backends, each at the TCP port `http` 8080.
pub(crate) fn service_from(
    cluster: &str,
    name: &NamespacedName,
    backends: &[&str],
) -> ClusterService {
    let l4 = L4Port {
        protocol: Protocol::Tcp,
        port: 8080,
    };
    let ports: BTreeMap<PortName, _> = [("http".try_into().unwrap(), l4)].into();
    let address = |text: &&str| text.parse::<IpAddr>().unwrap();
    ClusterService {
        cluster: cluster.try_into().unwrap(),
        cluster_id: ClusterId::try_from(9).unwrap(),
        name: name.clone(),
        frontends: BTreeMap::new(),
        backends: backends
            .iter()
            .map(address)
            .map(|ip| (ip, ports.clone()))
            .collect(),
        hostnames: BTreeMap::new(),
        zones: BTreeMap::new(),
        labels: BTreeMap::new(),
        selector: BTreeMap::new(),
        shared: true,
    }
}
