//! Corefiles as installers write them, and such as are refused.

use rstest::rstest;

use super::*;

const KUBEADM: &str = include_str!("fixtures/kubeadm.Corefile");
const NODE_LOCAL: &str = include_str!("fixtures/node-local.Corefile");

pub(super) fn zones() -> Zones {
    Zones {
        cluster: Zone::try_from("cluster.local").unwrap(),
        clusterset: Zone::try_from("clusterset.local").unwrap(),
    }
}

pub(super) fn diff(before: &str, after: &str) -> String {
    let diff = similar::TextDiff::from_lines(before, after);
    diff.unified_diff().context_radius(0).to_string()
}

#[rstest]
#[case::kubeadm("kubeadm", KUBEADM)]
#[case::kops("kops", include_str!("fixtures/kops.Corefile"))]
#[case::eks("eks", include_str!("fixtures/eks.Corefile"))]
#[case::aks("aks", include_str!("fixtures/aks.Corefile"))]
#[case::k3s("k3s", include_str!("fixtures/k3s.Corefile"))]
#[case::zones("zones", include_str!("fixtures/zones.Corefile"))]
#[case::bare("bare", include_str!("fixtures/bare.Corefile"))]
#[case::windows("windows", include_str!("fixtures/windows.Corefile"))]
fn corefiles_of_installers_are_edited_once_and_back(#[case] name: &str, #[case] before: &str) {
    let edited = configure(before, &zones()).unwrap();

    insta::assert_snapshot!(name, diff(before, &edited.text));
    let again = configure(&edited.text, &zones()).unwrap();
    assert_eq!(again.text, edited.text);
    assert_eq!(undo(&edited.text, before, &zones()).unwrap(), before);
}

#[test]
fn the_cache_on_nodes_gets_a_block_of_its_own_for_the_zone() {
    let (edited, forwarding) = configure_node_local(NODE_LOCAL, &zones()).unwrap();

    insta::assert_snapshot!("node_local", diff(NODE_LOCAL, &edited.text));
    let upstream = "__PILLAR__UPSTREAM__SERVERS__".to_owned();
    assert_eq!(
        forwarding,
        Forwarding {
            cluster: "__PILLAR__CLUSTER__DNS__".to_owned(),
            clusterset: upstream.clone(),
            others: upstream,
        }
    );
    let (again, forwarding) = configure_node_local(&edited.text, &zones()).unwrap();
    assert_eq!(again.text, edited.text);
    assert_eq!(forwarding.clusterset, forwarding.cluster);
    let back = undo_node_local(&edited.text, NODE_LOCAL, &zones()).unwrap();
    assert_eq!(back, NODE_LOCAL);
}

#[test]
fn what_others_changed_since_stays() {
    let edited = configure(KUBEADM, &zones()).unwrap().text;
    let changed = edited.replace("ttl 30", "ttl 10") + "\nexample.org:53 {\n    whoami\n}\n";

    let back = undo(&changed, KUBEADM, &zones()).unwrap();

    let expected = KUBEADM.replace("ttl 30", "ttl 10") + "\nexample.org:53 {\n    whoami\n}\n";
    assert_eq!(back, expected);
    let node_local = configure_node_local(NODE_LOCAL, &zones()).unwrap().0.text;
    let changed = node_local.replace("9253", "9254");
    let back = undo_node_local(&changed, NODE_LOCAL, &zones()).unwrap();
    assert_eq!(back, NODE_LOCAL.replace("9253", "9254"));
}

#[test]
fn only_what_was_not_there_before_is_taken_back() {
    let before = ".:53 {\n    kubernetes cluster.local clusterset.local {\n    }\n}\n";
    let edited = configure(before, &zones()).unwrap().text;
    let changed = edited.replace(".:53", ".:54");

    let back = undo(&changed, before, &zones()).unwrap();

    assert_eq!(back, before.replace(".:53", ".:54"));
}

#[rstest]
#[case::another("a.org:53 {\n}\n")]
#[case::doubled(".:53 {\n    kubernetes cluster.local\n    kubernetes cluster.local\n}\n")]
fn an_edit_that_is_not_there_is_not_taken_back(#[case] now: &str) {
    let error = undo(now, KUBEADM, &zones()).unwrap_err();

    assert!(
        matches!(
            error,
            Refusal::Unrecognised { .. } | Refusal::NoKubernetes { .. }
        ),
        "{error}"
    );
}

#[test]
fn a_zone_that_a_block_of_its_own_serves_is_left_as_it_is() {
    let text = format!(
        "{KUBEADM}clusterset.local:53 {{\n    kubernetes clusterset.local {{\n        multicluster clusterset.local\n    }}\n}}\n"
    );

    assert_eq!(configure(&text, &zones()).unwrap().text, text);
}

#[test]
fn options_that_hide_names_are_told() {
    let text = KUBEADM.replace(
        "pods insecure",
        "namespaces a\n labels b\n namespace_labels c\n ignore empty_service",
    );

    let notes = configure(&text, &zones()).unwrap().notes;

    let told: Vec<_> = notes.iter().map(|it| (it.line, it.text)).collect();
    assert_eq!(
        told.iter().map(|it| it.0).collect::<Vec<_>>(),
        [8, 9, 10, 11]
    );
    assert!(told[1].1.contains("EndpointSlices") && told[2].1.contains("ServiceImports"));
}

#[rstest]
#[case::no_plugin(
    ".:53 {\n    whoami\n}\n",
    "no server block has the plugin kubernetes with the zone cluster.local;"
)]
#[case::another_zone(
    ".:53 {\n    kubernetes corp.local\n}\n",
    "cluster.local (line 2 has corp.local); name the cluster's zone with --cluster-domain"
)]
#[case::imported(
    ".:53 {\n    import /etc/coredns/kubernetes\n}\nimport other\n",
    "(line 4 imports a file, which is not looked into, line 2 imports a file"
)]
#[case::snippet(
    "(base) {\n    kubernetes cluster.local\n}\n.:53 {\n    import base\n}\n",
    "line 2: the plugin kubernetes is in a snippet"
)]
#[case::every_name(
    ".:53 {\n    kubernetes\n}\n",
    "line 2: the plugin kubernetes names no zone"
)]
#[case::order(
    ".:53 {\n    kubernetes clusterset.local cluster.local {\n        multicluster clusterset.local\n    }\n}\n",
    "line 2: clusterset.local stands before cluster.local"
)]
#[case::taken(
    ".:53 {\n    kubernetes cluster.local\n}\nclusterset.local {\n    forward . 192.0.2.1\n}\n",
    "line 4: another server block takes the names in clusterset.local"
)]
#[case::taken_by_a_parent(
    ".:53 {\n    kubernetes cluster.local\n}\nlocal:53 {\n    forward . 192.0.2.1\n}\n",
    "line 4: another server block takes"
)]
#[case::external(
    ".:53 {\n    kubernetes cluster.local\n    multicluster clusterset.local\n}\n",
    "line 3: the external plugin multicluster serves names"
)]
#[case::no_end(
    ".:53 {\n    kubernetes cluster.local {\n",
    "line 2: a block is opened and not closed"
)]
fn what_is_not_understood_is_refused_with_line_and_next_step(
    #[case] text: &str,
    #[case] expected: &str,
) {
    let error = configure(text, &zones()).unwrap_err().to_string();

    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_block_that_listens_elsewhere_takes_nothing() {
    let text = ".:53 {\n    kubernetes cluster.local\n}\nclusterset.local:5353 {\n    whoami\n}\n";

    assert!(configure(text, &zones()).is_ok());
}

#[test]
fn a_cache_on_nodes_that_knows_no_cluster_zone_is_refused() {
    let error = configure_node_local(".:53 {\n    forward . 192.0.2.1\n}\n", &zones()).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("no server block is for cluster.local with the plugin forward")
    );
}

#[rstest]
#[case(KUBEADM, true)]
#[case(
    ".:53 {\n    kubernetes cluster.local {\n        reload\n    }\n    # reload\n}\n",
    false
)]
fn the_plugin_reload_is_seen(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(reloads(text), Ok(expected));
}
