use std::collections::BTreeSet;

use tombolo_e2e::chart::{
    Manifests,
    manifests::{list, name_of},
};

use super::{case, rendered};

const FORBIDDEN_VERBS: [&str; 4] = ["*", "escalate", "bind", "impersonate"];

#[test]
fn nobody_may_read_secrets_nor_anything_by_a_wildcard() {
    let mut rules = 0;
    for (case, manifests) in rendered() {
        for rule in manifests.rules() {
            let wide = |member| rule.texts(member).contains(&"*");
            let secrets = |resource: &str| resource.split('/').next() == Some("secrets");
            assert!(!wide("apiGroups") && !wide("resources"), "{case}: {rule:?}");
            assert!(
                !rule.texts("resources").into_iter().any(secrets),
                "{case}: {rule:?}"
            );
            assert!(rule.texts("nonResourceURLs").is_empty(), "{case}: {rule:?}");
            rules += 1;
        }
    }
    assert!(rules > 20, "{rules}");
}

#[test]
fn no_verb_is_one_by_which_rights_grow() {
    for (case, manifests) in rendered() {
        for rule in manifests.rules() {
            let verbs = rule.texts("verbs");
            assert!(!verbs.is_empty(), "{case}: {rule:?}");
            let forbidden = FORBIDDEN_VERBS.iter().find(|verb| verbs.contains(verb));
            assert_eq!(forbidden, None, "{case}: {rule:?}");
        }
    }
}

#[test]
fn the_mesh_role_writes_nothing() {
    for (case, manifests) in rendered() {
        for rule in manifests.rules() {
            let reads = |verb: &&str| ["get", "list", "watch"].contains(verb);
            if rule.role == "tombolo-mesh" {
                assert!(rule.texts("verbs").iter().all(reads), "{case}: {rule:?}");
            }
        }
    }
    assert!(
        case("defaults")
            .get("ClusterRole", "tombolo-mesh")
            .is_some()
    );
}

#[test]
fn every_account_is_used_by_one_pod_and_bound_to_roles_that_exist() {
    for (case, manifests) in rendered() {
        let accounts: BTreeSet<_> = names(manifests, "ServiceAccount");
        let deployments = manifests.of_kind("Deployment");
        let used: BTreeSet<_> = deployments
            .iter()
            .filter_map(|it| it["spec"]["template"]["spec"]["serviceAccountName"].as_str())
            .collect();
        assert_eq!(accounts, used, "{case}");
        assert_eq!(used.len(), deployments.len(), "{case}: one account each");
        let mut bound = BTreeSet::new();
        for kind in ["Role", "ClusterRole"] {
            let roles = names(manifests, kind);
            for binding in manifests.of_kind(&format!("{kind}Binding")) {
                let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
                assert!(roles.contains(role), "{case}: {binding}");
                for subject in list(&binding["subjects"]) {
                    assert_eq!(subject["kind"], "ServiceAccount", "{case}: {binding}");
                    bound.extend(subject["name"].as_str());
                }
            }
        }
        assert_eq!(bound, accounts, "{case}");
    }
}

#[test]
fn every_role_is_bound_or_adds_to_a_role_of_users() {
    for (case, manifests) in rendered() {
        for kind in ["Role", "ClusterRole"] {
            for role in manifests.of_kind(kind) {
                let bound = manifests
                    .of_kind(&format!("{kind}Binding"))
                    .iter()
                    .any(|binding| binding["roleRef"]["name"] == name_of(role));
                let labels = role["metadata"]["labels"].as_object();
                let adds = labels
                    .is_some_and(|labels| labels.keys().any(|key| key.contains("/aggregate-to-")));
                assert!(bound != adds, "{case}: {}", name_of(role));
            }
        }
    }
}

fn names<'a>(manifests: &'a Manifests, kind: &str) -> BTreeSet<&'a str> {
    manifests.of_kind(kind).into_iter().map(name_of).collect()
}
