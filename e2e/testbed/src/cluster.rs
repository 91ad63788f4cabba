//! One cluster of a testbed: its client, and the faults it can be given.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::AtomicU32,
};

use kube::Client;
use tokio::sync::OnceCell;

use crate::{
    Component, Error, ProviderError,
    api::{ControlPlane, Port},
    dialer::Dialer,
    kind::KindCluster,
    local::LocalCluster,
    process,
};

/// A cluster. Its processes end with the [`crate::Testbed`] it belongs to.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) name: String,
    config: kube::Config,
    origin: Origin,
    id: u32,
    pub(crate) fake_node: OnceCell<()>,
    pub(crate) pods: AtomicU32,
}

/// What the provider of this cluster holds.
#[derive(Debug)]
enum Origin {
    Api(Box<ControlPlane>),
    Local(Box<LocalCluster>),
    Kind(Box<KindCluster>),
    Context,
}

/// What the provider holds of a cluster that has a node of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nodes<'c> {
    Local(&'c LocalCluster),
    Kind(&'c KindCluster),
}

impl Cluster {
    pub(crate) fn of_control_plane(plane: ControlPlane) -> Result<Self, Error> {
        let (name, id, config) = (plane.name.clone(), plane.id, plane.config.clone());
        Self::new(name, id, config, Origin::Api(Box::new(plane)))
    }

    pub(crate) fn of_local(local: LocalCluster) -> Result<Self, Error> {
        let plane = &local.plane;
        let (name, id, config) = (plane.name.clone(), plane.id, plane.config.clone());
        Self::new(name, id, config, Origin::Local(Box::new(local)))
    }

    pub(crate) fn of_kind(kind: KindCluster) -> Result<Self, Error> {
        let plane = &kind.plane;
        let (name, id, config) = (plane.name.clone(), plane.id, plane.config.clone());
        Self::new(name, id, config, Origin::Kind(Box::new(kind)))
    }

    pub(crate) fn of_context(name: String, id: u32, config: kube::Config) -> Result<Self, Error> {
        Self::new(name, id, config, Origin::Context)
    }

    fn new(name: String, id: u32, config: kube::Config, origin: Origin) -> Result<Self, Error> {
        let cluster = Self {
            name,
            config,
            origin,
            id,
            fake_node: OnceCell::new(),
            pods: AtomicU32::new(1),
        };
        match cluster.dialer().client(&cluster.config) {
            Ok(_) => Ok(cluster),
            Err(error) => Err(cluster.api_error("make a client", error)),
        }
    }

    /// Name: `a`, `b`, … with providers `api`, `local` and `kind`, else the name of the context.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Id in the mesh: 1 for the first.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// An administrator's client. Each belongs to the async runtime that it was made in, so tests that share clusters
    /// take one each.
    pub fn client(&self) -> Client {
        self.dialer()
            .client(&self.config)
            .expect("invariant: a client was made of this configuration before")
    }

    /// File with an administrator's credentials; its only context has the name of the cluster.
    pub fn kubeconfig(&self) -> Result<&Path, Error> {
        Ok(&self.plane("give a kubeconfig file of its own")?.kubeconfig)
    }

    /// Where the API server listens.
    pub fn api_server_address(&self) -> Result<SocketAddr, Error> {
        let plane = self.plane("tell where its API server listens")?;
        Ok(plane.address(Port::ApiServer))
    }

    /// The same credentials, for a client in the same network namespace that reaches the API server by another address of 127.0.0.1, such as that of a
    /// [`crate::Forwarder`]. The file is called after the address.
    pub fn kubeconfig_by(&self, address: SocketAddr) -> Result<PathBuf, Error> {
        let plane = self.plane("give a kubeconfig file of its own")?;
        let failed = |path: &Path, source| Error::File {
            path: path.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(&plane.kubeconfig)
            .map_err(|source| failed(&plane.kubeconfig, source))?;
        let own = plane.address(Port::ApiServer).to_string();
        let path = plane
            .directory
            .join(format!("kubeconfig-{}", address.port()));
        std::fs::write(&path, text.replace(&own, &address.to_string()))
            .map_err(|source| failed(&path, source))?;
        Ok(path)
    }

    /// URL of the etcd that this cluster publishes into for its peers.
    pub fn mesh_etcd_endpoint(&self) -> Result<String, Error> {
        Ok(self
            .plane("run an etcd for the mesh")?
            .url(Port::MeshEtcdClient))
    }

    /// URL of the etcd that the second replica of the mesh publishes into, see [`Self::start_second`].
    pub fn second_mesh_etcd_endpoint(&self) -> Result<String, Error> {
        Ok(self
            .plane("run an etcd for the mesh")?
            .url(Port::SecondMeshEtcdClient))
    }

    /// Kills a process with SIGKILL and waits until its pid is gone. Those of Kubernetes come back by themselves with provider
    /// `kind`, as in other clusters: kubelet and systemd start them again.
    pub fn kill9(&self, component: impl Into<Component>) -> Result<(), Error> {
        let component = component.into();
        match self.kind_with(component) {
            Some(kind) => kind.signal(component, "KILL"),
            None => Ok(self.plane("kill processes")?.components.kill9(component)?),
        }
    }

    /// Stops a process where it is (SIGSTOP): connections to it stay open, and nobody answers.
    pub fn pause(&self, component: impl Into<Component>) -> Result<(), Error> {
        let component = component.into();
        match self.kind_with(component) {
            Some(kind) => kind.signal(component, "STOP"),
            None => Ok(self.plane("pause processes")?.components.pause(component)?),
        }
    }

    /// Lets a paused process go on (SIGCONT).
    pub fn resume(&self, component: impl Into<Component>) -> Result<(), Error> {
        let component = component.into();
        match self.kind_with(component) {
            Some(kind) => kind.signal(component, "CONT"),
            None => Ok(self
                .plane("resume processes")?
                .components
                .resume(component)?),
        }
    }

    /// Ends a process with SIGTERM, and with SIGKILL when it is still there after 10 s.
    pub async fn stop(&self, component: impl Into<Component>) -> Result<(), Error> {
        let component = component.into();
        if self.kind_with(component).is_some() {
            return Err(self
                .unsupported("keep processes of Kubernetes from coming back", "local")
                .into());
        }
        let plane = self.plane("stop processes")?;
        Ok(plane.components.stop(component).await?)
    }

    /// Starts a process again, on its ports and data, and waits until it is ready. One that runs is killed first.
    pub async fn restart(&self, component: impl Into<Component>) -> Result<(), Error> {
        let component = component.into();
        if let Some(kind) = self.kind_with(component) {
            return kind.restart(component).await;
        }
        let plane = self.plane("restart processes")?;
        Ok(plane.components.restart(component).await?)
    }

    /// Kills the mesh etcd and starts it with an empty data directory: same flags, same cluster id, no keys, and
    /// revisions that begin again at 1. No other component can be wiped.
    pub async fn wipe_and_restart(&self, component: impl Into<Component>) -> Result<(), Error> {
        Ok(self
            .plane("wipe processes")?
            .components
            .wipe_and_restart(component.into())
            .await?)
    }

    /// Pids of the processes that run.
    pub fn pids(&self) -> Result<BTreeMap<Component, u32>, Error> {
        Ok(self.plane("tell pids")?.components.pids())
    }

    /// Log files of the processes that were started.
    pub fn logs(&self) -> Result<BTreeMap<Component, PathBuf>, Error> {
        Ok(self.plane("show logs of processes")?.components.logs())
    }

    /// The last `lines` lines that a process wrote, over all its restarts.
    pub fn log_tail(&self, component: impl Into<Component>, lines: usize) -> Result<String, Error> {
        let log = self.logs()?.remove(&component.into()).unwrap_or_default();
        Ok(process::tail(&log, lines))
    }

    pub(crate) fn plane(&self, operation: &'static str) -> Result<&ControlPlane, ProviderError> {
        match &self.origin {
            Origin::Api(plane) => Ok(plane),
            Origin::Local(local) => Ok(&local.plane),
            Origin::Kind(kind) => Ok(&kind.plane),
            Origin::Context => Err(self.unsupported(operation, "api")),
        }
    }

    /// What provider `local` holds of this cluster.
    pub(crate) fn local(&self, operation: &'static str) -> Result<&LocalCluster, ProviderError> {
        match &self.origin {
            Origin::Local(local) => Ok(local),
            Origin::Api(_) | Origin::Kind(_) | Origin::Context => {
                Err(self.unsupported(operation, "local"))
            }
        }
    }

    /// What a provider with nodes holds of this cluster.
    pub(crate) fn nodes(&self, operation: &'static str) -> Result<Nodes<'_>, ProviderError> {
        match &self.origin {
            Origin::Local(local) => Ok(Nodes::Local(local)),
            Origin::Kind(kind) => Ok(Nodes::Kind(kind)),
            Origin::Api(_) | Origin::Context => Err(self.unsupported(operation, "local")),
        }
    }

    /// The kind cluster, for what runs in its node and not beside it.
    fn kind_with(&self, component: Component) -> Option<&KindCluster> {
        match &self.origin {
            Origin::Kind(kind) if component.is_of_kubernetes() => Some(kind),
            Origin::Api(_) | Origin::Local(_) | Origin::Kind(_) | Origin::Context => None,
        }
    }

    /// Whether its processes listen in the network namespace of this one.
    pub(crate) fn is_reached_from_here(&self) -> bool {
        matches!(self.dialer(), Dialer::Here)
    }

    pub(crate) fn unsupported(
        &self,
        operation: &'static str,
        instead: &'static str,
    ) -> ProviderError {
        ProviderError::Unsupported {
            provider: self.provider(),
            cluster: self.name.clone(),
            operation,
            instead,
        }
    }

    /// Name of the provider of this cluster: `api`, `local`, `kind` or `contexts`.
    pub fn provider(&self) -> &'static str {
        match &self.origin {
            Origin::Api(_) => "api",
            Origin::Local(_) => "local",
            Origin::Kind(_) => "kind",
            Origin::Context => "contexts",
        }
    }

    fn dialer(&self) -> Dialer {
        match &self.origin {
            Origin::Api(plane) => plane.site.dialer.clone(),
            Origin::Local(local) => local.plane.site.dialer.clone(),
            Origin::Kind(kind) => kind.plane.site.dialer.clone(),
            Origin::Context => Dialer::Here,
        }
    }

    pub(crate) fn api_error(&self, action: impl Into<String>, source: kube::Error) -> Error {
        let action = action.into();
        Error::Api {
            cluster: self.name.clone(),
            action,
            source: Box::new(source),
        }
    }
}
