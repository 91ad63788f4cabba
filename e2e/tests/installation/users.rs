//! What the chart lets users do.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{Api, api::PostParams};
use serde_json::json;
use tombolo_e2e::chart::{Helm, Installation};
use tombolo_testbed::{Testbed, eventually};

use super::A;

/// The controller that adds roles up does so within a second.
const BUDGET: Duration = Duration::from_secs(30);

/// Who may do what, by the role that they have in the namespace: role, verb, resource, whether.
const TABLE: [(&str, &str, &str, bool); 12] = [
    ("view", "get", "serviceexports", true),
    ("view", "list", "serviceimports", true),
    ("view", "create", "serviceexports", false),
    ("view", "delete", "serviceimports", false),
    ("edit", "create", "serviceexports", true),
    ("edit", "delete", "serviceexports", true),
    ("edit", "watch", "serviceimports", true),
    ("edit", "create", "serviceimports", false),
    ("edit", "patch", "serviceimports", false),
    ("admin", "patch", "serviceexports", true),
    ("admin", "update", "serviceimports", false),
    ("admin", "get", "serviceimports", true),
];

pub(crate) async fn export_and_write_no_imports(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let cluster = testbed.cluster(A);
    let release = Installation::prepare(&helm, cluster).await?;
    let namespace = cluster.namespace().await?;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client(), &namespace);
    for role in ["view", "edit", "admin"] {
        let binding = serde_json::from_value(json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
        }))?;
        bindings.create(&PostParams::default(), &binding).await?;
    }

    release.install("cluster: {name: a, id: 1}\n")?;

    for (role, verb, resource, expected) in TABLE {
        let what = format!("{role} may {verb} {resource}: {expected}");
        eventually(BUDGET, &what, async || {
            let action = (verb, "multicluster.x-k8s.io", resource);
            match cluster.allows((role, &[]), &namespace, action).await {
                Ok(allowed) if allowed == expected => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
    }
    release.uninstall()
}
