//! Objects of an installation: its pods, whether they are those of the last release, their logs.

use std::{fs, path::Path};

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::{
    ResourceExt,
    api::{ListParams, LogParams},
};

use crate::chart::Installation;

/// Label of all that the chart installs.
pub const LABEL: &str = "app.kubernetes.io/name=tombolo";

/// A Secret as `kubectl get -o yaml | kubectl create` gives it to another cluster: without what its cluster says of it.
pub fn copy_of(mut secret: Secret) -> Secret {
    secret.metadata.uid = None;
    secret.metadata.resource_version = None;
    secret.metadata.managed_fields = None;
    secret
}

/// The pods of a release.
pub async fn pods(release: &Installation<'_>) -> Result<Vec<Pod>> {
    let parameters = ListParams::default().labels(LABEL);
    Ok(release.api::<Pod>().list(&parameters).await?.items)
}

/// Whether all pods are those of the last release, and ready; else what is missing.
pub async fn rolled_out(release: &Installation<'_>) -> Result<(), String> {
    let parameters = ListParams::default().labels(LABEL);
    let deployments = release.api::<Deployment>().list(&parameters).await;
    let deployments = deployments.map_err(|error| error.to_string())?.items;
    if deployments.is_empty() {
        return Err("no Deployment".to_owned());
    }
    let mut wanted = 0;
    for deployment in &deployments {
        wanted += is_rolled_out(deployment)?;
    }
    let pods = pods(release).await.map_err(|error| format!("{error:#}"))?;
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    if names.len() == wanted {
        Ok(())
    } else {
        Err(format!("{wanted} pods are wanted, there are {names:?}"))
    }
}

/// The number of pods of a Deployment whose pods are all of its last template and ready.
fn is_rolled_out(deployment: &Deployment) -> Result<usize, String> {
    let wanted = deployment.spec.replicas;
    let wanted = wanted.unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let seen = status.observed_generation == deployment.metadata.generation;
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
        status.available_replicas,
    ];
    if seen && counts == [Some(wanted); 4] {
        Ok(usize::try_from(wanted).unwrap_or_default())
    } else {
        let conditions = status.conditions.unwrap_or_default();
        let messages: Vec<_> = conditions.iter().map(|it| it.message.clone()).collect();
        Err(format!(
            "{}: {counts:?} of {wanted} {messages:?}",
            deployment.name_any()
        ))
    }
}

/// Writes what all containers of a release logged, and what is known of their pods, into a directory.
pub(super) async fn write_logs(release: &Installation<'_>, directory: &Path) {
    if let Err(error) = fs::create_dir_all(directory) {
        eprintln!("{}: {error}", directory.display());
        return;
    }
    let pods = pods(release).await.unwrap_or_default();
    for pod in pods {
        let name = pod.name_any();
        let status = serde_saphyr::to_string(&pod.status).unwrap_or_default();
        write(&directory.join(format!("{name}.yaml")), &status);
        let spec = pod.spec.unwrap_or_default();
        let containers = spec.init_containers.iter().flatten();
        for container in containers.chain(&spec.containers) {
            for previous in [false, true] {
                let parameters = LogParams {
                    container: Some(container.name.clone()),
                    previous,
                    ..LogParams::default()
                };
                let Ok(text) = release.api::<Pod>().logs(&name, &parameters).await else {
                    continue;
                };
                let suffix = if previous { "-previous" } else { "" };
                let file = format!("{name}-{}{suffix}.log", container.name);
                write(&directory.join(file), &text);
            }
        }
    }
}

fn write(path: &Path, text: &str) {
    if let Err(error) = fs::write(path, text) {
        eprintln!("{}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(generation: u32, ready: u32) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "x", "generation": 2},
            "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": {"observedGeneration": generation, "replicas": 2, "updatedReplicas": 2,
                       "readyReplicas": ready, "availableReplicas": ready},
        }))
        .unwrap()
    }

    #[test]
    fn a_deployment_is_rolled_out_when_its_last_generation_is_ready() {
        assert_eq!(is_rolled_out(&deployment(2, 2)), Ok(2));
        assert!(is_rolled_out(&deployment(1, 2)).is_err());
        assert!(is_rolled_out(&deployment(2, 1)).is_err());
        assert!(is_rolled_out(&Deployment::default()).is_err());
    }
}
