//! Writes to the API server: the only module of the operator that does.
//!
//! Objects are written by server-side apply with force, one field manager per controller, so that two controllers can own
//! disjoint fields of one object. An apply that means to change an object carries its uid, a deletion its uid and
//! resourceVersion: a write never brings half of a deleted object back, and never deletes what it has not seen.
//! What to write is decided elsewhere.

use std::{
    collections::BTreeSet,
    fmt,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::ObjectReference};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::Status,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use thiserror::Error;
use tracing::{debug, warn};

/// How many announcements are remembered so that none is made twice. Beyond it memory starts afresh.
const ANNOUNCED_MAX: usize = 4096;

/// Cause in a refusal of the API server: the namespace is being deleted. Kubernetes.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The controllers, each with its own field manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Installs the CustomResourceDefinitions.
    Crds,
    /// ServiceImports.
    ServiceImport,
    /// Status of ServiceExports.
    ServiceExport,
    /// Derived Services.
    DerivedService,
    /// Local EndpointSlices, mirrored to derived Services.
    EndpointSliceMirror,
    /// EndpointSlices of remote endpoints.
    EndpointSliceSync,
}

impl Controller {
    /// Name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crds => "crds",
            Self::ServiceImport => "service-import",
            Self::ServiceExport => "service-export",
            Self::DerivedService => "derived-service",
            Self::EndpointSliceMirror => "endpoint-slice-mirror",
            Self::EndpointSliceSync => "endpoint-slice-sync",
        }
    }

    /// Name under which the API server records which fields it owns. STABLE: a change would leave orphaned fields behind.
    pub fn field_manager(self) -> &'static str {
        match self {
            Self::Crds => "tombolo-crds",
            Self::ServiceImport => "tombolo-import",
            Self::ServiceExport => "tombolo-export",
            Self::DerivedService => "tombolo-derived",
            Self::EndpointSliceMirror => "tombolo-mirror",
            Self::EndpointSliceSync => "tombolo-sync",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kinds of writes, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Server-side apply of an object.
    Apply,
    /// Removal of fields that nobody should have set.
    Strip,
    /// Server-side apply of a status.
    Status,
    /// Deletion.
    Delete,
    /// An Event.
    Event,
}

impl Verb {
    /// Name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Strip => "strip",
            Self::Status => "status",
            Self::Delete => "delete",
            Self::Event => "event",
        }
    }
}

/// A write that did not happen.
#[derive(Debug, Error)]
pub enum Error {
    /// The object is not, or no longer, what the controller saw. It will see better next time.
    #[error(
        "cannot {} {object}: it changed meanwhile: {source}; it is looked at again", verb.as_str()
    )]
    Stale {
        /// What was tried.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The namespace is being deleted: nothing can be made there any more, and nothing needs to be.
    #[error("cannot {} {object}: its namespace is being deleted", verb.as_str())]
    NamespaceTerminating {
        /// What was tried.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
    },
    /// The API server could not be asked, or it refused.
    #[error(
        "cannot {} {object}: {source}; check that the API server is reachable, the operator's rights, and the object", verb.as_str()
    )]
    Refused {
        /// What was tried.
        verb: Verb,
        /// Kind, namespace and name.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    /// Short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "Stale",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::Refused { .. } => "Refused",
        }
    }
}

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
    announced: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
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
    /// A writer to one API server.
    pub fn new(client: Client, on_write: OnWrite) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter::from("tombolo-operator"));
        Self {
            client,
            recorder,
            on_write,
            announced: Arc::default(),
        }
    }

    /// Applies `body`, the fields of `target` that the controller owns. `target` gives namespace and name only.
    pub async fn apply<K: Written>(
        &self,
        controller: Controller,
        target: &K,
        body: &(impl Serialize + Debug),
    ) -> Result<K, Error> {
        (self.on_write)(controller, Verb::Apply);
        let params = PatchParams::apply(controller.field_manager()).force();
        debug!(%controller, object = %describe(target), "apply");
        self.api(target)
            .patch(&target.name_any(), &params, &Patch::Apply(body))
            .await
            .map_err(|error| failed(Verb::Apply, target, error))
    }

    /// Applies the whole of `desired`, then removes what `strays` still finds in the answer: fields that others have set
    /// and nobody should have. `strays` gives a merge patch in which such fields are null.
    pub async fn apply_exactly<K: Written>(
        &self,
        controller: Controller,
        desired: &K,
        strays: impl Fn(&K) -> Option<Value>,
    ) -> Result<K, Error> {
        let applied = self.apply(controller, desired, desired).await?;
        match strays(&applied) {
            Some(patch) => self.strip(controller, &applied, patch).await,
            None => Ok(applied),
        }
    }

    /// Removes the fields that are null in `patch` from `seen`, unless the object has changed since.
    pub async fn strip<K: Written>(
        &self,
        controller: Controller,
        seen: &K,
        mut patch: Value,
    ) -> Result<K, Error> {
        (self.on_write)(controller, Verb::Strip);
        patch["metadata"]["resourceVersion"] = json!(seen.resource_version());
        patch["metadata"]["uid"] = json!(seen.uid());
        let params = PatchParams {
            field_manager: Some(controller.field_manager().to_owned()),
            ..PatchParams::default()
        };
        debug!(%controller, object = %describe(seen), %patch, "strip");
        self.api(seen)
            .patch(&seen.name_any(), &params, &Patch::Merge(patch))
            .await
            .map_err(|error| failed(Verb::Strip, seen, error))
    }

    /// Applies the status of `seen`. `status` holds the fields that the controller owns.
    pub async fn apply_status<K: Written>(
        &self,
        controller: Controller,
        seen: &K,
        status: &(impl Serialize + Debug),
    ) -> Result<K, Error> {
        (self.on_write)(controller, Verb::Status);
        let params = PatchParams::apply(controller.field_manager()).force();
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": seen.name_any(), "uid": seen.uid() },
            "status": status,
        });
        debug!(%controller, object = %describe(seen), "apply status");
        self.api(seen)
            .patch_status(&seen.name_any(), &params, &Patch::Apply(body))
            .await
            .map_err(|error| failed(Verb::Status, seen, error))
    }

    /// Deletes `seen`, unless it has changed since. That it is gone already is fine.
    pub async fn delete<K: Written>(&self, controller: Controller, seen: &K) -> Result<(), Error> {
        (self.on_write)(controller, Verb::Delete);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: seen.uid(),
            resource_version: seen.resource_version(),
        });
        debug!(%controller, object = %describe(seen), "delete");
        match self.api(seen).delete(&seen.name_any(), &params).await {
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
        (self.on_write)(controller, Verb::Event);
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
        if let Err(error) = self.recorder.publish(&event, &reference).await {
            warn!(object = %describe(about), reason = announcement.reason, %error, "cannot make an Event");
            self.announced().remove(&key);
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
pub async fn apply_crd<K>(api: &Api<K>, name: &str, body: &Value) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = PatchParams::apply(Controller::Crds.field_manager()).force();
    api.patch(name, &params, &Patch::Apply(body))
        .await
        .map_err(|error| classify(Verb::Apply, format!("{} {name}", K::kind(&())), error))
}

fn describe<K: Written>(object: &K) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{} {namespace}/{}", K::kind(&()), object.name_any())
}

fn failed<K: Written>(verb: Verb, object: &K, error: kube::Error) -> Error {
    classify(verb, describe(object), error)
}

fn classify(verb: Verb, object: String, error: kube::Error) -> Error {
    if let kube::Error::Api(status) = &error {
        if is_namespace_terminating(status) {
            return Error::NamespaceTerminating { verb, object };
        }
        if status.is_conflict() || status.is_not_found() {
            let source = Box::new(error);
            return Error::Stale {
                verb,
                object,
                source,
            };
        }
    }
    let source = Box::new(error);
    Error::Refused {
        verb,
        object,
        source,
    }
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden()
        && causes
            .into_iter()
            .any(|cause| cause.reason == NAMESPACE_TERMINATING)
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn refusal(code: u16, reason: &str, cause: Option<&str>) -> kube::Error {
        let causes = cause.map(|cause| StatusCause {
            reason: cause.to_owned(),
            message: String::new(),
            field: String::new(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.into_iter().collect(),
            retry_after_seconds: 0,
        };
        let status = Status::failure("no", reason)
            .with_code(code)
            .with_details(details);
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn refusals_are_told_apart_by_what_to_do_next() {
        let cases = [
            (
                refusal(403, "Forbidden", Some("NamespaceTerminating")),
                "NamespaceTerminating",
            ),
            (refusal(403, "Forbidden", None), "Refused"),
            (refusal(409, "Conflict", None), "Stale"),
            (refusal(404, "NotFound", None), "Stale"),
            (refusal(422, "Invalid", None), "Refused"),
        ];

        for (error, expected) in cases {
            let error = classify(Verb::Apply, "Service shop/web".to_owned(), error);
            assert_eq!(error.reason(), expected);
            assert!(error.to_string().contains("Service shop/web"), "{error}");
        }
    }

    #[test]
    fn field_managers_are_those_that_earlier_versions_used() {
        let managers: Vec<_> = [
            Controller::ServiceImport,
            Controller::ServiceExport,
            Controller::DerivedService,
            Controller::EndpointSliceMirror,
            Controller::EndpointSliceSync,
        ]
        .map(Controller::field_manager)
        .into();

        assert_eq!(
            managers,
            [
                "tombolo-import",
                "tombolo-export",
                "tombolo-derived",
                "tombolo-mirror",
                "tombolo-sync"
            ]
        );
    }
}
