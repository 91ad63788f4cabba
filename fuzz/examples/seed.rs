//! Writes the recorded records of Cilium as inputs: `cargo run --example seed FIXTURES CORPUS`.

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use data_encoding::BASE64;
use serde_json::Value;
use tombolo_core::wire::endpoint_slice;

/// Targets by what their keys have after `cilium/state/` or `cilium/cache/`.
const KINDS: [(&str, &str); 6] = [
    ("services/v1/", "cluster_service"),
    ("serviceexports/v1/", "service_export"),
    ("endpointslices/v1/", "endpoint_slice"),
    ("identities/v1/", "identity"),
    ("ip/v1/", "ip"),
    ("nodes/v1/", "node"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(fixtures), Some(corpus)) = (arguments.next(), arguments.next()) else {
        return Err("usage: seed FIXTURES CORPUS".into());
    };
    let mut inputs = BTreeSet::new();
    for file in json_files(&fixtures)? {
        let records: Value = serde_json::from_slice(&fs::read(&file)?)?;
        for record in records.as_array().into_iter().flatten() {
            inputs.extend(inputs_of(record)?);
        }
    }
    for (index, (target, input)) in inputs.iter().enumerate() {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("recorded-{index:04}")), input)?;
    }
    println!("{} inputs", inputs.len());
    Ok(())
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(json_files(&path)?);
        } else if path.extension().is_some_and(|it| it == "json") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The inputs that a record gives, by target.
fn inputs_of(record: &Value) -> Result<Vec<(&'static str, Vec<u8>)>, Box<dyn Error>> {
    let key = record["key"].as_str().or(record["put"].as_str());
    let value = match (record["value"].as_str(), record["value_base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_owned(),
        (None, Some(text)) => BASE64.decode(text.as_bytes())?,
        (None, None) => return Ok(Vec::new()),
    };
    let input = |suffix: &str, value: &[u8]| [suffix.as_bytes(), b"\n", value].concat();
    let Some(key) = key else {
        return Ok(Vec::new());
    };
    if key.starts_with("cilium/cluster-config/") {
        return Ok(vec![("cluster_config", input("", &value))]);
    }
    let Some(rest) = ["cilium/state/", "cilium/cache/"]
        .iter()
        .find_map(|root| key.strip_prefix(root))
    else {
        return Ok(Vec::new());
    };
    let found = KINDS
        .iter()
        .find_map(|(prefix, target)| Some((*target, rest.strip_prefix(prefix)?)));
    let Some((target, (_, suffix))) =
        found.and_then(|(target, rest)| Some((target, rest.split_once('/')?)))
    else {
        return Ok(Vec::new());
    };
    let mut inputs = vec![(target, input(suffix, &value))];
    if target == "endpoint_slice" {
        let message = endpoint_slice::unpack(&value)?;
        inputs.push(("endpoint_slice_message", input(suffix, &message)));
    }
    Ok(inputs)
}
