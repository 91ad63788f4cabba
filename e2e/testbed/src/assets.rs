//! The binaries of Kubernetes and etcd: found, never built and never downloaded here; `make assets` builds them.
//!
//! Looked for in this order, each directory of a list in turn: `TOMBOLO_ASSETS`, `KUBEBUILDER_ASSETS`, `PATH`, the cache
//! that `make assets` fills. kube-apiserver and kube-controller-manager come from the same directory: they must be of one
//! version.

mod node;

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};

pub use self::node::{MissingNodeAssets, NodeAssets};

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const KUBECTL: &str = "kubectl";

/// Oldest etcd that serves streaming lists, which needs RequestWatchProgress (etcd 3.6).
const OLDEST_ETCD: (u32, u32) = (3, 6);

/// What `make assets` builds from; the cache is keyed by it, so that a new version is built anew.
const PINS: [&str; 5] = [
    include_str!("../../../tools/etcd/go.mod"),
    include_str!("../../../tools/etcd/go.sum"),
    include_str!("../../../tools/etcd/main.go"),
    include_str!("../../../tools/kubernetes/go.mod"),
    include_str!("../../../tools/kubernetes/go.sum"),
];

/// Where the binaries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets {
    /// etcd, 3.6 or newer.
    pub etcd: PathBuf,
    /// kube-apiserver; Kubernetes 1.36 is what is verified.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager, from the directory of [`Self::kube_apiserver`].
    pub kube_controller_manager: PathBuf,
    /// kubectl. The testbed itself does without it.
    pub kubectl: Option<PathBuf>,
}

/// Binaries are missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "missing: {}; run `make assets` (builds them once, about 7 minutes), or name a directory that has them \
     in TOMBOLO_ASSETS. Looked in:{}",
    missing.join(", "),
    list(places)
)]
pub struct MissingAssets {
    /// Names of the missing binaries, with a reason where one was found and refused.
    pub missing: Vec<String>,
    /// Where was looked.
    pub places: Vec<Place>,
}

/// A directory, and what named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `TOMBOLO_ASSETS`, `KUBEBUILDER_ASSETS`, `PATH` or `cache`.
    pub named_by: &'static str,
    /// The directory.
    pub directory: PathBuf,
}

fn list(places: &[Place]) -> String {
    places.iter().fold(String::new(), |mut text, place| {
        let _ = write!(
            text,
            "\n  {} ({})",
            place.directory.display(),
            place.named_by
        );
        text
    })
}

impl Assets {
    /// Looks for the binaries where the environment says.
    pub fn find() -> Result<Self, MissingAssets> {
        Self::find_in(places(|name| env::var_os(name)))
    }

    /// The directory that `make assets` fills; `None` when neither `TOMBOLO_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set.
    pub fn cache_directory() -> Option<PathBuf> {
        cache(|name| env::var_os(name))
    }

    /// kubectl alone, from the same places.
    pub fn kubectl() -> Result<PathBuf, MissingAssets> {
        let places = places(|name| env::var_os(name));
        let found = places.iter().find_map(|place| program(place, KUBECTL));
        let missing = vec![KUBECTL.to_owned()];
        found.ok_or(MissingAssets { missing, places })
    }

    /// Looks in these places, in order.
    pub fn find_in(places: Vec<Place>) -> Result<Self, MissingAssets> {
        let etcd = find_etcd(&places);
        let kubernetes = places.iter().find_map(|place| {
            Some((
                program(place, API_SERVER)?,
                program(place, CONTROLLER_MANAGER)?,
            ))
        });
        let kubectl = places.iter().find_map(|place| program(place, KUBECTL));
        match (etcd, kubernetes) {
            (Ok(etcd), Some((kube_apiserver, kube_controller_manager))) => Ok(Self {
                etcd,
                kube_apiserver,
                kube_controller_manager,
                kubectl,
            }),
            (etcd, kubernetes) => {
                let mut missing: Vec<String> = etcd.err().into_iter().collect();
                if kubernetes.is_none() {
                    missing.extend(missing_kubernetes(&places));
                }
                Err(MissingAssets { missing, places })
            }
        }
    }
}

fn find_etcd(places: &[Place]) -> Result<PathBuf, String> {
    let mut refused = String::new();
    for path in places.iter().filter_map(|place| program(place, ETCD)) {
        match etcd_version(&path) {
            Some((version, _)) if version >= OLDEST_ETCD => return Ok(path),
            Some((_, text)) => {
                let _ = write!(refused, " ({} is {text}, 3.6 is needed)", path.display());
            }
            None => {
                let _ = write!(refused, " ({} does not tell its version)", path.display());
            }
        }
    }
    Err(format!("{ETCD}{refused}"))
}

fn etcd_version(path: &Path) -> Option<((u32, u32), String)> {
    let output = Command::new(path).arg("--version").output().ok()?;
    let output = String::from_utf8_lossy(&output.stdout);
    let text = output
        .lines()
        .find_map(|line| line.strip_prefix("etcd Version:"))?
        .trim();
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some(((numbers.next()??, numbers.next()??), text.to_owned()))
}

fn missing_kubernetes(places: &[Place]) -> Vec<String> {
    let absent = |name| !places.iter().any(|place| program(place, name).is_some());
    let names: Vec<_> = [API_SERVER, CONTROLLER_MANAGER]
        .into_iter()
        .filter(|name| absent(name))
        .collect();
    if names.is_empty() {
        return vec![format!(
            "{API_SERVER} and {CONTROLLER_MANAGER} in one directory"
        )];
    }
    names.into_iter().map(str::to_owned).collect()
}

/// The executable file `name` in a place.
pub(crate) fn program(place: &Place, name: &str) -> Option<PathBuf> {
    let path = place.directory.join(name);
    let metadata = path.metadata().ok()?;
    (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(path)
}

fn places(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Vec<Place> {
    let mut places = Vec::new();
    for named_by in ["TOMBOLO_ASSETS", "KUBEBUILDER_ASSETS", "PATH"] {
        let directories = variable(named_by).unwrap_or_default();
        let directories = env::split_paths(&directories).filter(|it| it.as_os_str() != "");
        places.extend(directories.map(|directory| Place {
            named_by,
            directory,
        }));
    }
    if let Some(directory) = cache(variable) {
        places.push(Place {
            named_by: "cache",
            directory,
        });
    }
    places
}

/// Where `make assets` puts what it builds.
fn cache(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    Some(cache_base(variable)?.join(version_key(&PINS)))
}

/// The directory that holds one directory for each set and version.
pub(crate) fn cache_base(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let set = |name| {
        variable(name)
            .filter(|value| value != OsStr::new(""))
            .map(PathBuf::from)
    };
    let base = set("TOMBOLO_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("tombolo")))
        .or_else(|| Some(set("HOME")?.join(".cache/tombolo")))?;
    Some(base.join("assets"))
}

/// Name of the directory for the pinned versions, the same that `tools/assets` computes.
pub(crate) fn version_key(pins: &[&str]) -> String {
    let mut hash = Sha256::new();
    for pin in pins {
        hash.update(pin);
    }
    let hex = data_encoding::HEXLOWER.encode(&hash.finalize());
    hex[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn missing_binaries_are_one_message_with_the_command_that_gets_them() {
        let empty = tempfile::tempdir().unwrap();

        let message = Assets::find_in(vec![place(empty.path())])
            .unwrap_err()
            .to_string();

        assert!(
            message.starts_with(
                "missing: etcd, kube-apiserver, kube-controller-manager; run `make assets`"
            ),
            "{message}"
        );
        assert!(
            message.contains(&empty.path().display().to_string()),
            "{message}"
        );
    }

    #[test]
    fn an_old_etcd_is_refused_and_a_later_one_taken() {
        let [old, new] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        install(
            old.path(),
            &[ETCD, API_SERVER, CONTROLLER_MANAGER],
            "3.4.23",
        );
        install(new.path(), &[ETCD], "3.6.1");

        let refused = Assets::find_in(vec![place(old.path())])
            .unwrap_err()
            .to_string();
        let taken = Assets::find_in(vec![place(old.path()), place(new.path())]).unwrap();

        assert!(refused.contains("is 3.4.23, 3.6 is needed"), "{refused}");
        assert_eq!(taken.etcd, new.path().join(ETCD));
        assert_eq!(taken.kubectl, None);
    }

    #[test]
    fn api_server_and_controller_manager_come_from_one_directory() {
        let [one, other, both] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        install(one.path(), &[ETCD, API_SERVER], "3.6.1");
        install(other.path(), &[CONTROLLER_MANAGER], "");
        install(both.path(), &[API_SERVER, CONTROLLER_MANAGER], "");
        let apart = vec![place(one.path()), place(other.path())];

        let refused = Assets::find_in(apart.clone()).unwrap_err().to_string();
        let taken = Assets::find_in([apart, vec![place(both.path())]].concat()).unwrap();

        assert!(refused.contains("in one directory"), "{refused}");
        assert_eq!(taken.kube_apiserver, both.path().join(API_SERVER));
    }

    #[test]
    fn places_are_in_the_documented_order() {
        let variable = |name: &str| match name {
            "TOMBOLO_ASSETS" => Some("/t1:/t2".into()),
            "KUBEBUILDER_ASSETS" => Some("/k".into()),
            "PATH" => Some("/p".into()),
            "HOME" => Some("/home/u".into()),
            _ => None,
        };

        let places = places(variable);

        let directories: Vec<_> = places
            .iter()
            .map(|it| it.directory.to_str().unwrap())
            .collect();
        assert_eq!(directories[..4], ["/t1", "/t2", "/k", "/p"]);
        assert!(directories[4].starts_with("/home/u/.cache/tombolo/assets/"));
    }

    fn place(directory: &Path) -> Place {
        Place {
            named_by: "TOMBOLO_ASSETS",
            directory: directory.to_owned(),
        }
    }

    /// By `cp`: a file that this process itself wrote may still be open in a child that another test is just starting,
    /// and then it cannot be run.
    fn install(directory: &Path, names: &[&str], version: &str) {
        let text = directory.join("text");
        fs::write(
            &text,
            format!("#!/bin/sh\necho 'etcd Version: {version}'\n"),
        )
        .unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        for name in names {
            let copied = Command::new("cp")
                .arg(&text)
                .arg(directory.join(name))
                .status();
            assert!(copied.unwrap().success());
        }
    }
}
