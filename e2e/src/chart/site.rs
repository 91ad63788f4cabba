//! A release in a cluster without nodes, with its pods' processes started as a kubelet would: with the flags, files, certificates
//! and tokens of the pod, and the files kept up to date.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tombolo_testbed::{ClaimedPorts, Cluster, Role, Testbed};

use super::{
    Account, Installation, Manifests,
    helm::NAMESPACE,
    pods::{self, Source},
};

/// Flags of etcd that say where the testbed keeps it.
const PLACES: [&str; 5] = [
    "--data-dir",
    "--name",
    "--listen-peer-urls",
    "--initial-advertise-peer-urls",
    "--initial-cluster",
];

/// The Deployment and container of each role.
const ROLES: [(Role, &str, &str); 2] = [
    (Role::Mesh, "tombolo-mesh", "mesh"),
    (Role::Operator, "tombolo-operator", "operator"),
];

/// A release with processes.
pub struct Site<'t> {
    /// The release.
    pub release: Installation<'t>,
    /// What was installed.
    pub manifests: Manifests,
    /// Where its etcd listens.
    pub etcd: SocketAddr,
    /// For the metrics of its etcd.
    ports: ClaimedPorts,
    directory: PathBuf,
    pods_address: Option<IpAddr>,
}

impl<'t> Site<'t> {
    /// A release that was installed in a cluster of a testbed; nothing runs yet.
    pub fn of(testbed: &'t Testbed, release: Installation<'t>) -> Result<Self> {
        let cluster = release.cluster();
        let directory = testbed.directory().join(format!("site-{}", cluster.name()));
        fs::create_dir_all(&directory)?;
        Ok(Self {
            manifests: release.manifests()?,
            etcd: etcd_address(cluster)?,
            ports: ClaimedPorts::claim()?,
            release,
            directory,
            pods_address: None,
        })
    }

    /// The same, with processes that the API server takes for those of running pods at this address of the machine.
    pub fn in_pods_at(self, address: IpAddr) -> Self {
        Self {
            pods_address: Some(address),
            ..self
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &'t Cluster {
        self.release.cluster()
    }

    /// Starts the etcd of the mesh role.
    pub async fn start_etcd(&self) -> Result<()> {
        let here = format!("https://{}", self.etcd);
        let [metrics, _] = self.ports.addresses();
        let words = [
            ("https://0.0.0.0:2379", here.as_str()),
            ("https://127.0.0.1:2379", here.as_str()),
            ("http://0.0.0.0:9963", &format!("http://{metrics}")),
            ("$(POD_UID)", self.cluster().name()),
        ];
        let mut flags = self.prepared("tombolo-mesh", "etcd", &words).await?;
        flags.retain(|flag| {
            let mut places = PLACES.iter();
            !places.any(|place| flag.starts_with(&format!("{place}=")))
        });
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let cluster = self.cluster();
        Ok(cluster.start_second_mesh_etcd_with(&flags, metrics).await?)
    }

    /// Starts the mesh role; it becomes ready only where an operator installs the definitions.
    pub async fn start_mesh(&self) -> Result<()> {
        self.start(Role::Mesh).await
    }

    /// Starts the operator.
    pub async fn start_operator(&self) -> Result<()> {
        self.start(Role::Operator).await
    }

    async fn start(&self, role: Role) -> Result<()> {
        let (deployment, container) = names(role);
        let account = self.account(deployment).await?;
        let words = self.words();
        let words = words
            .each_ref()
            .map(|(word, instead)| (*word, instead.as_str()));
        let mut flags = self.prepared(deployment, container, &words).await?;
        // The first two are the names of the command and the role.
        flags.drain(..2);
        flags.retain(|flag| !flag.starts_with("--health-address="));
        if let Some(address) = self.pods_address {
            let port = self.cluster().role_address(role)?.port();
            flags.push(format!("--health-address=0.0.0.0:{port}"));
            self.make_pod(container, address, port).await?;
        }
        flags.push(format!("--kubeconfig={}", account.kubeconfig.display()));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        Ok(self.cluster().start_role(role, &flags).await?)
    }

    /// A pod object by which the API server reaches a process.
    async fn make_pod(&self, name: &str, address: IpAddr, port: u16) -> Result<()> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "tombolo"}},
            "spec": {"containers": [{"name": name, "image": "tombolo", "ports": [{"name": "health", "containerPort": port}]}]},
        }))?;
        // Pods of the release's namespace have to satisfy a standard that says nothing about processes.
        let pods = Api::<Pod>::namespaced(self.cluster().client(), "default");
        if pods.get_opt(name).await?.is_none() {
            pods.create(&PostParams::default(), &pod).await?;
        }
        let status =
            json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        let params = PatchParams::default();
        pods.patch_status(name, &params, &Patch::Merge(status))
            .await?;
        Ok(())
    }

    /// Brings the mounted files of both roles up to date, as a kubelet does.
    pub async fn renew_files(&self) -> Result<()> {
        let words = self.words();
        let words = words
            .each_ref()
            .map(|(word, instead)| (*word, instead.as_str()));
        for (_, deployment, container) in ROLES {
            let root = self.directory.join(container);
            let pod = self.pod(deployment)?;
            pod.mount(container, &self.source(), &root, &words).await?;
        }
        Ok(())
    }

    /// An account of the release.
    pub async fn account(&self, name: &str) -> Result<Account> {
        self.release.account(name, &self.directory).await
    }

    /// `tombolo status` finds nothing to complain about.
    pub async fn is_well(&self) -> Result<()> {
        let mut command = tokio::process::Command::new(tombolo_testbed::tombolo().await?);
        command.args(["status", "--wait", "--timeout", "60s"]);
        for (role, ..) in ROLES {
            let address = self.cluster().role_address(role)?;
            command.arg(format!("--address=http://{address}"));
        }
        let output = command.output().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}: {text}", self.cluster().name());
        Ok(())
    }

    /// What in files of pods is another address here.
    fn words(&self) -> [(&'static str, String); 2] {
        let here = format!("https://{}", self.etcd);
        let own = "https://clustermesh-apiserver.tombolo-system.svc:2379";
        [("https://127.0.0.1:2379", here.clone()), (own, here)]
    }

    fn pod(&self, deployment: &'static str) -> Result<pods::Pod<'_>> {
        let found = self.manifests.get("Deployment", deployment);
        Ok(pods::Pod::of(found.context("the chart has it")?))
    }

    fn source(&self) -> Source<'static> {
        Source {
            client: self.cluster().client(),
            namespace: NAMESPACE,
        }
    }

    /// The arguments of a container, with its files in place.
    async fn prepared(
        &self,
        deployment: &'static str,
        container: &str,
        words: &[(&str, &str)],
    ) -> Result<Vec<String>> {
        let pod = self.pod(deployment)?;
        let root = self.directory.join(container);
        let mounts = pod.mount(container, &self.source(), &root, words).await?;
        Ok(mounts.arguments(pod.container(container)?, words))
    }
}

/// Where the etcd of a release in a cluster listens.
pub fn etcd_address(cluster: &Cluster) -> Result<SocketAddr> {
    let url = cluster.second_mesh_etcd_endpoint()?;
    let address = url.strip_prefix("http://").context("a URL without TLS")?;
    Ok(address.parse()?)
}

fn names(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Mesh => ("tombolo-mesh", "mesh"),
        Role::Operator => ("tombolo-operator", "operator"),
    }
}
