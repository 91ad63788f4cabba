//! What a run must not touch: the network and the settings of the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use anyhow::{Result, ensure};
use tombolo_testbed::{Cluster, Testbed};

/// Settings of the whole machine, or of its network, that nodes want otherwise.
const SETTINGS: [&str; 8] = [
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv6/conf/all/forwarding",
    "/proc/sys/net/ipv4/conf/all/route_localnet",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxkeys",
];

/// Directories and files that programs of nodes make, unless they are kept from it.
const PATHS: [&str; 9] = [
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
    "/run/containerd",
    "/run/netns",
    "/run/xtables.lock",
    "/opt/containerd",
    "/usr/libexec/kubernetes",
];

/// How the machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    settings: BTreeMap<&'static str, String>,
    routes: String,
    devices: BTreeSet<String>,
    mounts: usize,
    paths: BTreeSet<&'static str>,
}

impl Machine {
    pub(crate) fn look() -> Result<Self> {
        let setting = |path| Some((path, fs::read_to_string(path).ok()?));
        let devices = fs::read_to_string("/proc/net/dev")?;
        let devices = devices.lines().filter_map(|it| it.split_once(':'));
        let exists = |path: &&str| fs::symlink_metadata(path).is_ok();
        Ok(Self {
            settings: SETTINGS.into_iter().filter_map(setting).collect(),
            routes: fs::read_to_string("/proc/net/route")?,
            devices: devices.map(|(name, _)| name.trim().to_owned()).collect(),
            mounts: fs::read_to_string("/proc/self/mounts")?.lines().count(),
            paths: PATHS.into_iter().filter(exists).collect(),
        })
    }

    /// Also while clusters run.
    pub(crate) fn is_unchanged(&self) -> Result<()> {
        let now = Self::look()?;
        ensure!(*self == now, "before: {self:#?}\nnow: {now:#?}");
        Ok(())
    }
}

/// Every process of the run, pods included, is in a network namespace other than that of this program.
pub(crate) async fn elsewhere(bed: &Testbed) -> Result<()> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let pids = bed.pids_with_pods();
    let components = bed.clusters().iter().map(Cluster::pids);
    let components: usize = components.map(|it| Ok(it?.len())).sum::<Result<usize>>()?;

    let link = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let inside: Vec<PathBuf> = pids.iter().filter_map(|pid| link(*pid)).collect();

    ensure!(
        inside.len() > components,
        "{components} and pods: {inside:?}"
    );
    ensure!(!inside.contains(&own), "{pids:?}");
    Ok(())
}
