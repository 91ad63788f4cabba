use rstest::rstest;

use super::*;
use crate::cli::explain_conflict::{report, text};

/// Manifests of one cluster: a Service and a ServiceExport `shop/web`. The exports are a minute apart.
pub(super) fn cluster(minute: u32, service_spec: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {service_spec}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {{name: web, namespace: shop, creationTimestamp: '2026-11-29T15:{minute:02}:00Z'}}
"
    )
}

/// Files in a directory of their own, which goes with this.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { directory }
    }

    fn source(&self, cluster: Option<&str>, path: &str) -> ManifestSource {
        ManifestSource {
            cluster: cluster.map(|name| name.try_into().unwrap()),
            path: self.directory.path().join(path),
        }
    }

    /// What `-f` with each of these says, with paths as they are in the directory.
    fn gather(&self, sources: &[ManifestSource]) -> Result<Gathered, String> {
        let name = NamespacedName::parse("shop", "web").unwrap();
        gather(&name, sources, true).map_err(|error| self.relative(&error.to_string()))
    }

    fn relative(&self, text: &str) -> String {
        let directory = format!("{}/", self.directory.path().display());
        text.replace(&directory, "")
    }

    /// The answer about plain files.
    fn explain(&self, files: &[&str]) -> String {
        let sources: Vec<_> = files.iter().map(|file| self.source(None, file)).collect();
        let name = NamespacedName::parse("shop", "web").unwrap();
        let gathered = self.gather(&sources).unwrap();
        self.relative(&text::render(&report::build(&name, gathered)))
    }
}

/// What is wrong with one file `paris.yaml` of this text.
fn refused(text: &str) -> String {
    let files = Files::new(&[("paris.yaml", text)]);
    let source = files.source(None, "paris.yaml");
    files.gather(&[source]).unwrap_err()
}

const WEB: &str = "{ports: [{name: http, port: 80}], ipFamilies: [IPv4]}";

#[test]
fn a_source_is_a_file_with_or_without_its_cluster() {
    let source = |cluster: Option<&str>, path: &str| ManifestSource {
        cluster: cluster.map(|name| name.try_into().unwrap()),
        path: path.into(),
    };

    assert_eq!(ManifestSource::parse("a.yaml"), Ok(source(None, "a.yaml")));
    assert_eq!(
        ManifestSource::parse("paris=a.yaml"),
        Ok(source(Some("paris"), "a.yaml"))
    );
    assert_eq!(
        ManifestSource::parse("./x=y.yaml"),
        Ok(source(None, "./x=y.yaml"))
    );
    assert!(
        ManifestSource::parse("Paris=a.yaml")
            .unwrap_err()
            .contains("1 to 32")
    );
    assert!(
        ManifestSource::parse("paris=")
            .unwrap_err()
            .contains("CLUSTER=FILE")
    );
}

#[test]
fn a_conflict_over_a_port_is_explained_with_the_file_to_change() {
    let files = Files::new(&[
        ("paris.yaml", &cluster(2, WEB)),
        (
            "rome.yaml",
            &cluster(3, "{ports: [{name: http, port: 81}], ipFamilies: [IPv4]}"),
        ),
    ]);

    insta::assert_snapshot!(files.explain(&["rome.yaml", "paris.yaml"]), @r#"
    shop/web: 1 conflict (PortConflict) among 2 exporting clusters; "paris" wins: its ServiceExport is the oldest.

    PortConflict: spec.ports of Services
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:02:00Z  http 80/TCP  wins
     rome     2026-11-29T15:03:00Z  http 81/TCP  disagrees
     The ServiceImport has: http 80/TCP

    The condition of every exporting cluster's ServiceExport:
      Conflict: True
      reason: PortConflict
      message: Duplicated port name "http". Using port definition "{{http TCP <nil> 80} paris 2026-11-29 15:02:00 +0000 UTC}" from oldest service export in cluster "paris". 1/2 clusters disagree.

    What to change, so that all agree with the winner:
      rome: Service shop/web (rome.yaml: document 1): set spec.ports to http 80/TCP, in this order
    "#);
}

#[test]
fn a_conflict_over_the_type_says_that_the_service_must_be_made_again() {
    let headless = "{clusterIP: None, ports: [{name: http, port: 80}], ipFamilies: [IPv4]}";
    let files = Files::new(&[
        ("paris.yaml", &cluster(2, WEB)),
        ("rome.yaml", &cluster(3, headless)),
        ("milan.yaml", &cluster(4, WEB)),
    ]);

    insta::assert_snapshot!(
        files.explain(&["rome.yaml", "paris.yaml", "milan.yaml"]), @r#"
    shop/web: 1 conflict (TypeConflict) among 3 exporting clusters; "paris" wins: its ServiceExport is the oldest.

    TypeConflict: spec.clusterIP of Services
     CLUSTER  EXPORTED SINCE        VALUE
     paris    2026-11-29T15:02:00Z  ClusterSetIP  wins
     rome     2026-11-29T15:03:00Z  Headless      disagrees
     milan    2026-11-29T15:04:00Z  ClusterSetIP  agrees
     The ServiceImport has: ClusterSetIP

    The condition of every exporting cluster's ServiceExport:
      Conflict: True
      reason: TypeConflict
      message: Conflicting type. 1/3 clusters disagree. Using "ClusterSetIP" from oldest service export in cluster "paris".

    What to change, so that all agree with the winner:
      rome: Service shop/web (rome.yaml: document 1): set spec.clusterIP to nothing, so that it gets an address (type ClusterSetIP); it cannot be changed in place: delete the Service and create it again
    "#
    );
}

#[test]
fn clusters_that_agree_are_said_to_agree() {
    let files = Files::new(&[
        ("paris.yaml", &cluster(2, WEB)),
        ("rome.yaml", &cluster(3, WEB)),
        (
            "idle.yaml",
            "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
        ),
    ]);

    insta::assert_snapshot!(files.explain(&["rome.yaml", "paris.yaml", "idle.yaml"]), @r#"
    shop/web: no conflict: "paris" and "rome" export it and agree.

     CLUSTER  EXPORTED SINCE
     paris    2026-11-29T15:02:00Z
     rome     2026-11-29T15:03:00Z

    No ServiceExport in: idle
    "#);
}

#[test]
fn refused_exports_are_named_with_the_reason_and_take_no_part() {
    let gated = "
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {clustermesh.cilium.io/global: 'false'}}
";
    let export = cluster(5, WEB);
    let export = export.split_once("---\n").unwrap().1;
    let files = Files::new(&[
        ("paris.yaml", &cluster(2, WEB)),
        ("rome.yaml", &(cluster(3, "{clusterIP: None}") + gated)),
        ("milan.yaml", export),
        (
            "turin.yaml",
            &cluster(4, "{type: ExternalName, externalName: example.org}"),
        ),
    ]);

    let all = ["paris.yaml", "rome.yaml", "milan.yaml", "turin.yaml"];
    insta::assert_snapshot!(files.explain(&all), @r#"
    shop/web: no conflict: only "paris" exports it; 3 exports are refused.

    Refused exports, which take no part:
      milan: NoService: Service doesn't exist; create Service shop/web, or delete the ServiceExport
      rome: NamespaceNotGlobal: Namespace is not global, Service cannot be exported; annotate Namespace shop with clustermesh.cilium.io/global=true, or delete the ServiceExport
      turin: InvalidServiceType: Service type ExternalName is not supported; give Service shop/web another type, or delete the ServiceExport
    "#);
}

#[test]
fn exports_without_a_time_count_in_the_order_of_the_files() {
    let undated = |spec: &str| {
        let text = cluster(2, spec);
        text.replace(", creationTimestamp: '2026-11-29T15:02:00Z'", "")
    };
    let local = "{ports: [{name: http, port: 80}], internalTrafficPolicy: Local}";
    let files = Files::new(&[
        ("rome.yaml", &undated(local)),
        ("paris.yaml", &undated("{ports: [{name: http, port: 80}]}")),
    ]);

    insta::assert_snapshot!(files.explain(&["rome.yaml", "paris.yaml"]), @r#"
    shop/web: 1 conflict (InternalTrafficPolicyConflict) among 2 exporting clusters; "rome" wins: its ServiceExport is the oldest.

    InternalTrafficPolicyConflict: spec.internalTrafficPolicy of Services
     CLUSTER  EXPORTED SINCE  VALUE
     rome     unknown         Local                  wins
     paris    unknown         none, that is Cluster  disagrees
     The ServiceImport has: Local

    The condition of every exporting cluster's ServiceExport:
      Conflict: True
      reason: InternalTrafficPolicyConflict
      message: Conflicting internalTrafficPolicy. 1/2 clusters disagree. Using "Local" from oldest service export in cluster "rome".

    What to change, so that all agree with the winner:
      paris: Service shop/web (paris.yaml: document 1): set spec.internalTrafficPolicy to Local

    Notes:
      The ServiceExports of rome, paris state no metadata.creationTimestamp: they count as younger than all that do, in the order of the files. In a cluster the time of creation decides; times in the condition's message are placeholders.
      The Services of paris, rome state no spec.ipFamilies, which the API server then chooses: IP families were not compared with theirs.
    "#);
}

#[test]
fn what_the_api_server_fills_in_is_no_conflict() {
    let stated = "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}, internalTrafficPolicy: Cluster}";
    let files = Files::new(&[
        ("paris.yaml", &cluster(2, stated)),
        ("rome.yaml", &cluster(3, "{sessionAffinity: ClientIP}")),
    ]);

    let answer = files.explain(&["paris.yaml", "rome.yaml"]);

    assert!(answer.starts_with("shop/web: no conflict"), "{answer}");
}

#[test]
fn a_directory_and_a_list_are_read_whole() {
    let list = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 80}]}}
- {apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceExport, metadata: {name: web, namespace: shop, creationTimestamp: '2026-11-29T15:00:00Z'}}
- {apiVersion: apps/v1, kind: Deployment}
";
    let one = cluster(2, "{ports: [{port: 80}]}");
    let (service, export) = one.split_once("---\n").unwrap();
    let files = Files::new(&[
        ("rome/list.json", list),
        ("paris/1.yaml", service),
        ("paris/2.yml", export),
        ("paris/README.md", "not a manifest"),
    ]);
    let sources = [
        files.source(Some("rome"), "rome/list.json"),
        files.source(Some("paris"), "paris"),
    ];

    let gathered = files.gather(&sources).unwrap();

    let exported = |member: &Member| matches!(member.verdict, ExportVerdict::Exported(_));
    assert_eq!(gathered.members.len(), 2);
    assert!(gathered.members.iter().all(exported), "{gathered:?}");
    let rome = &gathered.members[1].place;
    assert_eq!(
        rome.file_of("Service")
            .map(|it| files.relative(it))
            .unwrap(),
        "rome/list.json: document 1, item 1"
    );
}

#[rstest]
#[case::not_yaml("kind: [\n", &["paris.yaml: not YAML", "line"])]
#[case::empty("# nothing\n", &["paris.yaml: no document", "expected a Service"])]
#[case::no_object("- 1\n", &["paris.yaml: document 1: field (root)", "found [1]"])]
#[case::no_kind("{apiVersion: v1}", &["document 1: field kind", "found nothing"])]
#[case::wrong_version(
    "{apiVersion: multicluster.x-k8s.io/v1, kind: ServiceExport, metadata: {name: web}}",
    &["field apiVersion: expected multicluster.x-k8s.io/v1beta1 or", "found \"multicluster.x-k8s.io/v1\""]
)]
#[case::no_name("{apiVersion: v1, kind: Service}", &["field metadata.name: expected a name"])]
#[case::no_list("{apiVersion: v1, kind: List}", &["field items: expected a list"])]
#[case::wrong_type(
    "{apiVersion: v1, kind: Pod}\n---\n{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}, {port: eighty}]}}",
    &["document 2: field spec.ports.1.port: expected i32, found \"eighty\"; correct"]
)]
#[case::wrong_labels(
    "{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: web}, spec: {exportedLabels: {a/b: 5}}}",
    &["field spec.exportedLabels.a~1b: expected a string, found 5"]
)]
#[case::refused_by_the_rules(
    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 0}]}}",
    &["paris.yaml: document 1: Service shop/web: spec.ports.port", "expected 1 to 65535"]
)]
#[case::something_else(
    "{apiVersion: v1, kind: Service, metadata: {name: other, namespace: shop}}",
    &["no Service and no ServiceExport shop/web", "--namespace"]
)]
fn bad_files_are_refused_with_document_and_field(#[case] text: &str, #[case] parts: &[&str]) {
    let error = refused(text);

    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn an_object_that_a_cluster_has_twice_is_refused_with_both_places() {
    let files = Files::new(&[
        ("a/web.yaml", &cluster(1, WEB)),
        ("b/web.yaml", &cluster(2, WEB)),
    ]);
    let sources = ["a/web.yaml", "b/web.yaml"].map(|path| files.source(None, path));

    let error = files.gather(&sources).unwrap_err();

    assert_eq!(
        error,
        "b/web.yaml: document 1: cluster web has this Service already, in a/web.yaml: document 1; keep one, or say \
         which cluster each file belongs to with -f CLUSTER=FILE"
    );
}

#[test]
fn a_path_that_cannot_be_used_is_named() {
    let files = Files::new(&[("empty/README.md", ""), ("Shop_1.yaml", &cluster(1, WEB))]);
    let error = |path: &str| files.gather(&[files.source(None, path)]).unwrap_err();

    assert!(error("gone.yaml").starts_with("gone.yaml: No such file"));
    assert!(error("empty").contains("expected files that end with .yaml"));
    assert!(error("Shop_1.yaml").contains("write CLUSTER=Shop_1.yaml"));
}
