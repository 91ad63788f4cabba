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

use crate::{
    cluster::client::watching,
    kvstore::backoff::Backoff,
    operator::{apply, leadership::Tenure},
};

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
pub async fn install(client: &Client, tenure: &Tenure) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in shipped() {
        install_one(&api, &ours, tenure).await?;
    }
    Ok(())
}

/// Waits until the API server serves both definitions, whoever installs them. Writes nothing.
pub async fn served(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in shipped() {
        let mut delays = Backoff::new(RETRY_FIRST, RETRY_MAX);
        while let Err(error) = wait_until_established(&api, &ours.name).await {
            warn!(%error, "waiting for the definition; trying again");
            tokio::time::sleep(delays.wait()).await;
        }
    }
}

/// Installs both definitions as often as it takes, then watches them for ever, and installs one again when it is deleted or
/// changed. `mended` is called after each time. Stops where it is when the tenure ends, and begins anew with the next.
pub async fn keep(client: &Client, tenure: &Tenure, mended: impl Fn()) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let [exports, imports] = shipped();
    loop {
        tenure.begun().await;
        let keeping = join(
            Box::pin(keep_one(&api, &exports, tenure, &mended)),
            Box::pin(keep_one(&api, &imports, tenure, &mended)),
        );
        tokio::select! {
            _ = keeping => {}
            () = tenure.lapsed() => {}
        }
    }
}

async fn keep_one(
    api: &Api<CustomResourceDefinition>,
    ours: &Shipped,
    tenure: &Tenure,
    mended: &impl Fn(),
) {
    install_at_last(api, ours, tenure).await;
    let fields = format!("metadata.name={}", ours.name);
    let events = watcher(api.clone(), watching().fields(&fields)).default_backoff();
    pin_mut!(events);
    let mut listed = None;
    let mut pauses = Backoff::new(MEND_PAUSE_FIRST, MEND_PAUSE_MAX);
    let mut last: Option<Instant> = None;
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => {
                listed = None;
                continue;
            }
            Ok(watcher::Event::InitApply(definition)) => {
                listed = Some(definition);
                continue;
            }
            Ok(watcher::Event::InitDone) => listed.take(),
            Ok(watcher::Event::Apply(definition)) => Some(definition),
            Ok(watcher::Event::Delete(_)) => None,
            // A failed watch goes on by itself, and tells the state when it does.
            Err(_) => continue,
        };
        if ours.decide(seen.as_ref()).leaves() {
            continue;
        }
        warn!(
            name = ours.name,
            "the definition was deleted or changed; installing it"
        );
        install_at_last(api, ours, tenure).await;
        mended();
        if last.is_some_and(|last| last.elapsed() >= MEND_PAUSE_RESET) {
            pauses.reset();
        }
        last = Some(Instant::now());
        tokio::time::sleep(pauses.wait()).await;
    }
}

/// Installs a definition, again and again until it succeeds.
async fn install_at_last(api: &Api<CustomResourceDefinition>, ours: &Shipped, tenure: &Tenure) {
    let mut delays = Backoff::new(RETRY_FIRST, RETRY_MAX);
    while let Err(error) = install_one(api, ours, tenure).await {
        warn!(%error, "cannot install the definition; trying again");
        tokio::time::sleep(delays.wait()).await;
    }
}

async fn install_one(
    api: &Api<CustomResourceDefinition>,
    ours: &Shipped,
    tenure: &Tenure,
) -> Result<(), Error> {
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
    apply::apply_crd(api, name, &ours.body, tenure).await?;
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
#[path = "crds_tests.rs"]
mod tests;
