//! Writes to the API servers of users, under their own rights: the only module of the command that does.
//!
//! Keys of a peer are applied by a field manager of that peer alone, without force: what somebody else has written is not taken
//! over, and what is applied for one peer leaves those of the others as they are. The list of users is one text, and is replaced
//! only as it was read. Nothing is deleted that has changed since it was seen.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::BASE64;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret, Service},
};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tombolo_core::names::ClusterName;

use super::{
    ConnectError as Error,
    exposure::OWN_SERVICE,
    files::{self, Data},
    gather::Place,
    objects::{MADE_BY, of_config_map},
    steps::Write,
    users::{self, Edit},
};

/// Field manager of what is about no single peer.
const MANAGER: &str = "tombolo-connect";

/// How often the list of users is read anew when somebody else changes it at the same time.
const ATTEMPTS: usize = 8;

/// Whether a write is meant, or only tried: the API server checks it and keeps nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Tried.
    Trial,
    /// Meant.
    Real,
}

/// Writes one step.
pub(super) async fn write(place: &Place, write: &Write, mode: Mode) -> Result<(), Error> {
    match write {
        Write::Peer {
            secret,
            peer,
            data,
            ours,
        } => apply_peer(place, secret, (peer, data, *ours), mode).await,
        Write::Users(edit) => edit_users(place, edit, mode).await,
        Write::Service {
            exposure,
            selector,
            affinity,
        } => {
            let spec = json!({
                "type": exposure.service_type(),
                "ipFamilyPolicy": "PreferDualStack",
                "selector": selector,
                "sessionAffinity": if *affinity { "ClientIP" } else { "None" },
                "ports": [{"name": "etcd", "port": 2379, "targetPort": "etcd", "protocol": "TCP"}],
            });
            apply_service(place, spec, mode).await
        }
        Write::DeleteSecret(name, version) => delete::<Secret>(place, name, version, mode).await,
        Write::DeleteService(version) => delete::<Service>(place, OWN_SERVICE, version, mode).await,
    }
}

async fn apply_peer(
    place: &Place,
    secret: &str,
    (peer, data, ours): (&ClusterName, &Data, bool),
    mode: Mode,
) -> Result<(), Error> {
    let encoded = data
        .iter()
        .map(|(key, content)| (key, BASE64.encode(content)));
    let encoded: BTreeMap<_, _> = encoded.collect();
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret, "namespace": place.namespace},
        "data": encoded,
    });
    if ours {
        body["metadata"]["labels"] = labels();
    }
    let params = PatchParams {
        dry_run: mode == Mode::Trial,
        ..PatchParams::apply(&files::manager(peer))
    };
    let sent = place
        .api::<Secret>()
        .patch(secret, &params, &Patch::Apply(&body))
        .await;
    sent.map(drop).map_err(|source| {
        failed(
            place,
            format!("write Secret {}/{secret}", place.namespace),
            source,
        )
    })
}

async fn apply_service(place: &Place, spec: Value, mode: Mode) -> Result<(), Error> {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": OWN_SERVICE, "namespace": place.namespace, "labels": labels()},
        "spec": spec,
    });
    let params = PatchParams {
        dry_run: mode == Mode::Trial,
        ..PatchParams::apply(MANAGER)
    };
    let sent = place
        .api::<Service>()
        .patch(OWN_SERVICE, &params, &Patch::Apply(&body))
        .await;
    sent.map(drop).map_err(|source| {
        let what = format!("write Service {}/{OWN_SERVICE}", place.namespace);
        failed(place, what, source)
    })
}

/// Changes the list of users as it is at the moment, and only that one.
async fn edit_users(place: &Place, edit: &Edit, mode: Mode) -> Result<(), Error> {
    let api = place.api::<ConfigMap>();
    let name = users::CONFIG_MAP;
    let what = || format!("write ConfigMap {}/{name}", place.namespace);
    let params = PostParams {
        dry_run: mode == Mode::Trial,
        field_manager: Some(MANAGER.to_owned()),
    };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let found = api.get_opt(name).await;
        let found = found.map_err(|source| failed(place, what(), source))?;
        let text = found
            .as_ref()
            .and_then(|map| map.data.as_ref()?.get(users::KEY));
        let edited = users::edited(text.map(String::as_str), edit);
        let edited = edited.map_err(|problem| Error::Users {
            context: place.context.clone(),
            problem,
        })?;
        let Some(edited) = edited else {
            return Ok(());
        };
        let is_new = found.is_none();
        let map = with_users(place, found, edit, edited);
        let sent = if is_new {
            api.create(&params, &map).await
        } else {
            api.replace(name, &params, &map).await
        };
        match sent {
            Ok(_) => return Ok(()),
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                last = Some(kube::Error::Api(status));
            }
            Err(source) => return Err(failed(place, what(), source)),
        }
    }
    let source = last.expect("invariant: at least one attempt, and each that goes on has failed");
    Err(failed(place, what(), source))
}

/// The ConfigMap with this list, and whom of it `connect` has listed.
fn with_users(place: &Place, found: Option<ConfigMap>, edit: &Edit, text: String) -> ConfigMap {
    let noted = found.clone().map(of_config_map).unwrap_or_default().noted;
    let mut map = found.unwrap_or_else(|| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(users::CONFIG_MAP.to_owned());
        map.metadata.namespace = Some(place.namespace.clone());
        let (label, value) = MADE_BY;
        map.labels_mut().insert(label.to_owned(), value.to_owned());
        map
    });
    let removed: BTreeSet<_> = edit.remove.iter().map(ToString::to_string).collect();
    let noted = noted.into_iter().filter(|peer| !removed.contains(peer));
    let noted = noted.chain(edit.add.iter().map(ToString::to_string));
    let noted: BTreeSet<_> = noted.collect();
    let noted: Vec<_> = noted.into_iter().collect();
    map.annotations_mut()
        .insert(users::NOTED.to_owned(), noted.join(","));
    map.data
        .get_or_insert_default()
        .insert(users::KEY.to_owned(), text);
    map
}

async fn delete<K>(
    place: &Place,
    name: &str,
    (uid, resource_version): &(String, String),
    mode: Mode,
) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let preconditions = Preconditions {
        uid: Some(uid.clone()),
        resource_version: Some(resource_version.clone()),
    };
    let params = DeleteParams {
        dry_run: mode == Mode::Trial,
        ..DeleteParams::background().preconditions(preconditions)
    };
    match place.api::<K>().delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => {
            let what = format!("delete {} {}/{name}", K::kind(&()), place.namespace);
            Err(failed(place, what, source))
        }
    }
}

fn labels() -> Value {
    json!({MADE_BY.0: MADE_BY.1, "app.kubernetes.io/part-of": "tombolo"})
}

fn failed(place: &Place, mut what: String, source: kube::Error) -> Error {
    if !matches!(source, kube::Error::Api(_)) {
        what += ", or hear that it was done";
    }
    Error::api(&place.context, what, source)
}
