//! Provider `kind`: clusters of one node each, a container that kind makes; `kind/` has what they are made of.
//!
//! The engine is the user's or a private one ([`Engine`](crate::Engine)); API servers are reached where it publishes ports, and
//! that is where the mesh runs that a test starts beside the clusters. The nodes are on one network and get routes to each
//! other's pods. Containers are removed by the watchdog of the run, however it ends.

mod config;
mod error;
mod faults;
mod tools;

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::try_join_all;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use tokio::sync::OnceCell;

pub use self::{
    error::KindError,
    tools::{KindTools, MissingKind},
};
use crate::{
    Error, LocalError, WaitError,
    api::{ControlPlane, Network, Ports, Site, in_file},
    assets::{Assets, NodeAssets},
    command::Invocation,
    local::{dns, images},
    probe::Probe,
    run::Run,
    wait::eventually,
};
pub(crate) use tools::named_image;

/// Longest that making a cluster may take, with what it pulls.
const CREATE_BUDGET: Duration = Duration::from_mins(10);

/// Longest wait for cluster DNS, and for a process that comes back.
const READY_BUDGET: Duration = Duration::from_mins(3);

/// Copies a directory by hard links where that is possible, except databases, which are written in place.
const COPY: &str = r#"set -eu
cp -al "$1" "$2" 2>/dev/null || { rm -rf "$2"; cp -a --reflink=auto "$1" "$2"; }
find "$2" -name '*.db' -exec sh -c 'cp -p "$1" "$1.own" && mv "$1.own" "$1"' sh {} \;"#;

/// What all clusters of a testbed share.
#[derive(Debug)]
pub(crate) struct Ground {
    tools: KindTools,
    kubectl: PathBuf,
    run: Arc<Run>,
    tombolo_image: OnceCell<PathBuf>,
    workload_images: OnceCell<PathBuf>,
    etcd_image: OnceCell<PathBuf>,
}

/// One cluster.
#[derive(Debug)]
pub(crate) struct KindCluster {
    pub(crate) plane: ControlPlane,
    /// Name for kind.
    kind_name: String,
    /// Name of the container, which is that of the Node.
    pub(crate) node: String,
    container_id: String,
    ground: Arc<Ground>,
}

/// Starts `n` clusters, joins their pods by routes, and waits until their DNS is ready.
pub(crate) async fn start(
    run: &Arc<Run>,
    tools: KindTools,
    n: usize,
) -> Result<Vec<KindCluster>, Error> {
    tools.have_image().await?;
    let ground = Arc::new(Ground {
        tools,
        kubectl: Assets::kubectl()?,
        run: Arc::clone(run),
        tombolo_image: OnceCell::new(),
        workload_images: OnceCell::new(),
        etcd_image: OnceCell::new(),
    });
    let starting = ('a'..)
        .take(n)
        .enumerate()
        .map(|(index, letter)| KindCluster::create(Arc::clone(&ground), letter.to_string(), index));
    let clusters = try_join_all(starting).await?;
    let addresses = try_join_all(clusters.iter().map(KindCluster::addresses)).await?;
    for (cluster, own) in clusters.iter().zip(&addresses) {
        for (peer, via) in clusters
            .iter()
            .zip(&addresses)
            .filter(|(_, via)| *via != own)
        {
            cluster.route_to(peer.plane.network, *via).await?;
        }
    }
    try_join_all(clusters.iter().map(KindCluster::finish)).await?;
    Ok(clusters)
}

impl KindCluster {
    async fn create(ground: Arc<Ground>, name: String, index: usize) -> Result<Self, Error> {
        let network = Network::new(index).ok_or(Error::Count { asked: index + 1 })?;
        let directory = ground.run.directory().join(&name);
        fs::create_dir_all(&directory).map_err(in_file(&directory))?;
        let kind_name = format!("{}-{name}", unique());
        let node = format!("{kind_name}-control-plane");
        ground.run.add_container(&node).map_err(Error::Run)?;
        let containerd = ground.copy_of_seed(&directory).await?;
        let file = directory.join("kind.yaml");
        fs::write(&file, config::cluster(network, containerd.as_deref()))
            .map_err(in_file(&file))?;
        let kubeconfig = directory.join("kubeconfig");
        ground.create(&kind_name, &file, &kubeconfig).await?;
        ground
            .rename_context(&kind_name, &name, &kubeconfig)
            .await?;
        let engine = &ground.tools.engine;
        let container_id = engine
            .ask(&["inspect", "--format", "{{.Id}}", &node])
            .await?;
        let text = fs::read_to_string(&kubeconfig).map_err(in_file(&kubeconfig))?;
        let site = Site {
            ports: Ports::claim_beside(server(&name, &text)?)?,
            dialer: engine.dialer(),
            enter: engine.enter(),
        };
        let run = Arc::clone(&ground.run);
        let plane = ControlPlane::beside(run, name, index, site, (kubeconfig, &text)).await?;
        Ok(Self {
            plane,
            kind_name,
            node,
            container_id,
            ground,
        })
    }

    /// Addresses of the node in the network of the nodes, one of each family.
    async fn addresses(&self) -> Result<[IpAddr; 2], Error> {
        let format =
            "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}}{{end}}";
        let said = self
            .ground
            .tools
            .engine
            .ask(&["inspect", "--format", format, &self.node])
            .await?;
        let parsed: Option<Vec<IpAddr>> =
            said.split_whitespace().map(|it| it.parse().ok()).collect();
        match parsed.as_deref() {
            Some(&[v4, v6]) => Ok([v4, v6]),
            Some(_) | None => Err(KindError::Addresses {
                node: self.node.clone(),
                said,
            }
            .into()),
        }
    }

    async fn route_to(&self, peer: Network, via: [IpAddr; 2]) -> Result<(), Error> {
        for (range, via) in peer.pod_ranges().iter().zip(via) {
            let family = if via.is_ipv4() { "-4" } else { "-6" };
            let route = [family, "route", "replace", range, "via", &via.to_string()];
            self.command("ip", &route).succeed().await?;
        }
        Ok(())
    }

    /// Gives the cluster the DNS that clusters of provider `local` have, starts the mesh's etcd, and waits until DNS is ready.
    async fn finish(&self) -> Result<(), Error> {
        let failed = |action: &str, source| self.api_error(action, source);
        let client = self.plane.site.dialer.client(&self.plane.config);
        let client = client.map_err(|it| failed("make a client", it))?;
        let workload = async {
            if self.ground.tools.seed.is_some() {
                self.load_images(self.ground.workload_images().await?)
                    .await?;
            }
            Ok::<_, Error>(())
        };
        let dns = async {
            let configured = dns::configure(&client).await;
            configured.map_err(|it| failed("configure cluster DNS", it))?;
            let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
            let ours = ListParams::default().labels("k8s-app=kube-dns");
            let now = DeleteParams::default().grace_period(0);
            let restarted = pods.delete_collection(&now, &ours).await;
            restarted.map_err(|it| failed("restart cluster DNS", it))?;
            Ok(())
        };
        futures::future::try_join(workload, dns).await?;
        self.plane.start_mesh_etcd(&Assets::find()?).await?;
        let deployments = Api::<Deployment>::namespaced(client, "kube-system");
        let ready = eventually(READY_BUDGET, "cluster DNS that is ready", async || {
            let coredns = deployments.get("coredns").await;
            let coredns = coredns.map_err(|it| it.to_string())?;
            let wanted = coredns.spec.replicas.unwrap_or(1);
            let status = coredns.status.unwrap_or_default();
            let ready = status.ready_replicas == Some(wanted);
            ready.then_some(()).ok_or_else(|| format!("{status:?}"))
        });
        ready.await.map_err(|source| self.not_ready(source))
    }

    /// Gives the node the images of an archive as `docker save` writes it.
    pub(crate) async fn load_images(&self, archive: &Path) -> Result<(), Error> {
        let archive = archive.display().to_string();
        let words = ["load", "image-archive", &archive, "--name", &self.kind_name];
        self.ground.kind(&words).succeed().await?;
        Ok(())
    }

    /// Gives the node an image that is in the engine; returns its name.
    pub(crate) async fn load_from_engine(&self, image: String) -> Result<String, Error> {
        let words = ["load", "docker-image", &image, "--name", &self.kind_name];
        self.ground.kind(&words).succeed().await?;
        Ok(image)
    }

    /// Makes Tombolo's image from this binary and gives it to the node; returns its name.
    pub(crate) async fn load_tombolo(&self, binary: &Path) -> Result<String, Error> {
        self.load_images(self.ground.tombolo_image(binary).await?)
            .await?;
        Ok(images::TOMBOLO_IMAGE.to_owned())
    }

    /// Makes etcd's image from this binary and gives it to the node.
    pub(crate) async fn load_etcd(&self, name: &str, binary: &Path) -> Result<(), Error> {
        let archive = self.ground.etcd_image(name, binary).await?;
        self.load_images(archive).await
    }

    /// Command that goes where the API server is reached, and becomes what follows.
    pub(crate) fn enter(&self) -> &[String] {
        &self.plane.site.enter
    }

    /// Pids of the processes in the node, pods included, as seen from this machine.
    pub(crate) fn all_pids(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let own = processes.filter(|it| {
            let groups = fs::read_to_string(it.path().join("cgroup")).unwrap_or_default();
            groups.contains(&self.container_id)
        });
        own.filter_map(|it| it.file_name().to_str()?.parse().ok())
            .collect()
    }

    fn api_server(&self) -> Probe {
        Probe::api_server(self.plane.site.dialer.clone(), self.plane.config.clone())
    }

    fn not_ready(&self, source: WaitError) -> Error {
        let cluster = self.plane.name.clone();
        LocalError::NotReady { cluster, source }.into()
    }

    fn api_error(&self, action: &str, source: kube::Error) -> Error {
        Error::Api {
            cluster: self.plane.name.clone(),
            action: action.to_owned(),
            source: Box::new(source),
        }
    }
}

impl Ground {
    fn kind(&self, arguments: &[&str]) -> Invocation {
        let enter = self.tools.engine.enter();
        Invocation::new(&enter, &self.tools.kind, arguments).within(CREATE_BUDGET)
    }

    async fn create(&self, name: &str, config: &Path, kubeconfig: &Path) -> Result<(), Error> {
        let config = config.display().to_string();
        let kubeconfig = kubeconfig.display().to_string();
        let words = [
            "create",
            "cluster",
            "--name",
            name,
            "--config",
            &config,
            "--image",
            &self.tools.image,
            "--kubeconfig",
            &kubeconfig,
            "--wait",
            "3m",
        ];
        // Ended with the run: else it would go on with a container that is removed meanwhile.
        let watched = self.kind(&words).watched(Arc::clone(&self.run), "kind");
        watched.succeed().await?;
        Ok(())
    }

    async fn rename_context(
        &self,
        kind_name: &str,
        name: &str,
        kubeconfig: &Path,
    ) -> Result<(), Error> {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let old = format!("kind-{kind_name}");
        let words = [&kubeconfig, "config", "rename-context", &old, name];
        Invocation::new(&[], &self.kubectl, &words)
            .succeed()
            .await?;
        Ok(())
    }

    /// The images that a node starts with, in a directory of its own; none where nodes get them from registries.
    async fn copy_of_seed(&self, directory: &Path) -> Result<Option<PathBuf>, Error> {
        let Some(seed) = &self.tools.seed else {
            return Ok(None);
        };
        let own = directory.join("containerd-data");
        let [from, to] = [seed, &own].map(|it| it.display().to_string());
        let words = ["-c", COPY, "sh", &from, &to];
        Invocation::new(&[], Path::new("sh"), &words)
            .succeed()
            .await?;
        Ok(Some(own))
    }

    async fn tombolo_image(&self, binary: &Path) -> Result<&Path, Error> {
        let directory = self.run.directory().join("images/tombolo-data");
        let programs = NodeAssets::programs_only();
        let make = || images::tombolo(&directory, &programs, binary);
        Ok(self.tombolo_image.get_or_try_init(make).await?)
    }

    /// The name is that of the first call.
    async fn etcd_image(&self, name: &str, binary: &Path) -> Result<&Path, Error> {
        let directory = self.run.directory().join("images/etcd-data");
        let programs = NodeAssets::programs_only();
        let make = || images::etcd(&directory, &programs, name, binary);
        Ok(self.etcd_image.get_or_try_init(make).await?)
    }

    async fn workload_images(&self) -> Result<&Path, Error> {
        let directory = self.run.directory().join("images/workload-data");
        let programs = NodeAssets::programs_only();
        let make = || images::workload_archive(&directory, &programs);
        Ok(self.workload_images.get_or_try_init(make).await?)
    }
}

/// The address of the API server in a kubeconfig.
fn server(cluster: &str, kubeconfig: &str) -> Result<SocketAddr, Error> {
    let server = kubeconfig
        .lines()
        .find_map(|it| it.trim().strip_prefix("server: "));
    let url = server.unwrap_or_default().to_owned();
    let address = url.strip_prefix("https://").and_then(|it| it.parse().ok());
    address.ok_or_else(|| {
        let cluster = cluster.to_owned();
        KindError::Server { cluster, url }.into()
    })
}

/// The first part of a name that no other program uses that runs on this machine.
fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("tombolo-{:x}-{count}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_api_server_is_that_of_the_kubeconfig() {
        let text = "clusters:\n- cluster:\n    server: https://127.0.0.1:41234\n";

        let address = server("a", text).unwrap();

        assert_eq!(address.to_string(), "127.0.0.1:41234");
        let error = server("a", "server: https://example:6443\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("https://example:6443"), "{error}");
    }
}
