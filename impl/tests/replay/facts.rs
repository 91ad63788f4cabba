//! What of an object is compared: everything but names with random ends, addresses that the API server picks, uids and times.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tombolo_api::keys;

/// Facts about the objects of one kind, by name.
pub(crate) type Facts = BTreeMap<String, Value>;

/// A kind of output that is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// What the cluster publishes.
    Record,
    /// Conditions of its ServiceExports.
    ServiceExport,
    /// ServiceImports, whole.
    ServiceImport,
    /// Derived Services.
    DerivedService,
    /// Slices of local endpoints, mirrored to the derived Service.
    MirroredSlice,
    /// Slices of the peers' endpoints.
    SyncedSlice,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Record,
        Self::ServiceExport,
        Self::ServiceImport,
        Self::DerivedService,
        Self::MirroredSlice,
        Self::SyncedSlice,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Record => "Record",
            Self::ServiceExport => "ServiceExport",
            Self::ServiceImport => "ServiceImport",
            Self::DerivedService => "DerivedService",
            Self::MirroredSlice => "MirroredSlice",
            Self::SyncedSlice => "SyncedSlice",
        }
    }

    /// Whether an object, as recorded or as made, is of this kind.
    fn includes(self, object: &Value) -> bool {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let manager = object["metadata"]["labels"][keys::MANAGED_BY].as_str();
        match self {
            Self::Record => false,
            Self::ServiceExport => kind == "ServiceExport",
            Self::ServiceImport => kind == "ServiceImport",
            Self::DerivedService => kind == "Service" && name.starts_with("derived-"),
            Self::MirroredSlice => manager == Some(keys::MANAGED_BY_MIRROR),
            Self::SyncedSlice => manager == Some(keys::MANAGED_BY_MESH),
        }
    }
}

/// The facts about all objects of a kind.
pub(crate) fn of_objects(kind: Kind, objects: &[Value]) -> Facts {
    let mut facts = Facts::new();
    for object in objects.iter().filter(|object| kind.includes(object)) {
        let (name, fact) = of_object(kind, object.clone());
        let taken = facts
            .keys()
            .filter(|key| key.split('#').next() == Some(&name));
        let name = match taken.count() {
            0 => name,
            others => format!("{name}#{}", others + 1),
        };
        facts.insert(name, pruned(fact));
    }
    facts
}

fn of_object(kind: Kind, mut object: Value) -> (String, Value) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let name = match kind {
        Kind::SyncedSlice => synced_name(&object),
        Kind::Record
        | Kind::ServiceExport
        | Kind::ServiceImport
        | Kind::DerivedService
        | Kind::MirroredSlice => name.to_owned(),
    };
    for field in ["apiVersion", "kind"] {
        remove(&mut object, field);
    }
    for field in [
        "name",
        "generateName",
        "namespace",
        "creationTimestamp",
        "uid",
    ] {
        remove(&mut object["metadata"], field);
    }
    match kind {
        Kind::Record => {}
        Kind::ServiceExport => object = json!({ "conditions": conditions(&object) }),
        Kind::ServiceImport => {
            if object["status"].is_object() {
                object["status"]["conditions"] = conditions(&object);
            }
        }
        Kind::DerivedService => allotted(&mut object),
        Kind::MirroredSlice | Kind::SyncedSlice => unordered(&mut object),
    }
    (name, object)
}

/// What a slice of remote endpoints is of. Its name ends with random letters in Cilium, with a hash in ours.
fn synced_name(slice: &Value) -> String {
    let labels = &slice["metadata"]["labels"];
    let service = &labels[keys::KUBERNETES_SERVICE_NAME];
    let texts = [
        service,
        &labels[keys::SOURCE_CLUSTER],
        &slice["addressType"],
    ];
    texts
        .map(|text| text.as_str().unwrap_or_default())
        .join("/")
}

/// Conditions by type, without times.
fn conditions(object: &Value) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let by_type = conditions.into_iter().flatten().map(|condition| {
        let mut condition = condition.clone();
        let kind = remove(&mut condition, "type");
        remove(&mut condition, "lastTransitionTime");
        (kind.as_str().unwrap_or_default().to_owned(), condition)
    });
    Value::Object(by_type.collect())
}

/// Takes out of a Service what the API server allots. Whether it is headless remains.
fn allotted(service: &mut Value) {
    let spec = &mut service["spec"];
    let address = remove(spec, "clusterIP");
    remove(spec, "clusterIPs");
    remove(spec, "ipFamilies");
    spec["headless"] = (address == "None").into();
    remove(service, "status");
}

/// Sorts endpoints and ports, and completes the ports as the API server does.
fn unordered(slice: &mut Value) {
    if let Some(endpoints) = slice["endpoints"].as_array_mut() {
        endpoints.sort_by_key(|endpoint| endpoint["addresses"].to_string());
    }
    if let Some(ports) = slice["ports"].as_array_mut() {
        for port in ports.iter_mut() {
            for (field, default) in [("name", ""), ("protocol", "TCP")] {
                if port[field].is_null() {
                    port[field] = default.into();
                }
            }
        }
        ports.sort_by_key(Value::to_string);
    }
}

fn remove(object: &mut Value, field: &str) -> Value {
    let members = object.as_object_mut();
    members
        .and_then(|members| members.remove(field))
        .unwrap_or_default()
}

/// Without members that say nothing: absent, empty list and empty map mean the same in the API.
pub(crate) fn pruned(value: Value) -> Value {
    let says_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    match value {
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, value)| (name, pruned(value)));
            Value::Object(
                members
                    .filter(|(_, value)| !says_nothing(value))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.into_iter().map(pruned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
