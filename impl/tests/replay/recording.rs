//! Recorded states of clusters that ran Cilium: which there are, and reading them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};
use tombolo_core::{
    names::ClusterName,
    service::{ClusterService, ExportSpec},
    wire::{cluster_service, key, service_export},
};

/// The version of Cilium that made a recording, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 1.19: no global namespaces, no `endpointSliceObjects`, MCS-API in v1alpha1.
    V1_19,
    /// 1.20, and what came after it.
    V1_20,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_19 => "1.19",
            Self::V1_20 => "1.20",
        })
    }
}

/// A folder of scenarios that one version of Cilium was recorded in.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// Name of the folder.
    pub(crate) name: String,
    folder: PathBuf,
    /// The version, or why the tree is not replayed.
    pub(crate) version: Result<Version, String>,
}

impl Tree {
    /// The trees at or directly below a folder.
    pub(crate) fn all(folder: &Path) -> Vec<Self> {
        let trees = subfolders(folder);
        if trees.iter().any(|folder| is_scenario(folder)) {
            return vec![Self::at(folder)];
        }
        let has_scenarios = |tree: &&PathBuf| subfolders(tree).iter().any(|it| is_scenario(it));
        trees
            .iter()
            .filter(has_scenarios)
            .map(|tree| Self::at(tree))
            .collect()
    }

    fn at(folder: &Path) -> Self {
        let name = name_of(folder);
        let version = match name.as_str() {
            name if name.contains("mixed-") => Err(
                "two versions of Cilium in one mesh: neither made all of the objects".to_owned(),
            ),
            name if name.contains("1.18") => Err(
                "Cilium 1.18 writes records of another shape and no import conditions".to_owned(),
            ),
            name if name.contains("1.19") => Ok(Version::V1_19),
            name if name.contains("1.20") => Ok(Version::V1_20),
            _ => Ok(version_of_objects(folder)),
        };
        Self {
            name,
            folder: folder.to_owned(),
            version,
        }
    }

    /// Every scenario, by name.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let folders = subfolders(&self.folder).into_iter();
        folders
            .map(|folder| Scenario {
                name: name_of(&folder),
                folder,
            })
            .collect()
    }
}

/// For a tree whose name does not tell: 1.19 knows v1alpha1 of the MCS-API only, 1.20 writes v1beta1.
fn version_of_objects(folder: &Path) -> Version {
    let files = subfolders(folder).into_iter().flat_map(|it| files(&it));
    let mut texts = files
        .filter(|file| name_of(file).ends_with("-objects.yaml"))
        .filter_map(|file| fs::read_to_string(file).ok());
    if texts.any(|text| text.contains("multicluster.x-k8s.io/v1alpha1")) {
        Version::V1_19
    } else {
        Version::V1_20
    }
}

/// One recorded scenario: objects were applied in steps, and all clusters were recorded after some of them.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Its name, which is also that of its namespace.
    pub(crate) name: String,
    folder: PathBuf,
}

impl Scenario {
    /// The clusters that were recorded.
    pub(crate) fn clusters(&self) -> BTreeSet<String> {
        let states = self.states().into_iter();
        states.map(|(_, cluster)| cluster).collect()
    }

    /// The steps after which a cluster was recorded.
    pub(crate) fn steps(&self, cluster: &str) -> Vec<u32> {
        let states = self.states().into_iter();
        states
            .filter(|(_, recorded)| recorded == cluster)
            .map(|(step, _)| step)
            .collect()
    }

    fn states(&self) -> Vec<(u32, String)> {
        let mut states: Vec<_> = files(&self.folder)
            .iter()
            .filter_map(|path| {
                let name = name_of(path);
                let middle = name
                    .strip_prefix("after-")?
                    .strip_suffix("-objects.yaml")?
                    .to_owned();
                let (step, cluster) = middle.split_once('-')?;
                Some((step.parse().ok()?, cluster.to_owned()))
            })
            .collect();
        states.sort();
        states
    }

    /// A cluster as it was after a step.
    pub(crate) fn snapshot(&self, step: u32, own: &str) -> Result<Snapshot, String> {
        let file = format!("after-{step}-{own}-objects.yaml");
        let objects = documents(&self.folder.join(file))?;
        let mut snapshot = Snapshot {
            scenario: self.name.clone(),
            cluster: ClusterName::try_from(own).map_err(|error| error.to_string())?,
            namespace: self.applied(step, own, "Namespace")?.map(Arc::new),
            made_by_hand: self.applied(step, own, "ServiceImport")?,
            services: of_kind(&objects, "Service")?,
            exports: of_kind(&objects, "ServiceExport")?,
            slices: of_kind(&objects, "EndpointSlice")?,
            objects,
            records: self.records(step, own)?,
            remote_exports: Vec::new(),
            remote_services: Vec::new(),
        };
        for peer in self.clusters().into_iter().filter(|peer| peer != own) {
            snapshot.add_peer(&peer, &self.records(step, &peer)?)?;
        }
        Ok(snapshot)
    }

    /// The last object of a kind that was applied to a cluster by hand, as the steps left it.
    fn applied<T: DeserializeOwned>(
        &self,
        step: u32,
        cluster: &str,
        kind: &str,
    ) -> Result<Option<T>, String> {
        let mut object: Option<Value> = None;
        for earlier in 1..=step {
            let file = self.folder.join(format!("{earlier}-{cluster}.yaml"));
            if !file.exists() {
                continue;
            }
            for document in documents(&file)? {
                if document["kind"] != kind {
                    continue;
                }
                match document["x-action"].as_str() {
                    None => object = Some(document),
                    Some("merge") => merge(object.get_or_insert(json!({})), &document),
                    Some("delete") => object = None,
                    Some(other) => return Err(format!("action {other} on a {kind}")),
                }
            }
        }
        object.map(parse).transpose()
    }

    /// What a cluster had in its store.
    fn records(&self, step: u32, cluster: &str) -> Result<Records, String> {
        let file = format!("after-{step}-{cluster}-records.json");
        let records: Vec<Value> = serde_json::from_str(&read(&self.folder.join(file))?)
            .map_err(|error| error.to_string())?;
        let text = |record: &Value, member: &str| Some(record[member].as_str()?.to_owned());
        Ok(records
            .iter()
            .filter_map(|record| Some((text(record, "key")?, text(record, "value")?)))
            .collect())
    }
}

/// Keys of a store and their values.
pub(crate) type Records = BTreeMap<String, String>;

/// A cluster after a step, and what its peers had published then.
pub(crate) struct Snapshot {
    pub(crate) scenario: String,
    pub(crate) cluster: ClusterName,
    /// None: there was no such namespace.
    pub(crate) namespace: Option<Arc<Namespace>>,
    /// A ServiceImport that somebody made.
    pub(crate) made_by_hand: Option<ServiceImport>,
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) exports: Vec<Arc<ServiceExport>>,
    pub(crate) slices: Vec<Arc<EndpointSlice>>,
    /// All objects, as recorded.
    pub(crate) objects: Vec<Value>,
    /// What the cluster had published.
    pub(crate) records: Records,
    pub(crate) remote_exports: Vec<ExportSpec>,
    pub(crate) remote_services: Vec<ClusterService>,
}

impl Snapshot {
    fn add_peer(&mut self, peer: &str, records: &Records) -> Result<(), String> {
        let peer = ClusterName::try_from(peer).map_err(|error| error.to_string())?;
        let exports = key::service_exports_prefix(&peer, false);
        let services = key::services_prefix(&peer, false);
        for (key, value) in records {
            if let Some(suffix) = key.strip_prefix(&exports) {
                let export = service_export::decode(&peer, suffix, value.as_bytes());
                let export = export.map_err(|error| format!("{key}: {error}"))?;
                self.remote_exports.push(export);
            } else if let Some(suffix) = key.strip_prefix(&services) {
                // What no reader accepts, as the record of an ExternalName Service, is no one's service.
                let mut dropped = Vec::new();
                let service =
                    cluster_service::decode(&peer, suffix, value.as_bytes(), &mut dropped);
                self.remote_services.extend(service.ok());
            }
        }
        Ok(())
    }
}

fn is_scenario(folder: &Path) -> bool {
    files(folder)
        .iter()
        .any(|file| name_of(file).starts_with("after-"))
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    entries(folder, true)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    entries(folder, false)
}

fn entries(folder: &Path, folders: bool) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}; check TOMBOLO_FIXTURES", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.is_dir() == folders)
        .collect();
    found.sort();
    found
}

/// JSON merge patch, RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in members {
        if value.is_null() {
            target.as_object_mut().map(|members| members.remove(name));
        } else {
            merge(&mut target[name], value);
        }
    }
}

fn of_kind<T: DeserializeOwned>(objects: &[Value], kind: &str) -> Result<Vec<Arc<T>>, String> {
    objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .map(|object| parse(object.clone()).map(Arc::new))
        .collect()
}

pub(crate) fn parse<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

fn documents(file: &Path) -> Result<Vec<Value>, String> {
    // As Kubernetes reads YAML: `y` is a text.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(&read(file)?, options)
        .map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
