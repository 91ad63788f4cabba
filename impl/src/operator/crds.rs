//! Installs and upgrades the CustomResourceDefinitions, never downgrades them.
//!
//! Release and revision are labels of the CRDs (`multicluster.x-k8s.io/release-version`, `…/crd-schema-revision`); they are
//! compared as semantic version and number.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    runtime::wait::{await_condition, conditions},
};
use serde_json::Value;
use thiserror::Error;
use tombolo_api::{crds, keys};
use tracing::info;

use crate::operator::apply;

/// How long the API server may take to accept a definition. It takes well under a second.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the definitions are not in place.
#[derive(Debug, Error)]
pub enum Error {
    /// What is installed could not be read.
    #[error(
        "cannot read CustomResourceDefinition {name}: {source}; check that the API server is reachable and the operator may get it"
    )]
    Read {
        /// Name of the definition.
        name: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The definition could not be written.
    #[error(
        "cannot install the definitions: {source}; with --install-crds false you can install them yourself: tombolo crds | kubectl apply -f -"
    )]
    Write {
        /// The answer.
        #[from]
        source: apply::Error,
    },
    /// The API server did not begin to serve the definition.
    #[error(
        "CustomResourceDefinition {name} is not established: {detail}; see its status.conditions"
    )]
    NotEstablished {
        /// Name of the definition.
        name: String,
        /// What was seen.
        detail: String,
    },
}

impl Error {
    /// Short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "CrdUnreadable",
            Self::Write { .. } => "CrdNotWritten",
            Self::NotEstablished { .. } => "CrdNotEstablished",
        }
    }
}

/// Installs both definitions and waits until the API server serves them.
pub async fn install(client: &Client) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for text in crds::ALL {
        let ours: Value =
            serde_saphyr::from_str(text).expect("invariant: the definitions that we ship are YAML");
        let name = ours["metadata"]["name"]
            .as_str()
            .expect("invariant: the definitions that we ship have a name");
        install_one(&api, name, &ours).await?;
    }
    Ok(())
}

async fn install_one(
    api: &Api<CustomResourceDefinition>,
    name: &str,
    ours: &Value,
) -> Result<(), Error> {
    let unreadable = |source| Error::Read {
        name: name.to_owned(),
        source: Box::new(source),
    };
    let installed = api.get_opt(name).await.map_err(unreadable)?;
    let release = Release::of(&labels_of(ours));
    match decide(installed.as_ref().map(Installed::of).as_ref(), &release) {
        Decision::Create => info!(name, %release, "installing the definition"),
        Decision::Update => info!(name, %release, "updating the definition"),
        Decision::Keep => return Ok(()),
        Decision::KeepNewer => {
            info!(name, ours = %release, "a newer definition is installed; it stays");
            return Ok(());
        }
    }
    apply::apply_crd(api, name, ours).await?;
    wait_until_established(api, name).await
}

async fn wait_until_established(
    api: &Api<CustomResourceDefinition>,
    name: &str,
) -> Result<(), Error> {
    let established = await_condition(api.clone(), name, conditions::is_crd_established());
    let detail = match tokio::time::timeout(ESTABLISH_TIMEOUT, established).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("waited {} s", ESTABLISH_TIMEOUT.as_secs()),
    };
    Err(Error::NotEstablished {
        name: name.to_owned(),
        detail,
    })
}

fn labels_of(definition: &Value) -> BTreeMap<String, String> {
    let labels = definition["metadata"]["labels"].as_object();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}

/// What to do about one definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Create,
    Update,
    Keep,
    KeepNewer,
}

/// What matters of an installed definition.
#[derive(Debug)]
struct Installed {
    release: Release,
    has_schema: bool,
}

impl Installed {
    fn of(definition: &CustomResourceDefinition) -> Self {
        let has_schema = |name: &str| {
            let mut versions = definition.spec.versions.iter();
            versions.any(|version| version.name == name && version.schema.is_some())
        };
        Self {
            release: Release::of(definition.labels()),
            has_schema: has_schema("v1beta1"),
        }
    }
}

/// A missing or unreadable label counts as older than any.
fn decide(installed: Option<&Installed>, ours: &Release) -> Decision {
    let Some(installed) = installed else {
        return Decision::Create;
    };
    match installed.release.cmp(ours) {
        Ordering::Greater => Decision::KeepNewer,
        Ordering::Equal if installed.has_schema => Decision::Keep,
        Ordering::Less | Ordering::Equal => Decision::Update,
    }
}

/// Release and revision of a definition; what cannot be read is absent and orders first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    version: Option<Version>,
    revision: Option<u64>,
}

impl Release {
    fn of(labels: &BTreeMap<String, String>) -> Self {
        Self {
            version: labels
                .get(keys::CRD_RELEASE)
                .and_then(|text| Version::parse(text)),
            revision: labels
                .get(keys::CRD_REVISION)
                .and_then(|text| text.parse().ok()),
        }
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(Version {
                numbers: [major, minor, patch],
                ..
            }) => {
                write!(f, "v{major}.{minor}.{patch}")?;
            }
            None => f.write_str("unknown")?,
        }
        write!(f, " revision {}", self.revision.unwrap_or_default())
    }
}

/// A semantic version (semver.org §11): a pre-release orders before its release. Build metadata is ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    numbers: [u64; 3],
    pre_release: PreRelease,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PreRelease {
    Before(Vec<Identifier>),
    Not,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next()?;
        let (numbers, pre_release) = match text.split_once('-') {
            Some((numbers, pre_release)) => (numbers, Some(pre_release)),
            None => (text, None),
        };
        let numbers: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
        let identifier = |part: &str| match part.parse() {
            Ok(number) => Identifier::Number(number),
            Err(_) => Identifier::Text(part.to_owned()),
        };
        Some(Self {
            numbers: numbers?.try_into().ok()?,
            pre_release: match pre_release {
                Some(parts) => PreRelease::Before(parts.split('.').map(identifier).collect()),
                None => PreRelease::Not,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: &str, revision: &str) -> Release {
        let labels = [(keys::CRD_RELEASE, version), (keys::CRD_REVISION, revision)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Release::of(&labels.into())
    }

    fn decided(installed: Release) -> Decision {
        let installed = Installed {
            release: installed,
            has_schema: true,
        };
        decide(Some(&installed), &release("v0.5.2", "3"))
    }

    #[test]
    fn a_missing_definition_is_created() {
        assert_eq!(decide(None, &release("v0.5.2", "0")), Decision::Create);
    }

    #[test]
    fn the_same_release_and_revision_is_left_alone() {
        assert_eq!(decided(release("v0.5.2", "3")), Decision::Keep);
    }

    #[test]
    fn an_older_or_unreadable_release_or_revision_is_updated() {
        for (version, revision) in [
            ("v0.5.1", "9"),
            ("v0.4.10", "9"),
            ("v0.5.2-rc.1", "9"),
            ("v0.5.2", "2"),
            ("v0.5.2", "x"),
            ("main", "9"),
            ("", ""),
        ] {
            let decision = decided(release(version, revision));
            assert_eq!(decision, Decision::Update, "{version} {revision}");
        }
        assert_eq!(decided(Release::of(&BTreeMap::new())), Decision::Update);
    }

    #[test]
    fn a_newer_release_or_revision_is_never_downgraded() {
        for (version, revision) in [
            ("v0.5.2", "4"),
            ("v0.5.2", "10"),
            ("v0.5.3-rc.1", "0"),
            ("v0.10.0", "0"),
            ("v1.0.0", ""),
        ] {
            let decision = decided(release(version, revision));
            assert_eq!(decision, Decision::KeepNewer, "{version} {revision}");
        }
    }

    #[test]
    fn a_definition_of_our_release_without_our_schema_is_updated() {
        let installed = Installed {
            release: release("v0.5.2", "3"),
            has_schema: false,
        };

        assert_eq!(
            decide(Some(&installed), &release("v0.5.2", "3")),
            Decision::Update
        );
    }

    #[test]
    fn pre_releases_are_ordered_by_number_then_text() {
        let versions = [
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0",
        ];
        let parsed: Vec<_> = versions.iter().map(|text| Version::parse(text)).collect();

        assert!(parsed.iter().all(Option::is_some));
        assert!(parsed.is_sorted());
    }

    #[test]
    fn our_own_definitions_say_which_release_they_are() {
        for text in crds::ALL {
            let ours: Value = serde_saphyr::from_str(text).unwrap();
            assert_eq!(Release::of(&labels_of(&ours)), release("v0.5.2", "0"));
        }
    }
}
