//! Kubernetes objects as facts. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, Secret, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;
use serde_json::Value;
use tombolo_api::v1beta1::ServiceImport;

use super::{
    exposure::Exposure,
    facts::{self, Authority, Certified, Exposed, Object},
    installation::RELEASE,
    users::NOTED,
};
use crate::certificate::Certificate;

/// Label of objects that `connect` made, and its value.
pub(super) const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tombolo-connect");

/// A Secret with peers.
pub(super) fn of_secret(secret: Secret) -> Object {
    let data = secret.data.unwrap_or_default().into_iter();
    let data = data.map(|(key, value)| (key, value.0)).collect();
    object(&secret.metadata, data)
}

/// The ConfigMap with users.
pub(super) fn of_config_map(map: ConfigMap) -> Object {
    let data = map.data.unwrap_or_default().into_iter();
    let data = data.map(|(key, value)| (key, value.into_bytes())).collect();
    object(&map.metadata, data)
}

fn object(metadata: &ObjectMeta, data: BTreeMap<String, Vec<u8>>) -> Object {
    let annotation = |name: &str| metadata.annotations.as_ref()?.get(name).cloned();
    let noted = annotation(NOTED).unwrap_or_default();
    let noted = noted.split(',').filter(|name| !name.is_empty());
    Object {
        version: version(metadata),
        release: annotation(RELEASE),
        ours: is_ours(metadata),
        noted: noted.map(ToOwned::to_owned).collect(),
        managers: managers(metadata),
        data,
    }
}

/// Whether `connect` made an object.
pub(super) fn is_ours(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(MADE_BY.0));
    label.map(String::as_str) == Some(MADE_BY.1)
}

/// uid and resourceVersion.
fn version(metadata: &ObjectMeta) -> (String, String) {
    let (uid, version) = (metadata.uid.clone(), metadata.resource_version.clone());
    (uid.unwrap_or_default(), version.unwrap_or_default())
}

/// Who owns each key of the data.
fn managers(metadata: &ObjectMeta) -> BTreeMap<String, BTreeSet<String>> {
    let mut managers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in metadata.managed_fields.iter().flatten() {
        let (Some(manager), Some(fields)) = (&entry.manager, &entry.fields_v1) else {
            continue;
        };
        let Value::Object(keys) = &fields.0["f:data"] else {
            continue;
        };
        let keys = keys.keys().filter_map(|key| key.strip_prefix("f:"));
        for key in keys {
            managers
                .entry(key.to_owned())
                .or_default()
                .insert(manager.clone());
        }
    }
    managers
}

/// A certificate with the authorities beside it; none when the Secret holds something else.
pub(super) fn certified(secret: &Secret) -> Option<Certified> {
    let data = secret.data.as_ref()?;
    Some(Certified {
        chain: Certificate::read_all(&data.get("tls.crt")?.0).ok()?,
        trusted: Certificate::read_all(&data.get("ca.crt")?.0).ok()?,
    })
}

/// An authority that can sign.
pub(super) fn authority(secret: &Secret) -> Option<Authority> {
    let data = secret.data.as_ref()?;
    Some(Authority {
        certificate: data.get("ca.crt")?.0.clone(),
        key: data.get("ca.key")?.0.clone(),
    })
}

/// A Service of the etcd.
pub(super) fn exposed(service: &Service) -> Option<Exposed> {
    let spec = service.spec.as_ref()?;
    let port = spec.ports.iter().flatten().next()?;
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
    let kind = match spec.type_.as_deref() {
        Some("ClusterIP") | None => Some(Exposure::ClusterIp),
        Some("NodePort") => Some(Exposure::NodePort),
        Some("LoadBalancer") => Some(Exposure::LoadBalancer),
        Some(_) => None,
    };
    let balancer = service
        .status
        .as_ref()
        .and_then(|it| it.load_balancer.as_ref());
    let ingress = balancer
        .into_iter()
        .flat_map(|it| it.ingress.iter().flatten());
    let (ips, names): (Vec<_>, Vec<_>) = ingress.map(|it| (&it.ip, &it.hostname)).unzip();
    Some(Exposed {
        name: service.name_any(),
        version: version(&service.metadata),
        kind,
        cluster_ips: addresses(spec.cluster_ips.iter().flatten()),
        port: number(port.port)?,
        node_port: port.node_port.and_then(number),
        ingress_ips: addresses(ips.into_iter().flatten()),
        ingress_names: names.into_iter().flatten().cloned().collect(),
        affinity: spec.session_affinity.as_deref() == Some("ClientIP"),
    })
}

/// A node.
pub(super) fn node(node: &Node) -> facts::Node {
    let status = node.status.as_ref();
    let conditions = status
        .into_iter()
        .flat_map(|it| it.conditions.iter().flatten());
    let mut ready = conditions.filter(|it| it.type_ == "Ready");
    let of = |kind: &str| {
        let all = status
            .into_iter()
            .flat_map(|it| it.addresses.iter().flatten());
        addresses(all.filter(|it| it.type_ == kind).map(|it| &it.address))
    };
    facts::Node {
        name: node.name_any(),
        ready: ready.any(|it| it.status == "True") && node.metadata.deletion_timestamp.is_none(),
        internal: of("InternalIP"),
        external: of("ExternalIP"),
    }
}

/// The clusters that an import comes from, each with the import's name.
pub(super) fn origins(import: &ServiceImport) -> Vec<(String, String)> {
    let name = format!(
        "{}/{}",
        import.namespace().unwrap_or_default(),
        import.name_any()
    );
    let clusters = import.status.as_ref().and_then(|it| it.clusters.as_ref());
    let clusters = clusters.into_iter().flatten();
    clusters
        .map(|it| (it.cluster.clone(), name.clone()))
        .collect()
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    texts.filter_map(|text| text.parse().ok()).collect()
}
