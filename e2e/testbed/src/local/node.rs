//! One node: its namespaces, and containerd, kubelet, kube-proxy and the scheduler of its cluster.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    cgroup::Cgroups,
    config::{self, ProxyMode},
    namespaces::{Namespaces, Setup},
};
use crate::{
    Component, Error,
    api::{ControlPlane, Network, Pair, Port, Ports, Site, in_file, kubeconfig},
    assets::NodeAssets,
    command::Invocation,
    probe::Probe,
    run::Run,
};

/// Where kube-proxy says that it is healthy.
const PROXY_HEALTH_PORT: u16 = 10256;

/// What the node of a cluster is made of.
#[derive(Debug)]
pub(super) struct Node {
    assets: NodeAssets,
    namespaces: Namespaces,
    /// Command that puts a process into the control group and the namespaces of the node.
    enter: Vec<String>,
    cgroup_root: String,
    directory: PathBuf,
}

impl Node {
    /// Makes the namespaces of the node of cluster `index` of `count`, linked to the hub.
    pub(super) async fn make(
        run: &Arc<Run>,
        assets: &NodeAssets,
        (cgroups, hub): (&Cgroups, &Namespaces),
        (index, count): (usize, usize),
        cluster: &str,
    ) -> Result<Self, Error> {
        let directory = run.directory().join(cluster);
        fs::create_dir_all(&directory).map_err(in_file(&directory))?;
        cgroups.add_cluster(cluster)?;
        let network = Network::new(index).ok_or(Error::Count { asked: index + 1 })?;
        let (v4, v6) = network.node();
        let mut arguments = vec![
            directory.display().to_string(),
            hub.pid().to_string(),
            link_name(cluster),
            v4.to_string(),
            v6.to_string(),
        ];
        for other in (0..count)
            .filter(|it| *it != index)
            .filter_map(Network::new)
        {
            let (v4, v6) = other.node();
            let gateways = [v4.to_string(), v6.to_string()];
            for (range, gateway) in other.pod_ranges().into_iter().zip(gateways) {
                arguments.extend([range, gateway]);
            }
        }
        let setup = Setup {
            name: format!("{cluster}/namespaces"),
            directory: directory.clone(),
            mounts: true,
            script: include_str!("node.sh"),
            arguments,
        };
        let namespaces = Namespaces::make(run, assets, cgroups.enter(cluster), setup).await?;
        let mut enter = cgroups.enter(cluster);
        enter.extend(namespaces.enter());
        Ok(Self {
            assets: assets.clone(),
            namespaces,
            enter,
            cgroup_root: cgroups.root_of(cluster),
            directory,
        })
    }

    /// Where the control plane of the cluster runs: on this node.
    pub(super) fn site(&self, network: Network) -> Site {
        Site {
            ports: Ports::Node(network.node().0),
            dialer: self.namespaces.dialer(),
            enter: self.enter.clone(),
        }
    }

    /// Command that enters the namespaces of the node.
    pub(super) fn enter_namespaces(&self) -> Vec<String> {
        self.namespaces.enter()
    }

    /// A program of the system, to be run to its end on the node.
    pub(super) fn command(&self, program: &Path, arguments: &[&str]) -> Invocation {
        Invocation::new(&self.enter, program, arguments)
    }

    /// Starts containerd, which has no images at first.
    pub(super) async fn start_containerd(&self, plane: &ControlPlane) -> Result<(), Error> {
        let data = self.directory.join("containerd-data");
        let network = self.directory.join("cni");
        fs::create_dir_all(&network).map_err(in_file(&network))?;
        let addresses = self.directory.join("cni-data").display().to_string();
        let cni = config::cni(&addresses, &plane.network.first_node_ranges());
        write(&network.join("10-pods.conflist"), &cni.to_string())?;
        let plugins = self.assets.cni().display().to_string();
        let text = config::containerd(
            &data.display().to_string(),
            &plugins,
            &network.display().to_string(),
        );
        let file = self.directory.join("containerd.toml");
        write(&file, &text)?;
        let args = vec!["--config".to_owned(), file.display().to_string()];
        let probe = Probe::socket(self.namespaces.path("/run/containerd/containerd.sock"));
        let path = self.assets.program("containerd");
        Ok(plane
            .launch(Component::Containerd, &path, args, probe)
            .await?)
    }

    /// Gives containerd the images of an archive.
    pub(super) async fn import(&self, images: &Path) -> Result<(), Error> {
        let archive = images.display().to_string();
        let arguments = ["--namespace=k8s.io", "images", "import", &archive];
        let ctr = self.assets.program("ctr");
        self.command(&ctr, &arguments).succeed().await?;
        Ok(())
    }

    /// Starts the scheduler.
    pub(super) async fn start_scheduler(&self, plane: &ControlPlane) -> Result<(), Error> {
        let pair = plane.certificates.client("system:kube-scheduler")?;
        let kubeconfig = self.kubeconfig(plane, "kube-scheduler", &pair)?;
        let args = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", plane.certificates.file("run-scheduler")),
        ];
        // It has nothing to show but its pods; that the API server still answers is shown meanwhile.
        let probe = Probe::api_server(plane.site.dialer.clone(), plane.config.clone());
        let path = self.assets.binary("kube-scheduler");
        Ok(plane
            .launch(Component::Scheduler, &path, args, probe)
            .await?)
    }

    /// Starts kubelet, waits until it has made its Node, and starts kube-proxy, which needs that.
    pub(super) async fn start_kubelet_and_proxy(&self, plane: &ControlPlane) -> Result<(), Error> {
        let (v4, v6) = plane.network.node();
        let name = node_name(&plane.name);
        let ips: [IpAddr; 2] = [v4.into(), v6.into()];
        let pair = plane.certificates.kubelet(&name, &ips)?;
        let kubeconfig = self.kubeconfig(plane, "kubelet", &pair)?;
        let resolv_conf = self.directory.join("resolv.conf");
        write(&resolv_conf, "")?;
        let text = config::kubelet(&config::Kubelet {
            address: v4.into(),
            cgroup_root: self.cgroup_root.clone(),
            ca: plane.certificates.file("ca.crt"),
            certificate: plane.certificates.file("kubelet.crt"),
            key: plane.certificates.file("kubelet.key"),
            dns: &plane.network.dns()[0],
            resolv_conf: resolv_conf.display().to_string(),
        });
        let file = self.directory.join("kubelet.yaml");
        write(&file, &format!("{text:#}\n"))?;
        let args = vec![
            format!("--config={}", file.display()),
            format!("--kubeconfig={kubeconfig}"),
            "--root-dir=/var/lib/kubelet".to_owned(),
            format!("--hostname-override={name}"),
            format!("--node-ip={v4},{v6}"),
            format!("--node-labels={}=zone-{}", crate::ZONE_LABEL, plane.name),
        ];
        let probe = Probe::node(plane.site.dialer.clone(), plane.config.clone(), &name);
        let path = self.assets.binary("kubelet");
        plane.launch(Component::Kubelet, &path, args, probe).await?;
        self.start_proxy(plane, &name).await
    }

    async fn start_proxy(&self, plane: &ControlPlane, name: &str) -> Result<(), Error> {
        let pair = plane.certificates.client("system:kube-proxy")?;
        let kubeconfig = self.kubeconfig(plane, "kube-proxy", &pair)?;
        let mode = ProxyMode::of_cluster(plane.id);
        let text = config::kube_proxy(mode, name, &kubeconfig, &plane.network.pods());
        let file = self.directory.join("kube-proxy.yaml");
        write(&file, &format!("{text:#}\n"))?;
        let args = vec![format!("--config={}", file.display())];
        let address = (plane.network.node().0, PROXY_HEALTH_PORT).into();
        let probe = Probe::http(plane.site.dialer.clone(), address, "/healthz", "");
        let path = self.assets.binary("kube-proxy");
        Ok(plane
            .launch(Component::KubeProxy, &path, args, probe)
            .await?)
    }

    /// Writes the kubeconfig of a component, and gives its path.
    fn kubeconfig(&self, plane: &ControlPlane, name: &str, pair: &Pair) -> Result<String, Error> {
        let file = self.directory.join(format!("{name}.kubeconfig"));
        let server = plane.address(Port::ApiServer);
        write(
            &file,
            &kubeconfig(&plane.name, server, &plane.certificates.ca, pair),
        )?;
        Ok(file.display().to_string())
    }
}

/// Name of the node of a cluster.
pub(super) fn node_name(cluster: &str) -> String {
    format!("node-{cluster}")
}

/// Name of the node's link in the hub.
pub(super) fn link_name(cluster: &str) -> String {
    format!("to-{cluster}")
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(in_file(path))
}
