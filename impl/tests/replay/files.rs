//! Reading files of a recording.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Name of a file or folder.
pub(crate) fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(crate) fn subfolders(folder: &Path) -> Vec<PathBuf> {
    entries(folder, true)
}

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
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
pub(crate) fn merge(target: &mut Value, patch: &Value) {
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

pub(crate) fn of_kind<T: DeserializeOwned>(
    objects: &[Value],
    kind: &str,
) -> Result<Vec<Arc<T>>, String> {
    objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .map(|object| parse(object.clone()).map(Arc::new))
        .collect()
}

pub(crate) fn parse<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

pub(crate) fn documents(file: &Path) -> Result<Vec<Value>, String> {
    // As Kubernetes reads YAML: `y` is a text.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(&read(file)?, options)
        .map_err(|error| format!("{}: {error}", file.display()))
}

pub(crate) fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
