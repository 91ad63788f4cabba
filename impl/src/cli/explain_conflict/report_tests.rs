use std::collections::BTreeMap;

use tombolo_core::service::{
    ImportType, IpFamily, Protocol, ServicePort, SessionAffinity, TrafficDistribution,
};

use super::*;
use crate::cli::{explain_conflict::text, render};

fn name() -> NamespacedName {
    NamespacedName::parse("shop", "web").unwrap()
}

fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: name.try_into().unwrap(),
        protocol: Protocol::Tcp,
        app_protocol: None,
        port,
    }
}

/// A cluster that exports `shop/web` with port http 80, changed by `change`. Its context has its name and a prefix.
fn member(cluster: &str, second: i64, change: impl FnOnce(&mut ExportSpec)) -> Member {
    let mut export = ExportSpec {
        cluster: cluster.try_into().unwrap(),
        name: name(),
        created_at: Timestamp::from_second(1_795_964_400 + second).unwrap(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        ports: vec![port("http", 80)],
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4],
        internal_traffic_policy: None,
        traffic_distribution: None,
    };
    change(&mut export);
    Member {
        cluster: export.cluster.clone(),
        place: Place::Context(format!("kind-{cluster}")),
        verdict: ExportVerdict::Exported(Box::new(export)),
        since_known: true,
        recorded: None,
    }
}

fn refusing(cluster: &str, refusal: Refusal) -> Member {
    Member {
        verdict: ExportVerdict::Refused(refusal),
        ..member(cluster, 0, |_| {})
    }
}

fn report(members: Vec<Member>) -> Report {
    let gathered = Gathered {
        members,
        ..Gathered::default()
    };
    build(&name(), gathered)
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn several_conflicts_at_once_are_all_explained_with_commands() {
    let report = report(vec![
        member("rome", 1, |export| {
            export.ports = vec![port("dns", 53), port("http", 81)];
            export.session_affinity = SessionAffinity::ClientIp;
            export.session_affinity_timeout_seconds = Some(600);
            export.labels = labels(&[("app", "shop"), ("old", "1")]);
            export.traffic_distribution = Some(TrafficDistribution::PreferClose);
            export.ip_families = vec![IpFamily::V6];
        }),
        member("paris", 0, |export| {
            export.labels = labels(&[("app", "it's")]);
        }),
    ]);

    insta::assert_snapshot!(text::render(&report), @r#"
    shop/web: 5 conflicts (PortConflict, SessionAffinityConflict, LabelsConflict, TrafficDistributionConflict, IPFamilyConflict) among 2 exporting clusters; "paris" wins: its ServiceExport is the oldest.

    PortConflict: spec.ports of Services
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:00:00Z  http 80/TCP              oldest, but differs
     rome     2026-11-29T15:00:01Z  dns 53/TCP, http 81/TCP  disagrees
     The ServiceImport has: http 80/TCP, dns 53/TCP

    SessionAffinityConflict: spec.sessionAffinity of Services
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:00:00Z  None      wins
     rome     2026-11-29T15:00:01Z  ClientIP  disagrees
     The ServiceImport has: None

    LabelsConflict: spec.exportedLabels of ServiceExports
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:00:00Z  app=it's         wins
     rome     2026-11-29T15:00:01Z  app=shop, old=1  disagrees
     The ServiceImport has: app=it's

    TrafficDistributionConflict: spec.trafficDistribution of Services
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:00:00Z  none         wins
     rome     2026-11-29T15:00:01Z  PreferClose  disagrees
     The ServiceImport has: none

    IPFamilyConflict: spec.ipFamilies of Services
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:00:00Z  IPv4   wins
     rome     2026-11-29T15:00:01Z  IPv6   disagrees
     The ServiceImport has: IPv4

    The condition of every exporting cluster's ServiceExport:
      Conflict: True
      reason: PortConflict,SessionAffinityConflict,LabelsConflict,TrafficDistributionConflict,IPFamilyConflict
      message: Duplicated port name "http". Using port definition "{{http TCP <nil> 80} paris 2026-11-29 15:00:00 +0000 UTC}" from oldest service export in cluster "paris". 2/2 clusters disagree. Conflicting sessionAffinity. 1/2 clusters disagree. Using "None" from oldest service export in cluster "paris". Conflicting labels. 1/2 clusters disagree. Using "map[app:it's]" from oldest service export in cluster "paris". Conflicting trafficDistribution. 1/2 clusters disagree. Using "" from oldest service export in cluster "paris". IPFamilies conflict. Cluster 'rome' has no IPFamilies in common. 1/2 clusters disagree. Using "IPv4" from oldest service export in cluster "paris".

    What to change, so that all agree with the winner:
      paris: Service shop/web: set spec.ports to http 80/TCP, dns 53/TCP, in this order
        kubectl --context kind-paris -n shop patch service web --type=json -p '[{"op":"add","path":"/spec/ports/1","value":{"name":"dns","port":53,"protocol":"TCP"}}]'
      rome: Service shop/web: set spec.ports to http 80/TCP, dns 53/TCP, in this order
        kubectl --context kind-rome -n shop patch service web --type=json -p '[{"from":"/spec/ports/1","op":"move","path":"/spec/ports/0"},{"op":"add","path":"/spec/ports/0/port","value":80}]'
      rome: Service shop/web: set spec.sessionAffinity to None
        kubectl --context kind-rome -n shop patch service web --type=merge -p '{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}'
      rome: ServiceExport shop/web: set spec.exportedLabels to app=it's
        kubectl --context kind-rome -n shop patch serviceexport web --type=merge -p '{"spec":{"exportedLabels":{"app":"it'\''s","old":null}}}'
      rome: Service shop/web: set spec.trafficDistribution to none
        kubectl --context kind-rome -n shop patch service web --type=merge -p '{"spec":{"trafficDistribution":null}}'
      rome: Service shop/web: set spec.ipFamilies to a list with IPv4; a dual-stack cluster adds it with ipFamilyPolicy PreferDualStack
        kubectl --context kind-rome -n shop patch service web --type=merge -p '{"spec":{"ipFamilyPolicy":"PreferDualStack"}}'
    "#);
}

#[test]
fn json_has_everything_under_stable_names() {
    let mut paris = member("paris", 0, |_| {});
    paris.recorded = Some(Vec::new());
    let mut report = report(vec![
        paris,
        member("rome", 1, |export| {
            export.import_type = ImportType::Headless;
        }),
        refusing("milan", Refusal::NoService),
        refusing("turin", Refusal::NoServiceExport),
    ]);
    report.notes.push("a note".to_owned());

    assert_eq!(render::json(&report).unwrap(), JSON);
}

#[test]
fn a_cluster_that_was_not_read_makes_the_answer_incomplete() {
    let unread = |cluster: &str| Unread {
        cluster: cluster.to_owned(),
        error: "context kind-rome: connection refused".to_owned(),
    };
    let gathered = Gathered {
        members: vec![member("paris", 0, |_| {})],
        unread: vec![unread("rome")],
        notes: Vec::new(),
    };

    let report = build(&name(), gathered);

    assert!(!report.complete);
    insta::assert_snapshot!(text::render(&report), @r#"
    shop/web: incomplete, since "rome" was not read. Without it: only "paris" exports it.

    Not read:
      rome: context kind-rome: connection refused
    "#);
}

#[test]
fn a_status_that_says_something_else_is_shown() {
    let stale = Told {
        kind: "Conflict".to_owned(),
        status: "False".to_owned(),
        reason: "NoConflicts".to_owned(),
        message: "ServiceExport has no conflicts".to_owned(),
    };
    let headless = |export: &mut ExportSpec| export.import_type = ImportType::Headless;
    let first = report(vec![
        member("paris", 0, |_| {}),
        member("rome", 1, headless),
    ]);
    let [mut paris, mut rome] = [member("paris", 0, |_| {}), member("rome", 1, headless)];
    paris.recorded = Some(first.condition.into_iter().collect());
    rome.recorded = Some(vec![stale.clone()]);
    let mut milan = refusing("milan", Refusal::NoService);
    milan.recorded = Some(Vec::new());

    let rows = report(vec![paris, rome, milan]).recorded;

    let row = |cluster: &str| rows.iter().find(|row| row.cluster == cluster).unwrap();
    assert!(row("paris").matches);
    assert_eq!(
        (row("rome").matches, row("rome").condition.as_ref()),
        (false, Some(&stale))
    );
    assert_eq!(
        (row("milan").matches, row("milan").condition.as_ref()),
        (false, None)
    );
}

#[test]
fn the_verdict_is_one_sentence_for_every_case() {
    let agree = |_: &mut ExportSpec| {};
    let headless = |export: &mut ExportSpec| export.import_type = ImportType::Headless;
    let twice = |export: &mut ExportSpec| export.ports = vec![port("a", 1), port("a", 2)];
    let cases = [
        (vec![], "shop/web: no conflict: no cluster exports it."),
        (
            vec![refusing("a", Refusal::NoService)],
            "shop/web: no conflict: no cluster exports it; 1 export is refused.",
        ),
        (
            vec![member("a", 0, agree)],
            "shop/web: no conflict: only \"a\" exports it.",
        ),
        (
            vec![
                member("a", 0, agree),
                member("b", 0, agree),
                member("c", 0, agree),
            ],
            "shop/web: no conflict: \"a\", \"b\" and \"c\" export it and agree.",
        ),
        (
            vec![member("a", 0, headless), member("b", 0, agree)],
            "shop/web: 1 conflict (TypeConflict) among 2 exporting clusters; \"a\" wins: of the oldest ServiceExports, its cluster's name comes first.",
        ),
        (
            vec![member("a", 0, twice)],
            "shop/web: 1 conflict (PortConflict) within the export of \"a\".",
        ),
    ];

    for (members, expected) in cases {
        assert_eq!(report(members).verdict, expected);
    }
}

const JSON: &str = r#"{
  "namespace": "shop",
  "name": "web",
  "verdict": "shop/web: 1 conflict (TypeConflict) among 2 exporting clusters; \"paris\" wins: its ServiceExport is the oldest; 1 export is refused.",
  "complete": true,
  "exports": [
    {
      "cluster": "paris",
      "since": "2026-11-29T15:00:00Z",
      "wins": true
    },
    {
      "cluster": "rome",
      "since": "2026-11-29T15:00:01Z",
      "wins": false
    }
  ],
  "conflicts": [
    {
      "reason": "TypeConflict",
      "object": "Service",
      "field": "spec.clusterIP",
      "message": "Conflicting type. 1/2 clusters disagree. Using \"ClusterSetIP\" from oldest service export in cluster \"paris\".",
      "used": "ClusterSetIP",
      "values": [
        {
          "cluster": "paris",
          "value": "ClusterSetIP",
          "since": "2026-11-29T15:00:00Z",
          "wins": true,
          "agrees": true
        },
        {
          "cluster": "rome",
          "value": "Headless",
          "since": "2026-11-29T15:00:01Z",
          "wins": false,
          "agrees": false
        }
      ],
      "changes": [
        {
          "cluster": "rome",
          "object": "Service shop/web",
          "field": "spec.clusterIP",
          "to": "nothing, so that it gets an address (type ClusterSetIP); it cannot be changed in place: delete the Service and create it again",
          "file": null,
          "commands": [
            "kubectl --context kind-rome -n shop get service web -o yaml > web.yaml",
            "kubectl --context kind-rome -n shop replace --force -f web.yaml   # after editing web.yaml"
          ]
        }
      ]
    }
  ],
  "condition": {
    "type": "Conflict",
    "status": "True",
    "reason": "TypeConflict",
    "message": "Conflicting type. 1/2 clusters disagree. Using \"ClusterSetIP\" from oldest service export in cluster \"paris\"."
  },
  "recorded": [
    {
      "cluster": "paris",
      "matches": false,
      "condition": null
    }
  ],
  "refused": [
    {
      "cluster": "milan",
      "reason": "NoService",
      "message": "Service doesn't exist",
      "next": "create Service shop/web, or delete the ServiceExport"
    }
  ],
  "notExporting": [
    "turin"
  ],
  "unread": [],
  "notes": [
    "a note"
  ]
}
"#;
