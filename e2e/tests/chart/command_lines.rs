use std::{fs, process::Command};

use tombolo_e2e::chart::{
    manifests::{list, texts},
    pods::Pod,
};

use super::{helm, rendered};

/// A file that is not there: what a role looks for once it has taken all its flags.
const KUBECONFIG: &str = "/nowhere/kubeconfig";

/// Runs a role with these flags, up to where it needs a cluster.
fn outcome(arguments: &[&str], config: &str) -> String {
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let etcd = directory.path().join("etcd.yaml");
    fs::write(&etcd, config).expect("the directory is writable");
    let translate = |argument: &&str| {
        let argument = argument.replace("/etc/tombolo/etcd.yaml", &etcd.display().to_string());
        let peers = directory.path().display().to_string();
        argument.replace("/var/lib/cilium/clustermesh", &peers)
    };
    let runtime = tokio::runtime::Runtime::new().expect("the system gives threads");
    let binary = runtime.block_on(tombolo_testbed::tombolo());
    let mut command = Command::new(binary.expect("tombolo builds"));
    command
        .args(arguments.iter().map(translate))
        .arg(format!("--kubeconfig={KUBECONFIG}"));
    let output = command.output().expect("tombolo runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_flag_is_one_that_tombolo_takes() {
    for (case, manifests) in rendered() {
        let config = manifests.get("ConfigMap", "tombolo-mesh");
        let config = config.and_then(|map| map["data"]["etcd.yaml"].as_str());
        for deployment in manifests.of_kind("Deployment") {
            let pod = Pod::of(deployment);
            for container in list(&pod.spec()["containers"]) {
                let stderr = outcome(&texts(&container["args"]), config.unwrap_or_default());
                let expected = format!("tombolo: kubeconfig {KUBECONFIG}: ");
                assert!(
                    stderr.contains(&expected),
                    "{case}: {}: {stderr}",
                    pod.deployment
                );
            }
        }
    }
}

#[test]
fn flags_of_users_come_behind_those_of_the_chart() {
    let values = "
cluster: {name: paris, id: 1}
operator: {extraArgs: [--kube-api-qps=50]}
clustermesh: {apiserver: {extraArgs: [--lease-ttl=5m]}}
";
    let made = helm().template(values);
    let manifests = made.unwrap_or_else(|error| panic!("{error}"));

    for (deployment, flag) in [
        ("tombolo-operator", "--kube-api-qps=50"),
        ("tombolo-mesh", "--lease-ttl=5m"),
    ] {
        let deployment = manifests
            .get("Deployment", deployment)
            .expect("it is there");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(texts(&container["args"]).last(), Some(&flag));
    }
}
