//! The Helm chart, rendered without a cluster: what it makes of values, what it refuses, and rules that hold for all of it.
//!
//! After a change that is meant, `INSTA_UPDATE=always cargo test -p tombolo-e2e --test chart` writes the snapshots anew.

#[path = "chart/certificates.rs"]
mod certificates;
#[path = "chart/command_lines.rs"]
mod command_lines;
#[path = "chart/documents.rs"]
mod documents;
#[path = "chart/peers.rs"]
mod peers;
#[path = "chart/pods.rs"]
mod pods;
#[path = "chart/refusals.rs"]
mod refusals;
#[path = "chart/rights.rs"]
mod rights;
#[path = "chart/snapshots.rs"]
mod snapshots;

use std::sync::OnceLock;

use tombolo_e2e::chart::{Helm, Manifests};

/// What has to be said.
const DEFAULTS: &str = "cluster: {name: paris, id: 1}\n";

/// Two of each, with peers.
const REPLICATED: &str = r#"
cluster: {name: paris, id: 1, clustersetName: europe}
clustermesh:
  cacheTTL: 15m
  config:
    clusters:
    - {name: paris, address: paris.example.org}
    - {name: rome, ips: [203.0.113.10, "2001:db8::10"], port: 32379}
    - {name: oslo, address: oslo.example.org, tls: {caCert: QQo=, cert: Qgo=, key: Qwo=}}
    - {name: bonn, address: bonn.example.org, enabled: false}
  apiserver:
    replicas: 2
    service: {type: LoadBalancer, loadBalancerSourceRanges: [198.51.100.0/24]}
    tls: {authMode: cluster, server: {extraDnsNames: [paris.example.org], extraIpAddresses: [192.0.2.1]}}
"#;

/// Certificates and peers are somebody else's.
const EXTERNAL: &str = "
cluster: {name: paris, id: 1}
clustermesh:
  config: {enabled: false}
  apiserver:
    tls: {auto: {enabled: false}, server: {existingSecret: paris-server}, remote: {existingSecret: paris-to-peers}}
";

/// Nothing is imported.
const PUBLISHER: &str = "
cluster: {name: paris, id: 1}
operator: {enabled: false}
clustermesh: {apiserver: {kvstoremesh: {enabled: false}, tls: {authMode: legacy}}}
";

/// Nothing is published.
const IMPORTER: &str = "
cluster: {name: paris, id: 300}
bindAddress: '::'
clustermesh:
  useAPIServer: false
  maxConnectedClusters: 511
  mcsapi: {installCRDs: false}
  config: {clusters: {rome: {address: '2001:db8::10', port: 2379}}}
";

/// All of them, by name.
const CASES: [(&str, &str); 5] = [
    ("defaults", DEFAULTS),
    ("replicated", REPLICATED),
    ("external", EXTERNAL),
    ("publisher", PUBLISHER),
    ("importer", IMPORTER),
];

/// What all cases render to. Rendered once.
fn rendered() -> &'static [(&'static str, Manifests)] {
    static RENDERED: OnceLock<Vec<(&str, Manifests)>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let helm = helm();
        let render = |(name, values)| {
            let made = helm.template(values);
            (name, made.unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        CASES.into_iter().map(render).collect()
    })
}

/// What one case renders to.
fn case(name: &str) -> &'static Manifests {
    let found = rendered().iter().find(|(case, _)| *case == name);
    &found.expect("invariant: tests name cases that exist").1
}

fn helm() -> Helm {
    Helm::find().unwrap_or_else(|error| panic!("{error}"))
}
