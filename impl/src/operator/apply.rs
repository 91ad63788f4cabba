//! Writes to the API server: the only module of the operator that does.
//!
//! Objects are written by server-side apply with force, one field manager per controller, so that two controllers can own
//! disjoint fields of one object. An apply that means to change an object carries its uid, a deletion its uid and
//! resourceVersion: a write never brings half of a deleted object back, and never deletes what it has not seen.
//! Nothing is sent without the right to write ([`Tenure`]), nor faster than [`Pace`] allows. What to write is decided elsewhere.

use std::{
    collections::BTreeSet,
    fmt,
    fmt::Debug,
    pin::Pin,
    sync::{Arc, Mutex},
};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::ObjectReference};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tombolo_core::mutant::{self, Mutant};
use tracing::{debug, info, warn};

use super::leadership::{Lapsed, Tenure};

mod controller;
mod error;
mod pace;

pub use controller::{Controller, Verb};
pub use error::Error;
use error::classify;
pub use pace::{Pace, Rate};

/// How many announcements are remembered so that none is made twice. Beyond it memory starts afresh.
const ANNOUNCED_MAX: usize = 4096;

/// Told of each write that was sent, for metrics.
pub type OnWrite = Arc<dyn Fn(Controller, Verb) + Send + Sync>;

/// A kind that the operator writes.
pub trait Written:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Written for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The hand that writes. Cloning gives another handle.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    recorder: Recorder,
    on_write: OnWrite,
    tenure: Tenure,
    pace: Pace,
    announced: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// The part of an object that a write is about.
#[derive(Debug, Clone, Copy)]
enum Part {
    Object,
    Status,
}

/// An Event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Whether it needs attention.
    pub warning: bool,
    /// Reason, in PascalCase.
    pub reason: &'static str,
    /// What was being done, in PascalCase.
    pub action: &'static str,
    /// The sentence; says what to do. At most 1 kB (Kubernetes).
    pub note: String,
}

impl Writer {
    /// A writer to one API server, as long as the tenure lasts.
    pub fn new(client: Client, on_write: OnWrite, tenure: Tenure, pace: Pace) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter::from("tombolo-operator"));
        Self {
            client,
            recorder,
            on_write,
            tenure,
            pace,
            announced: Arc::default(),
        }
    }

    /// Applies the whole of `desired`; otherwise as [`Self::apply_fields`].
    pub async fn apply<K: Written>(
        &self,
        controller: Controller,
        desired: &K,
        strays: impl Fn(&K) -> Option<Value>,
    ) -> Result<K, Error> {
        self.apply_fields(controller, desired, desired, strays)
            .await
    }

    /// Applies `body`, the fields of `target` that the controller owns, then removes what `strays` still finds in the answer:
    /// fields that others have set and nobody should have. `strays` gives a merge patch in which such fields are null.
    pub async fn apply_fields<K: Written>(
        &self,
        controller: Controller,
        target: &K,
        body: &(impl Serialize + Debug + Sync),
        strays: impl Fn(&K) -> Option<Value>,
    ) -> Result<K, Error> {
        let write = (controller, Verb::Apply, Part::Object);
        self.apply_and_strip(write, target, body, strays).await
    }

    /// Applies the status of `seen`, the fields that the controller owns, then removes what `strays` still finds in the answer.
    pub async fn apply_status<K: Written>(
        &self,
        controller: Controller,
        seen: &K,
        status: &(impl Serialize + Debug + Sync),
        strays: impl Fn(&K) -> Option<Value>,
    ) -> Result<K, Error> {
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": seen.name_any(), "uid": seen.uid() },
            "status": status,
        });
        let write = (controller, Verb::Status, Part::Status);
        self.apply_and_strip(write, seen, &body, strays).await
    }

    /// Removes the fields of `seen` that are null in `patch`, unless the object has changed since: what would make the API
    /// server refuse what is applied next.
    pub async fn clear<K: Written>(
        &self,
        controller: Controller,
        seen: &K,
        patch: Value,
    ) -> Result<K, Error> {
        let nulls = |_: &K| Some(patch.clone());
        self.strip(controller, Part::Object, seen.clone(), nulls)
            .await
    }

    async fn apply_and_strip<K: Written>(
        &self,
        write: (Controller, Verb, Part),
        target: &K,
        body: &(impl Serialize + Debug + Sync),
        strays: impl Fn(&K) -> Option<Value>,
    ) -> Result<K, Error> {
        let (controller, _, part) = write;
        let params = PatchParams::apply(controller.field_manager()).force();
        let applied = self
            .send(write, target, &params, &Patch::Apply(body))
            .await?;
        self.strip(controller, part, applied, strays).await
    }

    /// Removes the fields that are null in the patch of `strays`, if there is one, unless the object has changed since.
    async fn strip<K: Written>(
        &self,
        controller: Controller,
        part: Part,
        seen: K,
        strays: impl Fn(&K) -> Option<Value>,
    ) -> Result<K, Error> {
        let Some(mut patch) = strays(&seen) else {
            return Ok(seen);
        };
        debug!(%controller, object = %describe(&seen), %patch, "strip");
        patch["metadata"]["resourceVersion"] = json!(seen.resource_version());
        patch["metadata"]["uid"] = json!(seen.uid());
        let params = PatchParams {
            field_manager: Some(controller.field_manager().to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        self.send((controller, Verb::Strip, part), &seen, &params, &patch)
            .await
    }

    async fn send<K: Written, P: Serialize + Debug + Sync>(
        &self,
        (controller, verb, part): (Controller, Verb, Part),
        target: &K,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        let (api, name) = (self.api(target), target.name_any());
        let sending = async {
            debug!(%controller, verb = verb.as_str(), object = %describe(target), "patch");
            match part {
                Part::Object => api.patch(&name, params, patch).await,
                Part::Status => api.patch_status(&name, params, patch).await,
            }
        };
        let sent = self.permitted(controller, verb, Box::pin(sending)).await;
        let sent = sent.map_err(|lapsed| not_leading(verb, describe(target), lapsed))?;
        sent.map_err(|error| failed(verb, target, error))
    }

    /// Sends a request when its turn comes, as long as this replica may write.
    async fn permitted<T>(
        &self,
        controller: Controller,
        verb: Verb,
        sending: Pin<Box<dyn Future<Output = T> + Send + '_>>,
    ) -> Result<T, Lapsed> {
        let counted = async {
            self.pace.turn().await;
            self.tenure.check()?;
            (self.on_write)(controller, verb);
            Ok(sending.await)
        };
        self.tenure.guard(counted).await?
    }

    /// Deletes `seen`, unless it has changed since. That it is gone already is fine.
    pub async fn delete<K: Written>(&self, controller: Controller, seen: &K) -> Result<(), Error> {
        if controller == Controller::ServiceImport && mutant::is(Mutant::ImportOutlivesExports) {
            return Ok(());
        }
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: seen.uid(),
            resource_version: seen.resource_version(),
        });
        let (api, name) = (self.api(seen), seen.name_any());
        let sending = async {
            debug!(%controller, object = %describe(seen), "delete");
            api.delete(&name, &params).await
        };
        let sending = Box::pin(sending);
        let sent = self.permitted(controller, Verb::Delete, sending).await;
        match sent.map_err(|lapsed| not_leading(Verb::Delete, describe(seen), lapsed))? {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(failed(Verb::Delete, seen, error)),
        }
    }

    /// Makes an Event about an object, once per object and reason as long as this process lives. Failure is only logged.
    pub async fn announce<K: Written>(
        &self,
        controller: Controller,
        about: &K,
        announcement: &Announcement,
    ) {
        let key = (
            about.uid().unwrap_or_default(),
            announcement.reason.to_owned(),
        );
        if !self.is_news(key.clone()) {
            return;
        }
        info!(object = %describe(about), reason = announcement.reason, "{}", announcement.note);
        let event = Event {
            type_: if announcement.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: announcement.reason.to_owned(),
            note: Some(announcement.note.chars().take(1000).collect()),
            action: announcement.action.to_owned(),
            secondary: None,
        };
        let reference: ObjectReference = about.object_ref(&());
        let sending = Box::pin(self.recorder.publish(&event, &reference));
        match self.permitted(controller, Verb::Event, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(object = %describe(about), reason = announcement.reason, %error, "cannot make an Event");
                self.announced().remove(&key);
            }
            Err(lapsed) => {
                debug!(object = %describe(about), reason = announcement.reason, %lapsed, "no Event");
                self.announced().remove(&key);
            }
        }
    }

    fn is_news(&self, key: (String, String)) -> bool {
        let mut announced = self.announced();
        if announced.len() >= ANNOUNCED_MAX {
            announced.clear();
        }
        announced.insert(key)
    }

    fn announced(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, String)>> {
        self.announced
            .lock()
            .expect("no code panics while it holds the announcements")
    }

    fn api<K: Written>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }
}

/// Applies a CustomResourceDefinition, given as JSON.
pub async fn apply_crd<K>(
    api: &Api<K>,
    name: &str,
    body: &Value,
    tenure: &Tenure,
) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let object = || format!("{} {name}", K::kind(&()));
    let params = PatchParams::apply(Controller::Crds.field_manager()).force();
    let patch = Patch::Apply(body);
    let sent = tenure.guard(api.patch(name, &params, &patch)).await;
    sent.map_err(|lapsed| not_leading(Verb::Apply, object(), lapsed))?
        .map_err(|error| classify(Verb::Apply, object(), error))
}

fn not_leading(verb: Verb, object: String, source: Lapsed) -> Error {
    Error::NotLeading {
        verb,
        object,
        source,
    }
}

fn describe<K: Written>(object: &K) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{} {namespace}/{}", K::kind(&()), object.name_any())
}

fn failed<K: Written>(verb: Verb, object: &K, error: kube::Error) -> Error {
    classify(verb, describe(object), error)
}
