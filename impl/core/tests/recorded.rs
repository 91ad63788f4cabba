//! The decisions of the core against those of Cilium 1.20.2, recorded: the exports that were in the clusters' stores go in,
//! what Cilium wrote into ServiceExports and ServiceImports must come out. Where Tombolo differs on purpose, it says so here.

#![expect(
    clippy::unwrap_used,
    reason = "a broken fixture may fail the test at once"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use tombolo_core::{
    conditions::{Condition, ExportOutcome, export_conditions, import_condition},
    export::Refusal,
    families,
    merge::{Merged, merge},
    names::{ClusterName, NamespacedName},
    service::{ExportSpec, IpFamily},
    wire::service_export,
};

const SUPPORTED_FAMILIES: &str = "clustermesh.cilium.io/supported-ip-families";
const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";

/// What one cluster looked like after one step of a scenario, and what all clusters exported then.
struct Snapshot {
    /// Scenario, step and cluster, as in the file's name.
    label: String,
    exports: BTreeMap<NamespacedName, Vec<ExportSpec>>,
    objects: Vec<Value>,
}

impl Snapshot {
    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |object| object["kind"] == kind)
    }

    fn merged(&self, object: &Value) -> Option<Merged> {
        let metadata = &object["metadata"];
        let name = NamespacedName::parse(text(&metadata["namespace"]), text(&metadata["name"]));
        merge(self.exports.get(&name.unwrap())?)
    }
}

fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

/// Paths of what is in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn snapshots() -> Vec<Snapshot> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    ["cilium-1.20.2", "cilium-1.20.2-three-clusters"]
        .iter()
        .flat_map(|recording| entries(&root.join(recording)))
        .flat_map(|scenario| entries(&scenario))
        .filter(|path| {
            let file = path.file_name().unwrap().to_string_lossy();
            file.starts_with("after-") && file.ends_with("-objects.yaml")
        })
        .map(|path| {
            let folder = path.parent().unwrap();
            let scenario = folder.file_name().unwrap().to_string_lossy();
            let file = path.file_name().unwrap().to_string_lossy();
            let (step, _) = file.rsplit_once("-c").unwrap();
            let objects = fs::read_to_string(&path).unwrap();
            Snapshot {
                label: format!("{scenario}/{}", file.trim_end_matches("-objects.yaml")),
                exports: exports(folder, step),
                objects: serde_saphyr::from_multiple(&objects).unwrap(),
            }
        })
        .collect()
}

/// The `serviceexports` records of all clusters after one step.
fn exports(scenario: &Path, step: &str) -> BTreeMap<NamespacedName, Vec<ExportSpec>> {
    let mut exports = BTreeMap::<_, Vec<_>>::new();
    for path in entries(scenario) {
        let file = path.file_name().unwrap().to_string_lossy();
        if !file.starts_with(&format!("{step}-")) || !file.ends_with("-records.json") {
            continue;
        }
        let records: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for record in records {
            let Some(suffix) = text(&record["key"]).strip_prefix("cilium/state/serviceexports/v1/")
            else {
                continue;
            };
            let (cluster, suffix) = suffix.split_once('/').unwrap();
            let cluster = ClusterName::try_from(cluster).unwrap();
            let value = text(&record["value"]).as_bytes();
            let export = service_export::decode(&cluster, suffix, value).unwrap();
            exports.entry(export.name.clone()).or_default().push(export);
        }
    }
    exports
}

/// Type, status, reason and message of each condition.
type Summary = BTreeMap<String, [String; 3]>;

fn recorded_conditions(object: &Value) -> Summary {
    let conditions = object["status"]["conditions"].as_array();
    let field = |condition: &Value, name: &str| text(&condition[name]).to_owned();
    conditions
        .into_iter()
        .flatten()
        .map(|c| {
            (
                field(c, "type"),
                ["status", "reason", "message"].map(|name| field(c, name)),
            )
        })
        .collect()
}

fn summary(conditions: Vec<Condition>) -> Summary {
    let pair = |c: Condition| {
        (
            c.kind.to_string(),
            [c.status.to_string(), c.reason, c.message],
        )
    };
    conditions.into_iter().map(pair).collect()
}

/// What Tombolo says on purpose where Cilium says what was recorded.
fn with_deviations(label: &str, mut recorded: Summary) -> Summary {
    let Some([_, reason, message]) = recorded.get_mut("Conflict") else {
        return recorded;
    };
    // The text of the application protocol, not the address of the text.
    if let (Some(start), true) = (message.find("TCP 0x"), label.starts_with("x03-")) {
        let address = start + "TCP ".len();
        let end = address + message[address..].find(' ').unwrap();
        message.replace_range(address..end, "kubernetes.io/h2c");
    }
    // The number of seconds, not the character of that number.
    if label.starts_with("x13-") {
        *message = message.replace('ɘ', "600");
    }
    // All conflicts, not the first one.
    if label.starts_with("t02-order/after-3-") {
        let first = "Conflicting type. 1/3 clusters disagree. Using \"ClusterSetIP\" from oldest service export in cluster \"c1\".";
        *reason = format!("TypeConflict,{reason}");
        *message = format!("{first} {message}");
    }
    recorded
}

#[test]
fn service_exports_get_the_conditions_that_cilium_gives_them() {
    let mut reasons = BTreeMap::<String, usize>::new();

    for snapshot in snapshots() {
        for export in snapshot.of_kind("ServiceExport") {
            let recorded = with_deviations(&snapshot.label, recorded_conditions(export));
            if recorded["Valid"][0] == "False" {
                continue;
            }

            let merged = snapshot.merged(export).expect(&snapshot.label);
            let conditions = export_conditions(ExportOutcome::Merged(&merged.conflicts));

            *reasons.entry(recorded["Conflict"][1].clone()).or_default() += 1;
            assert_eq!(summary(conditions), recorded, "{}", snapshot.label);
        }
    }

    let seen: Vec<_> = reasons.keys().map(String::as_str).collect();
    assert_eq!(
        seen,
        [
            "AnnotationsConflict",
            "IPFamilyConflict",
            "InternalTrafficPolicyConflict",
            "LabelsConflict",
            "NoConflicts",
            "PortConflict",
            "SessionAffinityConfigConflict",
            "SessionAffinityConflict",
            "TrafficDistributionConflict",
            "TypeConflict",
            "TypeConflict,LabelsConflict",
        ]
    );
    assert!(reasons["PortConflict"] >= 14, "{reasons:?}");
}

#[test]
fn refused_service_exports_get_the_conditions_that_cilium_gives_them() {
    let mut refusals = BTreeSet::new();

    for snapshot in snapshots() {
        for export in snapshot.of_kind("ServiceExport") {
            let recorded = recorded_conditions(export);
            let refusal = match recorded["Valid"][1].as_str() {
                "NoService" => Refusal::NoService,
                "InvalidServiceType" => Refusal::InvalidServiceType,
                "NamespaceNotGlobal" => Refusal::NamespaceNotGlobal,
                _ => continue,
            };

            let conditions = export_conditions(ExportOutcome::Refused(refusal));

            refusals.insert(recorded["Valid"][1].clone());
            assert_eq!(summary(conditions), recorded, "{}", snapshot.label);
        }
    }

    assert_eq!(refusals.len(), 3, "{refusals:?}");
}

/// The part of a ServiceImport's spec that the merge decides.
fn spec_of(merged: &Merged) -> Value {
    let port = |port: &tombolo_core::service::ServicePort| {
        let mut object = json!({ "protocol": port.protocol.as_str(), "port": port.port });
        if !port.name.is_unnamed() {
            object["name"] = port.name.as_str().into();
        }
        if let Some(protocol) = &port.app_protocol {
            object["appProtocol"] = protocol.as_str().into();
        }
        object
    };
    let mut spec = json!({
        "ports": merged.ports.iter().map(port).collect::<Vec<_>>(),
        "type": merged.import_type.as_str(),
        "sessionAffinity": merged.session_affinity.as_str(),
    });
    if let Some(seconds) = merged.session_affinity_timeout_seconds {
        spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": seconds } });
    }
    if let Some(families) = &merged.ip_families {
        spec["ipFamilies"] = families.iter().map(|family| family.as_str()).collect();
    }
    if let Some(policy) = merged.internal_traffic_policy {
        spec["internalTrafficPolicy"] = policy.as_str().into();
    }
    if let Some(distribution) = merged.traffic_distribution {
        spec["trafficDistribution"] = distribution.as_str().into();
    }
    spec
}

fn map_of(pairs: &BTreeMap<String, String>) -> Map<String, Value> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect()
}

#[test]
fn service_imports_are_what_cilium_makes_of_the_same_exports() {
    let enabled = BTreeSet::from([IpFamily::V4, IpFamily::V6]);
    let mut compared = 0;

    for snapshot in snapshots() {
        for import in snapshot.of_kind("ServiceImport") {
            // Cilium leaves an import behind in a cluster whose own export became invalid; Tombolo goes on with the others.
            let Some(merged) = snapshot.merged(import) else {
                assert_eq!(snapshot.label, "m24-svc-removed/after-3-c1");
                continue;
            };
            let supported = families::supported(merged.ip_families.as_deref(), &enabled);
            let mut spec = import["spec"].clone();
            let ips = spec.as_object_mut().unwrap().remove("ips");
            let mut annotations = import["metadata"]["annotations"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            let derived = annotations.remove(DERIVED_SERVICE);
            let clusters = import["status"]["clusters"].as_array().unwrap();

            compared += 1;
            let label = &snapshot.label;
            assert_eq!(spec, spec_of(&merged), "{label}");
            let labels = import["metadata"]["labels"].as_object().cloned();
            assert_eq!(
                labels.unwrap_or_default(),
                map_of(&merged.labels),
                "{label}"
            );
            let families = annotations.remove(SUPPORTED_FAMILIES);
            assert_eq!(
                families,
                Some(families::to_annotation(&supported).into()),
                "{label}"
            );
            assert_eq!(annotations, map_of(&merged.annotations), "{label}");
            let clusters: Vec<_> = clusters
                .iter()
                .map(|entry| text(&entry["cluster"]))
                .collect();
            let expected: Vec<_> = merged.clusters.iter().map(ClusterName::as_str).collect();
            assert_eq!(clusters, expected, "{label}");
            let global = !label.starts_with("n07-importer-gated/after-2-c2");
            let condition = import_condition(global, &supported, derived.is_some());
            assert_eq!(
                summary(vec![condition]),
                recorded_conditions(import),
                "{label}"
            );
            assert_import_ips(&snapshot, import, &supported, ips.as_ref());
        }
    }

    assert!(compared >= 60, "only {compared} imports were compared");
}

/// The import's IPs are those of its derived Service, in the order of the supported families.
fn assert_import_ips(
    snapshot: &Snapshot,
    import: &Value,
    supported: &[IpFamily],
    ips: Option<&Value>,
) {
    let annotation = &import["metadata"]["annotations"][DERIVED_SERVICE];
    let derived = snapshot
        .of_kind("Service")
        .find(|service| service["metadata"]["name"] == *annotation);
    let Some(derived) = derived.filter(|service| service["spec"]["clusterIP"] != "None") else {
        return;
    };
    let cluster_ips = derived["spec"]["clusterIPs"].as_array().unwrap();
    let cluster_ips: Vec<_> = cluster_ips
        .iter()
        .map(|ip| text(ip).parse().unwrap())
        .collect();

    let expected = families::import_ips(&cluster_ips, Some(supported));

    let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(ips, Some(&json!(expected)), "{}", snapshot.label);
}
