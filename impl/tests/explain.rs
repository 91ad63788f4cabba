//! `tombolo explain conflict` on two real clusters, with the product at work in both: what is explained is what the status
//! says, and whoever follows the advice ends the conflict.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{Api, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_testbed::{Assets, Cluster, Testbed, eventually};

/// Longest wait for something that takes milliseconds.
const BUDGET: Duration = Duration::from_secs(30);

async fn create<K>(cluster: &Cluster, namespace: &str, object: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    let api: Api<K> = Api::namespaced(cluster.client(), namespace);
    // The definitions may be a moment old.
    eventually(BUDGET, "the object is accepted", async || {
        let created = api.create(&PostParams::default(), &object).await;
        created.map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

/// A Service `web` and its ServiceExport.
async fn export(cluster: &Cluster, namespace: &str, spec: Value, labels: Value) -> Result<()> {
    let metadata = json!({"name": "web"});
    let service = json!({"metadata": metadata, "spec": spec});
    create::<Service>(cluster, namespace, service).await?;
    let export = json!({"metadata": metadata, "spec": {"exportedLabels": labels}});
    create::<ServiceExport>(cluster, namespace, export).await
}

/// Waits until the Conflict condition of a cluster's export has this reason.
async fn conflict(cluster: &Cluster, namespace: &str, reason: &str) -> Result<Condition> {
    let api: Api<ServiceExport> = Api::namespaced(cluster.client(), namespace);
    let what = format!("Conflict is {reason} in {}", cluster.name());
    let seen = eventually(BUDGET, &what, async || {
        let export = api.get("web").await.map_err(|error| error.to_string())?;
        let conditions = export.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let conflict = conditions.find(|condition| condition.type_ == "Conflict");
        match conflict {
            Some(condition) if condition.reason == reason => Ok(condition),
            other => Err(format!("{other:?}")),
        }
    });
    Ok(seen.await?)
}

/// One kubeconfig file with the contexts of all clusters, and one `away` of a cluster that does not answer.
fn kubeconfig(bed: &Testbed, directory: &Path) -> Result<PathBuf> {
    let mut whole =
        json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []});
    for cluster in bed.clusters() {
        let text = std::fs::read_to_string(cluster.kubeconfig()?)?;
        let one: Value = serde_saphyr::from_str(&text)?;
        for list in ["clusters", "users", "contexts"] {
            let mut entry = one[list][0].clone();
            entry["name"] = cluster.name().into();
            if list == "contexts" {
                entry["context"] = json!({"cluster": cluster.name(), "user": cluster.name()});
            }
            whole[list].as_array_mut().unwrap().push(entry);
        }
    }
    let away = [
        (
            "clusters",
            json!({"name": "away", "cluster": {"server": "https://127.0.0.1:1"}}),
        ),
        ("users", json!({"name": "away", "user": {"token": "none"}})),
        (
            "contexts",
            json!({"name": "away", "context": {"cluster": "away", "user": "away"}}),
        ),
    ];
    for (list, entry) in away {
        whole[list].as_array_mut().unwrap().push(entry);
    }
    let path = directory.join("kubeconfig");
    std::fs::write(&path, whole.to_string())?;
    Ok(path)
}

fn explain(kubeconfig: &Path, namespace: &str, flags: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["explain", "conflict", "web", "-n", namespace])
        .args(flags.split_whitespace())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .unwrap()
}

/// The answer in JSON, and the exit code.
fn explained(kubeconfig: &Path, namespace: &str, flags: &str) -> Result<(Value, Option<i32>)> {
    let output = explain(kubeconfig, namespace, &format!("-o json {flags}"));
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((answer, output.status.code()))
}

fn names(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_explained_is_what_the_status_says_and_its_commands_end_the_conflict() -> Result<()>
{
    let bed = Testbed::start(2).await?;
    bed.start_mesh().await?;
    let namespace = bed.namespace().await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = kubeconfig(&bed, directory.path())?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    let spec = json!({"ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
    export(a, &namespace, spec, json!({"app": "web"})).await?;
    let spec = json!({
        "ports": [{"name": "http", "port": 81, "targetPort": 8080}],
        "sessionAffinity": "ClientIP",
        "internalTrafficPolicy": "Local",
        "trafficDistribution": "PreferClose",
    });
    export(b, &namespace, spec, json!({"tier": "front"})).await?;

    let reasons = "PortConflict,SessionAffinityConflict,LabelsConflict,InternalTrafficPolicyConflict,TrafficDistributionConflict";
    let mut recorded = Vec::new();
    for cluster in [a, b] {
        recorded.push(conflict(cluster, &namespace, reasons).await?);
    }
    let (answer, code) = explained(&kubeconfig, &namespace, "--contexts a,b")?;

    ensure!(code == Some(0), "{answer}");
    for condition in &recorded {
        assert_eq!(answer["condition"]["reason"], condition.reason);
        assert_eq!(answer["condition"]["message"], condition.message);
    }
    for (index, cluster) in ["a", "b"].iter().enumerate() {
        assert_eq!(answer["recorded"][index]["cluster"], **cluster);
        assert_eq!(answer["recorded"][index]["matches"], true, "{answer}");
    }
    let text = explain(&kubeconfig, &namespace, "--contexts a,b");
    let text = String::from_utf8(text.stdout)?;
    names(
        &text,
        &["5 conflicts", &recorded[0].message, "b: as explained here"],
    );

    // A cluster that does not answer is named, and what is known is not taken for the whole.
    let output = explain(&kubeconfig, &namespace, "--contexts a,b,away");
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1), "{text}");
    names(
        &text,
        &[
            "incomplete, since \"away\" was not read",
            "5 conflicts",
            "context away",
        ],
    );
    // So is one that exports and that nobody asked about.
    let (answer, code) = explained(&kubeconfig, &namespace, "--contexts a")?;
    ensure!(code == Some(1), "{answer}");
    names(&answer["unread"].to_string(), &["\"b\"", "--contexts"]);

    follow(
        &explained(&kubeconfig, &namespace, "--contexts a,b")?.0,
        &kubeconfig,
    )?;
    for cluster in [a, b] {
        conflict(cluster, &namespace, "NoConflicts").await?;
    }
    let (answer, code) = explained(&kubeconfig, &namespace, "--contexts a,b")?;
    ensure!(code == Some(0), "{answer}");
    assert_eq!(answer["conflicts"], json!([]));
    let verdict = answer["verdict"].as_str().unwrap();
    names(verdict, &["no conflict", "export it and agree"]);
    Ok(())
}

/// Runs every command that the answer advises.
fn follow(answer: &Value, kubeconfig: &Path) -> Result<()> {
    let kubectl = Assets::find()?
        .kubectl
        .context("kubectl is missing; run `make assets`")?;
    let path = kubectl.parent().unwrap();
    let mut run = 0;
    for conflict in answer["conflicts"].as_array().unwrap() {
        for change in conflict["changes"].as_array().unwrap() {
            for command in change["commands"].as_array().unwrap() {
                let command = command.as_str().unwrap();
                let output = Command::new("/bin/sh")
                    .args(["-c", command])
                    .env("PATH", path)
                    .env("KUBECONFIG", kubeconfig)
                    .output()?;
                let said = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.success(), "{command}: {said}");
                run += 1;
            }
        }
    }
    ensure!(run == 5, "{run} commands: {answer}");
    Ok(())
}

#[test]
fn a_context_that_is_not_there_and_flags_that_are_missing_are_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, "{apiVersion: v1, kind: Config}").unwrap();

    let unknown = explain(&path, "shop", "--contexts paris");
    let neither = explain(&path, "shop", "");
    let both = explain(&path, "shop", "--contexts paris -f paris.yaml");
    let strange = explain(&path, "shop", "--contexts paris --names rome=rome");

    for (output, part) in [
        (unknown, "paris"),
        (neither, "--contexts"),
        (both, "cannot be used with"),
        (strange, "context rome is not in --contexts"),
    ] {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        names(&message, &[part]);
    }
}

#[test]
fn files_need_no_cluster_and_bad_ones_end_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let manifest = |port: u16| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{ports: [{{port: {port}}}]}}}}\n---\n\
             {{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {{name: web}}}}\n"
        )
    };
    let paris = file("paris.yaml", &manifest(80));
    let rome = file("x.yaml", &manifest(81));
    let run = |flags: &str| {
        Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(["explain", "conflict", "web"])
            .args(flags.split_whitespace())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap()
    };

    let good = run(&format!("-f {paris} -f rome={rome}"));
    let bad = run(&format!("-f {}", file("bad.yaml", "kind: Service\n")));

    let text = String::from_utf8_lossy(&good.stdout);
    assert_eq!(good.status.code(), Some(0), "{text}");
    names(
        &text,
        &["default/web: 1 conflict (PortConflict)", "\"paris\" wins"],
    );
    let message = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(2), "{message}");
    names(
        &message,
        &["bad.yaml: document 1: field apiVersion: expected"],
    );
}
