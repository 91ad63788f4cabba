//! Plans, by what they would change and what they refuse.

use rstest::rstest;

use super::{
    exposure::{Exposure, Wish},
    facts::{Importer, Object, Site},
    files,
    plan::{Settings, build},
    steps::{Change, Plan},
    testkit::{after, cluster, node, now, root, service, site},
    undo,
};

fn settings(wishes: &[Wish]) -> Settings<'_> {
    Settings {
        wishes,
        force: false,
        now: now(),
    }
}

fn connect(sites: &[Site]) -> Plan {
    build(sites, settings(&[]))
}

fn two() -> Vec<Site> {
    vec![site("paris", 1, &root()), site("rome", 2, &root())]
}

/// What changes, with the cluster in front.
fn changes(sites: &[Site], plan: &Plan) -> Vec<String> {
    let changed = plan.steps.iter().filter(|step| step.change != Change::Keep);
    changed
        .map(|step| {
            format!(
                "{} {:?} {}",
                sites[step.site].name(),
                step.change,
                step.object
            )
        })
        .collect()
}

fn refusals(plan: &Plan) -> String {
    let lines: Vec<_> = plan.refusals.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn two_clusters_get_users_then_files_for_the_mesh_role_then_for_the_operator() {
    let sites = two();

    let plan = connect(&sites);

    assert_eq!(refusals(&plan), "");
    assert_eq!(
        changes(&sites, &plan),
        [
            "paris Add ConfigMap clustermesh-remote-users",
            "rome Add ConfigMap clustermesh-remote-users",
            "rome Add Secret cilium-kvstoremesh",
            "paris Add Secret cilium-kvstoremesh",
            "rome Add Secret cilium-clustermesh",
            "paris Add Secret cilium-clustermesh",
        ]
    );
    assert_eq!(plan.links.len(), 2);
}

#[test]
fn a_second_plan_changes_nothing_and_undoing_it_leaves_nobody() {
    let first = connect(&two());
    let sites = after(two(), &first);
    // The authorities of the second call are others.
    let sites = after(sites.clone(), &connect(&sites));

    let again = connect(&sites);

    assert_eq!(changes(&sites, &again), Vec::<String>::new());
    assert!(again.is_done());
    let peers = [["rome"], ["paris"]].map(|it| it.map(cluster).into());
    let pairs: Vec<_> = sites.iter().zip(peers).collect();
    let undone = undo::build(&pairs);
    let left = after(sites.clone(), &undone);
    for site in &left {
        assert!(site.held.mesh.is_none() && site.held.operator.is_none());
        let users = &site.held.users.as_ref().unwrap().data["users.yaml"];
        assert_eq!(users, b"users: []\n");
    }
    assert_eq!(undone.notices, Vec::<String>::new());
}

#[test]
fn a_third_cluster_keeps_what_is_there_and_goes_alone() {
    let roots = [root(), root(), root()];
    let all = |count: usize| {
        let names = ["paris", "rome", "oslo"];
        let all = names.iter().zip(&roots).zip(1..);
        all.take(count)
            .map(|((name, root), id)| site(name, id, root))
            .collect::<Vec<_>>()
    };
    let two = after(all(2), &connect(&all(2)));
    let before = two[0].held.mesh.clone().unwrap().data;
    let mut three = two;
    three.push(all(3).remove(2));

    let plan = connect(&three);
    let three = after(three, &plan);

    let now = &three[0].held.mesh.as_ref().unwrap().data;
    assert!(
        before
            .iter()
            .all(|(key, content)| now.get(key) == Some(content))
    );
    assert!(now.contains_key("oslo"));
    let gone = undo::build(&[(&three[0], [cluster("oslo")].into())]);
    let left = after(vec![three[0].clone()], &gone);
    assert_eq!(left[0].held.mesh.as_ref().unwrap().data, before);
}

#[test]
fn with_one_authority_the_common_certificate_serves_and_no_key_goes_over() {
    let shared = root();
    let sites = vec![site("paris", 1, &shared), site("rome", 2, &shared)];

    let sites = after(sites.clone(), &connect(&sites));

    let data = &sites[0].held.mesh.as_ref().unwrap().data;
    assert_eq!(data.keys().collect::<Vec<_>>(), ["rome"]);
    let text = String::from_utf8_lossy(&data["rome"]);
    assert!(text.contains("/common-etcd-client.key\n"), "{text}");
    assert!(
        text.contains("- https://rome.mesh.cilium.io:32379\n"),
        "{text}"
    );
    assert!(text.contains("  - \"192.0.2.2\"\n"), "{text}");
}

#[test]
fn a_certificate_is_renewed_when_two_thirds_of_its_time_are_over() {
    let first = two();
    let sites = after(first.clone(), &connect(&first));
    let later = |days: i64| {
        let at = now()
            .checked_add(jiff::Span::new().hours(24 * days))
            .unwrap();
        let settings = Settings {
            now: at,
            ..settings(&[])
        };
        changes(&sites, &build(&sites, settings))
    };

    assert_eq!(later(700), Vec::<String>::new());
    assert_eq!(
        later(740),
        [
            "rome Replace Secret cilium-kvstoremesh",
            "paris Replace Secret cilium-kvstoremesh"
        ]
    );
}

#[test]
fn without_the_key_of_an_authority_only_shared_ones_go_together() {
    let mut sites = two();
    sites[0].publisher.as_mut().unwrap().authority = None;

    let text = refusals(&connect(&sites));

    assert!(text.starts_with("kind-paris: no certificate for remote-rome can be made: Secret tombolo-ca does not exist"), "{text}");
    let shared = root();
    let mut sites = vec![site("paris", 1, &shared), site("rome", 2, &shared)];
    sites[0].publisher.as_mut().unwrap().authority = None;
    assert_eq!(refusals(&connect(&sites)), "");
}

#[test]
fn an_operator_without_copies_reads_the_peer_itself() {
    let mut sites = two();
    sites[0].importer = Some(Importer::Peers);
    sites[0].publisher.as_mut().unwrap().copies = false;

    let plan = connect(&sites);
    let sites = after(sites, &plan);

    assert!(sites[0].held.mesh.is_none());
    assert_eq!(sites[0].held.operator.as_ref().unwrap().data.len(), 4);
}

#[rstest]
#[case::name(|s: &mut [Site]| s[1].card.cluster = cluster("paris"), "are both called paris")]
#[case::id(|s: &mut [Site]| s[1].card.id = 1, "paris and rome both have id 1")]
#[case::large(|s: &mut [Site]| s[1].card.id = 300, "rome: id 300: expected 1 to 255")]
#[case::max(|s: &mut [Site]| s[1].card.max_clusters = 511, "maxConnectedClusters: paris has 255, rome has 511")]
#[case::version(|s: &mut [Site]| s[1].card.version = "0.3.9".to_owned(), "paris runs Tombolo 0.1.0, rome runs 0.3.9")]
#[case::major(|s: &mut [Site]| s[1].card.version = "1.1.0".to_owned(), "at most one minor version")]
#[case::pods(|s: &mut [Site]| s[1].card.networks.pods = vec!["10.0.0.0/8".parse().unwrap()], "pod network of paris (10.1.0.0/16) and pod network of rome (10.0.0.0/8) overlap")]
#[case::services(|s: &mut [Site]| s[1].card.networks.services = vec!["10.1.0.0/24".parse().unwrap()], "pod network of paris (10.1.0.0/16) and service network of rome (10.1.0.0/24) overlap")]
#[case::one_way(|s: &mut [Site]| { s[0].importer = None; s[1].importer = None; }, "neither imports")]
#[case::inside(|s: &mut [Site]| s[1].publisher.as_mut().unwrap().service = Some(service("x", Exposure::ClusterIp)), "--exposure kind-rome=node-port or load-balancer")]
#[case::nodes(|s: &mut [Site]| s[1].nodes.clear(), "no node has an address")]
#[case::server(|s: &mut [Site]| s[1].publisher.as_mut().unwrap().server = None, "kind-rome: the certificate of its etcd is not in its Secret")]
#[case::server_name(|s: &mut [Site]| s[1].publisher.as_mut().unwrap().server = Some(root().certified("s", Some("other.example"))), "is not for rome.mesh.cilium.io, but for other.example")]
#[case::users(|s: &mut [Site]| s[1].held.users = Some(object("users.yaml", "users: 5", None)), "users.yaml has no list of users")]
#[case::helm(|s: &mut [Site]| s[1].held.mesh = Some(object("oslo", "x", Some("mesh"))), "in the values of Helm release mesh (Secret cilium-kvstoremesh); add there, and run helm upgrade:\nclustermesh:")]
#[case::old_chart(|s: &mut [Site]| s[1].held.mesh = Some(Object { release: Some("mesh".to_owned()), ..Object::default() }), "upgrade the release first")]
#[case::foreign(|s: &mut [Site]| s[1].held.mesh = Some(object("paris", "x", None)), "key paris is there with another content and belongs to kubectl")]
fn what_does_not_go_together_is_refused(#[case] change: fn(&mut [Site]), #[case] says: &str) {
    let mut sites = two();
    change(&mut sites);

    let plan = connect(&sites);

    let text = refusals(&plan);
    assert!(text.contains(says), "{text}");
    let forced = build(
        &sites,
        Settings {
            force: true,
            ..settings(&[])
        },
    );
    let lifted = text.contains("overlap") || text.contains("minor version");
    assert_eq!(forced.refusals.is_empty(), lifted, "{}", refusals(&forced));
}

fn object(key: &str, content: &str, release: Option<&str>) -> Object {
    Object {
        release: release.map(ToOwned::to_owned),
        data: [(key.to_owned(), content.as_bytes().to_vec())].into(),
        managers: [(key.to_owned(), ["kubectl".to_owned()].into())].into(),
        ..Object::default()
    }
}

#[test]
fn service_networks_may_overlap_unless_one_is_reached_by_them() {
    let inside = Wish {
        exposure: Some(Exposure::ClusterIp),
        ..Wish::default()
    };

    assert_eq!(refusals(&connect(&two())), "");
    let text = refusals(&build(&two(), settings(&[Wish::default(), inside])));
    assert!(
        text.contains("service network of paris (10.96.0.0/16)"),
        "{text}"
    );
}

#[test]
fn a_service_is_made_where_another_type_is_wanted_and_goes_with_the_last_peer() {
    let wishes = [
        Wish::default(),
        Wish {
            exposure: Some(Exposure::LoadBalancer),
            ..Wish::default()
        },
    ];
    let first = build(&two(), settings(&wishes));
    assert!(changes(&two(), &first).contains(&"rome Add Service tombolo-connect".to_owned()));
    assert!(!first.is_done());

    let mut sites = after(two(), &first);
    let waiting = build(&sites, settings(&wishes));
    assert!(
        waiting.pending[0].contains("has no address yet"),
        "{:?}",
        waiting.pending
    );

    let publisher = sites[1].publisher.as_mut().unwrap();
    publisher.own_service.as_mut().unwrap().ingress_ips = vec![[192, 0, 2, 77].into()];
    let known = build(&sites, settings(&wishes));
    assert!(known.pending.is_empty());
    let sites = after(sites.clone(), &known);
    // Also when nobody says so again.
    let again = connect(&sites);
    assert!(
        again
            .reached
            .iter()
            .any(|(_, text)| text.starts_with("192.0.2.77 port 2379"))
    );
    let gone = undo::build(&[(&sites[1], [cluster("paris")].into())]);
    assert!(
        changes(&sites[1..], &gone).contains(&"rome Remove Service tombolo-connect".to_owned())
    );
}

#[test]
fn nodes_that_are_there_are_kept_and_those_that_go_are_replaced() {
    let mut sites = two();
    sites[1].nodes = (1..=5)
        .map(|n| node(&format!("node-{n}"), [192, 0, 2, 10 + n]))
        .collect();
    let before = connect(&sites);
    let mut sites = after(sites, &before);
    let addresses = |sites: &[Site]| {
        let held = sites[0].held.mesh.as_ref();
        let all = files::addresses_before(held, &cluster("rome"));
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        addresses(&sites),
        ["192.0.2.11", "192.0.2.12", "192.0.2.13"]
    );

    sites[1].nodes.remove(0);
    sites[1].nodes.push(node("node-0", [192, 0, 2, 9]));
    let plan = connect(&sites);
    let sites = after(sites, &plan);

    assert_eq!(addresses(&sites), ["192.0.2.12", "192.0.2.13", "192.0.2.9"]);
}

#[test]
fn what_others_wrote_is_left_and_named() {
    let mut site = two().remove(0);
    site.held.mesh = Some(object("rome", "endpoints: []", None));
    site.held.users = Some(object(
        "users.yaml",
        "users: [{name: remote-rome, role: remote}]",
        None,
    ));

    let plan = undo::build(&[(&site, [cluster("rome")].into())]);

    assert!(plan.steps.is_empty());
    assert!(
        plan.notices[0].contains("Secret cilium-kvstoremesh: rome: not written by"),
        "{:?}",
        plan.notices
    );
    assert!(
        plan.notices[1].contains("user remote-rome: not listed by"),
        "{:?}",
        plan.notices
    );
}

#[test]
fn a_service_of_others_with_the_same_name_is_neither_used_nor_deleted() {
    let mut sites = two();
    let publisher = sites[0].publisher.as_mut().unwrap();
    publisher.service = Some(service("clustermesh-apiserver", Exposure::ClusterIp));
    publisher.service_taken = true;
    let wish = Wish {
        exposure: Some(Exposure::NodePort),
        endpoint: None,
    };

    let plan = build(&sites, settings(&[wish, Wish::default()]));

    let refused = refusals(&plan);
    assert!(
        refused
            .contains("paris: Service tombolo-connect is there, and not made by tombolo connect"),
        "{refused}"
    );
    let connected = after(sites.clone(), &connect(&two()));
    let pairs: Vec<_> = connected
        .iter()
        .map(|site| (site, [cluster("rome")].into()))
        .collect();
    let undone = undo::build(&pairs[..1]);
    assert!(
        !undone
            .steps
            .iter()
            .any(|it| it.object.starts_with("Service"))
    );
}
