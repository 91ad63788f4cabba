//! The directory with one file per peer, as Cilium mounts it: file name = the peer's cluster name, content = an etcd client file.
//!
//! Any regular file that contains `endpoints:` is a peer; the local cluster's own is ignored, and so are certificates that lie
//! beside. One broken file never touches the other peers. A directory that cannot be read says nothing about peers; neither does
//! a file that is there but empty, for instance while it is being written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use thiserror::Error;
use tokio::sync::mpsc;
use tombolo_core::names::{ClusterName, InvalidName};

use crate::kvstore::config::{ConfigError, EtcdConfig};

/// What makes a file a peer. Cilium's rule.
const MARKER: &str = "endpoints:";

/// What is wrong with the directory or a file in it.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory cannot be read.
    #[error("{}: the directory with the peers' files cannot be read: {source}; check --clustermesh-config and its permissions", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Changes of the directory cannot be watched.
    #[error("{}: changes of the directory cannot be watched: {source}; check the limits of inotify (fs.inotify.max_user_watches)", dir.display())]
    Watch {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: notify::Error,
    },
    /// A file looks like a peer's, but its name is no cluster name.
    #[error("{}: the file name is not a cluster name: {source}; rename it to the peer's cluster name", file.display())]
    Name {
        /// The file.
        file: PathBuf,
        /// The rule.
        source: InvalidName,
    },
    /// A file cannot be read.
    #[error("{}: the file cannot be read: {source}; check its permissions and, if it is a link, where it leads", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of a peer says nothing, or nothing any more.
    #[error("{}: endpoints: missing; expected an etcd client file; what is known of the peer stays: complete the file, or delete it to remove the peer", file.display())]
    Hollow {
        /// The file.
        file: PathBuf,
    },
    /// A client file is broken.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Whether the directory can be read, before anything else is known.
pub fn check(dir: &Path) -> Result<(), Error> {
    let readable = fs::read_dir(dir).map(drop);
    readable.map_err(|source| Error::Directory {
        dir: dir.to_owned(),
        source,
    })
}

/// The directory.
#[derive(Debug, Clone)]
pub struct ConfigDir {
    dir: PathBuf,
    local: ClusterName,
}

/// What was found in the directory.
#[derive(Debug, Default)]
pub struct Scan {
    /// Peers by name, with their client file or what is wrong with it.
    pub peers: BTreeMap<ClusterName, Result<EtcdConfig, Error>>,
    /// Names of files that could be a peer's but do not say so; they keep a peer that is followed.
    pub hollow: BTreeSet<ClusterName>,
    /// What is wrong with files that are nobody's.
    pub problems: Vec<Error>,
}

impl ConfigDir {
    /// The directory, seen by this cluster.
    pub fn new(dir: PathBuf, local: ClusterName) -> Self {
        Self { dir, local }
    }

    /// The path of a peer's file.
    pub fn file(&self, peer: &ClusterName) -> PathBuf {
        self.dir.join(peer.as_str())
    }

    /// Reads the directory and every file in it.
    pub fn scan(&self) -> Result<Scan, Error> {
        let unreadable = |source| Error::Directory {
            dir: self.dir.clone(),
            source,
        };
        let mut scan = Scan::default();
        for entry in fs::read_dir(&self.dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            // Follows links: a mounted Secret is links into a hidden directory. What cannot be followed may be a peer's file.
            match fs::metadata(&path) {
                Ok(entry) if !entry.is_file() => scan.hollow.extend(peer_of(&path).ok()),
                Err(_) if !is_there(&path) => {}
                Ok(_) | Err(_) => self.scan_file(&path, &mut scan),
            }
        }
        Ok(scan)
    }

    fn scan_file(&self, path: &Path, scan: &mut Scan) {
        let name = peer_of(path);
        if name.as_ref() == Ok(&self.local) {
            return;
        }
        let content = match (fs::read(path), name) {
            (Ok(content), Ok(name)) => Ok((String::from_utf8_lossy(&content).into_owned(), name)),
            (Ok(content), Err(source)) => {
                if contains_marker(&content) {
                    let file = path.to_owned();
                    scan.problems.push(Error::Name { file, source });
                }
                return;
            }
            (Err(source), Ok(name)) => Err((source, name)),
            (Err(_), Err(_)) => return,
        };
        match content {
            Ok((content, name)) if content.contains(MARKER) => {
                let config = EtcdConfig::parse(path, &content).map_err(Error::from);
                scan.peers.insert(name, config);
            }
            // Nobody names a file as a cluster to leave it blank: it is being written.
            Ok((content, name)) if content.trim().is_empty() => {
                let file = path.to_owned();
                scan.peers.insert(name, Err(Error::Hollow { file }));
            }
            Ok((_, name)) => {
                scan.hollow.insert(name);
            }
            Err((source, name)) => {
                let file = path.to_owned();
                scan.peers.insert(name, Err(Error::File { file, source }));
            }
        }
    }

    /// Tells whenever something in the directory changed. Several changes may come as one.
    pub fn watch(&self) -> Result<Changes, Error> {
        // Else a directory that is not there would be told as a limit of inotify.
        fs::read_dir(&self.dir).map_err(|source| Error::Directory {
            dir: self.dir.clone(),
            source,
        })?;
        let failed = |source| Error::Watch {
            dir: self.dir.clone(),
            source,
        };
        let (sender, receiver) = mpsc::channel(1);
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                if event.map_or(true, |event| is_change(event.kind)) {
                    // A full channel means that the change will be seen anyway.
                    let _already_told = sender.try_send(());
                }
            })
            .map_err(failed)?;
        watcher
            .watch(&self.dir, RecursiveMode::NonRecursive)
            .map_err(failed)?;
        Ok(Changes {
            receiver,
            _watcher: watcher,
        })
    }
}

/// Changes of the directory, until dropped.
#[derive(Debug)]
pub struct Changes {
    receiver: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    /// Waits for the next change. Cancel-safe.
    pub async fn next(&mut self) {
        if self.receiver.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// The peer whose file this would be.
fn peer_of(path: &Path) -> Result<ClusterName, InvalidName> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ClusterName::try_from(name.as_ref())
}

/// Whether a name is in its directory, wherever it leads.
fn is_there(path: &Path) -> bool {
    !fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn contains_marker(content: &[u8]) -> bool {
    content
        .windows(MARKER.len())
        .any(|window| window == MARKER.as_bytes())
}

/// Whether an event can mean other content. Reading a file is an event too, and we read.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
        EventKind::Access(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const GOOD: &str = "endpoints: ['http://127.0.0.1:2379']\n";

    fn fixture(files: &[(&str, &str)]) -> (TempDir, ConfigDir) {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(dir.path().join(name), content).unwrap();
        }
        let config = ConfigDir::new(dir.path().to_owned(), "here".try_into().unwrap());
        (dir, config)
    }

    fn names(scan: &Scan) -> Vec<&str> {
        scan.peers.keys().map(ClusterName::as_str).collect()
    }

    #[test]
    fn files_with_endpoints_are_peers_and_nothing_else_is() {
        let (dir, config) = fixture(&[
            ("rome", GOOD),
            ("here", GOOD),
            ("ca.crt", "-----BEGIN CERTIFICATE-----"),
            ("notes", "nothing to see"),
        ]);
        fs::create_dir(dir.path().join("paris")).unwrap();

        let scan = config.scan().unwrap();

        assert_eq!(names(&scan), ["rome"]);
        assert_eq!(
            scan.peers
                .values()
                .next()
                .unwrap()
                .as_ref()
                .unwrap()
                .endpoints(),
            "http://127.0.0.1:2379"
        );
        assert!(scan.problems.is_empty());
    }

    #[test]
    fn a_broken_file_is_told_with_file_and_field_and_the_others_go_on() {
        let (_dir, config) = fixture(&[
            ("rome", GOOD),
            ("paris", "endpoints: []"),
            ("oslo", "endpoints: ["),
            ("Bad_Name", GOOD),
        ]);

        let scan = config.scan().unwrap();

        let told = |name: &str| {
            let name: ClusterName = name.try_into().unwrap();
            scan.peers[&name].as_ref().unwrap_err().to_string()
        };
        assert_eq!(names(&scan), ["oslo", "paris", "rome"]);
        assert!(
            told("paris").contains("/paris: endpoints: there are none; expected"),
            "{}",
            told("paris")
        );
        assert!(
            told("oslo").contains("/oslo: (the whole file): is not valid"),
            "{}",
            told("oslo")
        );
        assert!(
            scan.problems[0]
                .to_string()
                .contains("Bad_Name: the file name is not a cluster name")
        );
    }

    #[test]
    fn a_missing_directory_is_told() {
        let config = ConfigDir::new("/nowhere/at/all".into(), "here".try_into().unwrap());

        let errors = [
            config.scan().unwrap_err().to_string(),
            config.watch().unwrap_err().to_string(),
        ];

        for error in errors {
            assert!(
                error.starts_with("/nowhere/at/all: ") && error.contains("--clustermesh-config"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_mounted_secret_is_read_through_its_links() {
        let (dir, config) = fixture(&[]);
        fs::create_dir(dir.path().join("..v1")).unwrap();
        fs::write(dir.path().join("..v1/rome"), GOOD).unwrap();
        symlink("..v1", dir.path().join("..data")).unwrap();
        symlink("..data/rome", dir.path().join("rome")).unwrap();

        assert_eq!(names(&config.scan().unwrap()), ["rome"]);
    }

    #[test]
    fn a_blank_file_is_a_peer_that_is_being_written_and_a_directory_may_have_been_one() {
        let (dir, config) = fixture(&[("rome", ""), ("oslo", " \n"), ("notes", "nothing")]);
        fs::create_dir(dir.path().join("paris")).unwrap();

        let scan = config.scan().unwrap();

        assert_eq!(names(&scan), ["oslo", "rome"]);
        let mut peers = scan.peers.values();
        assert!(peers.all(|peer| matches!(peer, Err(Error::Hollow { .. }))));
        let hollow: Vec<_> = scan.hollow.iter().map(ClusterName::as_str).collect();
        assert_eq!(hollow, ["notes", "paris"]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_a_file_that_cannot_be_read() {
        let (dir, config) = fixture(&[("rome", GOOD)]);
        symlink("..data/paris", dir.path().join("paris")).unwrap();
        symlink("oslo", dir.path().join("oslo")).unwrap();
        symlink("..data/ca.crt", dir.path().join("ca.crt")).unwrap();

        let scan = config.scan().unwrap();

        assert_eq!(names(&scan), ["oslo", "paris", "rome"]);
        for (name, peer) in scan.peers {
            let unreadable = matches!(peer, Err(Error::File { .. }));
            assert_eq!(unreadable, name.as_str() != "rome");
        }
        assert!(scan.problems.is_empty());
    }

    #[tokio::test]
    async fn a_change_is_told_and_reading_is_none() {
        let (dir, config) = fixture(&[("rome", GOOD)]);
        let mut changes = config.watch().unwrap();

        fs::write(dir.path().join("paris"), GOOD).unwrap();
        changes.next().await;
        // Whatever else belonged to the write comes before the answer to this: a marker that is renamed into place.
        fs::write(dir.path().join("oslo"), GOOD).unwrap();
        changes.next().await;

        assert_eq!(names(&config.scan().unwrap()), ["oslo", "paris", "rome"]);
    }
}
