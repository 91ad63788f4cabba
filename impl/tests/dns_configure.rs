//! `tombolo dns configure` on a real API server: what is written, in which order, what is refused, and what others write at the
//! same time. That pods then answer is shown where there are pods, by the packets tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    time::Duration,
};

use clap::Parser as _;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tombolo::cli::{
    args::{Cli, Command as Subcommand},
    dns::{
        apply,
        args::{ConfigureArgs, Dns},
        error::Error,
        observe,
        plan::{self, PENDING},
    },
};
use tombolo_testbed::{Cluster, Provider, Testbed, eventually};

/// Longest wait for something that takes milliseconds.
const BUDGET: Duration = Duration::from_secs(30);

const COREFILE: &str = "# ours\n.:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n        pods insecure\n    }\n    reload\n}\n";

/// One cluster, one after the other: role and binding have one name in a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coredns_is_configured_checked_and_taken_back() {
    let bed = Testbed::start_with(&Provider::Api, 1).await.unwrap();
    let cluster = bed.cluster(0);

    nothing_is_switched_on_before_the_api_is_served(cluster).await;
    install_definitions(cluster).await;
    it_is_written_once_and_taken_back(cluster).await;
    Box::pin(a_concurrent_change_is_not_lost(cluster)).await;
    without_reload_coredns_is_restarted(cluster).await;
    Box::pin(a_restart_that_failed_is_made_up_for(cluster)).await;
    missing_rights_are_named(cluster).await;
    the_cache_on_nodes_is_configured_too(cluster).await;
    pods_that_do_not_answer_are_no_proof(cluster).await;
    an_interrupted_run_is_completed_by_the_next(cluster).await;
}

async fn nothing_is_switched_on_before_the_api_is_served(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    let before = config(cluster, &namespace).await;

    let output = run(cluster, &namespace, &[]);

    assert_eq!(output.status.code(), Some(1));
    says(
        &output,
        &[
            "v1alpha1: not served",
            "SERVFAIL",
            "tombolo crds | kubectl apply",
        ],
    );
    assert_eq!(config(cluster, &namespace).await, before);
    assert!(role(cluster).await.is_none());
}

async fn it_is_written_once_and_taken_back(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    let before = config(cluster, &namespace).await;

    let dry = run(cluster, &namespace, &["--dry-run"]);
    assert_eq!(dry.status.code(), Some(0), "{dry:?}");
    says(
        &dry,
        &[
            "+        multicluster clusterset.local\n",
            "cluster.local clusterset.local in-addr",
        ],
    );
    let check = run(cluster, &namespace, &["--check"]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    says(
        &check,
        &[
            "not configured",
            "may not list and watch",
            "does not serve the zone",
        ],
    );
    assert_eq!(config(cluster, &namespace).await, before);
    assert!(role(cluster).await.is_none());

    let done = run(cluster, &namespace, &[]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let after = config(cluster, &namespace).await;
    let text = &after.data.as_ref().unwrap()["Corefile"];
    assert!(
        text.contains("kubernetes cluster.local clusterset.local in-addr.arpa"),
        "{text}"
    );
    assert!(
        text.contains("{\n        multicluster clusterset.local\n        pods"),
        "{text}"
    );
    let subjects = binding(cluster).await.unwrap().subjects.unwrap();
    assert_eq!(subjects[0].name, "dns-account");
    assert_eq!(subjects[0].namespace.as_deref(), Some(&*namespace));

    assert_eq!(
        run(cluster, &namespace, &["--check"]).status.code(),
        Some(0)
    );
    assert_eq!(run(cluster, &namespace, &[]).status.code(), Some(0));
    let again = config(cluster, &namespace).await;
    assert_eq!(
        again.resource_version(),
        after.resource_version(),
        "nothing is written twice"
    );
    let deployment = deployment(cluster, &namespace).await;
    assert_eq!(deployment.spec.template.metadata.unwrap().annotations, None);

    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
    let back = config(cluster, &namespace).await;
    assert_eq!(
        (back.data, back.metadata.annotations),
        (before.data, before.metadata.annotations)
    );
    assert!(role(cluster).await.is_none() && binding(cluster).await.is_none());
    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
}

async fn a_concurrent_change_is_not_lost(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    let args = args(cluster, &namespace, &[]);
    let observed = observe::observe(&cluster.client(), &args).await.unwrap();
    let plan = plan::configure(&observed, &args);
    let theirs = COREFILE.replace("errors", "log");
    let change = json!({ "data": { "Corefile": theirs } });
    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    configs
        .patch("coredns", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();

    let error = apply::write(&cluster.client(), plan.corefile.as_ref().unwrap())
        .await
        .unwrap_err();

    assert!(
        matches!(&error, Error::Concurrent { object } if object.ends_with("/coredns")),
        "{error}"
    );
    assert!(error.to_string().contains("run this again"));
    let now = config(cluster, &namespace).await;
    assert_eq!(now.data.unwrap()["Corefile"], theirs);
    assert_eq!(run(cluster, &namespace, &[]).status.code(), Some(0));
    let now = config(cluster, &namespace).await.data.unwrap()["Corefile"].clone();
    assert!(
        now.contains("    log\n") && now.contains("multicluster"),
        "{now}"
    );
    // Somebody changes it afterwards: their change stays, ours goes.
    let change = json!({ "data": { "Corefile": now.replace("    log\n", "    log .\n") } });
    configs
        .patch("coredns", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
    let back = config(cluster, &namespace).await.data.unwrap()["Corefile"].clone();
    assert_eq!(back, COREFILE.replace("errors", "log ."));
}

async fn without_reload_coredns_is_restarted(cluster: &Cluster) {
    let corefile = COREFILE.replace("    reload\n", "");
    let namespace = core_dns(cluster, &corefile, "coredns:1.12.2").await;

    let output = run(cluster, &namespace, &[]);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    says(
        &output,
        &["restarted CoreDNS: its Corefile has no plugin reload"],
    );
    let template = deployment(cluster, &namespace).await.spec.template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert!(annotations.contains_key("kubectl.kubernetes.io/restartedAt"));
    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
}

/// Whoever may not restart has written; whoever may then has it restarted, there and back.
async fn a_restart_that_failed_is_made_up_for(cluster: &Cluster) {
    let corefile = COREFILE.replace("    reload\n", "");
    let namespace = core_dns(cluster, &corefile, "coredns:1.12.2").await;
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([
        { "apiGroups": ["", "apps", rbac], "resources": ["*"], "verbs": ["get"] },
        { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"] },
        { "apiGroups": [rbac], "resources": ["*"], "verbs": ["create", "patch", "delete", "bind", "escalate"] },
    ]);
    let writer = user(cluster, &namespace, rules).await;
    let pending = async || {
        let annotations = config(cluster, &namespace).await.metadata.annotations;
        annotations.is_some_and(|it| it.contains_key(PENDING))
    };
    for direction in [&[][..], &["--undo"]] {
        let output = run_by(&writer, &namespace, direction);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        says(&output, &["cannot restart Deployment", "run this again"]);
        assert!(pending().await && role(cluster).await.is_some());
        if direction.is_empty() {
            let output = run(cluster, &namespace, &["--check"]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            says(&output, &["has yet to be restarted"]);
        }

        let output = run(cluster, &namespace, direction);

        assert_eq!(output.status.code(), Some(0), "{output:?}");
        says(&output, &["restarted CoreDNS"]);
        assert!(!pending().await);
        let again = run(cluster, &namespace, direction);
        assert_eq!(again.status.code(), Some(0), "{again:?}");
        assert!(!String::from_utf8_lossy(&again.stdout).contains("restarted CoreDNS"));
    }
    assert!(role(cluster).await.is_none());
}

async fn missing_rights_are_named(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    let before = config(cluster, &namespace).await;
    // May read everything that is needed and ask, but change nothing.
    let rules = json!([
        { "apiGroups": ["", "apps", "rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get"] },
        { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
    ]);
    let reader = user(cluster, &namespace, rules).await;

    let output = run_by(&reader, &namespace, &[]);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    says(
        &output,
        &[
            "cannot apply ClusterRole tombolo-coredns",
            "forbidden",
            "run this again",
        ],
    );
    assert_eq!(config(cluster, &namespace).await, before);
}

async fn the_cache_on_nodes_is_configured_too(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    let text = "cluster.local:53 {\n    forward . 10.96.0.10\n    health\n}\n.:53 {\n    forward . 192.0.2.1\n}\n";
    let name = json!({ "name": observe::NODE_LOCAL });
    let labels = json!({ "k8s-app": "node-local-dns" });
    let pod = json!({ "containers": [{ "name": "c", "image": "node-cache" }], "nodeSelector": { "no": "node" } });
    create::<k8s_openapi::api::apps::v1::DaemonSet>(
        cluster,
        &namespace,
        json!({ "metadata": name, "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        }}),
    )
    .await;
    create::<ConfigMap>(
        cluster,
        &namespace,
        json!({ "metadata": name, "data": { "Corefile": text } }),
    )
    .await;

    let output = run(cluster, &namespace, &[]);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    says(
        &output,
        &["clusterset.local to 192.0.2.1", "+clusterset.local:53 {"],
    );
    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let now = configs
        .get(observe::NODE_LOCAL)
        .await
        .unwrap()
        .data
        .unwrap()["Corefile"]
        .clone();
    assert!(
        now.contains("\nclusterset.local:53 {\n    forward . 10.96.0.10\n}\n.:53"),
        "{now}"
    );
    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
    let back = configs
        .get(observe::NODE_LOCAL)
        .await
        .unwrap()
        .data
        .unwrap()["Corefile"]
        .clone();
    assert_eq!(back, text);
}

async fn pods_that_do_not_answer_are_no_proof(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    let arguments = arguments(cluster, &namespace, &["--timeout", "1s"]);

    let output = tombolo(&arguments);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    says(&output, &["not proven: Deployment", "has no pods"]);
    let undo = self::arguments(cluster, &namespace, &["--timeout", "1s", "--undo"]);
    assert_eq!(tombolo(&undo).status.code(), Some(1));
    assert!(
        role(cluster).await.is_some(),
        "the right goes only after the proof"
    );
    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
    assert!(role(cluster).await.is_none());
}

/// Who ends a run that waits is told that what is done stays done, and the next run waits on.
async fn an_interrupted_run_is_completed_by_the_next(cluster: &Cluster) {
    let namespace = core_dns(cluster, COREFILE, "coredns:1.12.2").await;
    for signal in [Signal::INT, Signal::TERM] {
        let arguments = arguments(cluster, &namespace, &[]);
        let mut first = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(&arguments)
            .env_remove("KUBECONFIG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
        assert!(lines.any(|it| it.unwrap().contains("waiting for the pods of CoreDNS")));

        kill_process(Pid::from_child(&first), signal).unwrap();

        let ended = first.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        says(&ended, &["interrupted", "what is done stays done"]);
    }
    assert_eq!(run(cluster, &namespace, &["--undo"]).status.code(), Some(0));
}

/// A namespace with CoreDNS' objects, without pods.
async fn core_dns(cluster: &Cluster, corefile: &str, image: &str) -> String {
    let namespace = cluster.namespace().await.unwrap();
    let name = json!({ "name": "coredns" });
    create::<ServiceAccount>(
        cluster,
        &namespace,
        json!({ "metadata": { "name": "dns-account" } }),
    )
    .await;
    create::<ConfigMap>(
        cluster,
        &namespace,
        json!({ "metadata": name, "data": { "Corefile": corefile } }),
    )
    .await;
    let labels = json!({ "k8s-app": "kube-dns" });
    create::<Deployment>(
        cluster,
        &namespace,
        json!({ "metadata": name, "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "serviceAccountName": "dns-account",
                "containers": [{ "name": "coredns", "image": image }],
                "volumes": [{ "name": "config", "configMap": { "name": "coredns" } }],
            }},
        }}),
    )
    .await;
    namespace
}

async fn create<K>(cluster: &Cluster, namespace: &str, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    let api: Api<K> = Api::namespaced(cluster.client(), namespace);
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn install_definitions(cluster: &Cluster) {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    for text in tombolo_api::crds::ALL {
        let crd: CustomResourceDefinition = serde_saphyr::from_str(text).unwrap();
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    eventually(BUDGET, "v1alpha1 is served", async || {
        let group = "multicluster.x-k8s.io/v1alpha1";
        let kinds = cluster.client().list_api_group_resources(group).await;
        kinds.map(drop).map_err(|error| error.to_string())
    })
    .await
    .unwrap();
}

/// A kubeconfig of an account with these rights.
async fn user(cluster: &Cluster, namespace: &str, rules: Value) -> Vec<String> {
    let account = json!({ "metadata": { "name": "reader" } });
    create::<ServiceAccount>(cluster, namespace, account).await;
    let name = format!("reader-{namespace}");
    let metadata = json!({ "name": name });
    let role: ClusterRole =
        serde_json::from_value(json!({ "metadata": metadata, "rules": rules })).unwrap();
    Api::all(cluster.client())
        .create(&PostParams::default(), &role)
        .await
        .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": "reader" }],
    }))
    .unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client());
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    until_allowed(cluster, namespace).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), namespace);
    let request =
        serde_json::from_value(json!({ "metadata": {}, "spec": { "audiences": [] } })).unwrap();
    let token = accounts
        .create_token_request("reader", &PostParams::default(), &request)
        .await
        .unwrap();
    let text = std::fs::read_to_string(cluster.kubeconfig().unwrap()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({ "token": token.status.unwrap().token });
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, config.to_string()).unwrap();
    vec!["--kubeconfig".to_owned(), path]
}

/// Waits until the API server goes by the role and the binding of [`user`], of which it learns by watches.
async fn until_allowed(cluster: &Cluster, namespace: &str) {
    let reader = format!("system:serviceaccount:{namespace}:reader");
    let action = ("get", "", "configmaps");
    eventually(BUDGET, "the account has its rights", async || match cluster
        .allows((&reader, &[]), namespace, action)
        .await
    {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
}

fn arguments(cluster: &Cluster, namespace: &str, more: &[&str]) -> Vec<String> {
    let kubeconfig = cluster.kubeconfig().unwrap().display().to_string();
    let place = [
        "dns",
        "configure",
        "--coredns-namespace",
        namespace,
        "--kubeconfig",
        &kubeconfig,
    ];
    place.iter().chain(more).map(|&it| it.to_owned()).collect()
}

fn args(cluster: &Cluster, namespace: &str, more: &[&str]) -> ConfigureArgs {
    let arguments = arguments(cluster, namespace, more);
    let program = ["tombolo".to_owned()].into_iter();
    let cli = Cli::try_parse_from(program.chain(arguments)).unwrap();
    let Subcommand::Dns(Dns::Configure(args)) = cli.command else {
        panic!("another command");
    };
    args
}

fn run(cluster: &Cluster, namespace: &str, more: &[&str]) -> Output {
    tombolo(&arguments(
        cluster,
        namespace,
        &[&["--objects-only"], more].concat(),
    ))
}

fn run_by(user: &[String], namespace: &str, more: &[&str]) -> Output {
    let mut arguments = vec![
        "dns",
        "configure",
        "--objects-only",
        "--coredns-namespace",
        namespace,
    ];
    arguments.extend(user.iter().map(String::as_str));
    arguments.extend(more);
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
    tombolo(&arguments)
}

fn tombolo(arguments: &[String]) -> Output {
    let program = env!("CARGO_BIN_EXE_tombolo");
    let command = Command::new(program)
        .args(arguments)
        .env_remove("KUBECONFIG")
        .output();
    command.unwrap()
}

fn says(output: &Output, parts: &[&str]) {
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    let text = String::from_utf8_lossy(&text);
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

async fn config(cluster: &Cluster, namespace: &str) -> ConfigMap {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace);
    let mut config = api.get("coredns").await.unwrap();
    config.metadata.managed_fields = None;
    config
}

async fn deployment(cluster: &Cluster, namespace: &str) -> Deployment {
    let api: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
    api.get("coredns").await.unwrap()
}

async fn role(cluster: &Cluster) -> Option<ClusterRole> {
    let api: Api<ClusterRole> = Api::all(cluster.client());
    api.get_opt(observe::ROLE).await.unwrap()
}

async fn binding(cluster: &Cluster) -> Option<ClusterRoleBinding> {
    let api: Api<ClusterRoleBinding> = Api::all(cluster.client());
    api.get_opt(observe::ROLE).await.unwrap()
}
