//! Writes what a plan says: the only file of `tombolo dns` that does.
//!
//! Corefiles are written under the version that was read: who changed one at the same time loses nothing. Role and binding are
//! our own, so that upgrades of CoreDNS' role do not take the right away, and taking it back is deleting them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::ConfigMap,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    args::ConfigureArgs,
    error::Error,
    observe::{MADE_BY, Observed, ROLE},
    plan::{BEFORE, Change, PENDING},
    rights,
};

/// Field manager of everything that is written here.
const MANAGER: &str = "tombolo-dns";

/// How long the API server may take to see a new binding.
const GRANT: Duration = Duration::from_secs(10);

/// Between two questions for it.
const PAUSE: Duration = Duration::from_millis(100);

/// Lets the account of CoreDNS read imports, and waits until it may.
pub async fn grant(client: &Client, args: &ConfigureArgs, account: &str) -> Result<(), Error> {
    let namespace = &args.coredns_namespace;
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({
        "name": ROLE,
        "labels": { "app.kubernetes.io/name": "tombolo", MADE_BY.0: MADE_BY.1 },
    });
    let role = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [{
            "apiGroups": [tombolo_api::GROUP],
            "resources": ["serviceimports"],
            "verbs": ["list", "watch"],
        }],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": ROLE },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": account }],
    });
    apply::<ClusterRole>(client, "ClusterRole", &role).await?;
    apply::<ClusterRoleBinding>(client, "ClusterRoleBinding", &binding).await?;
    let until = Instant::now() + GRANT;
    while !rights::may_read(client, namespace, account).await? {
        if Instant::now() > until {
            let account = format!("account {namespace}/{account}");
            return Err(Error::NoRights { account });
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn apply<K>(client: &Client, kind: &'static str, object: &Value) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let parameters = PatchParams::apply(MANAGER);
    let applied = api.patch(ROLE, &parameters, &Patch::Apply(object)).await;
    applied.map(drop).map_err(|source| Error::Write {
        what: format!("apply {kind} {ROLE}"),
        source: source.into(),
    })
}

/// Deletes role and binding, if they are those that were seen, and ours.
pub async fn revoke(client: &Client, observed: &Observed) -> Result<(), Error> {
    delete(client, "ClusterRoleBinding", observed.own_binding()).await?;
    delete(client, "ClusterRole", observed.own_role()).await
}

async fn delete<K>(client: &Client, kind: &'static str, seen: Option<&K>) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let Some(seen) = seen else {
        return Ok(());
    };
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: seen.meta().uid.clone(),
            resource_version: seen.meta().resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    match Api::<K>::all(client.clone())
        .delete(ROLE, &parameters)
        .await
    {
        Ok(_) => Ok(()),
        Err(error) if crate::cluster::client::is_not_served(&error) => Ok(()),
        Err(source) => Err(Error::Write {
            what: format!("delete {kind} {ROLE}"),
            source: source.into(),
        }),
    }
}

/// Writes a Corefile.
pub async fn write(client: &Client, change: &Change) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &change.namespace);
    let patch = json!({
        "metadata": {
            "resourceVersion": change.resource_version,
            "annotations": {
                BEFORE: change.note,
                PENDING: change.restart.then_some("true"),
            },
        },
        "data": { "Corefile": change.to },
    });
    let object = format!("{}/{}", change.namespace, change.name);
    match api
        .patch(&change.name, &merged(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Error::Concurrent { object }),
        Err(source) => Err(Error::Write {
            what: format!("write ConfigMap {object}"),
            source: source.into(),
        }),
    }
}

/// Has all pods of CoreDNS replaced, as `kubectl rollout restart` does.
pub async fn restart(client: &Client, args: &ConfigureArgs, now: Timestamp) -> Result<(), Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &args.coredns_namespace);
    let annotations = json!({ "kubectl.kubernetes.io/restartedAt": now.to_string() });
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
    let name = &args.coredns_deployment_name;
    let patched = api.patch(name, &merged(), &Patch::Merge(&patch)).await;
    patched.map(drop).map_err(|source| Error::Write {
        what: format!("restart Deployment {}/{name}", args.coredns_namespace),
        source: source.into(),
    })
}

/// Notes that CoreDNS has been restarted since its Corefile was written.
pub async fn restarted(client: &Client, args: &ConfigureArgs) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &args.coredns_namespace);
    let name = &args.coredns_configmap_name;
    let patch = json!({ "metadata": { "annotations": { PENDING: null } } });
    let patched = api.patch(name, &merged(), &Patch::Merge(&patch)).await;
    patched.map(drop).map_err(|source| Error::Write {
        what: format!("write ConfigMap {}/{name}", args.coredns_namespace),
        source: source.into(),
    })
}

/// For changes of objects that are others'.
fn merged() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
