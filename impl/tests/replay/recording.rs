//! Recorded states of clusters that ran Cilium: which there are, and reading them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use data_encoding::BASE64;
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

use crate::files::{documents, files, merge, name_of, of_kind, parse, read, subfolders};

/// The version of Cilium that made a recording, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 1.18: exports with capitalised members and without policies, services without zones.
    V1_18,
    /// 1.19: no global namespaces, no `endpointSliceObjects`, MCS-API in v1alpha1.
    V1_19,
    /// 1.20, and what came after it.
    V1_20,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_18 => "1.18",
            Self::V1_19 => "1.19",
            Self::V1_20 => "1.20",
        })
    }
}

impl Version {
    /// The versions that a text names, in its order.
    fn all_in(text: &str) -> Vec<Self> {
        let known = [Self::V1_18, Self::V1_19, Self::V1_20];
        text.match_indices("1.")
            .filter_map(|(at, _)| {
                let rest = &text[at..];
                let named = |version: &Self| rest.starts_with(&version.to_string());
                known.into_iter().find(named)
            })
            .collect()
    }
}

/// A folder of scenarios that one mesh was recorded in.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// Name of the folder.
    pub(crate) name: String,
    folder: PathBuf,
    /// The version of all clusters, or of c1, c2 and so on.
    versions: Vec<Version>,
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
        let mut versions = Version::all_in(&name);
        if versions.is_empty() {
            versions.push(version_of_objects(folder));
        }
        Self {
            name,
            folder: folder.to_owned(),
            versions,
        }
    }

    /// The version that a cluster ran.
    pub(crate) fn version(&self, cluster: &str) -> Version {
        let number = cluster.strip_prefix('c').and_then(|it| it.parse().ok());
        let index = number.unwrap_or(1_usize).saturating_sub(1);
        let version = self.versions.get(index).or(self.versions.first());
        *version.expect("invariant: a tree has a version")
    }

    /// Whether all of its clusters ran one version.
    pub(crate) fn is_mixed(&self) -> bool {
        self.versions.len() > 1
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
        self.stores().into_iter().map(|it| it.cluster).collect()
    }

    /// The steps after which the objects of a cluster were recorded.
    pub(crate) fn steps(&self, cluster: &str) -> Vec<u32> {
        let stores = self.stores().into_iter();
        let with_objects = stores.filter(|it| it.cluster == cluster && it.has_objects());
        with_objects.map(|it| it.step).collect()
    }

    /// Every recorded content of a store, in the order of the steps.
    pub(crate) fn stores(&self) -> Vec<Store> {
        let files = files(&self.folder).into_iter();
        let mut stores: Vec<_> = files.filter_map(|file| Store::at(&file)).collect();
        stores.sort();
        stores
    }

    /// The folder of another scenario of the same tree.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.folder.with_file_name(name)
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

/// A recorded store of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Store {
    /// After which step of the scenario; 0 for the keys of the mesh as a whole.
    pub(crate) step: u32,
    /// Whose store, or, of a hand-written peer, whose reader.
    pub(crate) cluster: String,
    file: PathBuf,
}

/// Who read the keys of a hand-written peer.
const READER: &str = "c1";

impl Store {
    fn at(file: &Path) -> Option<Self> {
        let name = name_of(file);
        let (step, cluster) = if name == "puts.json" {
            (0, READER)
        } else if let Some(cluster) = name
            .strip_suffix("-mesh-keys.json")
            .or_else(|| name.strip_suffix("-etcd.json"))
        {
            (0, cluster)
        } else {
            let middle = name.strip_prefix("after-")?.strip_suffix("-records.json")?;
            let (step, cluster) = middle.split_once('-')?;
            (step.parse().ok()?, cluster)
        };
        let (cluster, file) = (cluster.to_owned(), file.to_owned());
        Some(Self {
            step,
            cluster,
            file,
        })
    }

    fn has_objects(&self) -> bool {
        let name = format!("after-{}-{}-objects.yaml", self.step, self.cluster);
        self.file.with_file_name(name).exists()
    }

    /// Keys and exact values. Of a key that was put several times, the last.
    pub(crate) fn read(&self) -> Result<BTreeMap<String, Vec<u8>>, String> {
        let broken = |error: &dyn fmt::Display| format!("{}: {error}", self.file.display());
        let text = read(&self.file)?;
        let records: Vec<Value> = serde_json::from_str(&text).map_err(|error| broken(&error))?;
        let mut stored = BTreeMap::new();
        for record in &records {
            let key = record["key"].as_str().or(record["put"].as_str());
            let value = match (record["value"].as_str(), record["value_base64"].as_str()) {
                (Some(text), _) => text.as_bytes().to_owned(),
                (None, Some(text)) => BASE64
                    .decode(text.as_bytes())
                    .map_err(|error| broken(&error))?,
                (None, None) => return Err(broken(&"a record without value")),
            };
            stored.insert(key.ok_or("a record without key")?.to_owned(), value);
        }
        Ok(stored)
    }
}

/// What Cilium's operator said of the keys of a hand-written peer: the refusals, by cluster and key after the prefix.
pub(crate) fn refusals(folder: &Path) -> Result<BTreeMap<(String, String), String>, String> {
    let log = read(&folder.join("operator-log-lines.txt"))?;
    let mut refusals = BTreeMap::new();
    for line in log.lines() {
        let Some(rest) = line.strip_prefix("warn \"Unable to unmarshal value\" clusterName=")
        else {
            continue;
        };
        let parts = rest.split_once(" key=");
        let (cluster, (key, error)) = parts
            .and_then(|(cluster, rest)| Some((cluster, rest.split_once(" error=")?)))
            .ok_or_else(|| format!("no key and error in {line:?}"))?;
        let error = serde_json::from_str(error).map_err(|error| error.to_string())?;
        refusals.insert((cluster.to_owned(), key.to_owned()), error);
    }
    Ok(refusals)
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
    files(folder).iter().any(|file| Store::at(file).is_some())
}
