//! Why clusters with nodes could not be made.

use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

/// Any failure of provider `local`.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The temporary directory is where a node has directories of its own.
    #[error(
        "{}: nodes have their own /var and /run, so their files cannot be there; set TMPDIR to a directory elsewhere",
        directory.display()
    )]
    Directory {
        /// The temporary directory.
        directory: PathBuf,
    },
    /// No cgroup2 that can end a group.
    #[error(
        "no cgroup2 in /proc/mounts; Linux 5.14 or newer with cgroup2 mounted is needed, beside cgroup v1 or alone"
    )]
    NoUnified,
    /// A control group could not be made.
    #[error("control group {}: {source}", path.display())]
    Cgroup {
        /// Directory or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A command could not be run.
    #[error("cannot run {command}: {source}")]
    Run {
        /// The command.
        command: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A command failed.
    #[error("{command}: {status}: {output}")]
    Command {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote.
        output: String,
    },
    /// A command did not end in time.
    #[error("{command}: still running after {waited:?}, given up")]
    Late {
        /// The command.
        command: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Something of the cluster did not become ready.
    #[error("{cluster}: {source}")]
    NotReady {
        /// Name of the cluster.
        cluster: String,
        /// What was waited for.
        #[source]
        source: crate::WaitError,
    },
    /// The process of a container could not be killed.
    #[error("{cluster}: cannot kill container {container}: {said}")]
    NotKilled {
        /// Name of the cluster.
        cluster: String,
        /// Id of the container.
        container: String,
        /// What was said on the node.
        said: String,
    },
}
