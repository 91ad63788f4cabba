//! Tombolo's roles as processes beside a cluster.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tokio::sync::OnceCell;

use crate::{
    Cluster, Component, Error, Testbed,
    api::{ControlPlane, Port},
    probe::{Probe, http_page},
};

/// Environment variable that names the `tombolo` binary to test.
const VARIABLE: &str = "TOMBOLO_BIN";

/// A role of `tombolo run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Publishes the cluster's state into its mesh etcd.
    Mesh,
    /// Reads the peers and writes imports, derived Services and EndpointSlices.
    Operator,
}

impl From<Role> for Component {
    fn from(role: Role) -> Self {
        match role {
            Role::Mesh => Self::Mesh,
            Role::Operator => Self::Operator,
        }
    }
}

/// Why there is no `tombolo` to run.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// `TOMBOLO_BIN` is wrong.
    #[error("{VARIABLE}={}: no such file; name the tombolo binary or unset it", path.display())]
    NoBinary {
        /// What it names.
        path: PathBuf,
    },
    /// Cargo did not run.
    #[error("cannot run {}: {source}; install cargo or set {VARIABLE}", cargo.display())]
    Cargo {
        /// Program.
        cargo: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The build failed.
    #[error("cargo build -p tombolo --bin tombolo failed:\n{output}")]
    Build {
        /// What cargo said.
        output: String,
    },
    /// Only roles have pages.
    #[error("{component} is no role of Tombolo and has no pages")]
    NoRole {
        /// What it is.
        component: Component,
    },
    /// A role does not give a page.
    #[error("{cluster}: {component} does not answer: {answer}; is it running?")]
    Page {
        /// Name of the cluster.
        cluster: String,
        /// The role.
        component: Component,
        /// What it said instead.
        answer: String,
    },
}

impl Testbed {
    /// Makes all clusters peers of each other and starts both roles in each.
    pub async fn start_mesh(&self) -> Result<(), Error> {
        self.start_mesh_with(&[]).await
    }

    /// The same, with environment variables for the roles.
    pub async fn start_mesh_with(&self, environment: &[(&str, &str)]) -> Result<(), Error> {
        self.connect_all()?;
        let roles = self.clusters().iter().flat_map(|cluster| {
            [Role::Mesh, Role::Operator].map(|role| cluster.start_role_with(role, &[], environment))
        });
        futures::future::try_join_all(roles).await?;
        Ok(())
    }
}

impl Cluster {
    /// Starts a role with the flags for this cluster and `extra` ones instead of those of the same name or behind them, and waits
    /// until it is ready. An operator does not stand for election unless `extra` says so. A
    /// process of the same role that runs is killed first. What [`Self::kill9`], [`Self::pause`], [`Self::resume`],
    /// [`Self::stop`] and [`Self::restart`] do to other components they also do to roles.
    pub async fn start_role(&self, role: Role, extra: &[&str]) -> Result<(), Error> {
        self.start_role_with(role, extra, &[]).await
    }

    /// The same, with environment variables besides those of this process; they stay over restarts.
    pub async fn start_role_with(
        &self,
        role: Role,
        extra: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(), Error> {
        self.launch_role(role, role.into(), extra, environment)
            .await
    }

    /// Starts a second replica of a role beside the first: of the operator, or of the mesh with an etcd of its own
    /// ([`Cluster::second_mesh_etcd_endpoint`]). It is called [`Component::SecondOperator`] or [`Component::SecondMesh`].
    pub async fn start_second(
        &self,
        role: Role,
        extra: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(), Error> {
        let component = match role {
            Role::Mesh => {
                self.start_second_mesh_etcd().await?;
                Component::SecondMesh
            }
            Role::Operator => Component::SecondOperator,
        };
        self.launch_role(role, component, extra, environment).await
    }

    /// Starts the etcd of a second replica of the mesh alone, unless it runs: a store for a test to write into.
    pub async fn start_second_mesh_etcd(&self) -> Result<(), Error> {
        self.plane("run an etcd for the mesh")?
            .launch_second_mesh_etcd()
            .await
    }

    /// Starts the same with further flags, which take the place of those of the same name, and waits until `/readyz` of `metrics`,
    /// an address that the flags make it listen on without TLS, answers.
    pub async fn start_second_mesh_etcd_with(
        &self,
        extra: &[&str],
        metrics: SocketAddr,
    ) -> Result<(), Error> {
        self.plane("run an etcd for the mesh")?
            .launch_second_mesh_etcd_with(extra, metrics)
            .await
    }

    async fn launch_role(
        &self,
        role: Role,
        component: Component,
        extra: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(), Error> {
        let plane = self.plane("run roles of Tombolo")?;
        let binary = tombolo().await?;
        let address = plane.address(health_port(component)?);
        let mut args = flags(plane, role, component, &self.peers_directory()?);
        args.push(format!("--health-address={address}"));
        args.retain(|flag| !extra.iter().any(|extra| replaces(extra, flag)));
        args.extend(extra.iter().map(|&flag| flag.to_owned()));
        let probe = Probe::http(plane.site.dialer.clone(), address, "/readyz", "");
        let mut managed = plane.managed(component, &binary, args, probe);
        managed.process.set_environment(environment);
        Ok(plane.components.launch(component, managed).await?)
    }

    /// The health address of a role, which answers while the role runs.
    pub fn role_address(&self, role: Role) -> Result<SocketAddr, Error> {
        let plane = self.plane("run roles of Tombolo")?;
        Ok(plane.address(health_port(role.into())?))
    }

    /// A page of a role's health address, such as `/metrics`. Of a second replica, name the component.
    pub async fn role_page(&self, role: impl Into<Component>, path: &str) -> Result<String, Error> {
        let component = role.into();
        let plane = self.plane("run roles of Tombolo")?;
        let address = plane.address(health_port(component)?);
        let failed = |answer| RoleError::Page {
            cluster: self.name.clone(),
            component,
            answer,
        };
        Ok(http_page(&plane.site.dialer, address, path)
            .await
            .map_err(failed)?)
    }
}

fn health_port(component: Component) -> Result<Port, RoleError> {
    match component {
        Component::Mesh => Ok(Port::MeshHealth),
        Component::Operator => Ok(Port::OperatorHealth),
        Component::SecondMesh => Ok(Port::SecondMeshHealth),
        Component::SecondOperator => Ok(Port::SecondOperatorHealth),
        Component::Etcd
        | Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::Containerd
        | Component::Kubelet
        | Component::KubeProxy
        | Component::MeshEtcd
        | Component::SecondMeshEtcd => Err(RoleError::NoRole { component }),
    }
}

/// Whether a flag has the name of another, or says the same in another way, and so takes its place.
pub(crate) fn replaces(extra: &str, flag: &str) -> bool {
    let name = |flag: &str| flag.split('=').next().map(str::to_owned);
    let same = flag.starts_with("--") && name(flag) == name(extra);
    same || (extra.starts_with("--etcd-config=") && flag.starts_with("--etcd-endpoints="))
}

fn flags(plane: &ControlPlane, role: Role, component: Component, peers: &Path) -> Vec<String> {
    let (name, own) = match role {
        Role::Mesh => {
            let etcd = if component == Component::SecondMesh {
                Port::SecondMeshEtcdClient
            } else {
                Port::MeshEtcdClient
            };
            let endpoint = plane.url(etcd);
            ("mesh", vec![format!("--etcd-endpoints={endpoint}")])
        }
        Role::Operator => (
            "operator",
            vec![
                format!("--clustermesh-config={}", peers.display()),
                // One replica that is killed and started again would wait for the end of its own Lease.
                "--leader-election=false".to_owned(),
            ],
        ),
    };
    let mut flags = vec![
        "run".to_owned(),
        name.to_owned(),
        format!("--kubeconfig={}", plane.kubeconfig.display()),
        format!("--cluster-name={}", plane.name),
        format!("--cluster-id={}", plane.id),
    ];
    flags.extend(own);
    flags
}

/// The binary under test: `TOMBOLO_BIN`, else built once from this workspace, in the profile of the test.
pub async fn tombolo() -> Result<PathBuf, RoleError> {
    static BINARY: OnceCell<PathBuf> = OnceCell::const_new();
    let find = async || {
        if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
            return if path.is_file() {
                Ok(path)
            } else {
                Err(RoleError::NoBinary { path })
            };
        }
        let built = tokio::task::spawn_blocking(build).await;
        built.unwrap_or_else(|panic| {
            Err(RoleError::Build {
                output: panic.to_string(),
            })
        })
    };
    BINARY.get_or_try_init(find).await.cloned()
}

fn build() -> Result<PathBuf, RoleError> {
    let cargo = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut command = Command::new(&cargo);
    command
        .args(["build", "--package=tombolo", "--bin=tombolo", "--quiet"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdin(Stdio::null());
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // What cargo sets for this test would make build scripts of other crates run again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_this_crate = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
        ];
        if of_this_crate.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    let output = command
        .output()
        .map_err(|source| RoleError::Cargo { cargo, source })?;
    let artifacts = String::from_utf8_lossy(&output.stdout);
    let binary = artifacts.lines().filter_map(executable).next_back();
    match binary.filter(|_| output.status.success()) {
        Some(binary) => Ok(binary),
        None => Err(RoleError::Build {
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

/// The executable that a line of cargo's JSON output names.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}
