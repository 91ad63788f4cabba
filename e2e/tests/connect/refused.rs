//! What the command refuses, and that nothing was written then.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tombolo_e2e::chart::{Helm, Installation, helm::NAMESPACE};
use tombolo_testbed::{Testbed, eventually};

use super::{
    A, B,
    command::{endpoints, install, remove, run, values, words, written},
};

/// The API server learns of new rights within moments.
const BUDGET: Duration = Duration::from_secs(30);

/// Values of the second cluster, what the command is called with, and what it says.
struct Case {
    values: &'static str,
    flags: &'static [&'static str],
    says: &'static [&'static str],
}

const CASES: [Case; 8] = [
    Case {
        values: "cluster: {name: a, id: 2}",
        flags: &["a", "b"],
        says: &[
            "context a and context b are both called a",
            "names are unique",
        ],
    },
    Case {
        values: "cluster: {name: b, id: 1}",
        flags: &["a", "b"],
        says: &["a and b both have id 1"],
    },
    Case {
        values: "cluster: {name: b, id: 2}\nclustermesh: {maxConnectedClusters: 511}",
        flags: &["a", "b"],
        says: &["maxConnectedClusters: a has 255, b has 511"],
    },
    Case {
        values: "cluster: {name: b, id: 2}\nclustermesh: {config: {clusters: [{name: c, ips: [192.0.2.1]}]}}",
        flags: &["a", "b"],
        says: &[
            "its peers are in the values of Helm release tombolo",
            "{name: a, ips: [\"127.0.0.1\"], port: ",
        ],
    },
    Case {
        values: "cluster: {name: b, id: 2}",
        flags: &["a", "nowhere"],
        says: &["nowhere", "context"],
    },
    Case {
        values: "cluster: {name: b, id: 2}",
        flags: &["a", "b", "--namespace", "b=elsewhere"],
        says: &[
            "context b: namespace elsewhere has no Deployment",
            "--namespace b=NAME",
        ],
    },
    Case {
        values: "cluster: {name: b, id: 2}",
        flags: &["a"],
        says: &["expected two contexts or more"],
    },
    Case {
        values: "cluster: {name: b, id: 2}\noperator: {enabled: false}\n",
        flags: &["a", "b", "--endpoint", "b=elsewhere.example.org:1"],
        says: &[
            "the certificate of its etcd is not for elsewhere.example.org, but for ",
            "extraDnsNames={elsewhere.example.org}",
        ],
    },
];

pub(crate) async fn clusters(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, "").await?;
    let b = Installation::prepare(&helm, testbed.cluster(B)).await?;
    for (number, case) in CASES.iter().enumerate() {
        if number == 0 {
            b.install(case.values)?;
        } else {
            b.upgrade(case.values)?;
        }
        let before = (written(&a).await?, written(&b).await?);
        let mut places = endpoints(testbed, &[A])?;
        if case.flags.contains(&"b") && !case.flags.contains(&"--endpoint") {
            places.extend(endpoints(testbed, &[B])?);
        }
        let mut flags = vec!["connect"];
        flags.extend(case.flags);

        let refused = run(testbed, &words(&flags, &places)).await?;

        refused
            .expect(2, case.says)
            .with_context(|| format!("case {number}"))?;
        let after = (written(&a).await?, written(&b).await?);
        ensure!(before == after, "case {number} writes nothing");
    }
    of_services(testbed, &b).await?;
    remove(&a).await?;
    remove(&b).await
}

/// A Service that cannot be reached from outside is pointed out, and another one made when it is asked for.
async fn of_services(testbed: &Testbed, b: &Installation<'_>) -> Result<()> {
    let inside = "clustermesh: {apiserver: {service: {type: ClusterIP}}}";
    b.upgrade(&values(testbed, B, inside))?;
    let places = endpoints(testbed, &[A])?;
    let refused = run(testbed, &words(&["connect", "a", "b"], &places)).await?;
    refused.expect(
        2,
        &["b: Service tombolo-system/clustermesh-apiserver: not reachable"],
    )?;

    let flags = [
        "connect",
        "a",
        "b",
        "--dry-run",
        "--exposure",
        "b=cluster-ip",
    ];
    let routed = run(testbed, &words(&flags, &places)).await?;
    routed.expect(
        0,
        &["port 2379 as b.mesh.cilium.io (ClusterIP of Service clustermesh-apiserver)"],
    )?;

    // There is no load balancer here: the Service is made, and its address waited for.
    let flags = [
        "connect",
        "a",
        "b",
        "--wait-duration",
        "3s",
        "--exposure",
        "b=load-balancer",
    ];
    let waits = run(testbed, &words(&flags, &places)).await?;
    waits.expect(
        5,
        &[
            "+ Service tombolo-connect: LoadBalancer",
            "its load balancer has no address yet",
        ],
    )?;
    let services = b.api::<k8s_openapi::api::core::v1::Service>();
    let mut service = services.get("tombolo-connect").await?;
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}});
    service.status = Some(serde_json::from_value(status)?);
    let params = PostParams::default();
    services
        .replace_status("tombolo-connect", &params, &service)
        .await?;
    let flags = ["connect", "a", "b", "--no-wait"];
    let found = run(testbed, &words(&flags, &places)).await?;
    found.expect(
        0,
        &["192.0.2.77 port 2379 as b.mesh.cilium.io (LoadBalancer of Service tombolo-connect)"],
    )?;
    let parted = run(testbed, &["disconnect", "a", "b", "--no-wait"]).await?;
    parted.expect(0, &["- Service tombolo-connect"])?;
    ensure!(services.get_opt("tombolo-connect").await?.is_none());
    Ok(())
}

pub(crate) async fn users(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, "").await?;
    let b = install(testbed, &helm, B, "").await?;
    let kubeconfig = as_user(testbed, B, "limited")?;
    let grant = |verbs: &[&str]| {
        json!({
            "metadata": {"name": "limited"},
            "rules": [
                {"apiGroups": [""], "resources": ["secrets", "configmaps", "services"], "verbs": verbs},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
            ],
        })
    };
    let roles: Api<Role> = b.api();
    let role: Role = serde_json::from_value(grant(&["get"]))?;
    roles.create(&PostParams::default(), &role).await?;
    bind(&b).await?;
    may(&b, "get").await?;
    let mut places = endpoints(testbed, &[A, B])?;
    // The kubeconfig of the user counts, being the first.
    let mut flags = vec![
        "connect",
        "a",
        "b",
        "--no-wait",
        "--kubeconfig",
        &kubeconfig,
    ];
    places.push("--force".to_owned());

    let refused = run(testbed, &words(&flags, &places)).await?;

    refused.expect(
        1,
        &[
            "context b: cannot write ",
            "is forbidden: User \"limited\" cannot",
            "have this right given to your user",
        ],
    )?;
    let there = (written(&a).await?, written(&b).await?);
    ensure!(
        there.0.is_empty() && there.1.is_empty(),
        "nothing is written by halves"
    );

    let mut role: Role = roles.get("limited").await?;
    role.rules =
        serde_json::from_value(grant(&["get", "create", "patch", "update"])["rules"].clone())?;
    roles
        .replace("limited", &PostParams::default(), &role)
        .await?;
    may(&b, "update").await?;
    flags.truncate(6);
    let done = run(testbed, &words(&flags, &places)).await?;
    done.expect(0, &["note: b: unknown: nodes: ", "written"])?;
    let bindings: Api<ClusterRoleBinding> = Api::all(b.cluster().client());
    let _absent = bindings.delete("limited", &DeleteParams::default()).await;
    let cluster_roles: Api<ClusterRole> = Api::all(b.cluster().client());
    let _absent = cluster_roles
        .delete("limited", &DeleteParams::default())
        .await;
    roles.delete("limited", &DeleteParams::default()).await?;
    remove(&a).await?;
    remove(&b).await
}

async fn bind(release: &Installation<'_>) -> Result<()> {
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"});
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited"},
        "subjects": [subject],
    }))?;
    release
        .api::<RoleBinding>()
        .create(&PostParams::default(), &binding)
        .await?;
    Ok(())
}

/// Waits until the API server knows that the user may do this with Secrets.
async fn may(release: &Installation<'_>, verb: &str) -> Result<()> {
    let what = format!("the user may {verb} Secrets");
    eventually(BUDGET, &what, async || {
        let action = (verb, "", "secrets");
        let allowed = release
            .cluster()
            .allows(("limited", &[]), NAMESPACE, action);
        match allowed.await {
            Ok(true) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// A kubeconfig of a cluster by which an administrator acts as somebody else.
fn as_user(testbed: &Testbed, index: usize, user: &str) -> Result<String> {
    let cluster = testbed.cluster(index);
    let mut config: Value = serde_json::from_str(&fs::read_to_string(cluster.kubeconfig()?)?)?;
    config["users"][0]["user"]["as"] = json!(user);
    let path = testbed
        .directory()
        .join(format!("kubeconfig-{NAMESPACE}-{user}"));
    fs::write(&path, config.to_string())?;
    Ok(path.display().to_string())
}
