//! What clusters have under one name, read from manifests: no cluster needed.
//!
//! What is wrong with a file is said with file, document and field. Objects of other names and other kinds are passed over.
//! Empty documents are not counted, here as in messages.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{ClientIPConfig, Namespace, Service, SessionAffinityConfig},
    apimachinery::pkg::apis::meta::v1::Time,
};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::{
    export::{ExportVerdict, evaluate, namespace_is_global},
    names::{ClusterName, NamespacedName},
};

use super::{
    advice::Place,
    document::{self, Object},
    report::{Gathered, Member},
};
use crate::cluster::facts;

use super::document::Error;

/// Session affinity time-out that the API server fills in, in seconds. Kubernetes, `ClientIPConfig`.
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Endings of files that are read from a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// A file or directory of manifests, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestSource {
    cluster: Option<ClusterName>,
    path: PathBuf,
}

impl ManifestSource {
    /// Parses `FILE` or `CLUSTER=FILE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (cluster, path) = match text.split_once('=') {
            // A path may contain the sign too, but not before its first slash.
            Some((cluster, path)) if !cluster.contains('/') => {
                let cluster = ClusterName::try_from(cluster).map_err(|error| error.to_string())?;
                (Some(cluster), path)
            }
            _ => (None, text),
        };
        if path.is_empty() {
            return Err("expected FILE or CLUSTER=FILE".to_owned());
        }
        Ok(Self {
            cluster,
            path: path.into(),
        })
    }

    /// Every file with the cluster that it belongs to.
    fn files(&self) -> Result<Vec<(ClusterName, PathBuf)>, Error> {
        let mut paths = vec![self.path.clone()];
        if self.path.is_dir() {
            paths = self.in_directory()?;
        }
        let owner = |path: PathBuf| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let named = ClusterName::try_from(stem.as_ref());
            let cluster = match (&self.cluster, named) {
                (Some(cluster), _) => cluster.clone(),
                (None, Ok(named)) => named,
                (None, Err(source)) => return Err(Error::Whose { path, source }),
            };
            Ok((cluster, path))
        };
        paths.into_iter().map(owner).collect()
    }

    fn in_directory(&self) -> Result<Vec<PathBuf>, Error> {
        let path = &self.path;
        let unreadable = |source| Error::Read {
            path: path.clone(),
            source,
        };
        let entries = fs::read_dir(path).map_err(unreadable)?;
        let entries: Result<Vec<_>, _> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = entries.map_err(unreadable)?;
        let ending = |path: &Path| path.extension().map(|it| it.to_string_lossy().into_owned());
        paths.retain(|path| ending(path).is_some_and(|it| ENDINGS.contains(&it.as_str())));
        paths.sort();
        if paths.is_empty() {
            return Err(Error::NoFiles { path: path.clone() });
        }
        Ok(paths)
    }
}

/// The objects of one cluster, and where they are written.
#[derive(Default)]
struct Objects {
    service: Option<(Service, String)>,
    export: Option<(ServiceExport, String)>,
    namespace: Option<(Namespace, String)>,
    /// Whether the ServiceExport states no creation time.
    undated: bool,
}

/// Reads all files.
pub(super) fn gather(
    name: &NamespacedName,
    sources: &[ManifestSource],
    default_global: bool,
) -> Result<Gathered, Error> {
    let mut clusters: BTreeMap<ClusterName, Objects> = BTreeMap::new();
    let mut undated = Vec::new();
    for source in sources {
        for (cluster, path) in source.files()? {
            let text = fs::read_to_string(&path).map_err(|source| Error::Read {
                path: path.clone(),
                source,
            })?;
            let objects = clusters.entry(cluster.clone()).or_default();
            for (object, place) in document::read(&path, &text, name)? {
                objects.add(object, place, &cluster)?;
            }
            if objects.undated && !undated.contains(&cluster) {
                undated.push(cluster);
            }
        }
    }
    let empty = |it: &Objects| it.service.is_none() && it.export.is_none();
    if clusters.values().all(empty) {
        return Err(Error::NotThere { name: name.clone() });
    }
    let mut notes = date(&mut clusters, &undated);
    let members = clusters.into_iter();
    let members: Result<Vec<_>, _> = members
        .map(|(cluster, objects)| objects.member(cluster, &undated, default_global))
        .collect();
    let members = members?;
    notes.extend(note_on_families(&members));
    Ok(Gathered {
        members,
        unread: Vec::new(),
        notes,
    })
}

/// Gives ServiceExports without creation time one: after all known ones, in the order of the files.
fn date(clusters: &mut BTreeMap<ClusterName, Objects>, undated: &[ClusterName]) -> Vec<String> {
    let known = clusters.values().filter_map(|objects| {
        let (export, _) = objects.export.as_ref()?;
        Some(export.metadata.creation_timestamp.as_ref()?.0)
    });
    let latest = known.max().unwrap_or(Timestamp::UNIX_EPOCH);
    for (position, cluster) in (1..).zip(undated) {
        let Some((export, _)) = clusters.get_mut(cluster).and_then(|it| it.export.as_mut()) else {
            continue;
        };
        let time = latest.saturating_add(SignedDuration::from_secs(position));
        export.metadata.creation_timestamp = Some(Time(time.unwrap_or(Timestamp::MAX)));
    }
    if undated.is_empty() {
        return Vec::new();
    }
    let clusters: Vec<_> = undated.iter().map(ToString::to_string).collect();
    vec![format!(
        "The ServiceExports of {} state no metadata.creationTimestamp: they count as younger than all that do, in the order of the files. In a cluster the time of creation decides; times in the condition's message are placeholders.",
        clusters.join(", ")
    )]
}

/// A Service as it is written often leaves the choice of IP families to the API server.
fn note_on_families(members: &[Member]) -> Option<String> {
    let exports: Vec<_> = members
        .iter()
        .filter_map(|member| match &member.verdict {
            ExportVerdict::Exported(export) => Some((&member.cluster, &export.ip_families)),
            ExportVerdict::Refused(_) => None,
        })
        .collect();
    let silent = exports.iter().filter(|(_, families)| families.is_empty());
    let silent: Vec<_> = silent.map(|(cluster, _)| cluster.to_string()).collect();
    (exports.len() > 1 && !silent.is_empty()).then(|| {
        format!(
            "The Services of {} state no spec.ipFamilies, which the API server then chooses: IP families were not compared with theirs.",
            silent.join(", ")
        )
    })
}

impl Objects {
    fn add(&mut self, object: Object, place: String, cluster: &ClusterName) -> Result<(), Error> {
        let (kind, other) = match object {
            Object::Service(service) => {
                let service = with_defaults(*service);
                let before = self.service.replace((service, place.clone()));
                ("Service", before.map(|it| it.1))
            }
            Object::Export(export) => {
                self.undated = export.metadata.creation_timestamp.is_none();
                let before = self.export.replace((*export, place.clone()));
                ("ServiceExport", before.map(|it| it.1))
            }
            Object::Namespace(namespace) => {
                let before = self.namespace.replace((*namespace, place.clone()));
                ("Namespace", before.map(|it| it.1))
            }
        };
        match other {
            None => Ok(()),
            Some(other) => Err(Error::Twice {
                place,
                other,
                kind,
                cluster: cluster.clone(),
            }),
        }
    }

    fn member(
        self,
        cluster: ClusterName,
        undated: &[ClusterName],
        default_global: bool,
    ) -> Result<Member, Error> {
        let understood = |place: &str| {
            let place = place.to_owned();
            move |source| Error::Facts { place, source }
        };
        let service = self
            .service
            .as_ref()
            .map(|(service, place)| facts::service(service).map_err(understood(place)));
        let export = self
            .export
            .as_ref()
            .map(|(export, place)| facts::service_export(export).map_err(understood(place)));
        // A namespace that no file has is one without annotation.
        let global = self.namespace.as_ref().map_or_else(
            || namespace_is_global(None, default_global),
            |(namespace, _)| facts::namespace_is_global(Some(namespace), default_global),
        );
        let (service, export) = (service.transpose()?, export.transpose()?);
        let global = global || export.is_none();
        Ok(Member {
            verdict: evaluate(&cluster, global, service.as_ref(), export.as_ref()),
            since_known: !undated.contains(&cluster),
            cluster,
            place: Place::Files {
                service: self.service.map(|it| it.1),
                export: self.export.map(|it| it.1),
            },
            recorded: None,
        })
    }
}

/// The Service as the API server would complete it, where that matters to a merge.
fn with_defaults(mut service: Service) -> Service {
    let spec = service.spec.get_or_insert_default();
    if spec.session_affinity.as_deref() == Some("ClientIP") {
        let config = spec
            .session_affinity_config
            .get_or_insert_with(SessionAffinityConfig::default);
        let client_ip = config.client_ip.get_or_insert_with(ClientIPConfig::default);
        client_ip
            .timeout_seconds
            .get_or_insert(DEFAULT_AFFINITY_SECONDS);
    }
    service
}

#[cfg(test)]
#[path = "manifests_tests.rs"]
mod tests;
