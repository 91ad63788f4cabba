//! The objects in a file of manifests that have one name; or file, document and field of what is wrong. Pure.

use std::{
    io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Namespace, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tombolo_api::v1beta1::ServiceExport;
use tombolo_core::names::{ClusterName, InvalidName, NamespacedName};

use crate::cluster::facts;

/// Why manifests cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error("{}: {source}; expected a file of YAML documents, or a directory of such files; check the path", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A directory has no manifests.
    #[error("{}: no file; expected files that end with .yaml, .yml or .json; name the directory that has them", path.display())]
    NoFiles {
        /// The directory.
        path: PathBuf,
    },
    /// The name of a file does not say whose it is.
    #[error("{}: the file's name does not say which cluster it belongs to: {source}; write CLUSTER={}", path.display(), path.display())]
    Whose {
        /// The file.
        path: PathBuf,
        /// The rule.
        #[source]
        source: InvalidName,
    },
    /// A file is not YAML.
    #[error("{}: not YAML: {source}; correct it there", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A file has no document.
    #[error("{}: no document; expected a Service and a ServiceExport; fill it or leave it out", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A field is missing or wrong.
    #[error("{place}: field {field}: expected {expected}, found {found}; correct the field")]
    Field {
        /// File and document.
        place: String,
        /// Path of the field.
        field: String,
        /// What belongs there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// An object that the API server would not accept, or that this version does not know.
    #[error("{place}: {source}")]
    Facts {
        /// File and document.
        place: String,
        /// Object, field and rule.
        #[source]
        source: facts::Error,
    },
    /// One object, twice.
    #[error(
        "{place}: cluster {cluster} has this {kind} already, in {other}; keep one, or say which cluster each file belongs to with -f CLUSTER=FILE"
    )]
    Twice {
        /// File and document of the second.
        place: String,
        /// File and document of the first.
        other: String,
        /// The kind.
        kind: &'static str,
        /// The cluster.
        cluster: ClusterName,
    },
    /// The files are about something else.
    #[error(
        "no Service and no ServiceExport {name} in the files; check NAME, --namespace and the files"
    )]
    NotThere {
        /// What was looked for.
        name: NamespacedName,
    },
}

/// What matters of a manifest.
pub(super) enum Object {
    Service(Box<Service>),
    Export(Box<ServiceExport>),
    Namespace(Box<Namespace>),
}

/// The kinds that matter: API group, versions, kind.
const KINDS: [(&str, &[&str], &str); 4] = [
    ("", &["v1"], "Service"),
    ("", &["v1"], "Namespace"),
    ("", &["v1"], "List"),
    (
        tombolo_api::GROUP,
        &["v1beta1", "v1alpha1"],
        "ServiceExport",
    ),
];

/// The objects of this name in a file, each with its place: file and document.
pub(super) fn read(
    path: &Path,
    text: &str,
    name: &NamespacedName,
) -> Result<Vec<(Object, String)>, Error> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|source| Error::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
    if documents.is_empty() {
        return Err(Error::Empty {
            path: path.to_owned(),
        });
    }
    let mut found = Vec::new();
    for (number, document) in (1..).zip(&documents) {
        let place = format!("{}: document {number}", path.display());
        add(document, place, name, &mut found)?;
    }
    Ok(found)
}

fn add(
    value: &Value,
    place: String,
    name: &NamespacedName,
    found: &mut Vec<(Object, String)>,
) -> Result<(), Error> {
    let Some(kind) = kind_of(value, &place)? else {
        return Ok(());
    };
    if kind == "List" {
        let items = value.get("items").and_then(Value::as_array);
        let wrong = || wrong(&place, "items", "a list of objects", value.get("items"));
        for (number, item) in (1..).zip(items.ok_or_else(wrong)?) {
            add(item, format!("{place}, item {number}"), name, found)?;
        }
        return Ok(());
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let Some(object) = text("/metadata/name").filter(|text| !text.is_empty()) else {
        let stated = value.pointer("/metadata/name");
        return Err(wrong(&place, "metadata.name", "a name", stated));
    };
    if kind == "Namespace" {
        if object == name.namespace.as_str() {
            let namespace = Object::Namespace(Box::new(typed(value, &place)?));
            found.push((namespace, place));
        }
        return Ok(());
    }
    // As with kubectl, an object without namespace goes into the one that was asked for.
    let namespace = text("/metadata/namespace").unwrap_or(name.namespace.as_str());
    if (namespace, object) != (name.namespace.as_str(), name.name.as_str()) {
        return Ok(());
    }
    let mut value = value.clone();
    value["metadata"]["namespace"] = namespace.into();
    let object = if kind == "Service" {
        Object::Service(Box::new(typed(&value, &place)?))
    } else {
        Object::Export(Box::new(typed(&value, &place)?))
    };
    found.push((object, place));
    Ok(())
}

/// The kind, if it is one that matters.
fn kind_of(value: &Value, place: &str) -> Result<Option<&'static str>, Error> {
    let text = |field: &'static str, expected| {
        let text = value.get(field).and_then(Value::as_str);
        text.ok_or_else(|| wrong(place, field, expected, value.get(field)))
    };
    if !value.is_object() {
        return Err(wrong(
            place,
            "(root)",
            "an object of Kubernetes",
            Some(value),
        ));
    }
    let kind = text("kind", "a kind such as Service or ServiceExport")?;
    let api_version = text("apiVersion", "an API version such as v1")?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let known = KINDS
        .iter()
        .find(|known| known.0 == group && known.2 == kind);
    let Some((_, versions, kind)) = known else {
        return Ok(None);
    };
    if versions.contains(&version) {
        return Ok(Some(*kind));
    }
    let versions: Vec<_> = versions
        .iter()
        .map(|it| {
            if group.is_empty() {
                (*it).to_owned()
            } else {
                format!("{group}/{it}")
            }
        })
        .collect();
    let stated = value.get("apiVersion");
    Err(wrong(place, "apiVersion", &versions.join(" or "), stated))
}

fn wrong(place: &str, field: &str, expected: &str, found: Option<&Value>) -> Error {
    Error::Field {
        place: place.to_owned(),
        field: field.to_owned(),
        expected: expected.to_owned(),
        found: found.map_or_else(|| "nothing".to_owned(), shown),
    }
}

/// The value as JSON, at most 80 characters of it.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn typed<T: DeserializeOwned>(value: &Value, place: &str) -> Result<T, Error> {
    serde_json::from_value(value.clone()).map_err(|error| {
        let pointer = culprit::<T>(value);
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let message = error.to_string();
        // The decoder says `invalid type: string "x", expected i32`.
        let expected = message.rsplit_once("expected ");
        let expected = expected.map_or(message.as_str(), |it| it.1);
        wrong(place, &field, expected, value.pointer(&pointer))
    })
}

/// JSON pointer (RFC 6901) to the innermost field without which the value could be read.
fn culprit<T: DeserializeOwned>(value: &Value) -> String {
    let mut pointer = String::new();
    while let Some(child) = children(value.pointer(&pointer))
        .into_iter()
        .find(|child| T::deserialize(&without(value, &pointer, child)).is_ok())
    {
        let child = child.replace('~', "~0").replace('/', "~1");
        pointer = format!("{pointer}/{child}");
    }
    pointer
}

/// Names of an object's members, or indices of a list's items.
fn children(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Object(members)) => members.keys().cloned().collect(),
        Some(Value::Array(items)) => (0..items.len()).map(|index| index.to_string()).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {
            Vec::new()
        }
    }
}

/// The value without one child of what the pointer points to.
fn without(value: &Value, pointer: &str, child: &str) -> Value {
    let mut value = value.clone();
    let parent = value.pointer_mut(pointer);
    if let Some(Value::Object(members)) = parent {
        members.remove(child);
    } else if let (Some(Value::Array(items)), Ok(index)) = (parent, child.parse::<usize>()) {
        items.remove(index);
    }
    value
}
