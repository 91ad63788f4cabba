//! The set of clusters that tests run on.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::try_join_all;
use kube::config::Kubeconfig;
use tokio::sync::OnceCell;

use crate::{
    Cluster, Error, Provider,
    api::{ControlPlane, MAX_CLUSTERS},
    assets::{Assets, NodeAssets},
    contexts,
    interruption::interrupted,
    kind::{self, KindTools},
    local,
    run::Run,
};

/// Clusters of [`Testbed::shared`].
const SHARED_CLUSTERS: usize = 2;

/// Clusters, and everything that was started for them. Dropping it ends all of it.
#[derive(Debug)]
pub struct Testbed {
    // Processes end before the run does: fields drop in this order.
    clusters: Vec<Cluster>,
    run: Arc<Run>,
}

impl Testbed {
    /// `n` clusters of the provider that `TOMBOLO_CLUSTERS` names, for the caller alone.
    pub async fn start(n: usize) -> Result<Self, Error> {
        Self::start_with(&Provider::from_env()?, n).await
    }

    /// `n` clusters of this provider.
    pub async fn start_with(provider: &Provider, n: usize) -> Result<Self, Error> {
        if n == 0 || n > MAX_CLUSTERS {
            return Err(Error::Count { asked: n });
        }
        match provider {
            Provider::Api => Self::start_control_planes(n).await,
            Provider::Local => Self::start_local(n).await,
            Provider::Kind => Self::start_kind(n).await,
            Provider::Contexts(names) => {
                let opened = contexts::open(names, n).await?;
                let clusters = (1..).zip(opened);
                let clusters =
                    clusters.map(|(id, (name, config))| Cluster::of_context(name, id, config));
                let clusters = clusters.collect::<Result<_, _>>()?;
                Ok(Self {
                    clusters,
                    run: Arc::new(Run::start().map_err(Error::Run)?),
                })
            }
        }
    }

    async fn start_control_planes(n: usize) -> Result<Self, Error> {
        let assets = Assets::find()?;
        let run = Arc::new(Run::start().map_err(Error::Run)?);
        let starting = ('a'..).take(n).enumerate().map(|(index, letter)| {
            ControlPlane::start(Arc::clone(&run), &assets, letter.to_string(), index)
        });
        let planes = told(&run, try_join_all(starting).await).await?;
        let clusters = planes.into_iter().map(Cluster::of_control_plane);
        Ok(Self {
            clusters: clusters.collect::<Result<_, _>>()?,
            run,
        })
    }

    async fn start_local(n: usize) -> Result<Self, Error> {
        // That only root can is said before what to build.
        let nodes = NodeAssets::find()?;
        let assets = (Assets::find()?, nodes);
        let run = Arc::new(Run::start().map_err(Error::Run)?);
        let started = told(&run, local::start(&run, assets, n).await).await?;
        let clusters = started.into_iter().map(Cluster::of_local);
        Ok(Self {
            clusters: clusters.collect::<Result<_, _>>()?,
            run,
        })
    }

    async fn start_kind(n: usize) -> Result<Self, Error> {
        let tools = KindTools::find().await?;
        let run = Arc::new(Run::start().map_err(Error::Run)?);
        let started = told(&run, kind::start(&run, tools, n).await).await?;
        let clusters = started.into_iter().map(Cluster::of_kind);
        Ok(Self {
            clusters: clusters.collect::<Result<_, _>>()?,
            run,
        })
    }

    /// Two clusters that all tests of one test binary share; the first caller starts them. They end with the binary.
    ///
    /// Use a namespace of your own ([`Testbed::namespace`]), and break nothing: for faults use [`Testbed::start`].
    pub async fn shared() -> Result<&'static Self, Error> {
        static SHARED: OnceCell<Testbed> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| Self::start(SHARED_CLUSTERS))
            .await
    }

    /// All clusters.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The cluster with this index, 0 for the first.
    ///
    /// # Panics
    /// When the testbed has no such cluster: the number is chosen by the test that asks.
    pub fn cluster(&self, index: usize) -> &Cluster {
        &self.clusters[index]
    }

    /// Where this run keeps logs and kubeconfigs. It goes away with the testbed, unless a test panicked, a wait was in
    /// vain, or `KEEP=1` is set.
    pub fn directory(&self) -> &Path {
        self.run.directory()
    }

    /// Writes a kubeconfig with a context for each cluster, called as the cluster, and gives its path. It has an
    /// administrator's credentials, and goes away with the testbed. Where it can be used: see [`Cluster::reach`].
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        let mut merged = Kubeconfig::default();
        for cluster in &self.clusters {
            merged = merged.merge(Kubeconfig::read_from(cluster.kubeconfig()?)?)?;
        }
        let path = self.directory().join("kubeconfig");
        let text = serde_json::to_string_pretty(&merged)
            .expect("invariant: what was read from JSON can be written as JSON");
        // Who reads an earlier one must not find half of this one.
        let written = tempfile::NamedTempFile::new_in(self.directory()).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            Ok(file.persist(&path)?)
        });
        written.map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Keeps the logs after the end, and says where. For failures that are not panics.
    pub fn keep_logs(&self, why: &str) {
        self.run.keep(why);
    }

    /// Keeps no files after the end, whatever `KEEP` says. For programs that were told to end by their user.
    pub fn discard_files(&self) {
        self.run.discard();
    }

    /// Pids of all processes on the nodes, those in pods included; none when there are no nodes.
    pub fn pids_with_pods(&self) -> Vec<u32> {
        let all = self.clusters.iter().filter_map(Cluster::pids_with_pods);
        let all: BTreeSet<u32> = all.flatten().collect();
        all.into_iter().collect()
    }

    /// Memory that the processes of all clusters hold, pods included, in bytes (resident, shared pages counted for each).
    pub fn resident_bytes(&self) -> Result<u64, Error> {
        let pids = self.pids_with_pods();
        if !pids.is_empty() {
            return Ok(pids.into_iter().filter_map(resident_bytes).sum());
        }
        let mut sum = 0;
        for cluster in &self.clusters {
            sum += cluster
                .pids()?
                .into_values()
                .filter_map(resident_bytes)
                .sum::<u64>();
        }
        Ok(sum)
    }
}

/// Keeps the logs of a start that failed, unless that is because it was interrupted.
async fn told<T, E>(run: &Run, started: Result<T, E>) -> Result<T, E> {
    if started.is_err() && !interrupted().await {
        run.keep("clusters did not start");
    }
    started
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
