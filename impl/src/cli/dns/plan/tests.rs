//! What is planned for which cluster.

use clap::Parser as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::Resource;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::cli::{
    args::{Cli, Command},
    dns::{args::Dns, observe},
};

const COREFILE: &str = ".:53 {\n    kubernetes cluster.local\n    reload\n}\n";
const NODES: &str =
    "cluster.local:53 {\n    forward . 10.96.0.10\n}\n.:53 {\n    forward . 192.0.2.1\n}\n";

fn args(flags: &[&str]) -> ConfigureArgs {
    let command = ["tombolo", "dns", "configure"].iter().chain(flags);
    let cli = Cli::try_parse_from(command).unwrap();
    let Command::Dns(Dns::Configure(args)) = cli.command else {
        panic!("another command");
    };
    args
}

fn deployment(image: &str) -> Deployment {
    let spec = json!({
        "selector": {},
        "template": { "spec": {
            "serviceAccountName": "coredns",
            "containers": [{ "name": "proxy", "image": "a:1" }, { "name": "c", "image": image }],
            "volumes": [{ "name": "config", "configMap": { "name": "coredns" } }],
        }},
    });
    serde_json::from_value(json!({ "metadata": { "name": "coredns" }, "spec": spec })).unwrap()
}

fn config(name: &str, corefile: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": { "namespace": "kube-system", "name": name, "resourceVersion": "7" },
        "data": { "Corefile": corefile },
    }))
    .unwrap()
}

fn observed() -> Observed {
    Observed {
        served: true,
        deployment: deployment("coredns/coredns:1.12.2"),
        config: config("coredns", COREFILE),
        account: "coredns".to_owned(),
        ..Observed::default()
    }
}

/// An object that this command made.
fn ours<K: Resource<DynamicType = ()> + Default>() -> K {
    let mut object = K::default();
    let (label, value) = observe::MADE_BY;
    let labels = object.meta_mut().labels.get_or_insert_default();
    labels.insert(label.to_owned(), value.to_owned());
    object
}

/// What is found when everything that a plan asks for was done.
fn done(mut observed: Observed, plan: &Plan) -> Observed {
    let apply = |config: &mut ConfigMap, change: &Change| {
        let data = config.data.get_or_insert_default();
        data.insert(COREFILE_KEY.to_owned(), change.to.clone());
        match &change.note {
            Some(note) => config
                .annotations_mut()
                .insert(BEFORE.to_owned(), note.clone()),
            None => config.annotations_mut().remove(BEFORE),
        };
        if change.restart {
            let pending = (PENDING.to_owned(), "true".to_owned());
            config.annotations_mut().extend([pending]);
        }
    };
    if let Some(change) = &plan.corefile {
        apply(&mut observed.config, change);
    }
    if let (Some(change), Some(config)) = (&plan.node_local, &mut observed.node_local_config) {
        apply(config, change);
    }
    match plan.rights {
        Rights::Keep => {}
        Rights::Grant => {
            observed.may_read = true;
            observed.role = Some(ours());
            observed.binding = Some(ours());
        }
        Rights::Revoke => {
            observed.may_read = false;
            observed.role = None;
            observed.binding = None;
        }
    }
    observed
}

#[test]
fn everything_that_is_missing_is_planned_once_and_taken_back() {
    let mut before = observed();
    before.node_local = true;
    before.node_local_config = Some(config(NODE_LOCAL, NODES));
    let args = args(&[]);

    let plan = configure(&before, &args);

    assert_eq!(plan.texts(Level::Blocked), Vec::<&str>::new());
    assert_eq!(plan.texts(Level::Missing).len(), 3, "{plan:?}");
    assert_eq!((plan.rights, plan.restart), (Rights::Grant, false));
    assert_eq!(plan.corefile.as_ref().unwrap().resource_version, "7");
    let after = done(before.clone(), &plan);
    let again = configure(&after, &args);
    assert_eq!(again.texts(Level::Missing), Vec::<&str>::new());
    assert_eq!(
        (&again.corefile, &again.node_local, again.rights),
        (&None, &None, Rights::Keep)
    );
    let back = undo(&after, &args);
    assert_eq!(back.rights, Rights::Revoke);
    let back = done(after, &back);
    assert_eq!(corefile_of(&back.config), Some(COREFILE));
    assert_eq!(
        back.node_local_config.as_ref().and_then(corefile_of),
        Some(NODES)
    );
    assert_eq!(back.config.annotations().get(BEFORE), None);
    assert_eq!(undo(&back, &args).texts(Level::Missing), Vec::<&str>::new());
}

#[rstest]
#[case::not_served(|it: &mut Observed| it.served = false, "not served, and CoreDNS would answer SERVFAIL in every zone")]
#[case::old(|it: &mut Observed| it.deployment = deployment("coredns:v1.12.1"), "version 1.12.1, which knows no option multicluster")]
#[case::unknown(|it: &mut Observed| it.deployment = deployment("coredns@sha256:00"), "does not tell its version")]
#[case::no_mount(|it: &mut Observed| it.deployment.spec.template.spec.as_mut().unwrap().volumes = None, "does not mount ConfigMap coredns")]
#[case::account(|it: &mut Observed| it.account = "other".to_owned(), "runs as account coredns, not other")]
#[case::no_corefile(|it: &mut Observed| it.config.data = None, "has no key Corefile")]
#[case::not_understood(|it: &mut Observed| it.config = config("coredns", ".:53 {\n whoami\n}\n"), "ConfigMap kube-system/coredns: no server block has the plugin kubernetes")]
#[case::foreign_role(|it: &mut Observed| it.role = Some(ClusterRole::default()), "ClusterRole tombolo-coredns: is there, and not made by this command")]
#[case::foreign_binding(|it: &mut Observed| it.binding = Some(ClusterRoleBinding::default()), "ClusterRoleBinding tombolo-coredns: is there, and not made by this command")]
#[case::immutable(|it: &mut Observed| it.config.immutable = Some(true), "ConfigMap kube-system/coredns: is immutable")]
#[case::too_large(|it: &mut Observed| it.config = config("coredns", &format!("# {}\n{COREFILE}", "x".repeat(256 * 1024))), "is too large to be kept for --undo")]
#[case::no_node_config(|it: &mut Observed| it.node_local = true, "have it forward clusterset.local to where it forwards cluster.local")]
fn what_somebody_else_has_to_mend_blocks(
    #[case] change: fn(&mut Observed),
    #[case] expected: &str,
) {
    let mut observed = observed();
    change(&mut observed);

    let plan = configure(&observed, &args(&[]));

    let blocked = plan.texts(Level::Blocked);
    assert!(
        blocked.len() == 1 && blocked[0].contains(expected),
        "{blocked:?}"
    );
}

#[test]
fn a_version_that_the_user_says_is_believed() {
    let mut observed = observed();
    observed.deployment = deployment("coredns@sha256:00");

    let plan = configure(&observed, &args(&["--coredns-version", "1.13.0"]));

    assert_eq!(plan.texts(Level::Blocked), Vec::<&str>::new());
}

#[test]
fn without_the_plugin_reload_coredns_is_restarted_there_and_back() {
    let mut observed = observed();
    observed.config = config("coredns", &COREFILE.replace("    reload\n", ""));
    let args = args(&[]);

    let plan = configure(&observed, &args);

    assert!(plan.restart);
    let unseen = done(observed, &plan);
    let mut after = unseen.clone();
    after.config.annotations_mut().remove(PENDING);
    assert!(!configure(&after, &args).restart);
    assert!(undo(&after, &args).restart);
    // A run that ended before the restart: the next one does it, in either direction.
    let again = configure(&unseen, &args);
    assert_eq!((again.restart, &again.corefile), (true, &None));
    let missing = again.texts(Level::Missing);
    assert!(
        missing.len() == 1 && missing[0].contains("has yet to be restarted"),
        "{missing:?}"
    );
    let back = undo(&unseen, &args);
    assert!(back.restart && back.corefile.as_ref().unwrap().restart);
    let unseen = done(unseen, &back);
    assert!(undo(&unseen, &args).restart);
}

#[test]
fn what_others_configured_is_not_taken_back_and_keeps_its_right() {
    let text = corefile::configure(COREFILE, &args(&[]).zones())
        .unwrap()
        .text;
    let mut observed = observed();
    observed.config = config("coredns", &text);
    observed.role = Some(ours());

    let plan = undo(&observed, &args(&[]));

    assert_eq!((&plan.corefile, plan.rights), (&None, Rights::Keep));
    assert!(plan.texts(Level::Note)[0].contains("kept"), "{plan:?}");
}

#[test]
fn who_sets_the_corefile_back_is_told() {
    let mut observed = observed();
    let label = (
        "addonmanager.kubernetes.io/mode".to_owned(),
        "Reconcile".to_owned(),
    );
    observed.config.labels_mut().extend([label]);

    let plan = configure(&observed, &args(&[]));

    assert!(plan.texts(Level::Note)[0].contains("AKS"), "{plan:?}");
}

#[test]
fn where_the_cache_on_nodes_sends_names_is_told() {
    let mut observed = observed();
    observed.node_local = true;
    observed.node_local_config = Some(config(NODE_LOCAL, NODES));

    let plan = configure(&observed, &args(&[]));

    assert_eq!(
        plan.texts(Level::Note),
        ["cluster.local goes to 10.96.0.10, clusterset.local to 192.0.2.1, the rest to 192.0.2.1"]
    );
}

#[test]
fn a_role_of_others_with_the_same_name_is_never_deleted() {
    let args = args(&[]);
    let mut before = observed();
    before.may_read = true;
    before.role = Some(ClusterRole::default());
    before.binding = Some(ClusterRoleBinding::default());
    let after = done(before.clone(), &configure(&before, &args));

    let plan = undo(&after, &args);

    assert_eq!(plan.rights, Rights::Keep);
    assert!(plan.corefile.is_some());
}

#[test]
fn an_edit_that_somebody_took_out_by_hand_leaves_nothing_behind() {
    let args = args(&[]);
    let mut before = observed();
    before.node_local = true;
    before.node_local_config = Some(config(NODE_LOCAL, NODES));
    let mut after = done(before.clone(), &configure(&before, &args));
    let set = |config: &mut ConfigMap, text: &str| {
        let data = config.data.get_or_insert_default();
        data.insert(COREFILE_KEY.to_owned(), text.to_owned());
    };
    let theirs = COREFILE.replace("reload", "log\n    reload");
    set(&mut after.config, &theirs);
    set(after.node_local_config.as_mut().unwrap(), NODES);

    let plan = undo(&after, &args);

    assert_eq!(plan.texts(Level::Blocked), Vec::<&str>::new());
    assert_eq!(plan.rights, Rights::Revoke);
    let back = done(after, &plan);
    assert_eq!(corefile_of(&back.config), Some(theirs.as_str()));
    assert_eq!(back.config.annotations().get(BEFORE), None);
    let nodes = back.node_local_config.unwrap();
    assert_eq!(
        (corefile_of(&nodes), nodes.annotations().get(BEFORE)),
        (Some(NODES), None)
    );
}
