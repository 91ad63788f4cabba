//! Control groups: one that is called as the run in every hierarchy, and below it one per cluster.
//!
//! All processes of a run are in its group of cgroup2, where one write ends them all, however they were started and
//! whoever their parent is (see [`crate::run`]). Pods are below the group of their cluster in every hierarchy, as kubelet
//! puts them. Groups that a run did not make are never written to.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::LocalError;
use crate::run::Run;

/// Group of the processes of a node that are not in pods.
const HOST: &str = "host";

/// Moves its own process, then becomes what follows. Programs of a node look for others on `PATH`, which seldom has the
/// directories of the system's programs for users.
const ENTER: &str = r#"echo 0 >"$0" && PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" exec "$@""#;

/// The groups of a run.
#[derive(Debug)]
pub(super) struct Cgroups {
    name: String,
    /// Mount points of cgroup v1 hierarchies.
    v1: Vec<PathBuf>,
    /// Mount point of cgroup2.
    unified: PathBuf,
}

impl Cgroups {
    /// Makes the groups of this run, in all hierarchies that are mounted.
    pub(super) fn make(run: &Run) -> Result<Self, LocalError> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let (v1, unified) = hierarchies(&mounts);
        let groups = Self {
            name: run.name(),
            v1,
            unified: unified.ok_or(LocalError::NoUnified)?,
        };
        let failed = |source| LocalError::Cgroup {
            path: groups.unified.join(&groups.name),
            source,
        };
        run.add_cgroups().map_err(failed)?;
        groups.make_everywhere(Path::new(&groups.name))?;
        let kill = groups.unified.join(&groups.name).join("cgroup.kill");
        if kill.exists() {
            Ok(groups)
        } else {
            Err(LocalError::NoUnified)
        }
    }

    /// Makes the groups of a cluster.
    pub(super) fn add_cluster(&self, cluster: &str) -> Result<(), LocalError> {
        self.make_everywhere(&Path::new(&self.name).join(cluster))?;
        make(&self.unified.join(&self.name).join(cluster).join(HOST))
    }

    /// `cgroupRoot` of a cluster's kubelet.
    pub(super) fn root_of(&self, cluster: &str) -> String {
        format!("/{}/{cluster}", self.name)
    }

    /// Command that puts a process into the group of a cluster's host processes before it becomes what follows.
    pub(super) fn enter(&self, cluster: &str) -> Vec<String> {
        let group = self.unified.join(&self.name).join(cluster).join(HOST);
        let procs = group.join("cgroup.procs").display().to_string();
        ["sh", "-c", ENTER, &procs].map(str::to_owned).to_vec()
    }

    /// Pids of all processes of the run.
    pub(super) fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        let mut pending = vec![self.unified.join(&self.name)];
        while let Some(group) = pending.pop() {
            let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            pids.extend(procs.lines().filter_map(|it| it.parse::<u32>().ok()));
            let below = fs::read_dir(&group).into_iter().flatten().flatten();
            pending.extend(below.map(|it| it.path()).filter(|it| it.is_dir()));
        }
        pids
    }

    fn make_everywhere(&self, group: &Path) -> Result<(), LocalError> {
        for hierarchy in &self.v1 {
            make(&hierarchy.join(group))?;
            inherit_cpuset(&hierarchy.join(group))?;
        }
        let unified = self.unified.join(group);
        make(&unified)?;
        delegate(&unified)
    }
}

/// Mount points of v1 hierarchies, and of cgroup2.
fn hierarchies(mounts: &str) -> (Vec<PathBuf>, Option<PathBuf>) {
    let of_type = |wanted: &'static str| {
        mounts.lines().filter_map(move |line| {
            let mut words = line.split(' ').skip(1);
            let (path, kind) = (words.next()?, words.next()?);
            (kind == wanted && path.starts_with("/sys/fs/cgroup")).then(|| PathBuf::from(path))
        })
    };
    (of_type("cgroup").collect(), of_type("cgroup2").next())
}

fn make(group: &Path) -> Result<(), LocalError> {
    match fs::create_dir(group) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(in_group(group)(source)),
    }
}

/// A new group of the v1 hierarchy `cpuset` has no processors, and takes no process until it has.
fn inherit_cpuset(group: &Path) -> Result<(), LocalError> {
    let parent = group.parent().unwrap_or(group);
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let path = group.join(name);
        if path.exists() {
            let inherited = fs::read(parent.join(name)).map_err(in_group(&path))?;
            fs::write(&path, inherited).map_err(in_group(&path))?;
        }
    }
    Ok(())
}

/// Passes every controller that a group of cgroup2 has on to the groups below it. With v1 hierarchies it has none.
fn delegate(group: &Path) -> Result<(), LocalError> {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let path = group.join("cgroup.subtree_control");
    for controller in controllers.split_whitespace() {
        fs::write(&path, format!("+{controller}")).map_err(in_group(&path))?;
    }
    Ok(())
}

fn in_group(path: &Path) -> impl FnOnce(io::Error) -> LocalError {
    let path = path.to_owned();
    move |source| LocalError::Cgroup { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_beside_each_other_and_alone() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n\
                       cgroup2 /mnt/elsewhere cgroup2 rw 0 0\n";

        assert_eq!(
            hierarchies(hybrid),
            (
                vec!["/sys/fs/cgroup/pids".into()],
                Some("/sys/fs/cgroup/unified".into())
            )
        );
        assert_eq!(
            hierarchies(unified),
            (Vec::new(), Some("/sys/fs/cgroup".into()))
        );
        assert_eq!(hierarchies("proc /proc proc rw 0 0\n"), (Vec::new(), None));
    }
}
