//! What only clusters with nodes can do: commands on a node, images, and faults of the network between nodes.

use std::path::Path;

use crate::{
    Cluster, Error, ExecOutput, LocalError,
    assets::Assets,
    cluster::Nodes,
    command::Invocation,
    kind::{self, KindCluster},
    local::LocalCluster,
    roles,
};

/// Two clusters of one provider.
#[derive(Clone, Copy)]
enum Pair<'c> {
    Local(&'c LocalCluster, &'c LocalCluster),
    Kind(&'c KindCluster, &'c KindCluster),
}

impl Cluster {
    /// Name of the cluster's node.
    pub fn node(&self) -> Result<String, Error> {
        Ok(match self.nodes("have a node")? {
            Nodes::Local(local) => local.node_name(),
            Nodes::Kind(kind) => kind.node.clone(),
        })
    }

    /// Runs a command on the node, to its end: in its network and mount namespace, as its processes run.
    pub async fn on_node(&self, program: &str, arguments: &[&str]) -> Result<ExecOutput, Error> {
        let command = match self.nodes("run commands on a node")? {
            Nodes::Local(local) => local.command(Path::new(program), arguments),
            Nodes::Kind(kind) => kind.command(program, arguments),
        };
        Ok(command.run().await?.into())
    }

    /// Words of a command that goes where the API server is reached and becomes what follows, for people and other programs;
    /// with provider `local` these are the namespaces of the node.
    pub fn enter(&self) -> Result<Vec<String>, Error> {
        Ok(match self.nodes("be entered")? {
            Nodes::Local(local) => local.enter_namespaces(),
            Nodes::Kind(kind) => kind.enter().to_vec(),
        })
    }

    /// Gives the node the images of an archive as `docker save` writes it. Name them with a tag other than `latest`, and
    /// nothing is pulled.
    pub async fn load_images(&self, archive: &Path) -> Result<(), Error> {
        match self.nodes("load images")? {
            Nodes::Local(local) => local.load_images(archive).await,
            Nodes::Kind(kind) => kind.load_images(archive).await,
        }
    }

    /// Gives the node Tombolo's image, and returns its name. The image runs as a user other than root, and is made of the
    /// binary of [`crate::Role`]s: `TOMBOLO_BIN`, or built from this workspace. `TOMBOLO_IMAGE` names one that is in the
    /// engine of provider `kind` instead, such as that of `make image`.
    pub async fn load_tombolo(&self) -> Result<String, Error> {
        let operation = "load images";
        match (self.nodes(operation)?, kind::named_image()) {
            (Nodes::Local(local), None) => local.load_tombolo(&roles::tombolo().await?).await,
            (Nodes::Local(_), Some(_)) => Err(self
                .unsupported("take the image that TOMBOLO_IMAGE names", "kind")
                .into()),
            (Nodes::Kind(kind), None) => kind.load_tombolo(&roles::tombolo().await?).await,
            (Nodes::Kind(kind), Some(image)) => kind.load_from_engine(image).await,
        }
    }

    /// Makes the image of etcd from the binary that control planes run, under this name, and gives it to the node.
    pub async fn load_etcd(&self, name: &str) -> Result<(), Error> {
        let binary = Assets::find()?.etcd;
        match self.nodes("load images")? {
            Nodes::Local(local) => local.load_etcd(name, &binary).await,
            Nodes::Kind(kind) => kind.load_etcd(name, &binary).await,
        }
    }

    /// Words of a command that becomes what follows, where the API servers and nodes of all clusters of the testbed are
    /// reached: in the network namespace that joins the nodes with provider `local`, where the engine is with `kind`, here
    /// with others (no words). With `local`, what runs so ends with the testbed.
    pub fn reach(&self) -> Vec<String> {
        match self.nodes("be reached from elsewhere") {
            Ok(Nodes::Local(local)) => local.enter_hub(),
            Ok(Nodes::Kind(kind)) => kind.enter().to_vec(),
            Err(_) => Vec::new(),
        }
    }

    /// Runs a program of this machine, to its end, as [`Self::reach`] says.
    pub async fn run(&self, program: &Path, arguments: &[&str]) -> Result<ExecOutput, Error> {
        let command = Invocation::new(&self.reach(), program, arguments);
        Ok(command.run().await?.into())
    }

    /// Kills the process of a container (SIGKILL, by the id of the container). Its kubelet starts it again.
    pub async fn kill_container(&self, id: &str) -> Result<(), Error> {
        let arguments = [
            "--namespace=k8s.io",
            "tasks",
            "kill",
            "--signal=SIGKILL",
            id,
        ];
        let output = self.on_node("ctr", &arguments).await?;
        let cluster = self.name().to_owned();
        output.success().map(drop).map_err(|said| {
            LocalError::NotKilled {
                cluster,
                container: id.to_owned(),
                said,
            }
            .into()
        })
    }

    /// Drops what goes from pods of this cluster to a TCP port of the nodes of another, on this cluster's node. That
    /// other cluster still reaches this one.
    pub async fn cut_port(&self, other: &Self, port: u16) -> Result<(), Error> {
        match self.with(other, "cut off a port")? {
            Pair::Local(own, other) => own.cut_port(other, port).await,
            Pair::Kind(own, other) => own.cut_port(other, port).await,
        }
    }

    /// Undoes [`Self::cut_port`].
    pub async fn heal_port(&self, other: &Self, port: u16) -> Result<(), Error> {
        match self.with(other, "cut off a port")? {
            Pair::Local(own, other) => own.heal_port(other, port).await,
            Pair::Kind(own, other) => own.heal_port(other, port).await,
        }
    }

    /// Drops what the pods of this cluster and those of another send to each other, on this cluster's node. Both API
    /// servers, and roles that run as processes, still reach each other.
    pub async fn cut_pods(&self, other: &Self) -> Result<(), Error> {
        match self.with(other, "cut pods apart")? {
            Pair::Local(own, other) => own.cut_pods(other).await,
            Pair::Kind(own, other) => own.cut_pods(other).await,
        }
    }

    /// Undoes [`Self::cut_pods`].
    pub async fn heal_pods(&self, other: &Self) -> Result<(), Error> {
        match self.with(other, "cut pods apart")? {
            Pair::Local(own, other) => own.heal_pods(other).await,
            Pair::Kind(own, other) => own.heal_pods(other).await,
        }
    }

    /// What is held of this cluster and of another one of the same provider.
    fn with<'c>(&'c self, other: &'c Self, operation: &'static str) -> Result<Pair<'c>, Error> {
        match (self.nodes(operation)?, other.nodes(operation)?) {
            (Nodes::Local(own), Nodes::Local(other)) => Ok(Pair::Local(own, other)),
            (Nodes::Kind(own), Nodes::Kind(other)) => Ok(Pair::Kind(own, other)),
            (Nodes::Local(_), Nodes::Kind(_)) | (Nodes::Kind(_), Nodes::Local(_)) => {
                Err(self.unsupported(operation, "local").into())
            }
        }
    }

    /// Cuts the node of this cluster from all others, pods and processes. Its API server still answers the test.
    pub async fn isolate(&self) -> Result<(), Error> {
        self.local("isolate a node")?.set_link(false).await
    }

    /// Undoes [`Self::isolate`].
    pub async fn rejoin(&self) -> Result<(), Error> {
        self.local("isolate a node")?.set_link(true).await
    }

    /// Pids of all processes of the node, or of the whole run that it is of, pods included; none without nodes.
    pub(crate) fn pids_with_pods(&self) -> Option<Vec<u32>> {
        Some(match self.nodes("have pods").ok()? {
            Nodes::Local(local) => local.all_pids(),
            Nodes::Kind(kind) => kind.all_pids(),
        })
    }
}
