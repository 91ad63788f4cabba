//! Replay: the recorded objects of a cluster go in, the bytes that Cilium 1.20 published about them must come out.
//!
//! Every scenario directory below a fixture folder is run, for each cluster and each recorded step. The scenarios listed in
//! [`REQUIRED`] must be there and be equal. Others that are equal count as covered; those that are not are reported as
//! ignored, with the reason in their kind, never as passed. `TOMBOLO_FIXTURES=DIR` names another folder.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt;
use libtest_mimic::{Arguments, Failed, Trial};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tombolo::{
    cluster::facts,
    mesh::publisher::records::{self, Observed, Publishing, Record},
};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::{
    names::{ClusterId, ClusterName},
    wire::key::{service_exports_prefix, services_prefix},
};

/// Scenarios that must replay.
const REQUIRED: [&str; 7] = [
    "m01-basic",
    "m02-both",
    "m04-headless",
    "m11-unnamed",
    "g02-basic",
    "g05-headless",
    "g12-conditions",
];

type Keys = BTreeMap<String, String>;

fn main() {
    let arguments = Arguments::from_args();
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/core/fixtures/cilium-1.20.2");
    let folder = env::var_os("TOMBOLO_FIXTURES").map_or_else(|| default.into(), PathBuf::from);
    libtest_mimic::run(&arguments, trials(&folder)).exit();
}

fn trials(folder: &Path) -> Vec<Trial> {
    let required = REQUIRED.iter().map(|&name| {
        let scenario = folder.join(name);
        Trial::test(name, move || replay(&scenario).map_err(Failed::from)).with_kind("required")
    });
    let others = subfolders(folder).into_iter().filter_map(|scenario| {
        let name = scenario.file_name()?.to_string_lossy().into_owned();
        if REQUIRED.contains(&name.as_str()) || snapshots(&scenario).is_empty() {
            return None;
        }
        Some(match replay(&scenario) {
            Ok(()) => Trial::test(name, || Ok(())).with_kind("covered: equal"),
            Err(why) => Trial::test(name, || Ok(()))
                .with_kind(format!(
                    "not covered: {}",
                    why.lines().next().unwrap_or_default()
                ))
                .with_ignored_flag(true),
        })
    });
    required.chain(others).collect()
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}; check TOMBOLO_FIXTURES", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Step and cluster of every recorded state of a scenario.
fn snapshots(scenario: &Path) -> Vec<(u32, String)> {
    let mut found: Vec<_> = fs::read_dir(scenario)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let middle = name.strip_prefix("after-")?.strip_suffix("-records.json")?;
            let (step, cluster) = middle.split_once('-')?;
            Some((step.parse().ok()?, cluster.to_owned()))
        })
        .collect();
    found.sort();
    found
}

fn replay(scenario: &Path) -> Result<(), String> {
    let snapshots = snapshots(scenario);
    if snapshots.is_empty() {
        return Err(format!("no recorded state in {}", scenario.display()));
    }
    for (step, cluster) in snapshots {
        let expected = recorded(scenario, step, &cluster)?;
        let published = published(scenario, step, &cluster)?;
        compare(&expected, &published).map_err(|why| format!("step {step}, {cluster}: {why}"))?;
    }
    Ok(())
}

fn compare(expected: &Keys, published: &Keys) -> Result<(), String> {
    for (key, value) in expected {
        match published.get(key) {
            None => return Err(format!("{key} is missing")),
            Some(other) if other != value => {
                return Err(format!(
                    "{key} differs\n recorded {value}\npublished {other}"
                ));
            }
            Some(_) => {}
        }
    }
    match published.keys().find(|key| !expected.contains_key(*key)) {
        Some(extra) => Err(format!("{extra} is published, Cilium does not")),
        None => Ok(()),
    }
}

/// The `services` and `serviceexports` records that Cilium wrote.
fn recorded(scenario: &Path, step: u32, cluster: &str) -> Result<Keys, String> {
    let file = scenario.join(format!("after-{step}-{cluster}-records.json"));
    let records: Vec<Value> =
        serde_json::from_str(&read(&file)?).map_err(|error| error.to_string())?;
    let text = |record: &Value, member: &str| Some(record[member].as_str()?.to_owned());
    Ok(records
        .iter()
        .filter_map(|record| Some((text(record, "key")?, text(record, "value")?)))
        .filter(|(key, _)| {
            ["cilium/state/services/", "cilium/state/serviceexports/"]
                .iter()
                .any(|prefix| key.starts_with(prefix))
        })
        .collect())
}

/// The records that we publish about the recorded objects.
fn published(scenario: &Path, step: u32, cluster: &str) -> Result<Keys, String> {
    let publishing = publishing(cluster)?;
    let state = State::read(scenario, step, cluster)?;
    let services = state.services.iter().map(|object| key_of(object.as_ref()));
    let exports = state.exports.iter().map(|object| key_of(object.as_ref()));
    let mut keys = Keys::new();
    for name in services.chain(exports) {
        let built = records::build(&publishing, &state.observe(&name));
        if let Some(error) = built.skipped.first() {
            return Err(error.to_string());
        }
        let suffix = format!("{}/{}", name.0, name.1);
        let service = services_prefix(&publishing.cluster, false) + &suffix;
        let export = service_exports_prefix(&publishing.cluster, false) + &suffix;
        for (key, record) in [(service, built.service), (export, built.export)] {
            if let Record::Present(value) = record {
                let value = String::from_utf8(value).map_err(|error| error.to_string())?;
                keys.insert(key, value);
            }
        }
    }
    Ok(keys)
}

/// The objects of a cluster at one step.
struct State {
    namespace: Option<Arc<Namespace>>,
    services: Vec<Arc<Service>>,
    exports: Vec<Arc<ServiceExport>>,
    slices: Vec<Arc<EndpointSlice>>,
}

impl State {
    fn read(scenario: &Path, step: u32, cluster: &str) -> Result<Self, String> {
        let file = scenario.join(format!("after-{step}-{cluster}-objects.yaml"));
        let objects = documents(&file)?;
        Ok(Self {
            namespace: namespace(scenario, step, cluster)?.map(Arc::new),
            services: of_kind(&objects, "Service")?,
            exports: of_kind(&objects, "ServiceExport")?,
            slices: of_kind(&objects, "EndpointSlice")?,
        })
    }

    fn observe(&self, name: &(String, String)) -> Observed {
        Observed {
            namespace: self.namespace.clone(),
            service: named(&self.services, name),
            export: named(&self.exports, name),
            slices: self
                .slices
                .iter()
                .filter(|slice| facts::service_of(slice).as_ref() == Some(&name.1))
                .cloned()
                .collect(),
        }
    }
}

fn named<T: ResourceExt>(objects: &[Arc<T>], name: &(String, String)) -> Option<Arc<T>> {
    let found = objects
        .iter()
        .find(|object| key_of(object.as_ref()) == *name);
    found.cloned()
}

fn key_of(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn publishing(cluster: &str) -> Result<Publishing, String> {
    let id: u32 = cluster
        .strip_prefix('c')
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| format!("cluster {cluster} has no known id"))?;
    Ok(Publishing {
        cluster: ClusterName::try_from(cluster).map_err(|error| error.to_string())?,
        id: ClusterId::try_from(id).map_err(|error| error.to_string())?,
        default_global_namespace: true,
    })
}

/// The namespace as the steps applied to this cluster left it.
fn namespace(scenario: &Path, step: u32, cluster: &str) -> Result<Option<Namespace>, String> {
    let mut namespace: Option<Value> = None;
    for earlier in 1..=step {
        let file = scenario.join(format!("{earlier}-{cluster}.yaml"));
        if !file.exists() {
            continue;
        }
        for document in documents(&file)? {
            if document["kind"] != "Namespace" {
                continue;
            }
            match document["x-action"].as_str() {
                None => namespace = Some(document),
                Some("merge") => merge(namespace.get_or_insert(json!({})), &document),
                Some("delete") => namespace = None,
                Some(other) => return Err(format!("action {other} on a namespace")),
            }
        }
    }
    namespace.map(parse).transpose()
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

fn parse<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

fn documents(file: &Path) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(&read(file)?)
        .map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
