//! Manifests: files of YAML documents that are applied to a cluster. What is wrong is said with file, document and field.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::Value;

/// Owner of the fields that a manifest sets.
const FIELD_MANAGER: &str = "tombolo-demo";

/// What a manifest may hold: `apiVersion`, `kind`, whether it is in a namespace.
const KINDS: [(&str, &str, bool); 4] = [
    ("v1", "Namespace", false),
    ("v1", "Service", true),
    ("multicluster.x-k8s.io/v1beta1", "ServiceExport", true),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceExport", true),
];

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}; expected a file of YAML documents", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not YAML.
    #[error("{}: not YAML: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// The file has no document.
    #[error("{}: no document; expected at least one object", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A field is missing or wrong.
    #[error("{}: document {document}: field {field}: expected {expected}, found {found}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Number of the document, 1 for the first.
        document: usize,
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The API server refused an object.
    #[error("{}: document {document} ({object}): the API server refused it: {source}; correct that field and apply again", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Number of the document, 1 for the first.
        document: usize,
        /// Kind and name.
        object: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A manifest that was read.
#[derive(Debug)]
pub struct Manifest {
    path: PathBuf,
    documents: Vec<Document>,
}

#[derive(Debug)]
struct Document {
    number: usize,
    resource: ApiResource,
    object: DynamicObject,
}

impl Manifest {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let values: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|source| Error::Syntax {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        let documents = (1..).zip(values).filter(|(_, value)| !value.is_null());
        let documents: Vec<_> = documents
            .map(|(number, value)| document(path, number, value))
            .collect::<Result<_, _>>()?;
        if documents.is_empty() {
            return Err(Error::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            documents,
        })
    }

    /// Applies every object. Fields that the API does not know are errors.
    pub async fn apply(&self, client: &Client) -> Result<(), Error> {
        let params = PatchParams::apply(FIELD_MANAGER)
            .force()
            .validation_strict();
        for Document {
            number,
            resource,
            object,
        } in &self.documents
        {
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
                None => Api::<DynamicObject>::all_with(client.clone(), resource),
            };
            let name = object.name_any();
            let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
            applied.map_err(|source| Error::Refused {
                path: self.path.clone(),
                document: *number,
                object: format!("{} {name}", resource.kind),
                source: Box::new(source),
            })?;
        }
        Ok(())
    }
}

fn document(path: &Path, number: usize, value: Value) -> Result<Document, Error> {
    let wrong = |field, expected: &str, found: Option<&Value>| Error::Field {
        path: path.to_owned(),
        document: number,
        field,
        expected: expected.to_owned(),
        found: found.map_or_else(|| "nothing".to_owned(), Value::to_string),
    };
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let same_kind = |known: &&(&str, &str, bool)| Some(known.1) == kind;
    let of_kind: Vec<_> = KINDS.iter().filter(same_kind).collect();
    if of_kind.is_empty() {
        let expected = "Namespace, Service or ServiceExport";
        return Err(wrong("kind", expected, value.get("kind")));
    }
    let Some((api_version, kind, namespaced)) =
        of_kind.iter().find(|known| Some(known.0) == api_version)
    else {
        let versions: Vec<_> = of_kind.iter().map(|known| known.0).collect();
        return Err(wrong(
            "apiVersion",
            &versions.join(" or "),
            value.get("apiVersion"),
        ));
    };
    if text("/metadata/name").is_none_or(str::is_empty) {
        return Err(wrong(
            "metadata.name",
            "a name",
            value.pointer("/metadata/name"),
        ));
    }
    if *namespaced && text("/metadata/namespace").is_none_or(str::is_empty) {
        let found = value.pointer("/metadata/namespace");
        return Err(wrong(
            "metadata.namespace",
            "the name of a namespace",
            found,
        ));
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let object = serde_json::from_value(value.clone()).map_err(|error| {
        wrong(
            "metadata",
            &format!("object metadata ({error})"),
            value.get("metadata"),
        )
    })?;
    Ok(Document {
        number,
        resource,
        object,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Manifest::parse(Path::new("web.yaml"), text)
            .unwrap_err()
            .to_string()
    }

    const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";

    #[test]
    fn the_examples_are_good() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let mut read = 0;
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                Manifest::read(&path).unwrap();
                read += 1;
            }
        }
        assert!(read >= 3, "{read} examples");
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = Manifest::read(Path::new("/nowhere/web.yaml"))
            .unwrap_err()
            .to_string();

        assert!(message.starts_with("/nowhere/web.yaml: "), "{message}");
    }

    #[test]
    fn broken_yaml_is_named_with_its_line() {
        let message = refused("kind: [\n  - {\n");

        assert!(
            message.starts_with("web.yaml: not YAML: ") && message.contains("line"),
            "{message}"
        );
    }

    #[test]
    fn a_foreign_kind_is_named_with_its_document() {
        let message = refused(&format!("{NAMESPACE}---\napiVersion: v1\nkind: Pod\n"));

        assert_eq!(
            message,
            "web.yaml: document 2: field kind: expected Namespace, Service or ServiceExport, found \"Pod\""
        );
    }

    #[test]
    fn a_wrong_version_is_named_with_those_that_are_right() {
        let message = refused("apiVersion: multicluster.k8s.io/v1\nkind: ServiceExport\n");

        let wanted = "field apiVersion: expected multicluster.x-k8s.io/v1beta1 or \
                      multicluster.x-k8s.io/v1alpha1, found \"multicluster.k8s.io/v1\"";
        assert!(message.ends_with(wanted), "{message}");
    }

    #[test]
    fn missing_names_are_named() {
        let without_name = refused("apiVersion: v1\nkind: Namespace\nmetadata: {}\n");
        let without_namespace = refused("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n");

        assert!(without_name.ends_with("metadata.name: expected a name, found nothing"));
        assert!(without_namespace.contains("metadata.namespace: expected the name of a namespace"));
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(refused("# nothing\n").contains("no document"));
    }
}
