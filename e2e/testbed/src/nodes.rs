//! What only clusters with nodes can do: commands on a node, images, and faults of the network between nodes.

use std::path::Path;

use crate::{Cluster, Error, ExecOutput, roles};

impl Cluster {
    /// Name of the cluster's node.
    pub fn node(&self) -> Result<String, Error> {
        Ok(self.local("have a node")?.node_name())
    }

    /// Runs a command on the node, to its end: in its network and mount namespace, as its processes run.
    pub async fn on_node(&self, program: &str, arguments: &[&str]) -> Result<ExecOutput, Error> {
        let local = self.local("run commands on a node")?;
        let command = local.command(Path::new(program), arguments);
        Ok(command.run().await?.into())
    }

    /// Words of a command that enters the namespaces of the node and becomes what follows, for people and other programs.
    pub fn enter(&self) -> Result<Vec<String>, Error> {
        Ok(self.local("be entered")?.enter_namespaces())
    }

    /// Gives the node the images of an archive as `docker save` writes it. Name them with a tag other than `latest`, and
    /// nothing is pulled.
    pub async fn load_images(&self, archive: &Path) -> Result<(), Error> {
        self.local("load images")?.load_images(archive).await
    }

    /// Makes Tombolo's image, which runs as a user other than root, and gives it to the node; returns its name. The binary
    /// is that of [`crate::Role`]s: `TOMBOLO_BIN`, or built from this workspace.
    pub async fn load_tombolo(&self) -> Result<&'static str, Error> {
        let local = self.local("load images")?;
        local.load_tombolo(&roles::tombolo().await?).await
    }

    /// Drops what the pods of this cluster and those of another send to each other, on this cluster's node. Both API
    /// servers, and roles that run as processes, still reach each other.
    pub async fn cut_pods(&self, other: &Self) -> Result<(), Error> {
        let operation = "cut pods apart";
        self.local(operation)?
            .cut_pods(other.local(operation)?)
            .await
    }

    /// Undoes [`Self::cut_pods`].
    pub async fn heal_pods(&self, other: &Self) -> Result<(), Error> {
        let operation = "cut pods apart";
        self.local(operation)?
            .heal_pods(other.local(operation)?)
            .await
    }

    /// Cuts the node of this cluster from all others, pods and processes. Its API server still answers the test.
    pub async fn isolate(&self) -> Result<(), Error> {
        self.local("isolate a node")?.set_link(false).await
    }

    /// Undoes [`Self::isolate`].
    pub async fn rejoin(&self) -> Result<(), Error> {
        self.local("isolate a node")?.set_link(true).await
    }

    /// Pids of all processes of the run that this cluster is of, pods included; none without nodes.
    pub(crate) fn pids_with_pods(&self) -> Option<Vec<u32>> {
        Some(self.local("have pods").ok()?.all_pids())
    }
}
