//! Provider `api`: etcd, kube-apiserver and kube-controller-manager as processes on loopback, and an etcd for the mesh.

mod certificates;
mod flags;
mod network;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::config::{KubeConfigOptions, Kubeconfig};

use self::certificates::Certificates;
pub(crate) use self::network::{MAX_CLUSTERS, Network, Port, Ports};
pub use self::{certificates::CertificateError, network::PortError};
use crate::{
    Component, Error,
    assets::Assets,
    component::{ComponentError, Components, Managed},
    probe::Probe,
    process::{Process, Program},
    roles::replaces,
    run::Run,
};

/// What this provider holds for one cluster.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) network: Network,
    pub(crate) ports: Ports,
    pub(crate) directory: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) config: kube::Config,
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
        let network = Network::new(index).ok_or(Error::Count { asked: index + 1 })?;
        let ports = Ports::claim()?;
        let directory = run.directory().join(&name);
        let certificates_directory = directory.join("certificates");
        fs::create_dir_all(&certificates_directory).map_err(in_file(&certificates_directory))?;
        let certificates = Certificates::make(&certificates_directory, &network.first_services())?;
        let kubeconfig = directory.join("kubeconfig");
        let (text, config) = admin_config(&name, &certificates, &ports).await?;
        fs::write(&kubeconfig, text).map_err(in_file(&kubeconfig))?;
        let plane = Self {
            id: u32::try_from(index + 1).unwrap_or(u32::MAX),
            components: Components::new(&name),
            name,
            network,
            ports,
            directory,
            kubeconfig,
            config,
            run,
        };
        plane.start_components(assets, &certificates).await?;
        Ok(plane)
    }

    async fn start_components(
        &self,
        assets: &Assets,
        certificates: &Certificates,
    ) -> Result<(), ComponentError> {
        let kubernetes = async {
            self.launch_etcd(Component::Etcd, assets, Port::EtcdClient, Port::EtcdPeer)
                .await?;
            let flags = flags::api_server(certificates, self.network, &self.ports);
            let probe = Probe::ApiServer(self.config.clone());
            self.launch(Component::ApiServer, &assets.kube_apiserver, flags, probe)
                .await?;
            let kubeconfig = self.kubeconfig.display().to_string();
            let flags = flags::controller_manager(certificates, self.network, &kubeconfig);
            let probe = Probe::ControllerManager(self.config.clone());
            let path = &assets.kube_controller_manager;
            self.launch(Component::ControllerManager, path, flags, probe)
                .await
        };
        let (client, peer) = (Port::MeshEtcdClient, Port::MeshEtcdPeer);
        let mesh = self.launch_etcd(Component::MeshEtcd, assets, client, peer);
        futures::future::try_join(kubernetes, mesh).await?;
        Ok(())
    }

    async fn launch_etcd(
        &self,
        component: Component,
        assets: &Assets,
        client: Port,
        peer: Port,
    ) -> Result<(), ComponentError> {
        let data = self.directory.join(format!("{component}-data"));
        let flags = flags::etcd(&data.display().to_string(), &self.ports, client, peer);
        let address = self.ports.address(client);
        let probe = Probe::Http {
            address,
            path: "/health",
            expect: "true",
        };
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
        let mut flags = flags::etcd(&data.display().to_string(), &self.ports, client, peer);
        flags.retain(|flag| !extra.iter().any(|extra| replaces(extra, flag)));
        flags.extend(extra.iter().map(|&flag| flag.to_owned()));
        let probe = Probe::Http {
            address: metrics,
            path: "/readyz",
            expect: "",
        };
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

fn in_file(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

/// The administrator's kubeconfig, as text and as a client's configuration.
async fn admin_config(
    name: &str,
    certificates: &Certificates,
    ports: &Ports,
) -> Result<(String, kube::Config), Error> {
    let encode = |pem: &str| data_encoding::BASE64.encode(pem.as_bytes());
    let json = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{ "name": name, "cluster": {
            "server": format!("https://{}", ports.address(Port::ApiServer)),
            "certificate-authority-data": encode(&certificates.ca),
        }}],
        "users": [{ "name": name, "user": {
            "client-certificate-data": encode(&certificates.admin_certificate),
            "client-key-data": encode(&certificates.admin_key),
        }}],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    let text = format!("{json:#}\n");
    let kubeconfig = Kubeconfig::from_yaml(&text)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok((text, config))
}
