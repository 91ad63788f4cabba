//! Who leads, whether that one lives, and whether the API server answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use tombolo::operator::{
    crds,
    leadership::{LEASE_NAME, Tenure},
};
use tombolo_testbed::{Cluster, Component, Role, Testbed, eventually};

use crate::{BOTH, BUDGET, UNKNOWN, at, findings, never_well, run, status, until_well};

const OPERATOR: [Role; 1] = [Role::Operator];

/// A Lease that somebody else holds, for an hour by its own word.
async fn hold(leases: &Api<Lease>) -> Result<()> {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": LEASE_NAME},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600},
    }))?;
    leases.create(&PostParams::default(), &lease).await?;
    Ok(())
}

/// Renews it every 200 ms, until dropped.
fn renew(leases: Api<Lease>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let now = jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
                .to_string();
            let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
            let _ = leases
                .patch(LEASE_NAME, &PatchParams::default(), &patch)
                .await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }))
}

fn leadership(json: &Value) -> Value {
    json["processes"][0]["answer"]["leadership"].clone()
}

async fn text(cluster: &Cluster) -> Result<String> {
    let output = run(&at(cluster, &OPERATOR)?).await?;
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_well_only_while_it_sees_another_renew() -> Result<()> {
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    let namespace = cluster.namespace().await?;
    let leases = Api::<Lease>::namespaced(cluster.client(), &namespace);
    hold(&leases).await?;
    let place = format!("--leader-election-namespace={namespace}");
    let flags = [
        "--leader-election=true",
        &place,
        "--leader-election-lease-duration=4s",
        "--leader-election-renew-deadline=3s",
        "--leader-election-retry-period=500ms",
        "--install-crds=false",
    ];
    install_definitions(cluster).await?;
    cluster.start_role(Role::Operator, &flags).await?;

    // Somebody holds the Lease, and gives no sign of life.
    never_well(cluster, &OPERATOR, 3).await?;
    let (code, json) = status(cluster, &OPERATOR).await?;
    ensure!(code == UNKNOWN, "{json}");
    let told = findings(&json);
    ensure!(
        told.iter()
            .any(|it| it.contains("was not seen to renew it yet")),
        "{told:?}"
    );
    ensure!(leadership(&json)["holder"] == "somebody", "{json}");

    // It lives.
    let living = renew(leases.clone());
    until_well(cluster, &OPERATOR).await?;
    let shown = text(cluster).await?;
    ensure!(shown.contains("\n standby   somebody"), "{shown}");

    // It is silent for longer than this replica would be believed, although it asked to be believed for an hour.
    drop(living);
    eventually(BUDGET, "the silence is told", async || {
        let (code, json) = status(cluster, &OPERATOR)
            .await
            .map_err(|error| format!("{error:#}"))?;
        if code == UNKNOWN {
            Ok(())
        } else {
            Err(json.to_string())
        }
    })
    .await?;
    never_well(cluster, &OPERATOR, 3).await?;

    // Nobody holds it: this replica takes it.
    leases.delete(LEASE_NAME, &DeleteParams::default()).await?;
    until_well(cluster, &OPERATOR).await?;
    let (_, json) = status(cluster, &OPERATOR).await?;
    let own = leadership(&json);
    ensure!(
        own["leads"] == true && own["holder"] == own["identity"],
        "{own}"
    );
    let shown = text(cluster).await?;
    ensure!(shown.contains("\n leader    "), "{shown}");
    Ok(())
}

/// Installs the definitions, which a standby does not.
async fn install_definitions(cluster: &Cluster) -> Result<()> {
    crds::install(&cluster.client(), &Tenure::sole()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_well_while_the_api_server_or_its_store_is_silent() -> Result<()> {
    let testbed = Testbed::start(1).await?;
    let cluster = testbed.cluster(0);
    for role in BOTH {
        cluster.start_role(role, &[]).await?;
    }
    until_well(cluster, &BOTH).await?;

    for component in [Component::ApiServer, Component::Etcd] {
        cluster.pause(component)?;
        for role in BOTH {
            let code = never_well(cluster, &[role], 2).await?;
            let (_, json) = status(cluster, &[role]).await?;
            ensure!(code == UNKNOWN, "{component}: {json}");
            let told = findings(&json);
            ensure!(
                told.iter().any(|it| it.starts_with("Unknown API server: ")),
                "{told:?}"
            );
        }
        cluster.resume(component)?;
        until_well(cluster, &BOTH).await?;
    }

    cluster.kill9(Component::ApiServer)?;
    never_well(cluster, &BOTH, 2).await?;
    cluster.restart(Component::ApiServer).await?;
    until_well(cluster, &BOTH).await
}
