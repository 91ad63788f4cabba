use std::collections::BTreeSet;

use serde_json::{Value, json};
use tombolo_e2e::chart::{
    Manifests,
    manifests::{list, name_of},
    pods::Pod,
};

use super::rendered;

/// What `tombolo status` looks for.
const STATUS_LABEL: (&str, &str) = ("app.kubernetes.io/name", "tombolo");

fn each_pod(mut check: impl FnMut(&str, &Manifests, Pod<'_>)) {
    let mut pods = 0;
    for (case, manifests) in rendered() {
        for deployment in manifests.of_kind("Deployment") {
            check(case, manifests, Pod::of(deployment));
            pods += 1;
        }
    }
    assert_eq!(pods, 8, "all roles of all cases");
}

fn each_container(mut check: impl FnMut(&str, &Value)) {
    each_pod(|case, _, pod| {
        for container in pod.containers() {
            let name = format!("{case}: {}/{}", pod.deployment, container["name"]);
            check(&name, container);
        }
    });
}

#[test]
fn every_container_runs_as_nobody_with_nothing_to_write_and_no_capabilities() {
    each_pod(|case, _, pod| {
        let context = &pod.spec()["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{case}: {}", pod.deployment);
        assert_eq!(context["runAsUser"], 65532, "{case}: {}", pod.deployment);
        assert_eq!(context["fsGroup"], 65532, "{case}: {}", pod.deployment);
        assert_eq!(context["seccompProfile"], json!({"type": "RuntimeDefault"}));
        for member in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod.spec()[member].is_null(), "{case}: {member}");
        }
    });
    each_container(|name, container| {
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], expected, "{name}");
    });
}

#[test]
fn every_container_has_probes_on_a_port_that_it_names() {
    each_container(|name, container| {
        let ports: BTreeSet<_> = list(&container["ports"])
            .iter()
            .filter_map(|port| port["name"].as_str())
            .collect();
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let asked = container[probe]["httpGet"]["port"].as_str();
            let asked = asked.unwrap_or_else(|| panic!("{name}: no {probe}"));
            assert!(ports.contains(asked), "{name}: {probe} asks {asked}");
        }
    });
}

#[test]
fn status_finds_every_pod_and_asks_only_roles() {
    each_pod(|case, _, pod| {
        let (key, value) = STATUS_LABEL;
        assert_eq!(pod.template["metadata"]["labels"][key], value, "{case}");
        let asked: Vec<_> = pod
            .containers()
            .filter(|container| {
                list(&container["ports"]).iter().any(|port| {
                    port["name"]
                        .as_str()
                        .unwrap_or_default()
                        .starts_with("health")
                })
            })
            .map(|container| container["name"].as_str().unwrap_or_default())
            .collect();
        let role = pod.deployment.trim_start_matches("tombolo-");
        assert_eq!(asked, [role], "{case}");
    });
}

#[test]
fn only_tombolo_gets_the_account_s_token() {
    const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    each_pod(|case, _, pod| {
        assert_eq!(pod.spec()["automountServiceAccountToken"], false, "{case}");
        for container in pod.containers() {
            let mounted = list(&container["volumeMounts"])
                .iter()
                .any(|mount| mount["mountPath"] == TOKEN);
            assert_eq!(mounted, container["name"] != "etcd", "{case}: {container}");
        }
    });
}

#[test]
fn an_upgrade_takes_no_replica_away_before_its_successor_is_ready() {
    for (case, manifests) in rendered() {
        for deployment in manifests.of_kind("Deployment") {
            let strategy = &deployment["spec"]["strategy"];
            assert_eq!(strategy["type"], "RollingUpdate", "{case}");
            let rolling = json!({"maxUnavailable": 0, "maxSurge": 1});
            assert_eq!(strategy["rollingUpdate"], rolling, "{case}");
        }
    }
}

#[test]
fn every_selector_finds_the_pods_of_one_deployment() {
    for (case, manifests) in rendered() {
        let deployments = manifests.of_kind("Deployment");
        let selected = |selector: &Value| {
            let selector = selector.as_object().cloned().unwrap_or_default();
            assert!(!selector.is_empty(), "{case}");
            let matches = |deployment: &&&Value| {
                let labels = &deployment["spec"]["template"]["metadata"]["labels"];
                selector.iter().all(|(key, value)| labels[key] == *value)
            };
            deployments
                .iter()
                .filter(matches)
                .map(|it| name_of(it))
                .collect::<Vec<_>>()
        };
        for deployment in &deployments {
            let name = name_of(deployment);
            let spec = &deployment["spec"];
            assert_eq!(selected(&spec["selector"]["matchLabels"]), [name], "{case}");
            for spread in list(&spec["template"]["spec"]["topologySpreadConstraints"]) {
                let of = selected(&spread["labelSelector"]["matchLabels"]);
                assert_eq!(of, [name], "{case}");
            }
            let budget = manifests.get("PodDisruptionBudget", name);
            let budget = budget.unwrap_or_else(|| panic!("{case}: {name} has no budget"));
            let of = selected(&budget["spec"]["selector"]["matchLabels"]);
            assert_eq!(of, [name], "{case}");
        }
        for service in manifests.of_kind("Service") {
            let of = selected(&service["spec"]["selector"]);
            assert_eq!(of, ["tombolo-mesh"], "{case}");
        }
    }
}

#[test]
fn what_a_pod_waits_for_is_in_the_release_or_somebody_else_s() {
    each_pod(|case, manifests, pod| {
        for volume in list(&pod.spec()["volumes"]) {
            let sources = list(&volume["projected"]["sources"]).iter();
            for source in sources.chain([volume]) {
                let secret = &source["secret"];
                let config_map = &source["configMap"];
                let named = secret["secretName"].as_str().or(secret["name"].as_str());
                let (kind, name, optional) = match (named, config_map["name"].as_str()) {
                    (Some(name), _) => ("Secret", name, &secret["optional"]),
                    (None, Some(name)) => ("ConfigMap", name, &config_map["optional"]),
                    (None, None) => continue,
                };
                let there = manifests.get(kind, name).is_some();
                let by_kubernetes = name == "kube-root-ca.crt";
                let by_user = case == "external" && kind == "Secret";
                let expected = there || by_kubernetes || by_user || optional == true;
                assert!(
                    expected,
                    "{case}: {} waits for {kind} {name}",
                    pod.deployment
                );
                // What is optional because users may make it later is made where peers are listed.
                assert!(
                    case != "replicated" || there || by_kubernetes,
                    "{kind} {name}"
                );
            }
        }
    });
}

#[test]
fn files_are_mounted_as_directories_so_that_changes_arrive() {
    each_container(|name, container| {
        for mount in list(&container["volumeMounts"]) {
            assert!(mount["subPath"].is_null(), "{name}: {mount}");
        }
    });
}

#[test]
fn replicas_of_the_mesh_are_other_stores_and_readers_stay_with_one() {
    for (case, manifests) in rendered() {
        let Some(deployment) = manifests.get("Deployment", "tombolo-mesh") else {
            continue;
        };
        let pod = Pod::of(deployment);
        let etcd = pod.container("etcd").expect("the mesh has an etcd");
        let flag = json!("--initial-cluster-token=$(POD_UID)");
        assert!(list(&etcd["args"]).contains(&flag), "{case}");
        let field = &etcd["env"][0]["valueFrom"]["fieldRef"]["fieldPath"];
        assert_eq!(
            (&etcd["env"][0]["name"], field),
            (&json!("POD_UID"), &json!("metadata.uid"))
        );
        let data = list(&pod.spec()["volumes"])
            .iter()
            .find(|volume| volume["name"] == "etcd-data");
        assert!(
            data.is_some_and(|volume| volume["emptyDir"].is_object()),
            "{case}"
        );
        let service = manifests.get("Service", "clustermesh-apiserver");
        let affinity = &service.expect("peers reach it")["spec"]["sessionAffinity"];
        let several = deployment["spec"]["replicas"] != 1;
        assert_eq!(affinity == "ClientIP", several, "{case}: {affinity}");
    }
}
