//! Provider `local`: complete clusters on this machine, without Docker and without a registry.
//!
//! Each cluster is one node with a network namespace, a mount namespace and control groups of its own, in which etcd, the
//! control plane, containerd, kubelet, kube-proxy and CoreDNS run. The nodes are joined by a bridge in one more network
//! namespace, the hub. Nothing listens or changes in the network namespace of the machine: this process reaches the API
//! servers through sockets that were made inside (`dialer.rs`), and what a run made ends with it (`run.rs`).

mod cgroup;
mod config;
pub(crate) mod dns;
mod error;
mod image;
pub(crate) mod images;
pub(crate) mod links;
mod namespaces;
mod node;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::{try_join, try_join_all, try_join3};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node as KubeNode},
};
use kube::Api;
use tokio::sync::{OnceCell, oneshot};

pub use self::error::LocalError;
use self::{
    cgroup::Cgroups,
    namespaces::{Namespaces, Setup},
    node::{Node, node_name},
};
use crate::{
    Error,
    api::{ControlPlane, Network, in_file},
    assets::{Assets, NodeAssets},
    command::Invocation,
    run::Run,
    wait::{WaitError, eventually},
};

/// Longest wait for a node and for cluster DNS, when many clusters start on a busy machine. Two take 22 s on two busy cores.
const READY_BUDGET: Duration = Duration::from_mins(2);

/// Where nodes have directories of their own.
const OWN: [&str; 2] = ["/var", "/run"];

/// Name of the namespaces that join the nodes.
const HUB: &str = "hub";

/// What all clusters of a testbed share.
#[derive(Debug)]
pub(crate) struct Ground {
    hub: Namespaces,
    cgroups: Cgroups,
    assets: NodeAssets,
    run: Arc<Run>,
    base_images: OnceCell<PathBuf>,
    tombolo_image: OnceCell<PathBuf>,
    etcd_image: OnceCell<PathBuf>,
}

/// One cluster with a node.
#[derive(Debug)]
pub(crate) struct LocalCluster {
    // Processes end before the namespaces they are in: fields drop in this order.
    pub(crate) plane: ControlPlane,
    node: Node,
    ground: Arc<Ground>,
}

/// Starts `n` clusters and waits until their nodes and DNS are ready.
pub(crate) async fn start(
    run: &Arc<Run>,
    (assets, node_assets): (Assets, NodeAssets),
    n: usize,
) -> Result<Vec<LocalCluster>, Error> {
    let ground = Arc::new(Ground::make(run, node_assets).await?);
    let starting = ('a'..).take(n).enumerate().map(|(index, letter)| {
        let ground = Arc::clone(&ground);
        LocalCluster::start(ground, &assets, letter.to_string(), (index, n))
    });
    try_join_all(starting).await
}

impl Ground {
    async fn make(run: &Arc<Run>, assets: NodeAssets) -> Result<Self, Error> {
        let directory = run.directory();
        if OWN.iter().any(|own| directory.starts_with(own)) {
            let directory = directory.to_owned();
            return Err(LocalError::Directory { directory }.into());
        }
        let cgroups = Cgroups::make(run)?;
        cgroups.add_cluster(HUB)?;
        let own = directory.join(HUB);
        fs::create_dir_all(&own).map_err(in_file(&own))?;
        let setup = Setup {
            name: HUB.to_owned(),
            directory: own,
            mounts: false,
            script: include_str!("hub.sh"),
            arguments: Vec::new(),
        };
        let hub = Namespaces::make(run, &assets, cgroups.enter(HUB), setup).await?;
        Ok(Self {
            hub,
            cgroups,
            assets,
            run: Arc::clone(run),
            base_images: OnceCell::new(),
            tombolo_image: OnceCell::new(),
            etcd_image: OnceCell::new(),
        })
    }

    /// The archive of the images that every node has, made once.
    async fn base_images(&self) -> Result<&Path, Error> {
        let directory = self.run.directory().join("images/base-data");
        let make = || images::base(&directory, &self.assets);
        Ok(self.base_images.get_or_try_init(make).await?)
    }

    async fn tombolo_image(&self, binary: &Path) -> Result<&Path, Error> {
        let directory = self.run.directory().join("images/tombolo-data");
        let make = || images::tombolo(&directory, &self.assets, binary);
        Ok(self.tombolo_image.get_or_try_init(make).await?)
    }

    /// The name is that of the first call.
    async fn etcd_image(&self, name: &str, binary: &Path) -> Result<&Path, Error> {
        let directory = self.run.directory().join("images/etcd-data");
        let make = || images::etcd(&directory, &self.assets, name, binary);
        Ok(self.etcd_image.get_or_try_init(make).await?)
    }
}

impl LocalCluster {
    async fn start(
        ground: Arc<Ground>,
        assets: &Assets,
        name: String,
        (index, count): (usize, usize),
    ) -> Result<Self, Error> {
        let shared = (&ground.cgroups, &ground.hub);
        let run = &ground.run;
        let node = Node::make(run, &ground.assets, shared, (index, count), &name).await?;
        let network = Network::new(index).ok_or(Error::Count { asked: index + 1 })?;
        let site = node.site(network);
        let plane = ControlPlane::prepare(Arc::clone(run), name, index, site).await?;
        let cluster = Self {
            plane,
            node,
            ground,
        };
        cluster.start_processes(assets).await?;
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// Starts everything as soon as what it needs is there: an API server, and for pods containerd with its images.
    async fn start_processes(&self, assets: &Assets) -> Result<(), Error> {
        let (plane, node) = (&self.plane, &self.node);
        let runtime = async {
            let images = self.ground.base_images();
            let containerd = node.start_containerd(plane);
            let (images, ()) = try_join(images, containerd).await?;
            node.import(images).await
        };
        let (answers, answering) = oneshot::channel();
        let control_plane = async {
            plane.start_api_server(assets).await?;
            // The other side is gone when it failed.
            let _ = answers.send(());
            let controllers = async { Ok(plane.start_controller_manager(assets).await?) };
            try_join3(controllers, node.start_scheduler(plane), self.apply_dns()).await
        };
        let pods = async {
            runtime.await?;
            match answering.await {
                Ok(()) => node.start_kubelet_and_proxy(plane).await,
                // What keeps the API server from answering is the error of the control plane.
                Err(_) => Ok(()),
            }
        };
        let mesh_etcd = async { Ok(plane.start_mesh_etcd(assets).await?) };
        Box::pin(try_join3(control_plane, mesh_etcd, pods)).await?;
        Ok(())
    }

    async fn apply_dns(&self) -> Result<(), Error> {
        let failed = |source| self.api_error("create cluster DNS", source);
        let client = self.client().map_err(failed)?;
        // The API server makes it a moment after it is ready.
        let namespaces = Api::<Namespace>::all(client.clone());
        let made = eventually(READY_BUDGET, "the namespace kube-system", async || {
            let namespace = namespaces.get("kube-system").await;
            namespace.map(drop).map_err(|it| it.to_string())
        });
        made.await.map_err(|source| self.not_ready(source))?;
        dns::apply(&client, self.plane.network)
            .await
            .map_err(failed)
    }

    async fn wait_ready(&self) -> Result<(), Error> {
        let failed = |source| self.api_error("make a client", source);
        let client = self.client().map_err(failed)?;
        let nodes = Api::<KubeNode>::all(client.clone());
        let deployments = Api::<Deployment>::namespaced(client, "kube-system");
        let name = node_name(&self.plane.name);
        let node = eventually(READY_BUDGET, "a node that is ready", async || {
            let node = nodes.get(&name).await.map_err(|it| it.to_string())?;
            let status = node.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|it| it.type_ == "Ready" && it.status == "True");
            ready.then_some(()).ok_or_else(|| format!("{conditions:?}"))
        });
        let dns = eventually(READY_BUDGET, "cluster DNS that is ready", async || {
            let coredns = deployments.get("coredns").await;
            let status = coredns.map_err(|it| it.to_string())?.status;
            let status = status.unwrap_or_default();
            let ready = status.ready_replicas.unwrap_or_default() > 0;
            ready.then_some(()).ok_or_else(|| format!("{status:?}"))
        });
        let ready = try_join(node, dns).await;
        ready.map_err(|source| self.not_ready(source))?;
        Ok(())
    }

    fn not_ready(&self, source: WaitError) -> LocalError {
        LocalError::NotReady {
            cluster: self.plane.name.clone(),
            source,
        }
    }

    /// Makes Tombolo's image from this binary and gives it to the node; returns its name.
    pub(crate) async fn load_tombolo(&self, binary: &Path) -> Result<String, Error> {
        let archive = self.ground.tombolo_image(binary).await?;
        self.node.import(archive).await?;
        Ok(images::TOMBOLO_IMAGE.to_owned())
    }

    /// Makes etcd's image from this binary and gives it to the node.
    pub(crate) async fn load_etcd(&self, name: &str, binary: &Path) -> Result<(), Error> {
        let archive = self.ground.etcd_image(name, binary).await?;
        self.node.import(archive).await
    }

    /// Command that enters the network namespace which joins the nodes, and the control group of the run.
    pub(crate) fn enter_hub(&self) -> Vec<String> {
        let mut words = self.ground.cgroups.enter(HUB);
        words.extend(self.ground.hub.enter());
        words
    }

    /// Gives the node the images of an archive as `docker save` writes it.
    pub(crate) async fn load_images(&self, archive: &Path) -> Result<(), Error> {
        self.node.import(archive).await
    }

    /// A command that runs on the node, in its namespaces and control group.
    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Invocation {
        self.node.command(program, arguments)
    }

    /// Name of the Node.
    pub(crate) fn node_name(&self) -> String {
        node_name(&self.plane.name)
    }

    /// Command that enters the namespaces of the node, not its control group, and becomes what follows.
    pub(crate) fn enter_namespaces(&self) -> Vec<String> {
        self.node.enter_namespaces()
    }

    /// Pids of all processes of the run, pods included.
    pub(crate) fn all_pids(&self) -> Vec<u32> {
        self.ground.cgroups.pids()
    }

    fn client(&self) -> Result<kube::Client, kube::Error> {
        self.plane.site.dialer.client(&self.plane.config)
    }

    fn api_error(&self, action: &str, source: kube::Error) -> Error {
        Error::Api {
            cluster: self.plane.name.clone(),
            action: action.to_owned(),
            source: Box::new(source),
        }
    }
}
