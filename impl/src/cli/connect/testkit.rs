//! Clusters for tests: with an authority, an etcd and a Service each.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use tombolo_core::names::ClusterName;

use super::{
    exposure::{Exposure, OWN_SERVICE},
    facts::{
        Authority, Card, Certified, Exposed, Held, Importer, Networks, Node, Object, Publisher,
        Site,
    },
    files::{self, Data, MESH_SECRET, OPERATOR_SECRET},
    steps::{Plan, Write},
    users,
};
use crate::certificate::Certificate;

/// An authority.
pub(super) struct Root {
    issuer: Issuer<'static, KeyPair>,
    pub(super) authority: Authority,
}

/// Name of a cluster.
pub(super) fn cluster(name: &str) -> ClusterName {
    ClusterName::try_from(name).unwrap()
}

/// A new authority.
pub(super) fn root() -> Root {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Root {
        authority: Authority {
            certificate: pem.into_bytes(),
            key: key.serialize_pem().into_bytes(),
        },
        issuer: Issuer::new(params, key),
    }
}

impl Root {
    /// A certificate of it, beside it.
    pub(super) fn certified(&self, name: &str, host: Option<&str>) -> Certified {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(host) = host {
            let host = SanType::DnsName(host.try_into().unwrap());
            params.subject_alt_names.push(host);
        }
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certified {
            chain: Certificate::read_all(pem.as_bytes()).unwrap(),
            trusted: Certificate::read_all(&self.authority.certificate).unwrap(),
        }
    }
}

/// A cluster as the chart's defaults make it, with one node.
pub(super) fn site(name: &str, id: u32, root: &Root) -> Site {
    let octet = u8::try_from(id).unwrap();
    let net = |text: String| vec![text.parse().unwrap()];
    Site {
        context: format!("kind-{name}"),
        namespace: "tombolo-system".to_owned(),
        release: "tombolo".to_owned(),
        kubernetes: "v1.36.0".to_owned(),
        card: Card {
            cluster: cluster(name),
            id,
            max_clusters: 255,
            version: "0.1.0".to_owned(),
            networks: Networks {
                pods: net(format!("10.{octet}.0.0/16")),
                services: net("10.96.0.0/16".to_owned()),
            },
        },
        publisher: Some(Publisher {
            users: true,
            copies: true,
            selector: BTreeMap::from([("app".to_owned(), "mesh".to_owned())]),
            server: Some(root.certified("server", Some("*.mesh.cilium.io"))),
            authority: Some(root.authority.clone()),
            service: Some(service("clustermesh-apiserver", Exposure::NodePort)),
            own_service: None,
            service_taken: false,
        }),
        importer: Some(Importer::OwnStore {
            endpoint: "https://clustermesh-apiserver.tombolo-system.svc:2379".to_owned(),
        }),
        shown: Some(root.certified("remote", None)),
        nodes: vec![node("node-1", [192, 0, 2, octet])],
        held: Held::default(),
        unknown: Vec::new(),
    }
}

/// A node that is ready.
pub(super) fn node(name: &str, internal: [u8; 4]) -> Node {
    Node {
        name: name.to_owned(),
        ready: true,
        internal: vec![internal.into()],
        external: Vec::new(),
    }
}

/// A Service.
pub(super) fn service(name: &str, kind: Exposure) -> Exposed {
    Exposed {
        name: name.to_owned(),
        version: Default::default(),
        kind: Some(kind),
        cluster_ips: vec![[10, 96, 0, 9].into()],
        port: 2379,
        node_port: (kind != Exposure::ClusterIp).then_some(32379),
        ingress_ips: Vec::new(),
        ingress_names: Vec::new(),
        affinity: false,
    }
}

/// The sites after a plan was carried out.
pub(super) fn after(mut sites: Vec<Site>, plan: &Plan) -> Vec<Site> {
    for step in &plan.steps {
        let site = &mut sites[step.site];
        match &step.write {
            Some(Write::Peer {
                secret,
                peer,
                data,
                ours,
            }) => {
                let held = if *secret == MESH_SECRET {
                    &mut site.held.mesh
                } else {
                    &mut site.held.operator
                };
                apply(held.get_or_insert_default(), peer, data, *ours);
            }
            Some(Write::Users(edit)) => {
                let object = site.held.users.get_or_insert_default();
                let text = object.data.get(users::KEY).cloned();
                let text = text.map(|text| String::from_utf8(text).unwrap());
                if let Some(edited) = users::edited(text.as_deref(), edit).unwrap() {
                    object
                        .data
                        .insert(users::KEY.to_owned(), edited.into_bytes());
                }
                object
                    .noted
                    .extend(edit.add.iter().map(ToString::to_string));
                object
                    .noted
                    .retain(|name| edit.remove.iter().all(|it| it.as_str() != name));
            }
            Some(Write::Service { exposure, .. }) => {
                let publisher = site.publisher.as_mut().unwrap();
                publisher.own_service = Some(service(OWN_SERVICE, *exposure));
            }
            Some(Write::DeleteSecret(name, _)) if *name == OPERATOR_SECRET => {
                site.held.operator = None;
            }
            Some(Write::DeleteSecret(..)) => site.held.mesh = None,
            Some(Write::DeleteService(_)) => site.publisher.as_mut().unwrap().own_service = None,
            None => {}
        }
    }
    sites
}

fn apply(object: &mut Object, peer: &ClusterName, data: &Data, ours: bool) {
    let manager = files::manager(peer);
    object.ours = ours || object.ours;
    let owned: Vec<_> = object
        .managers
        .iter()
        .filter(|(_, managers)| managers.contains(&manager))
        .map(|(key, _)| key.clone())
        .collect();
    for key in owned {
        object.data.remove(&key);
        object.managers.remove(&key);
    }
    for (key, content) in data {
        object.data.insert(key.clone(), content.clone());
        object
            .managers
            .insert(key.clone(), [manager.clone()].into());
    }
}

/// A moment at which the certificates of this kit are valid.
pub(super) fn now() -> Timestamp {
    "2026-11-30T00:00:00Z".parse().unwrap()
}
