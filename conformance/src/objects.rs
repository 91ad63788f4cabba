//! The objects that cases create, as values with defaults. Talks to nobody.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        ClientIPConfig, Container, Pod, PodSpec, Service, ServicePort, ServiceSpec,
        SessionAffinityConfig,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use tombolo_api::v1beta1::{ServiceExport, ServiceExportSpec};

/// Name of the service under test.
pub const HELLO: &str = "hello";
/// Added to a port's number for its target port, so that a mix-up of the two is seen.
pub const TARGET_OFFSET: i32 = 8000;

/// A port with a name; the target port is [`TARGET_OFFSET`] higher.
pub fn port(name: &str, protocol: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        port: number,
        target_port: Some(IntOrString::Int(number + TARGET_OFFSET)),
        ..ServicePort::default()
    }
}

/// A port with a name that leads to that port of pods.
pub fn served(name: &str, protocol: &str, number: i32, target: i32) -> ServicePort {
    ServicePort {
        target_port: Some(IntOrString::Int(target)),
        ..port(name, protocol, number)
    }
}

/// The ports of the upstream suite's Service, as pods that run serve them.
pub fn served_ports() -> Vec<ServicePort> {
    vec![served("tcp", "TCP", 42, 42), served("udp", "UDP", 42, 42)]
}

/// The only port of a Service, without a name.
pub fn unnamed(protocol: &str, number: i32) -> ServicePort {
    ServicePort {
        name: None,
        ..port("", protocol, number)
    }
}

/// The ports of the upstream suite's Service: one number for two protocols.
pub fn upstream_ports() -> Vec<ServicePort> {
    vec![port("tcp", "TCP", 42), port("udp", "UDP", 42)]
}

/// The Service of the upstream suite, with the ports given.
pub fn service(ports: Vec<ServicePort>) -> Service {
    Service {
        metadata: ObjectMeta {
            name: Some(HELLO.to_owned()),
            labels: Some(pairs(&[("dummy-svc", "dummy")])),
            annotations: Some(pairs(&[("dummy-svc", "dummy")])),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            selector: Some(selector()),
            ports: Some(ports),
            session_affinity: Some("ClientIP".to_owned()),
            session_affinity_config: Some(SessionAffinityConfig {
                client_ip: Some(ClientIPConfig {
                    timeout_seconds: Some(10),
                }),
            }),
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The same Service without a cluster IP.
pub fn headless(ports: Vec<ServicePort>) -> Service {
    let mut service = service(ports);
    let spec = service.spec.get_or_insert_default();
    spec.cluster_ip = Some("None".to_owned());
    service
}

/// The Service of the upstream suite with a changed spec.
pub fn service_with(change: impl FnOnce(&mut ServiceSpec)) -> Service {
    let mut service = service(upstream_ports());
    change(service.spec.get_or_insert_default());
    service
}

/// A Service that is only another name.
pub fn external_name() -> Service {
    let mut service = service(upstream_ports());
    service.spec = Some(ServiceSpec {
        type_: Some("ExternalName".to_owned()),
        external_name: Some("example.com".to_owned()),
        ports: Some(upstream_ports()),
        ..ServiceSpec::default()
    });
    service
}

/// The export of the upstream suite: labels and annotations of its own, nothing exported.
pub fn export() -> ServiceExport {
    let mut export = ServiceExport::new(HELLO, ServiceExportSpec::default());
    export.metadata.labels = Some(pairs(&[("dummy-svcexport", "dummy")]));
    export.metadata.annotations = Some(pairs(&[("dummy-svcexport", "dummy")]));
    export
}

/// The same export, with a label and an annotation to export: a key each, with the value `true`.
pub fn export_with(label: &str, annotation: &str) -> ServiceExport {
    let mut export = export();
    export.spec = ServiceExportSpec {
        exported_labels: Some(pairs(&[(label, "true")])),
        exported_annotations: Some(pairs(&[(annotation, "true")])),
    };
    export
}

/// A pod on that node that the Service selects.
pub fn pod(name: &str, node: &str, hostname: Option<&str>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(selector()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            hostname: hostname.map(str::to_owned),
            subdomain: hostname.map(|_| HELLO.to_owned()),
            containers: vec![Container {
                name: HELLO.to_owned(),
                image: Some("never.pulled/hello".to_owned()),
                ..Container::default()
            }],
            // Without a service account nothing has to exist in the namespace but the pod.
            automount_service_account_token: Some(false),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

fn selector() -> BTreeMap<String, String> {
    pairs(&[("app", HELLO)])
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}
