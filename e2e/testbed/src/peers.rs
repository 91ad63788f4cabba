//! The directory in which an operator finds its peers: one file per peer, named as the peer's cluster, in the format of
//! Cilium's etcd client configuration.
//!
//! A file appears and changes by renaming, as a reader that watches the directory would see it in production.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Cluster, Error, Testbed, api::ControlPlane};

/// The directory of peers could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("{cluster}: cannot {action} peer {peer} in {}: {source}", directory.display())]
pub struct PeerError {
    /// Whose directory it is.
    cluster: String,
    /// What was tried.
    action: &'static str,
    /// Name of the peer.
    peer: String,
    /// The directory.
    directory: PathBuf,
    /// What the system said.
    #[source]
    source: io::Error,
}

impl Testbed {
    /// Makes every cluster know the mesh etcd of every other.
    pub fn connect_all(&self) -> Result<(), Error> {
        for cluster in self.clusters() {
            for peer in self
                .clusters()
                .iter()
                .filter(|peer| peer.name() != cluster.name())
            {
                cluster.write_peer(peer.name(), &peer.mesh_etcd_endpoint()?)?;
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// The directory of peers, made when it does not exist.
    pub fn peers_directory(&self) -> Result<PathBuf, Error> {
        let directory = peers_directory(self.plane("have peers configured")?);
        match fs::create_dir_all(&directory) {
            Ok(()) => Ok(directory),
            Err(source) => Err(Error::File {
                path: directory,
                source,
            }),
        }
    }

    /// Adds a peer, or changes its endpoint (`http://HOST:PORT`).
    pub fn write_peer(&self, peer: &str, endpoint: &str) -> Result<(), Error> {
        self.write_peer_file(peer, &format!("endpoints:\n- {endpoint}\n"))
    }

    /// Writes the file of a peer as it is, for tests of bad ones.
    pub fn write_peer_file(&self, peer: &str, content: &str) -> Result<(), Error> {
        let directory = self.peers_directory()?;
        let temporary = directory.with_file_name(format!("peer-{peer}.new"));
        fs::write(&temporary, content)
            .and_then(|()| fs::rename(&temporary, directory.join(peer)))
            .map_err(|source| self.peer_error("write", peer, &directory, source))
    }

    /// Takes a peer away.
    pub fn remove_peer(&self, peer: &str) -> Result<(), Error> {
        let directory = self.peers_directory()?;
        fs::remove_file(directory.join(peer))
            .map_err(|source| self.peer_error("remove", peer, &directory, source))
    }

    fn peer_error(
        &self,
        action: &'static str,
        peer: &str,
        directory: &Path,
        source: io::Error,
    ) -> Error {
        let (cluster, peer) = (self.name.clone(), peer.to_owned());
        PeerError {
            cluster,
            action,
            peer,
            directory: directory.to_owned(),
            source,
        }
        .into()
    }
}

fn peers_directory(plane: &ControlPlane) -> PathBuf {
    plane.directory.join("peers")
}
