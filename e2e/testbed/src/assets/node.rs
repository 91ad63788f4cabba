//! What nodes need besides a control plane: binaries that `make assets-node` builds, and programs of the system that
//! `tools/setup node` installs or names.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{Place, cache_base, program, version_key};
use crate::engine::exit_code;

/// What `make assets-node` builds from; the cache is keyed by it.
const PINS: [&str; 9] = [
    include_str!("../../../../tools/node/kubernetes/go.mod"),
    include_str!("../../../../tools/node/kubernetes/go.sum"),
    include_str!("../../../../tools/node/coredns/go.mod"),
    include_str!("../../../../tools/node/coredns/go.sum"),
    include_str!("../../../../tools/node/coredns/main.go"),
    include_str!("../../../../tools/node/helm/go.mod"),
    include_str!("../../../../tools/node/helm/go.sum"),
    include_str!("../../../../tools/node/pause/go.mod"),
    include_str!("../../../../tools/node/pause/main.go"),
];

/// Binaries of the set.
const BINARIES: [&str; 6] = [
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "pause",
    "helm",
];

/// Programs of the system, and the Debian package of each.
const PROGRAMS: [(&str, &str); 17] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("tar", "tar"),
    ("ldd", "libc-bin"),
    ("busybox", "busybox-static"),
    ("dash", "dash"),
    ("socat", "socat"),
    ("nc.openbsd", "netcat-openbsd"),
    ("nslookup", "bind9-dnsutils"),
];

/// Plugins that the network of pods is made of, and where distributions put them.
const CNI_PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
const CNI_DIRECTORIES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Where system programs are besides `PATH`, which seldom has them for users.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where they are. The binaries are of one directory, so that their versions fit.
#[derive(Clone, Debug)]
pub struct NodeAssets {
    directory: PathBuf,
    programs: Vec<PathBuf>,
    cni: PathBuf,
}

/// Why there can be no nodes here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingNodeAssets {
    /// Directories that were looked at, when none has all binaries.
    binaries: Option<Vec<PathBuf>>,
    programs: Vec<(&'static str, &'static str)>,
    not_root: bool,
}

impl std::error::Error for MissingNodeAssets {}

impl fmt::Display for MissingNodeAssets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons = Vec::new();
        if self.not_root {
            reasons.push("it needs root, for namespaces and control groups".to_owned());
        }
        if let Some(looked) = &self.binaries {
            let looked: Vec<_> = looked.iter().map(|it| it.display().to_string()).collect();
            reasons.push(format!(
                "no directory has {}; run `make assets-node` (builds them once, about 7 minutes). Looked in: {}",
                BINARIES.join(", "),
                looked.join(", ")
            ));
        }
        if !self.programs.is_empty() {
            let named = |(program, package): &(_, _)| format!("{program} (package {package})");
            let programs: Vec<_> = self.programs.iter().map(named).collect();
            let programs = programs.join(", ");
            reasons.push(format!(
                "missing on this machine: {programs}; run `tools/setup node`"
            ));
        }
        write!(f, "provider local: {}", reasons.join("; "))
    }
}

impl NodeAssets {
    /// Looks for the binaries in `TOMBOLO_ASSETS` and the cache, and for the programs on `PATH`.
    pub fn find() -> Result<Self, MissingNodeAssets> {
        let variable = |name: &str| env::var_os(name);
        let list = variable("TOMBOLO_ASSETS").unwrap_or_default();
        let mut places: Vec<_> = env::split_paths(&list).collect();
        places.extend(Self::cache_directory());
        let directories = program_directories();
        let cni = CNI_DIRECTORIES.map(PathBuf::from);
        let root = rustix::process::geteuid().is_root();
        Self::find_in(&places, &directories, &cni, root)
    }

    /// Those programs of the system that are on `PATH`, which is enough to make images. Others are named as they are called.
    pub(crate) fn programs_only() -> Self {
        let directories = program_directories();
        let found = |(name, _): &(&str, _)| {
            let directory = directories.iter().find(|it| has(it, name));
            directory.map(|it| it.join(name))
        };
        Self {
            directory: PathBuf::new(),
            programs: PROGRAMS.iter().filter_map(found).collect(),
            cni: PathBuf::new(),
        }
    }

    /// For test programs that need nodes: the exit code to end with where there can be none, after saying why. In CI (`CI` is
    /// set) that is a failure; elsewhere `tools/test` lists it as not run.
    pub fn exit_without() -> Option<ExitCode> {
        let missing = Self::find().err()?;
        Some(exit_code(&missing.to_string()))
    }

    /// The directory that `make assets-node` fills; `None` when no variable says where the cache is.
    pub fn cache_directory() -> Option<PathBuf> {
        let base = cache_base(|name| env::var_os(name))?;
        Some(base.join(format!("node-{}", version_key(&PINS))))
    }

    fn find_in(
        places: &[PathBuf],
        directories: &[PathBuf],
        cni: &[PathBuf],
        root: bool,
    ) -> Result<Self, MissingNodeAssets> {
        let directory = places
            .iter()
            .find(|place| BINARIES.iter().all(|name| has(place, name)));
        let mut missing = MissingNodeAssets {
            not_root: !root,
            ..Default::default()
        };
        if directory.is_none() {
            missing.binaries = Some(places.to_vec());
        }
        let mut programs = Vec::new();
        for (name, package) in PROGRAMS {
            match directories.iter().find(|it| has(it, name)) {
                Some(directory) => programs.push(directory.join(name)),
                None => missing.programs.push((name, package)),
            }
        }
        let cni = cni
            .iter()
            .find(|it| CNI_PLUGINS.iter().all(|name| has(it, name)));
        if cni.is_none() {
            let plugins = ("the CNI plugins", "containernetworking-plugins");
            missing.programs.push(plugins);
        }
        match (directory, cni) {
            (Some(directory), Some(cni)) if missing == MissingNodeAssets::default() => Ok(Self {
                directory: directory.clone(),
                programs,
                cni: cni.clone(),
            }),
            _ => Err(missing),
        }
    }

    /// One of the binaries of the set.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// helm, for charts.
    pub fn helm(&self) -> PathBuf {
        self.binary("helm")
    }

    /// One of the programs of the system.
    pub fn program(&self, name: &str) -> PathBuf {
        let found = self.programs.iter().find(|it| it.ends_with(name));
        found.cloned().unwrap_or_else(|| name.into())
    }

    /// Directory of the CNI plugins.
    pub fn cni(&self) -> &Path {
        &self.cni
    }
}

/// Where programs of the system are looked for.
fn program_directories() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<_> = env::split_paths(&path).collect();
    directories.extend(SYSTEM_DIRECTORIES.map(PathBuf::from));
    directories
}

fn has(directory: &Path, name: &str) -> bool {
    let place = Place {
        named_by: "",
        directory: directory.to_owned(),
    };
    program(&place, name).is_some()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn all_that_is_missing_is_one_message_with_the_commands_that_get_it() {
        let empty = tempfile::tempdir().unwrap();
        let empty = [empty.path().to_owned()];

        let missing = NodeAssets::find_in(&empty, &empty, &empty, false).unwrap_err();

        let message = missing.to_string();
        for part in [
            "needs root",
            "run `make assets-node`",
            "kubelet, kube-proxy",
            "socat (package socat)",
            "run `tools/setup node`",
            &empty[0].display().to_string(),
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }

    #[test]
    fn a_directory_is_taken_only_when_it_has_all_binaries() {
        let [part, whole, system] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        install(part.path(), &BINARIES[1..]);
        install(whole.path(), &BINARIES);
        install(system.path(), &PROGRAMS.map(|(name, _)| name));
        install(system.path(), &CNI_PLUGINS);
        let system = [system.path().to_owned()];
        let places = [part.path().to_owned(), whole.path().to_owned()];

        let refused = NodeAssets::find_in(&places[..1], &system, &system, true);
        let taken = NodeAssets::find_in(&places, &system, &system, true).unwrap();

        assert!(refused.is_err_and(|it| it.programs.is_empty() && !it.not_root));
        assert_eq!(taken.binary("kubelet"), whole.path().join("kubelet"));
        assert_eq!(taken.program("nft"), system[0].join("nft"));
    }

    #[test]
    fn nodes_and_control_planes_are_of_one_version() {
        let version = |module: &str| {
            let line = module.lines().find(|it| it.contains("k8s.io/kubernetes v"));
            line.unwrap()
                .trim()
                .trim_start_matches("require ")
                .to_owned()
        };

        assert_eq!(version(PINS[0]), version(super::super::PINS[3]));
    }

    #[test]
    fn the_setup_script_knows_the_same_programs() {
        let script = include_str!("../../../../tools/setup");
        let (_, list) = script.split_once("<<'PROGRAMS'\n").unwrap();
        let (list, _) = list.split_once("PROGRAMS\n").unwrap();

        let own: Vec<_> = PROGRAMS
            .map(|(name, package)| format!("{name} {package}"))
            .to_vec();

        assert_eq!(list.lines().collect::<Vec<_>>(), own);
    }

    fn install(directory: &Path, names: &[&str]) {
        for name in names {
            let path = directory.join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}
