//! What to change, in words and as commands. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tombolo_core::{
    explain::Change,
    export::Refusal,
    names::NamespacedName,
    service::{ExportSpec, ImportType, SessionAffinity, TrafficDistribution},
};

use super::{
    port_patch::port_patch,
    values::{map, or_none, ports, seconds},
};

/// Where the objects of a cluster are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In a cluster that kubectl reaches by this context.
    Context(String),
    /// In files: where the Service is and where the ServiceExport is.
    Files {
        /// File and document of the Service, if there is one.
        service: Option<String>,
        /// File and document of the ServiceExport, if there is one.
        export: Option<String>,
    },
}

impl Place {
    /// Where an object of this kind is, if it is in a file.
    pub(super) fn file_of(&self, kind: &str) -> Option<&str> {
        match self {
            Self::Context(_) => None,
            Self::Files { service, export } => {
                let place = if kind == "Service" { service } else { export };
                place.as_deref()
            }
        }
    }

    /// The command, if there is a cluster to give it to.
    fn kubectl(&self, namespace: &str, rest: &str) -> Option<String> {
        match self {
            Self::Context(context) => {
                let context = quoted(context);
                Some(format!("kubectl --context {context} -n {namespace} {rest}"))
            }
            Self::Files { .. } => None,
        }
    }
}

/// What the field should say.
pub(super) fn wanted(change: &Change) -> String {
    match change {
        Change::Ports(wanted) => format!("{}, in this order", ports(wanted)),
        Change::Type(wanted) => {
            let value = match wanted {
                ImportType::ClusterSetIp => "nothing, so that it gets an address",
                ImportType::Headless => "None",
            };
            format!(
                "{value} (type {wanted}); it cannot be changed in place: delete the Service and create it again"
            )
        }
        Change::SessionAffinity(affinity @ SessionAffinity::ClientIp, timeout) => {
            format!("{affinity}, with a time-out of {}", seconds(*timeout))
        }
        Change::SessionAffinity(affinity @ SessionAffinity::None, _) => affinity.to_string(),
        Change::SessionAffinityTimeout(timeout) => timeout.map_or_else(
            || "no time-out".to_owned(),
            |seconds| format!("{seconds} (seconds)"),
        ),
        Change::Labels(wanted) | Change::Annotations(wanted) => map(wanted),
        Change::InternalTrafficPolicy(policy) => policy.to_string(),
        Change::TrafficDistribution(distribution) => or_none(*distribution),
        Change::IpFamilies(families) => {
            let families: Vec<_> = families.iter().map(|family| family.as_str()).collect();
            format!(
                "a list with {}; a dual-stack cluster adds it with ipFamilyPolicy PreferDualStack",
                families.join(" or ")
            )
        }
    }
}

/// The commands that make the change in a cluster; none for files.
pub(super) fn commands(
    name: &NamespacedName,
    change: &Change,
    export: &ExportSpec,
    place: &Place,
) -> Vec<String> {
    let NamespacedName { namespace, name } = name;
    let patch = |kind: &str, how: &str, patch: Value| {
        let patch = quoted(&patch.to_string());
        let rest = format!("patch {kind} {name} --type={how} -p {patch}");
        Vec::from_iter(place.kubectl(namespace.as_str(), &rest))
    };
    let spec = |spec: Value| patch("service", "merge", json!({ "spec": spec }));
    match change {
        Change::Ports(wanted) => {
            let operations = port_patch(&export.ports, wanted);
            patch("service", "json", Value::Array(operations))
        }
        Change::Type(_) => {
            let file = format!("{name}.yaml");
            let get = format!("get service {name} -o yaml > {file}");
            let replace = format!("replace --force -f {file}");
            let edited = place
                .kubectl(namespace.as_str(), &replace)
                .map(|command| format!("{command}   # after editing {file}"));
            let got = place.kubectl(namespace.as_str(), &get);
            got.into_iter().chain(edited).collect()
        }
        Change::SessionAffinity(affinity, timeout) => spec(json!({
            "sessionAffinity": affinity.as_str(),
            "sessionAffinityConfig": timeout.map(timeout_config),
        })),
        Change::SessionAffinityTimeout(timeout) => {
            spec(json!({ "sessionAffinityConfig": timeout.map(timeout_config) }))
        }
        Change::Labels(wanted) => {
            let labels = map_patch(&export.labels, wanted);
            let labels = json!({"spec": {"exportedLabels": labels}});
            patch("serviceexport", "merge", labels)
        }
        Change::Annotations(wanted) => {
            let annotations = map_patch(&export.annotations, wanted);
            let annotations = json!({"spec": {"exportedAnnotations": annotations}});
            patch("serviceexport", "merge", annotations)
        }
        Change::InternalTrafficPolicy(policy) => spec(json!({
            "internalTrafficPolicy": policy.as_str(),
        })),
        Change::TrafficDistribution(distribution) => spec(json!({
            "trafficDistribution": distribution.map(TrafficDistribution::as_str),
        })),
        Change::IpFamilies(_) => spec(json!({"ipFamilyPolicy": "PreferDualStack"})),
    }
}

fn timeout_config(seconds: i32) -> Value {
    json!({"clientIP": {"timeoutSeconds": seconds}})
}

/// A merge patch (RFC 7386) of a map: what is not wanted becomes null.
fn map_patch(have: &BTreeMap<String, String>, want: &BTreeMap<String, String>) -> Value {
    let gone = have.keys().filter(|key| !want.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let set = want
        .iter()
        .filter(|(key, value)| have.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), json!(value)));
    Value::Object(gone.chain(set).collect())
}

/// What to do about an export that is refused.
pub(super) fn remedy(refusal: Refusal, name: &NamespacedName) -> String {
    let NamespacedName { namespace, name } = name;
    match refusal {
        Refusal::NamespaceNotGlobal => format!(
            "annotate Namespace {namespace} with clustermesh.cilium.io/global=true, or delete the ServiceExport"
        ),
        Refusal::NoServiceExport => format!("create ServiceExport {namespace}/{name}"),
        Refusal::NoService => {
            format!("create Service {namespace}/{name}, or delete the ServiceExport")
        }
        Refusal::InvalidServiceType => {
            format!("give Service {namespace}/{name} another type, or delete the ServiceExport")
        }
        Refusal::InvalidExportedLabels => {
            "correct spec.exportedLabels of the ServiceExport".to_owned()
        }
        Refusal::InvalidExportedAnnotations => {
            "correct spec.exportedAnnotations of the ServiceExport".to_owned()
        }
    }
}

/// The text as one word of a shell's command.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_when_the_shell_would_not_take_it_as_it_is() {
        assert_eq!(
            quoted("arn:aws:eks:eu-1:cluster/a"),
            "arn:aws:eks:eu-1:cluster/a"
        );
        assert_eq!(quoted("my cluster"), "'my cluster'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_map_is_patched_where_it_differs() {
        let have = BTreeMap::from([("a", "1"), ("b", "2"), ("c", "3")]);
        let want = BTreeMap::from([("b", "2"), ("c", "4"), ("d", "5")]);
        let owned = |map: BTreeMap<&str, &str>| -> BTreeMap<String, String> {
            let map = map.into_iter();
            map.map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect()
        };

        assert_eq!(
            map_patch(&owned(have), &owned(want)),
            json!({"a": null, "c": "4", "d": "5"})
        );
    }
}
