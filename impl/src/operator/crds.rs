//! Installs and upgrades the CustomResourceDefinitions, mends what is changed or deleted, never downgrades.
//!
//! Release and revision are labels of the CRDs (`multicluster.x-k8s.io/release-version`, `…/crd-schema-revision`); they are
//! compared as semantic version and number.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use futures::{StreamExt, future::join, pin_mut};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        wait::{await_condition, conditions},
        watcher,
    },
};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::Instant;
use tombolo_api::{crds, keys};
use tracing::{info, warn};

use crate::{kvstore::backoff::Backoff, operator::apply};

/// How long the API server may take to accept a definition. It takes well under a second.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after a definition was mended, doubled with each time, so that two who disagree about it do not fight without end.
const MEND_PAUSE_FIRST: Duration = Duration::from_millis(500);

/// Longest pause after a definition was mended.
const MEND_PAUSE_MAX: Duration = Duration::from_mins(5);

/// A definition that was left alone for so long is mended with [`MEND_PAUSE_FIRST`] again.
const MEND_PAUSE_RESET: Duration = Duration::from_mins(10);

/// Delay before a failed installation is tried again; doubled up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// Longest delay between attempts to install. Deleting a definition, with all its objects, takes about a second.
const RETRY_MAX: Duration = Duration::from_secs(3);

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
    /// The definition is being deleted, and can only be made anew after that.
    #[error(
        "CustomResourceDefinition {name} is being deleted; it is installed again when it is gone"
    )]
    Terminating {
        /// Name of the definition.
        name: String,
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
            Self::Terminating { .. } => "CrdTerminating",
            Self::NotEstablished { .. } => "CrdNotEstablished",
        }
    }
}

/// Installs both definitions and waits until the API server serves them.
pub async fn install(client: &Client) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in shipped() {
        install_one(&api, &ours).await?;
    }
    Ok(())
}

/// Watches both definitions for ever, and installs one again when it is deleted or changed. `mended` is called after each time.
pub async fn keep(client: &Client, mended: impl Fn()) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let [exports, imports] = shipped();
    join(
        Box::pin(keep_one(&api, &exports, &mended)),
        Box::pin(keep_one(&api, &imports, &mended)),
    )
    .await;
}

async fn keep_one(api: &Api<CustomResourceDefinition>, ours: &Shipped, mended: &impl Fn()) {
    let events = watcher::watch_object(api.clone(), &ours.name).default_backoff();
    pin_mut!(events);
    let mut pauses = Backoff::new(MEND_PAUSE_FIRST, MEND_PAUSE_MAX);
    let mut last: Option<Instant> = None;
    while let Some(event) = events.next().await {
        // A failed watch goes on by itself, and tells the state when it does.
        let Ok(seen) = event else { continue };
        if ours.decide(seen.as_ref()).leaves() {
            continue;
        }
        warn!(
            name = ours.name,
            "the definition was deleted or changed; installing it"
        );
        install_at_last(api, ours).await;
        mended();
        if last.is_some_and(|last| last.elapsed() >= MEND_PAUSE_RESET) {
            pauses.reset();
        }
        last = Some(Instant::now());
        tokio::time::sleep(pauses.wait()).await;
    }
}

/// Installs a definition, again and again until it succeeds.
async fn install_at_last(api: &Api<CustomResourceDefinition>, ours: &Shipped) {
    let mut delays = Backoff::new(RETRY_FIRST, RETRY_MAX);
    while let Err(error) = install_one(api, ours).await {
        warn!(%error, "cannot install the definition; trying again");
        tokio::time::sleep(delays.wait()).await;
    }
}

async fn install_one(api: &Api<CustomResourceDefinition>, ours: &Shipped) -> Result<(), Error> {
    let unreadable = |source| Error::Read {
        name: ours.name.clone(),
        source: Box::new(source),
    };
    let (name, release) = (&ours.name, &ours.release);
    let installed = api.get_opt(name).await.map_err(unreadable)?;
    match ours.decide(installed.as_ref()) {
        Decision::Create => info!(name, %release, "installing the definition"),
        Decision::Update => info!(name, %release, "updating the definition"),
        Decision::Keep => return Ok(()),
        Decision::KeepNewer => {
            info!(name, ours = %release, "a newer definition is installed; it stays");
            return Ok(());
        }
        Decision::Wait => return Err(Error::Terminating { name: name.clone() }),
    }
    apply::apply_crd(api, name, &ours.body).await?;
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
    Wait,
}

impl Decision {
    fn leaves(self) -> bool {
        match self {
            Self::Keep | Self::KeepNewer => true,
            Self::Create | Self::Update | Self::Wait => false,
        }
    }
}

/// A definition that we ship.
#[derive(Debug)]
struct Shipped {
    name: String,
    release: Release,
    body: Value,
}

fn shipped() -> [Shipped; 2] {
    crds::ALL.map(|text| {
        let body: Value =
            serde_saphyr::from_str(text).expect("invariant: the definitions that we ship are YAML");
        let name = body["metadata"]["name"]
            .as_str()
            .expect("invariant: the definitions that we ship have a name");
        Shipped {
            name: name.to_owned(),
            release: Release::of(&labels_of(&body)),
            body,
        }
    })
}

impl Shipped {
    /// A missing or unreadable label counts as older than any. Of the same release and revision, the content is compared.
    fn decide(&self, installed: Option<&CustomResourceDefinition>) -> Decision {
        let Some(installed) = installed else {
            return Decision::Create;
        };
        if installed.metadata.deletion_timestamp.is_some() {
            return Decision::Wait;
        }
        match Release::of(installed.labels()).cmp(&self.release) {
            Ordering::Greater => Decision::KeepNewer,
            Ordering::Equal if holds(&json!(installed.spec), &self.body["spec"]) => Decision::Keep,
            Ordering::Less | Ordering::Equal => Decision::Update,
        }
    }
}

/// Whether a definition says all that ours does. Descriptions do not count, and what the API server fills in is no difference.
fn holds(installed: &Value, ours: &Value) -> bool {
    match (installed, ours) {
        (Value::Object(installed), Value::Object(ours)) => ours.iter().all(|(key, value)| {
            let description = key == "description" && value.is_string();
            let found = installed.get(key);
            description || found.is_some_and(|found| holds(found, value))
        }),
        (Value::Array(installed), Value::Array(ours)) => {
            let mut pairs = installed.iter().zip(ours);
            installed.len() == ours.len() && pairs.all(|(installed, ours)| holds(installed, ours))
        }
        (Value::Number(installed), Value::Number(ours)) => installed.as_f64() == ours.as_f64(),
        (installed, ours) => installed == ours,
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn release(version: &str, revision: &str) -> Release {
        let labels = [(keys::CRD_RELEASE, version), (keys::CRD_REVISION, revision)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Release::of(&labels.into())
    }

    /// A definition as it would be installed, with the labels of this release and revision.
    fn installed(version: &str, revision: &str) -> CustomResourceDefinition {
        let [ours, _] = shipped();
        let mut installed: CustomResourceDefinition = serde_json::from_value(ours.body).unwrap();
        let labels = [(keys::CRD_RELEASE, version), (keys::CRD_REVISION, revision)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        installed.metadata.labels = Some(labels.into());
        installed
    }

    fn decided(installed: &CustomResourceDefinition) -> Decision {
        let [ours, _] = shipped();
        let ours = Shipped {
            release: release("v0.5.2", "3"),
            ..ours
        };
        ours.decide(Some(installed))
    }

    #[test]
    fn a_missing_definition_is_created_and_one_that_is_being_deleted_is_waited_for() {
        let mut leaving = installed("v0.5.2", "3");
        leaving.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));

        assert_eq!(shipped()[0].decide(None), Decision::Create);
        assert_eq!(decided(&leaving), Decision::Wait);
    }

    #[test]
    fn the_same_release_and_revision_is_left_alone() {
        assert_eq!(decided(&installed("v0.5.2", "3")), Decision::Keep);
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
            let decision = decided(&installed(version, revision));
            assert_eq!(decision, Decision::Update, "{version} {revision}");
        }
        let mut unlabelled = installed("", "");
        unlabelled.metadata.labels = None;
        assert_eq!(decided(&unlabelled), Decision::Update);
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
            let decision = decided(&installed(version, revision));
            assert_eq!(decision, Decision::KeepNewer, "{version} {revision}");
        }
    }

    #[test]
    fn a_definition_of_our_release_that_was_changed_is_updated() {
        let mut without_schema = installed("v0.5.2", "3");
        without_schema.spec.versions[1].schema = None;
        let mut unserved = installed("v0.5.2", "3");
        unserved.spec.versions[0].served = false;
        let mut more = installed("v0.5.2", "3");
        more.spec.names.categories = Some(vec!["all".to_owned()]);

        assert_eq!(decided(&without_schema), Decision::Update);
        assert_eq!(decided(&unserved), Decision::Update);
        assert_eq!(decided(&more), Decision::Keep);
    }

    #[test]
    fn the_definitions_that_cilium_installs_are_left_alone() {
        let recorded = include_str!("../../api/fixtures/mcs-crds-cilium-1.20.2.yaml");
        let recorded: Vec<CustomResourceDefinition> =
            serde_saphyr::from_multiple(recorded).unwrap();

        for (ours, theirs) in shipped().iter().zip(&recorded) {
            assert_eq!(ours.decide(Some(theirs)), Decision::Keep);
        }
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
        for ours in shipped() {
            assert_eq!(ours.release, release("v0.5.2", "0"));
        }
    }
}
