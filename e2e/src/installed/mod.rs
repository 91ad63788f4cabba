//! A mesh as its users install it: clusters with nodes, the Helm chart in each, joined as the guide says.
//!
//! `docs/guide/install.md`, `docs/guide/connect.md` and `docs/guide/dns.md` are the recipe, and nothing is done here that they
//! do not tell, but for the images, which come from this machine instead of a registry.

mod dns;
pub mod objects;
pub mod status;
pub mod values;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use tombolo_testbed::{Cluster, Provider, Testbed, eventually, tombolo};

use crate::{
    chart::{Helm, Installation, helm::chart},
    scenarios::Shared,
    traffic::Traffic,
};

/// The Secret with the authority that signs the certificates of a cluster.
pub const AUTHORITY: &str = "tombolo-ca";

/// Longest wait for pods that were replaced, and for processes that know all. A mesh pod alone serves on for 5 s.
const BUDGET: Duration = Duration::from_secs(150);

/// Clusters with an installation each, joined. Dropping it ends all of it.
pub struct Mesh {
    testbed: Arc<Testbed>,
    helm: Helm,
    took: Took,
}

/// Who signs the certificates of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorities {
    /// Each installation makes an authority of its own, as independent `helm install`s do.
    OfEach,
    /// All clusters have the one that the first made.
    Shared,
}

/// How long it took to get there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// From nothing to clusters whose nodes and DNS are ready.
    pub clusters: Duration,
    /// From there to all installations being well and knowing each other.
    pub installation: Duration,
}

impl Shared for Mesh {
    fn testbed(&self) -> &Testbed {
        &self.testbed
    }
}

impl Mesh {
    /// Starts `n` clusters and installs in them.
    pub async fn start(n: usize, authorities: Authorities) -> Result<Self> {
        let begin = Instant::now();
        let testbed = Testbed::start_with(&Provider::with_nodes()?, n).await?;
        let clusters = begin.elapsed();
        let mut mesh = Self::install(testbed, authorities).await?;
        mesh.took.clusters = clusters;
        Ok(mesh)
    }

    /// Installs the chart in all clusters, joins them, and waits until each is well and knows all others.
    pub async fn install(testbed: Testbed, authorities: Authorities) -> Result<Self> {
        let begin = Instant::now();
        let mut mesh = Self {
            testbed: Arc::new(testbed),
            helm: Helm::find()?,
            took: Took::default(),
        };
        let installed = async {
            let image = mesh.load_images().await?;
            let first = mesh.install_in(0, &image, None).await?;
            let shared = (authorities == Authorities::Shared).then_some(first);
            for index in 1..mesh.testbed.clusters().len() {
                mesh.install_in(index, &image, shared.clone()).await?;
            }
            mesh.configure_dns().await?;
            mesh.join().await?;
            mesh.is_well().await
        };
        if let Err(error) = installed.await {
            mesh.explain().await;
            mesh.testbed.keep_logs("the installation failed");
            return Err(error);
        }
        mesh.took.installation = begin.elapsed();
        Ok(mesh)
    }

    /// The clusters.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Starts an exported Service with a client in each cluster.
    pub async fn traffic(&self) -> Result<Traffic> {
        Traffic::start(Arc::clone(&self.testbed)).await
    }

    /// How long the start took.
    pub fn took(&self) -> Took {
        self.took
    }

    /// The release in a cluster.
    pub async fn release(&self, index: usize) -> Result<Installation<'_>> {
        Installation::prepare(&self.helm, self.testbed.cluster(index)).await
    }

    /// Gives all clusters the images that the chart names; tells the name of Tombolo's.
    async fn load_images(&self) -> Result<String> {
        let etcd = values::etcd_image(&std::fs::read_to_string(chart().join("values.yaml"))?)?;
        let loading = self.testbed.clusters().iter().map(async |cluster| {
            cluster.load_etcd(&etcd).await?;
            cluster.load_tombolo().await
        });
        let names = try_join_all(loading).await.context("load images")?;
        names.into_iter().next().context("a cluster")
    }

    /// `helm install` in one cluster, with this authority if there is one; gives the one that it has.
    async fn install_in(
        &self,
        index: usize,
        image: &str,
        authority: Option<Secret>,
    ) -> Result<Secret> {
        let release = self.release(index).await?;
        let cluster = release.cluster();
        if let Some(secret) = authority {
            let shared = objects::copy_of(secret);
            let created = release.api().create(&PostParams::default(), &shared).await;
            created.context("hand the authority over")?;
        }
        release
            .install(&values::of_cluster(cluster.name(), cluster.id(), image))
            .with_context(|| format!("install in {}", cluster.name()))?;
        Ok(release.api::<Secret>().get(AUTHORITY).await?)
    }

    /// `tombolo dns configure` in all clusters.
    async fn configure_dns(&self) -> Result<()> {
        let kubeconfig = self.testbed.kubeconfig()?;
        let clusters = self.testbed.clusters().iter();
        try_join_all(clusters.map(|cluster| dns::configure(cluster, &kubeconfig))).await?;
        Ok(())
    }

    /// Makes all clusters peers of each other, by `tombolo connect`, which waits until they read each other.
    async fn join(&self) -> Result<()> {
        let clusters = self.testbed.clusters();
        let kubeconfig = self.testbed.kubeconfig()?.display().to_string();
        let mut arguments = vec!["connect", "--kubeconfig", &kubeconfig];
        arguments.extend(clusters.iter().map(Cluster::name));
        let output = clusters[0].run(&tombolo().await?, &arguments).await?;
        ensure!(
            output.code == Some(0),
            "tombolo connect: {} {}",
            output.stdout,
            output.stderr
        );
        Ok(())
    }

    /// Waits until the pods of all clusters are those of the last upgrade, and `tombolo status` finds everything well.
    pub async fn is_well(&self) -> Result<()> {
        let clusters = 0..self.testbed.clusters().len();
        try_join_all(clusters.map(|index| self.is_well_in(index))).await?;
        Ok(())
    }

    /// The same of one cluster.
    pub async fn is_well_in(&self, index: usize) -> Result<()> {
        let release = self.release(index).await?;
        let cluster = release.cluster();
        let what = format!("the pods of the last release of {}", cluster.name());
        eventually(BUDGET, &what, async || objects::rolled_out(&release).await).await?;
        let others: Vec<_> = self.testbed.clusters().iter().map(Cluster::name).collect();
        let others: Vec<_> = others
            .into_iter()
            .filter(|it| *it != cluster.name())
            .collect();
        let what = format!("{} to be well and to know {others:?}", cluster.name());
        let kubeconfig = self.testbed.kubeconfig()?;
        eventually(BUDGET, &what, async || {
            let report = status::ask(cluster, &kubeconfig, &status::WAIT).await;
            let report = report.map_err(|error| format!("{error:#}"))?;
            status::knows(&report, &others)
        })
        .await?;
        Ok(())
    }

    /// Keeps the logs of all pods of the installations beside the other logs.
    pub async fn explain(&self) {
        for index in 0..self.testbed.clusters().len() {
            let Ok(release) = self.release(index).await else {
                continue;
            };
            let name = format!("{}-pods", release.cluster().name());
            objects::write_logs(&release, &self.testbed.directory().join(name)).await;
        }
    }
}
