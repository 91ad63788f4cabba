//! What pods of an installation are, seen from their node, and what their accounts may.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    ResourceExt as _,
    api::{ListParams, LogParams, PostParams},
};
use tombolo_e2e::{
    chart::{Installation, helm::NAMESPACE},
    installed::{Mesh, objects},
};
use tombolo_testbed::Cluster;

use super::{A, B};

/// User and group of the pods.
const NONROOT: &str = "65532";

pub(crate) async fn may_do_no_harm(mesh: &Mesh) -> Result<()> {
    for index in [A, B] {
        let release = mesh.release(index).await?;
        namespace_is_restricted(&release).await?;
        let pods = objects::pods(&release).await?;
        ensure!(pods.len() == 3, "two operators and a mesh role: {pods:?}");
        for pod in &pods {
            let containers = containers(pod);
            ensure!(!containers.is_empty(), "{}", pod.name_any());
            for container in containers {
                let what = format!("{} of {}", container.name, pod.name_any());
                // Started, live and ready are what the kubelet's probes found; a failed one had it restarted.
                ensure!(container.ready, "{what}: {container:?}");
                ensure!(container.started == Some(true), "{what}: {container:?}");
                ensure!(container.restart_count == 0, "{what}: {container:?}");
                let (cluster, id) = (release.cluster(), id_of(&container)?);
                runs_without_rights(cluster, &id).await.context(what)?;
            }
        }
        is_sealed(&release).await?;
    }
    Ok(())
}

/// The namespace of the release refuses what the Pod Security Standard `restricted` does not allow.
async fn namespace_is_restricted(release: &Installation<'_>) -> Result<()> {
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "any" },
        "spec": { "containers": [{ "name": "any", "image": "any:1" }] },
    }))?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = release.api::<Pod>().create(&dry, &pod).await;
    let refused = matches!(&answer, Err(kube::Error::Api(status))
        if status.code == 403 && status.message.contains("PodSecurity \"restricted"));
    ensure!(refused, "{answer:?}");
    Ok(())
}

/// Every process of a container is of a user other than root, without capabilities, under a filter of system calls.
async fn runs_without_rights(cluster: &Cluster, id: &str) -> Result<()> {
    let arguments = ["--namespace=k8s.io", "tasks", "ps", id];
    let listed = cluster.on_node("ctr", &arguments).await?;
    let listed = listed.success().map_err(anyhow::Error::msg)?;
    let pids = listed.lines().skip(1);
    let pids: Vec<_> = pids
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    ensure!(!pids.is_empty(), "{listed}");
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let status = cluster.on_node("cat", &[&path]).await?;
        let status = status.success().map_err(anyhow::Error::msg)?;
        let member = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().next()
        };
        for (name, expected) in [
            ("Uid:", NONROOT),
            ("Gid:", NONROOT),
            ("CapEff:", "0000000000000000"),
            ("CapBnd:", "0000000000000000"),
            ("NoNewPrivs:", "1"),
            ("Seccomp:", "2"),
        ] {
            ensure!(member(name) == Some(expected), "{name} {status}");
        }
    }
    Ok(())
}

/// Nothing in the logs of the release's pods was refused by the API server.
async fn is_sealed(release: &Installation<'_>) -> Result<()> {
    for pod in objects::pods(release).await? {
        let name = pod.name_any();
        let log = release
            .api::<Pod>()
            .logs(&name, &LogParams::default())
            .await?;
        ensure!(log.lines().count() > 3, "{name} logs");
        let told = log
            .lines()
            .find(|line| line.to_lowercase().contains("forbidden"));
        ensure!(told.is_none(), "{name}: {told:?}");
    }
    Ok(())
}

pub(crate) async fn accounts_read_no_secrets(mesh: &Mesh) -> Result<()> {
    for index in [A, B] {
        let release = mesh.release(index).await?;
        let pods = release.api::<Pod>().list(&ListParams::default()).await?;
        let accounts = pods.iter().filter_map(|pod| pod.spec.as_ref());
        let accounts: std::collections::BTreeSet<_> = accounts
            .filter_map(|spec| spec.service_account_name.clone())
            .collect();
        ensure!(accounts.len() == 2, "{accounts:?}");
        for account in accounts {
            let may = async |verb, resource, namespace| {
                may(release.cluster(), &account, (verb, resource, namespace)).await
            };
            // What is asked is answered: both follow Services everywhere.
            ensure!(may("list", "services", "").await?, "{account}");
            for namespace in ["", "kube-system", NAMESPACE] {
                for verb in ["get", "list", "watch", "create", "update", "patch"] {
                    let secrets = may(verb, "secrets", namespace).await?;
                    ensure!(!secrets, "{account} may {verb} secrets in '{namespace}'");
                }
            }
        }
    }
    Ok(())
}

/// Whether an account of the release may do this; an empty namespace stands for all.
async fn may(cluster: &Cluster, account: &str, what: (&str, &str, &str)) -> Result<bool> {
    let (verb, resource, namespace) = what;
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{NAMESPACE}"),
        "system:authenticated".to_owned(),
    ];
    let action = (verb, "", resource);
    Ok(cluster.allows((&user, &groups), namespace, action).await?)
}

fn containers(pod: &Pod) -> Vec<ContainerStatus> {
    let status = pod.status.clone().unwrap_or_default();
    let early = status.init_container_statuses.unwrap_or_default();
    let others = status.container_statuses.unwrap_or_default();
    early.into_iter().chain(others).collect()
}

/// The id of a container in its runtime.
fn id_of(container: &ContainerStatus) -> Result<String> {
    let id = container.container_id.as_deref().context("an id")?;
    let id = id.strip_prefix("containerd://").context("of containerd")?;
    Ok(id.to_owned())
}
