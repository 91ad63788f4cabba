use tombolo_e2e::chart::manifests::texts;

use super::{case, helm};

fn file(case_name: &str, secret: &str, peer: &str) -> String {
    let secret = case(case_name).get("Secret", secret);
    let secret = secret.unwrap_or_else(|| panic!("{case_name} has no {secret:?}"));
    secret["stringData"][peer]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_peer_with_ips_is_called_by_the_name_that_is_in_every_certificate() {
    let rome = file("replicated", "cilium-kvstoremesh", "rome");

    assert_eq!(
        rome,
        "endpoints:\n- https://rome.mesh.cilium.io:32379\n\
         trusted-ca-file: /var/lib/cilium/clustermesh/common-etcd-client-ca.crt\n\
         cert-file: /var/lib/cilium/clustermesh/common-etcd-client.crt\n\
         key-file: /var/lib/cilium/clustermesh/common-etcd-client.key\n\
         cilium-host-aliases:\n- hostname: rome.mesh.cilium.io\n  ips:\n  - \"203.0.113.10\"\n  - \"2001:db8::10\"\n"
    );
}

#[test]
fn a_peer_with_another_authority_has_files_of_its_own() {
    let oslo = file("replicated", "cilium-kvstoremesh", "oslo");

    assert!(
        oslo.starts_with("endpoints:\n- https://oslo.example.org:2379\n"),
        "{oslo}"
    );
    for name in [
        "oslo.etcd-client-ca.crt",
        "oslo.etcd-client.crt",
        "oslo.etcd-client.key",
    ] {
        assert!(oslo.contains(&format!("/clustermesh/{name}\n")), "{oslo}");
        assert!(
            !file("replicated", "cilium-kvstoremesh", name).is_empty(),
            "{name}"
        );
    }
}

#[test]
fn with_copies_the_operator_reads_its_own_store_by_its_own_name() {
    for peer in ["rome", "oslo"] {
        let text = file("replicated", "cilium-clustermesh", peer);
        let expected = "endpoints:\n- https://clustermesh-apiserver.tombolo-system.svc:2379\n\
             trusted-ca-file: /var/lib/cilium/clustermesh/local-etcd-client-ca.crt\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("cilium-host-aliases"), "{text}");
    }
}

#[test]
fn without_copies_the_operator_reads_the_peers() {
    let text = file("importer", "cilium-clustermesh", "rome");

    assert!(
        text.starts_with("endpoints:\n- https://[2001:db8::10]:2379\n"),
        "{text}"
    );
    assert!(text.contains("/common-etcd-client.key\n"), "{text}");
    assert!(
        case("importer")
            .get("Secret", "cilium-kvstoremesh")
            .is_none()
    );
}

#[test]
fn neither_the_cluster_itself_nor_a_disabled_one_is_a_peer() {
    for secret in ["cilium-clustermesh", "cilium-kvstoremesh"] {
        for peer in ["paris", "bonn"] {
            assert_eq!(file("replicated", secret, peer), "", "{secret} {peer}");
        }
    }
}

#[test]
fn peers_have_users_unless_all_share_one() {
    let users = |name: &str| {
        let map = case(name).get("ConfigMap", "clustermesh-remote-users")?;
        Some(map["data"]["users.yaml"].as_str()?.to_owned())
    };

    let listed =
        "users:\n- name: remote-oslo\n  role: remote\n- name: remote-rome\n  role: remote\n";
    assert_eq!(users("replicated").as_deref(), Some(listed));
    assert_eq!(users("defaults"), None);
    assert_eq!(users("publisher"), None);
}

#[test]
fn a_map_of_clusters_means_the_same_as_a_list() {
    let head = "cluster: {name: paris, id: 1}\nclustermesh: {config: {clusters: ";
    let peers = |clusters: &str| {
        let made = helm().template(&format!("{head}{clusters}}}}}\n"));
        let made = made.unwrap_or_else(|error| panic!("{error}"));
        let secret = made
            .get("Secret", "cilium-kvstoremesh")
            .expect("copies are on");
        secret["stringData"].clone()
    };

    let list = peers("[{name: rome, address: r.example}, {name: oslo, ips: [192.0.2.7]}]");
    let map = peers("{rome: {address: r.example}, oslo: {ips: [192.0.2.7]}}");

    assert_eq!(list, map);
    assert_eq!(list.as_object().map(serde_json::Map::len), Some(2));
}

#[test]
fn while_nobody_is_listed_the_peers_are_left_to_connect() {
    let manifests = case("defaults");

    for (kind, name) in [
        ("Secret", "cilium-clustermesh"),
        ("Secret", "cilium-kvstoremesh"),
        ("ConfigMap", "clustermesh-remote-users"),
    ] {
        assert!(manifests.get(kind, name).is_none(), "{kind} {name}");
    }
}

#[test]
fn files_of_somebody_else_are_mounted_where_the_chart_s_would_be() {
    let manifests = case("external");
    assert!(manifests.get("Secret", "cilium-clustermesh").is_none());
    assert_eq!(manifests.of_kind("Secret").len(), 0);
    for (deployment, secret) in [
        ("tombolo-operator", "cilium-clustermesh"),
        ("tombolo-mesh", "cilium-kvstoremesh"),
    ] {
        let deployment = manifests
            .get("Deployment", deployment)
            .expect("it is there");
        let text = deployment.to_string();
        assert!(
            text.contains(secret) && text.contains("paris-to-peers"),
            "{text}"
        );
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let flag = "--clustermesh-config=/var/lib/cilium/clustermesh";
        assert!(texts(&container["args"]).contains(&flag));
    }
}
