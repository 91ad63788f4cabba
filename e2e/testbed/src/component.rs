//! The processes of one cluster, by what they are, and what can be done to them.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    probe::Probe,
    process::{Process, ProcessError},
    wait::patience,
};

/// Longest wait for a process to become ready. On two idle cores an API server needs 3 s.
const READY_BUDGET: Duration = Duration::from_mins(1);
/// Pause between two looks at a starting process.
const LOOK_INTERVAL: Duration = Duration::from_millis(30);
/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// One process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The etcd of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler, of clusters with nodes.
    Scheduler,
    /// containerd, of clusters with nodes. The containers outlive it.
    Containerd,
    /// kubelet, of clusters with nodes.
    Kubelet,
    /// kube-proxy, of clusters with nodes.
    KubeProxy,
    /// The etcd of the mesh: this cluster publishes into it and its peers read it.
    MeshEtcd,
    /// `tombolo run mesh`, after [`crate::Cluster::start_role`].
    Mesh,
    /// `tombolo run operator`, after [`crate::Cluster::start_role`].
    Operator,
    /// A second replica of the operator, after [`crate::Cluster::start_second`].
    SecondOperator,
    /// An etcd of its own for the second replica of the mesh, with another cluster id.
    SecondMeshEtcd,
    /// A second replica of `tombolo run mesh`, with that etcd, after [`crate::Cluster::start_second`].
    SecondMesh,
}

impl Component {
    /// Whether it is part of the cluster, and not of the mesh.
    pub(crate) fn is_of_kubernetes(self) -> bool {
        match self {
            Self::Etcd
            | Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Containerd
            | Self::Kubelet
            | Self::KubeProxy => true,
            Self::MeshEtcd
            | Self::Mesh
            | Self::Operator
            | Self::SecondOperator
            | Self::SecondMeshEtcd
            | Self::SecondMesh => false,
        }
    }

    /// Name for logs and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::MeshEtcd => "mesh-etcd",
            Self::Mesh => "mesh",
            Self::Operator => "operator",
            Self::SecondOperator => "second-operator",
            Self::SecondMeshEtcd => "second-mesh-etcd",
            Self::SecondMesh => "second-mesh",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why something could not be done to a component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// This component was never started here.
    #[error("{cluster}: there is no {component}; roles have to be started first (start_role)")]
    Absent {
        /// Name of the cluster.
        cluster: String,
        /// The component.
        component: Component,
    },
    /// The component cannot be wiped.
    #[error("{cluster}: {component} cannot be wiped; only the mesh etcd can start from nothing")]
    NotWipeable {
        /// Name of the cluster.
        cluster: String,
        /// The component.
        component: Component,
    },
    /// The data directory could not be emptied.
    #[error("{cluster}: cannot empty {}: {source}", directory.display())]
    Wipe {
        /// Name of the cluster.
        cluster: String,
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A restart whose success could not be told.
    #[error("{cluster}: {component} cannot be restarted: {why}")]
    NotRestartable {
        /// Name of the cluster.
        cluster: String,
        /// The component.
        component: Component,
        /// What is missing.
        why: String,
    },
}

/// A process with the way to see that it is ready.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) process: Process,
    pub(crate) probe: Probe,
    /// What may be removed to start from nothing.
    pub(crate) data: Option<PathBuf>,
}

/// All processes of one cluster.
#[derive(Debug)]
pub(crate) struct Components {
    cluster: String,
    managed: Mutex<BTreeMap<Component, Managed>>,
}

impl Components {
    pub(crate) fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            managed: Mutex::default(),
        }
    }

    /// Starts a new component and waits until it is ready. One of the same kind that runs is killed first.
    pub(crate) async fn launch(
        &self,
        component: Component,
        managed: Managed,
    ) -> Result<(), ComponentError> {
        drop(self.lock().insert(component, managed));
        self.with(component, Process::start)?;
        self.wait_ready(component).await
    }

    /// Kills the process and waits until its pid is gone.
    pub(crate) fn kill9(&self, component: Component) -> Result<(), ComponentError> {
        self.with(component, |process| {
            process.kill9();
            Ok(())
        })
    }

    /// Stops the process where it is.
    pub(crate) fn pause(&self, component: Component) -> Result<(), ComponentError> {
        self.with(component, Process::pause)
    }

    /// Lets a paused process go on.
    pub(crate) fn resume(&self, component: Component) -> Result<(), ComponentError> {
        self.with(component, Process::resume)
    }

    /// Ends the process with SIGTERM, or SIGKILL when it does not obey.
    pub(crate) async fn stop(&self, component: Component) -> Result<(), ComponentError> {
        let mut managed = {
            let mut all = self.lock();
            all.remove(&component)
                .ok_or_else(|| self.absent(component))?
        };
        let stopped = managed.process.terminate(GRACE * patience()).await;
        self.lock().insert(component, managed);
        Ok(stopped?)
    }

    /// Kills the process if it runs, starts it again on the same ports and data, waits until it is ready.
    pub(crate) async fn restart(&self, component: Component) -> Result<(), ComponentError> {
        self.kill9(component)?;
        let probe = self.look(component, |managed| managed.probe.clone())?;
        probe
            .prepare_restart()
            .await
            .map_err(|why| ComponentError::NotRestartable {
                cluster: self.cluster.clone(),
                component,
                why,
            })?;
        self.with(component, Process::start)?;
        self.wait_ready(component).await
    }

    /// Like [`Self::restart`], with an empty data directory.
    pub(crate) async fn wipe_and_restart(
        &self,
        component: Component,
    ) -> Result<(), ComponentError> {
        let data = self.look(component, |managed| managed.data.clone())?;
        let directory = data.ok_or_else(|| ComponentError::NotWipeable {
            cluster: self.cluster.clone(),
            component,
        })?;
        self.kill9(component)?;
        std::fs::remove_dir_all(&directory).map_err(|source| ComponentError::Wipe {
            cluster: self.cluster.clone(),
            directory,
            source,
        })?;
        self.restart(component).await
    }

    /// Pids of the processes that run.
    pub(crate) fn pids(&self) -> BTreeMap<Component, u32> {
        let all = self.lock();
        all.iter()
            .filter_map(|(component, it)| Some((*component, it.process.pid()?)))
            .collect()
    }

    /// Log files.
    pub(crate) fn logs(&self) -> BTreeMap<Component, PathBuf> {
        let all = self.lock();
        all.iter()
            .map(|(component, it)| (*component, it.process.log().to_owned()))
            .collect()
    }

    async fn wait_ready(&self, component: Component) -> Result<(), ComponentError> {
        let start = Instant::now();
        let probe = self.look(component, |managed| managed.probe.clone())?;
        loop {
            let last = match probe.look().await {
                Ok(()) => return Ok(()),
                Err(last) => last,
            };
            self.with(component, |process| {
                if let Some(status) = process.ended() {
                    Err(process.ended_early(status))
                } else if start.elapsed() > READY_BUDGET * patience() {
                    Err(process.not_ready(start.elapsed(), last))
                } else {
                    Ok(())
                }
            })?;
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn with<T>(
        &self,
        component: Component,
        act: impl FnOnce(&mut Process) -> Result<T, ProcessError>,
    ) -> Result<T, ComponentError> {
        let mut all = self.lock();
        let managed = all
            .get_mut(&component)
            .ok_or_else(|| self.absent(component))?;
        Ok(act(&mut managed.process)?)
    }

    fn look<T>(
        &self,
        component: Component,
        get: impl FnOnce(&Managed) -> T,
    ) -> Result<T, ComponentError> {
        self.lock()
            .get(&component)
            .map(get)
            .ok_or_else(|| self.absent(component))
    }

    fn absent(&self, component: Component) -> ComponentError {
        ComponentError::Absent {
            cluster: self.cluster.clone(),
            component,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Component, Managed>> {
        self.managed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{dialer::Dialer, process::Program, run::Run};

    #[tokio::test]
    async fn a_process_that_ends_at_once_is_named_with_the_end_of_its_log() {
        let run = Arc::new(Run::start().unwrap());

        let error = launch(&run, "echo cannot open the door; exit 3")
            .await
            .unwrap_err()
            .to_string();

        assert!(
            error.contains("a/etcd: ended with exit status: 3"),
            "{error}"
        );
        assert!(error.contains("cannot open the door"), "{error}");
        assert!(error.contains("etcd.log"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let run = Arc::new(Run::start().unwrap());
        let components = Components::new("a");
        let program = program(&run, "/does/not/exist".into());

        let error = components
            .launch(Component::Etcd, managed(&run, program))
            .await
            .unwrap_err();

        assert!(
            error
                .to_string()
                .contains("a/etcd: cannot start /does/not/exist"),
            "{error}"
        );
    }

    async fn launch(run: &Arc<Run>, script: &str) -> Result<(), ComponentError> {
        let mut program = program(run, "/bin/sh".into());
        program.args = vec!["-c".to_owned(), script.to_owned()];
        Components::new("a")
            .launch(Component::Etcd, managed(run, program))
            .await
    }

    fn program(run: &Run, path: PathBuf) -> Program {
        Program {
            name: "a/etcd".to_owned(),
            enter: Vec::new(),
            path,
            args: Vec::new(),
            environment: Vec::new(),
            log: run.directory().join("etcd.log"),
        }
    }

    fn managed(run: &Arc<Run>, program: Program) -> Managed {
        let address = ([127, 0, 0, 1], 1).into();
        Managed {
            process: Process::new(program, Arc::clone(run)),
            probe: Probe::http(Dialer::Here, address, "/", ""),
            data: None,
        }
    }
}
