//! Control planes: etcd, kube-apiserver and kube-controller-manager as processes, and an etcd for the mesh.
//!
//! On loopback they are all that provider `api` has; inside the namespaces of a node they are the control plane of
//! provider `local` (see [`Site`]).

mod certificates;
mod flags;
mod kubeconfig;
mod network;

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(feature = "containers")]
pub(crate) use self::flags::etcd as etcd_flags;
pub use self::{
    certificates::CertificateError,
    network::{ClaimedPorts, PortError},
};
pub(crate) use self::{
    certificates::{Certificates, Pair},
    kubeconfig::kubeconfig,
    network::{MAX_CLUSTERS, Network, Port, Ports},
};
use crate::{
    Component, Error,
    assets::Assets,
    component::{ComponentError, Components, Managed},
    dialer::Dialer,
    probe::Probe,
    process::{Process, Program},
    roles::replaces,
    run::Run,
};

/// Where the processes of a control plane run and listen.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) ports: Ports,
    /// How this process reaches them.
    pub(crate) dialer: Dialer,
    /// Command that becomes each of the programs, see [`Program`].
    pub(crate) enter: Vec<String>,
}

impl Site {
    /// Ports on 127.0.0.1 of this machine.
    pub(crate) fn loopback() -> Result<Self, PortError> {
        Ok(Self {
            ports: Ports::claim()?,
            dialer: Dialer::Here,
            enter: Vec::new(),
        })
    }

    /// Addresses of the API server besides 127.0.0.1.
    fn server_ips(&self, network: Network) -> Vec<IpAddr> {
        let mut ips = network.first_services().to_vec();
        if let Ports::Node(ip) = self.ports {
            ips.push(ip.into());
        }
        ips
    }
}

/// The processes of one control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) network: Network,
    pub(crate) site: Site,
    pub(crate) directory: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) config: kube::Config,
    pub(crate) certificates: Certificates,
    pub(crate) components: Components,
    run: Arc<Run>,
}

impl ControlPlane {
    /// Starts the cluster with this index (0 is the first, with id 1) and waits until it works.
    pub(crate) async fn start(
        run: Arc<Run>,
        assets: &Assets,
        name: String,
        index: usize,
    ) -> Result<Self, Error> {
        let plane = Self::prepare(run, name, index, Site::loopback()?).await?;
        plane.start_components(assets).await?;
        Ok(plane)
    }

    /// Writes the files of a control plane of which nothing runs yet.
    pub(crate) async fn prepare(
        run: Arc<Run>,
        name: String,
        index: usize,
        site: Site,
    ) -> Result<Self, Error> {
        let network = Network::new(index).ok_or(Error::Count { asked: index + 1 })?;
        let directory = run.directory().join(&name);
        let certificates = certificates(&directory, &site.server_ips(network))?;
        let server = site.ports.address(Port::ApiServer);
        let text = kubeconfig(&name, server, &certificates.ca, &certificates.admin);
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, &text).map_err(in_file(&kubeconfig))?;
        Self::with(
            run,
            name,
            (index, network),
            site,
            (kubeconfig, &text),
            certificates,
        )
        .await
    }

    /// What runs beside a cluster that was made otherwise, with a kubeconfig file and its text: Tombolo's roles and the etcd
    /// of the mesh. Nothing runs yet.
    pub(crate) async fn beside(
        run: Arc<Run>,
        name: String,
        index: usize,
        site: Site,
        kubeconfig: (PathBuf, &str),
    ) -> Result<Self, Error> {
        let network = Network::new(index).ok_or(Error::Count { asked: index + 1 })?;
        // No server of these trusts them.
        let certificates = certificates(&run.directory().join(&name), &[])?;
        Self::with(run, name, (index, network), site, kubeconfig, certificates).await
    }

    async fn with(
        run: Arc<Run>,
        name: String,
        (index, network): (usize, Network),
        site: Site,
        (kubeconfig, text): (PathBuf, &str),
        certificates: Certificates,
    ) -> Result<Self, Error> {
        let directory = run.directory().join(&name);
        Ok(Self {
            id: u32::try_from(index + 1).unwrap_or(u32::MAX),
            components: Components::new(&name),
            config: kubeconfig::config(text).await?,
            name,
            network,
            site,
            directory,
            kubeconfig,
            certificates,
            run,
        })
    }

    /// Starts the processes and waits until they work.
    pub(crate) async fn start_components(&self, assets: &Assets) -> Result<(), ComponentError> {
        let kubernetes = async {
            self.start_api_server(assets).await?;
            self.start_controller_manager(assets).await
        };
        futures::future::try_join(kubernetes, self.start_mesh_etcd(assets)).await?;
        Ok(())
    }

    /// Starts etcd and the API server, and waits until that answers.
    pub(crate) async fn start_api_server(&self, assets: &Assets) -> Result<(), ComponentError> {
        self.launch_etcd(Component::Etcd, assets, Port::EtcdClient, Port::EtcdPeer)
            .await?;
        let flags = flags::api_server(&self.certificates, self.network, &self.site.ports);
        let probe = Probe::api_server(self.site.dialer.clone(), self.config.clone());
        self.launch(Component::ApiServer, &assets.kube_apiserver, flags, probe)
            .await
    }

    /// Starts the controller manager, for which the API server must answer, and waits until it has done some work.
    pub(crate) async fn start_controller_manager(
        &self,
        assets: &Assets,
    ) -> Result<(), ComponentError> {
        let (ports, kubeconfig) = (&self.site.ports, self.kubeconfig.display().to_string());
        let flags = flags::controller_manager(&self.certificates, self.network, ports, &kubeconfig);
        let probe = Probe::controller_manager(self.site.dialer.clone(), self.config.clone());
        let path = &assets.kube_controller_manager;
        self.launch(Component::ControllerManager, path, flags, probe)
            .await
    }

    /// Starts the etcd of the mesh and waits until it works.
    pub(crate) async fn start_mesh_etcd(&self, assets: &Assets) -> Result<(), ComponentError> {
        let (client, peer) = (Port::MeshEtcdClient, Port::MeshEtcdPeer);
        self.launch_etcd(Component::MeshEtcd, assets, client, peer)
            .await
    }

    /// Where one of the servers listens.
    pub(crate) fn address(&self, port: Port) -> SocketAddr {
        self.site.ports.address(port)
    }

    /// URL of one of them, without TLS.
    pub(crate) fn url(&self, port: Port) -> String {
        self.site.ports.url(port)
    }

    async fn launch_etcd(
        &self,
        component: Component,
        assets: &Assets,
        client: Port,
        peer: Port,
    ) -> Result<(), ComponentError> {
        let data = self.directory.join(format!("{component}-data"));
        let ports = &self.site.ports;
        let flags = flags::etcd(&data.display().to_string(), ports, client, peer);
        let dialer = self.site.dialer.clone();
        let probe = Probe::http(dialer, ports.address(client), "/health", "true");
        let mut managed = self.managed(component, &assets.etcd, flags, probe);
        let of_mesh = matches!(component, Component::MeshEtcd | Component::SecondMeshEtcd);
        managed.data = of_mesh.then_some(data);
        self.components.launch(component, managed).await
    }

    /// Starts the etcd of the second replica of the mesh, unless it runs.
    pub(crate) async fn launch_second_mesh_etcd(&self) -> Result<(), Error> {
        let component = Component::SecondMeshEtcd;
        if self.components.pids().contains_key(&component) {
            return Ok(());
        }
        let assets = Assets::find()?;
        let (client, peer) = (Port::SecondMeshEtcdClient, Port::SecondMeshEtcdPeer);
        Ok(self.launch_etcd(component, &assets, client, peer).await?)
    }

    /// Starts the same with further flags, which take the place of those of the same name; it is ready when `metrics` says so.
    pub(crate) async fn launch_second_mesh_etcd_with(
        &self,
        extra: &[&str],
        metrics: SocketAddr,
    ) -> Result<(), Error> {
        let component = Component::SecondMeshEtcd;
        let assets = Assets::find()?;
        let (client, peer) = (Port::SecondMeshEtcdClient, Port::SecondMeshEtcdPeer);
        let data = self.directory.join(format!("{component}-data"));
        let mut flags = flags::etcd(&data.display().to_string(), &self.site.ports, client, peer);
        flags.retain(|flag| !extra.iter().any(|extra| replaces(extra, flag)));
        flags.extend(extra.iter().map(|&flag| flag.to_owned()));
        let probe = Probe::http(self.site.dialer.clone(), metrics, "/readyz", "");
        Ok(self.launch(component, &assets.etcd, flags, probe).await?)
    }

    /// Starts one more program as a component of this cluster, waits until it is ready.
    pub(crate) async fn launch(
        &self,
        component: Component,
        path: &Path,
        args: Vec<String>,
        probe: Probe,
    ) -> Result<(), ComponentError> {
        let managed = self.managed(component, path, args, probe);
        self.components.launch(component, managed).await
    }

    /// One more program as a component of this cluster, not started yet.
    pub(crate) fn managed(
        &self,
        component: Component,
        path: &Path,
        args: Vec<String>,
        probe: Probe,
    ) -> Managed {
        let program = Program {
            name: format!("{}/{component}", self.name),
            enter: self.site.enter.clone(),
            path: path.to_owned(),
            args,
            environment: Vec::new(),
            log: self.directory.join(format!("{component}.log")),
        };
        Managed {
            process: Process::new(program, Arc::clone(&self.run)),
            probe,
            data: None,
        }
    }
}

fn certificates(directory: &Path, ips: &[IpAddr]) -> Result<Certificates, Error> {
    let directory = directory.join("certificates");
    fs::create_dir_all(&directory).map_err(in_file(&directory))?;
    Ok(Certificates::make(&directory, ips)?)
}

pub(crate) fn in_file(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
