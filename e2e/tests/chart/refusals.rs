use tombolo_e2e::chart::helm::chart;

use super::{CASES, DEFAULTS, helm};

/// Values that are wrong by themselves, and what the answer has to say.
const ALONE: [(&str, &[&str]); 7] = [
    (
        "cluster: {id: 1}",
        &["cluster.name: missing", "--set cluster.name="],
    ),
    (
        "cluster: {name: paris}",
        &["cluster.id: missing", "from 1 to 255"],
    ),
    ("cluster: {name: Paris, id: 1}", &["/cluster/name", "Paris"]),
    (
        "cluster: {name: a-name-of-thirty-three-characters, id: 1}",
        &["/cluster/name"],
    ),
    (
        "cluster: {name: paris, id: 300}",
        &["cluster.id: 300", "expected 1 to 255", "511"],
    ),
    ("cluster: {name: paris, id: 600}", &["/cluster/id", "511"]),
    (
        "cluster: {name: paris, id: one}",
        &["/cluster/id", "integer"],
    ),
];

/// Values that are wrong beside the defaults.
const BESIDE: [(&str, &[&str]); 18] = [
    ("clusterName: paris", &["clusterName"]),
    ("operator: {replica: 2}", &["/operator", "replica"]),
    (
        "clustermesh: {maxConnectedClusters: 300}",
        &["/clustermesh/maxConnectedClusters"],
    ),
    (
        "clustermesh: {cacheTTL: soon}",
        &["/clustermesh/cacheTTL", "soon"],
    ),
    (
        "clustermesh: {mcsapi: {enabled: false}}",
        &["/clustermesh/mcsapi/enabled"],
    ),
    (
        "clustermesh: {config: {enabled: false, clusters: [{name: rome, address: r}]}}",
        &["clustermesh.config.enabled=true"],
    ),
    (
        "clustermesh: {config: {clusters: [{name: rome}]}}",
        &["rome: address and ips: missing"],
    ),
    (
        "clustermesh: {config: {clusters: [{name: rome, address: r}, {name: rome, address: s}]}}",
        &["rome is there twice"],
    ),
    (
        "clustermesh: {config: {clusters: [{name: rome, address: r, tls: {cert: QQo=}}]}}",
        &["/clustermesh/config/clusters/0/tls"],
    ),
    (
        "clustermesh: {apiserver: {service: {nodePort: 2379}}}",
        &["nodePort: 2379", "30000 to 32767"],
    ),
    (
        "operator: {enabled: false}\nclustermesh: {useAPIServer: false}",
        &["nothing is left to install"],
    ),
    (
        "tls: {ca: {cert: QQo=}}",
        &["tls.ca: cert and key belong together"],
    ),
    (
        "clustermesh: {config: {clusters: [{name: rome, address: 'https://r'}]}}",
        &["/clustermesh/config/clusters/0/address"],
    ),
    (
        "clustermesh: {config: {clusters: {rome: {address: 'r:2379'}}}}",
        &["/clustermesh/config/clusters/rome/address"],
    ),
    (
        "operator: {podLabels: {app.kubernetes.io/name: other}}",
        &["/operator/podLabels/app.kubernetes.io~1name"],
    ),
    (
        "clustermesh: {apiserver: {preStopSeconds: 30}}",
        &["preStopSeconds: 30", "terminationGracePeriodSeconds (30)"],
    ),
    (
        "serviceAccounts: {operator: {name: tombolo-mesh}}",
        &["both tombolo-mesh", "two names"],
    ),
    ("operator: null", &["missing property 'operator'"]),
];

#[test]
fn wrong_values_are_refused_with_what_to_do() {
    let helm = helm();
    let alone = ALONE.map(|(values, expected)| (values.to_owned(), expected));
    let beside = BESIDE.map(|(values, expected)| (format!("{DEFAULTS}{values}"), expected));
    let mut wrong = Vec::new();
    for (values, expected) in alone.into_iter().chain(beside) {
        match helm.template(&values) {
            Ok(_) => wrong.push(format!("{values}: taken")),
            Err(error) => {
                let text = error.to_string();
                if !expected.iter().all(|part| text.contains(part)) {
                    wrong.push(format!("{values}: expected {expected:?}: {text}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_chart_passes_helm_s_own_check() {
    let helm = helm();
    for (name, values) in CASES {
        let values = helm.values(name, values);
        let values = values
            .expect("the directory is writable")
            .display()
            .to_string();
        let chart = chart().display().to_string();
        let answer = helm.run(&["lint", "--strict", &chart, "--values", &values]);
        answer.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
