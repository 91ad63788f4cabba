//! The CustomResourceDefinitions of ServiceExport and ServiceImport: schema of mcs-api v0.5.2, `v1alpha1` and `v1beta1` served,
//! `v1beta1` stored.
//!
//! Text only. Who installs them, and when not, is the operator's business.

/// CRD of ServiceExport, YAML.
pub const SERVICE_EXPORTS: &str = include_str!("../crds/serviceexports.yaml");

/// CRD of ServiceImport, YAML.
pub const SERVICE_IMPORTS: &str = include_str!("../crds/serviceimports.yaml");

/// Both CRDs, YAML documents in the order in which they are installed.
pub const ALL: [&str; 2] = [SERVICE_EXPORTS, SERVICE_IMPORTS];

/// Both CRDs as one YAML stream, ready for `kubectl apply -f -`.
///
/// ```
/// let text = tombolo_api::crds::yaml();
/// assert_eq!(text.matches("kind: CustomResourceDefinition").count(), 2);
/// ```
pub fn yaml() -> String {
    ALL.join("---\n")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const RECORDED: &str = include_str!("../fixtures/mcs-crds-cilium-1.20.2.yaml");

    #[test]
    fn without_descriptions_our_crds_equal_those_that_cilium_installs() {
        let ours = documents(&yaml());
        let recorded = documents(RECORDED);

        assert_eq!(ours.len(), 2);
        for (ours, recorded) in ours.iter().zip(&recorded) {
            assert_eq!(normalised(ours.clone()), normalised(recorded.clone()));
        }
    }

    #[test]
    fn every_property_of_a_spec_and_a_status_is_described() {
        for document in documents(&yaml()) {
            for version in document["spec"]["versions"].as_array().unwrap() {
                let root = &version["schema"]["openAPIV3Schema"];
                for part in ["spec", "status"] {
                    let part = &root["properties"][part];
                    assert!(part["description"].is_string(), "{part}");
                    for (name, property) in part["properties"].as_object().unwrap() {
                        assert!(property["description"].is_string(), "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn both_versions_have_one_schema_so_that_no_conversion_is_needed() {
        for document in documents(&yaml()) {
            let versions = document["spec"]["versions"].as_array().unwrap();
            assert_eq!(versions[0]["name"], "v1alpha1");
            assert_eq!(versions[1]["name"], "v1beta1");
            assert_eq!(versions[0]["schema"], versions[1]["schema"]);
        }
    }

    fn documents(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    /// Drops descriptions, empty metadata and what the API server adds by default.
    fn normalised(mut document: Value) -> Value {
        strip(&mut document);
        if document["metadata"]["annotations"].is_null() {
            document["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("annotations");
        }
        document
    }

    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                if members.get("description").is_some_and(Value::is_string) {
                    members.remove("description");
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
