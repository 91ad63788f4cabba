//! Without an address the pods of a cluster are asked, through the API server's pod proxy.

use std::{io::Write as _, net::IpAddr};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tombolo_testbed::{Cluster, Role, Testbed, eventually, own_address};

use crate::{BUDGET, UNKNOWN, run};

/// A pod object with the label of Tombolo's pods, that runs at an address.
async fn pod(cluster: &Cluster, namespace: &str, name: &str, ip: IpAddr, port: u16) -> Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "tombolo"}},
        "spec": {"containers": [{"name": name, "image": "tombolo", "ports": [{"name": "health", "containerPort": port}]}]},
    }))?;
    let api = Api::<Pod>::namespaced(cluster.client(), namespace);
    api.create(&PostParams::default(), &pod).await?;
    let running = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(running))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_pods_are_asked_and_those_that_do_not_answer_are_unknown() -> Result<()>
{
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let kubeconfig = cluster.kubeconfig()?.display().to_string();
    let arguments = ["--kubeconfig".to_owned(), kubeconfig];

    let nobody = run(&arguments).await?;
    let text = String::from_utf8(nobody.stdout)?;
    ensure!(nobody.status.code() == Some(UNKNOWN), "{text}");
    ensure!(
        text.contains("no pod has the label app.kubernetes.io/name=tombolo"),
        "{text}"
    );

    let namespace = cluster.namespace().await?;
    let loopback = [127, 0, 0, 1].into();
    pod(cluster, &namespace, "operator-0", loopback, 9879).await?;

    let silent = run(&arguments).await?;
    let text = String::from_utf8(silent.stdout)?;
    ensure!(silent.status.code() == Some(UNKNOWN), "{text}");
    ensure!(
        text.contains(&format!("{namespace}/operator-0:9879: no answer")),
        "{text}"
    );
    ensure!(text.contains("no operator has answered"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_cluster_are_reached_through_its_api_server() -> Result<()> {
    let Some(own) = own_address() else {
        // Not by the macro, whose output is swallowed when a test passes; on a line of its own.
        writeln!(
            std::io::stdout(),
            "\nnot run: the pods of a cluster are reached through its API server: this machine has no address but on loopback"
        )?;
        return Ok(());
    };
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let namespace = cluster.namespace().await?;
    for (role, name) in [(Role::Operator, "operator-0"), (Role::Mesh, "mesh-0")] {
        let port = cluster.role_address(role)?.port();
        let everywhere = format!("--health-address=0.0.0.0:{port}");
        cluster.start_role(role, &[&everywhere]).await?;
        pod(cluster, &namespace, name, own, port).await?;
    }
    let kubeconfig = cluster.kubeconfig()?.display().to_string();
    let arguments = ["--kubeconfig".to_owned(), kubeconfig];

    let text = eventually(BUDGET, "all pods are well", async || {
        let output = run(&arguments)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => Ok(text),
            _ => Err(text),
        }
    })
    .await?;

    for (role, name) in [("operator", "operator-0"), ("mesh", "mesh-0")] {
        let port = if role == "mesh" {
            Role::Mesh
        } else {
            Role::Operator
        };
        let port = cluster.role_address(port)?.port();
        let line = format!(
            "{role} of {} (id {}) at {namespace}/{name}:{port}",
            cluster.name(),
            cluster.id()
        );
        ensure!(text.contains(&line), "{line} is not in {text}");
    }
    ensure!(text.starts_with("WELL: "), "{text}");

    // A pod more that does not answer is a process of which nothing is known.
    pod(cluster, &namespace, "mesh-1", own, 1).await?;
    let output = run(&arguments).await?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(UNKNOWN), "{text}");
    ensure!(
        text.contains(&format!("{namespace}/mesh-1:1: no answer")),
        "{text}"
    );
    Ok(())
}
