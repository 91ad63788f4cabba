//! How a role finds out who its cluster is: by flags, by ClusterProperties on a real API server, and when they change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tombolo_api::about::{CLUSTER_ID, CLUSTERSET, ClusterProperty, ClusterPropertySpec};
use tombolo_core::identity::{CLUSTER, CLUSTERSET as CLUSTERSET_FACT};
use tombolo_testbed::{Testbed, eventually};

const CRD: &str = include_str!("fixtures/clusterproperties.yaml");
/// Longest wait for something that takes milliseconds.
const BUDGET: Duration = Duration::from_secs(20);

/// A role as a process, whose log is a file. Dropping it kills it.
struct Role {
    child: Child,
    log: PathBuf,
}

impl Role {
    /// Starts the operator for the cluster of a kubeconfig file, with no peers.
    fn start(test: &str, kubeconfig: &Path, flags: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("identity-{test}"));
        std::fs::create_dir_all(directory.join("peers")).unwrap();
        let log = directory.join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(["run", "operator", "--cluster-id=1"])
            .arg("--health-address=127.0.0.1:0")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg("--clustermesh-config")
            .arg(directory.join("peers"))
            .args(flags.split_whitespace())
            .env("NO_COLOR", "1")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    async fn expect_log(&self, text: &str) -> Result<()> {
        eventually(BUDGET, &format!("the log says {text}"), async || {
            let log = self.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await?;
        Ok(())
    }

    /// Waits until it has ended; its exit code and what it logged.
    async fn expect_end(mut self) -> Result<(Option<i32>, String)> {
        let status = eventually(BUDGET, "the role ends", async || {
            match self.child.try_wait() {
                Ok(Some(status)) => Ok(status),
                other => Err(format!("{other:?}: {}", self.log())),
            }
        });
        let code = status.await?.code();
        Ok((code, self.log()))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn install_about_api(client: &Client) -> Result<()> {
    let definition: CustomResourceDefinition = serde_saphyr::from_str(CRD)?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    api.create(&PostParams::default(), &definition).await?;
    Ok(())
}

/// Sets a property, as soon as the kind is served.
async fn state(client: &Client, name: &str, value: &str) -> Result<()> {
    let api: Api<ClusterProperty> = Api::all(client.clone());
    let spec = ClusterPropertySpec {
        value: value.to_owned(),
    };
    let property = ClusterProperty::new(name, spec);
    let params = PatchParams::apply("test").force();
    eventually(BUDGET, "the property is stored", async || {
        let stored = api.patch(name, &params, &Patch::Apply(&property)).await;
        stored.map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

fn names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn core_and_api_name_the_same_properties() {
    assert_eq!(CLUSTER.property, CLUSTER_ID);
    assert_eq!(CLUSTERSET_FACT.property, CLUSTERSET);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_is_away_a_role_waits_and_says_so() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "east",
        "clusters": [{"name": "east", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "admin", "user": {"token": "none"}}],
        "contexts": [{"name": "east", "context": {"cluster": "east", "user": "admin"}}],
    });
    std::fs::write(&kubeconfig, text.to_string())?;

    let role = Role::start("away", &kubeconfig, "--cluster-name=paris");

    role.expect_log("cannot read ClusterProperties").await?;
    let stopped = Command::new("kill")
        .arg(role.child.id().to_string())
        .status()?;
    assert!(stopped.success());
    let (code, log) = role.expect_end().await?;
    assert_eq!(code, Some(0), "{log}");
    Ok(())
}

/// One story, since every step changes the one cluster that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_who_flags_and_properties_say_as_long_as_they_agree() -> Result<()> {
    let bed = Testbed::start(1).await?;
    let cluster = bed.cluster(0);
    let (client, kubeconfig) = (cluster.client(), cluster.kubeconfig()?);

    // Without the About API there are only flags.
    let (code, log) = Role::start("nobody", kubeconfig, "").expect_end().await?;
    assert_eq!(code, Some(2), "{log}");
    names(&log, &["--cluster-name NAME", CLUSTER_ID, "spec.value"]);
    let role = Role::start("flag", kubeconfig, "--cluster-name=paris");
    role.expect_log("the operator begins cluster=paris").await?;
    drop(role);

    // A value that is no cluster name, for instance the recommended uid of kube-system.
    install_about_api(&client).await?;
    let uid = "2f0b7b6c-6f0a-4c7e-9d55-0c5f6f1d2a3b";
    state(&client, CLUSTER_ID, uid).await?;
    let (code, log) = Role::start("uid", kubeconfig, "").expect_end().await?;
    assert_eq!(code, Some(2), "{log}");
    names(&log, &[CLUSTER_ID, uid, "RFC 1123", "32"]);

    // The property alone.
    state(&client, CLUSTER_ID, "paris").await?;
    state(&client, CLUSTERSET, "europe").await?;
    let role = Role::start("property", kubeconfig, "");
    role.expect_log("the operator begins cluster=paris").await?;
    names(&role.log(), &["clusterset=\"europe\""]);
    drop(role);

    // Both, in contradiction.
    for (flags, parts) in [
        (
            "--cluster-name=rome",
            [CLUSTER_ID, "--cluster-name", "\"paris\"", "\"rome\""],
        ),
        (
            "--clusterset-name=asia",
            [CLUSTERSET, "--clusterset-name", "\"europe\"", "\"asia\""],
        ),
    ] {
        let (code, log) = Role::start("both", kubeconfig, flags).expect_end().await?;
        assert_eq!(code, Some(2), "{log}");
        names(&log, &parts);
    }

    // A property that goes is no other name; one that changes is.
    let role = Role::start("changed", kubeconfig, "--cluster-name=paris");
    role.expect_log("the operator begins").await?;
    let api: Api<ClusterProperty> = Api::all(client.clone());
    api.delete(CLUSTER_ID, &DeleteParams::default())
        .await
        .context("delete")?;
    role.expect_log("the ClusterProperty is gone").await?;
    state(&client, CLUSTER_ID, "rome").await?;
    let (code, log) = role.expect_end().await?;
    assert_eq!(code, Some(1), "{log}");
    names(
        &log,
        &["ERROR", CLUSTER_ID, "\"rome\"", "\"paris\"", "KEP-1645#6"],
    );
    Ok(())
}
