//! The derived Service controller: one Service `derived-<hash>` for each ServiceImport, which gives it its virtual IPs.
//!
//! Owns the derived Service, and of the import the annotation that names it and `spec.ips`. It must never touch a Service
//! that it did not make, and never give an import another IP as long as the import lives (`KEP-1645#62`), unless the import
//! turns headless.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ClientIPConfig, Service, ServicePort, ServiceSpec, SessionAffinityConfig},
    apimachinery::pkg::{apis::meta::v1::OwnerReference, util::intstr::IntOrString},
};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use tombolo_api::{
    keys,
    v1beta1::{ServiceImport, ServicePort as ImportPort},
};
use tombolo_core::{
    mutant::{self, Mutant},
    names::NamespacedName,
    service::{ImportType, InternalTrafficPolicy, SessionAffinity},
};
use tracing::{error, info};

use crate::operator::{
    apply::{self, Announcement, Controller},
    context::{Context, controlled_by, owned},
    service_import, virtual_ips,
};

mod restrictions;

const CONTROLLER: Controller = Controller::DerivedService;

/// Value of `clusterIP` of a headless Service. Kubernetes.
const HEADLESS: &str = "None";

/// Time-out of a ClientIP affinity that states none, in seconds. Kubernetes' default.
const SESSION_TIMEOUT_DEFAULT: i32 = 10_800;

/// What the decision about one derived Service rests on.
#[derive(Debug)]
pub struct Observed<'a> {
    /// Namespace and name of the import.
    pub name: &'a NamespacedName,
    /// Whether the namespace is global.
    pub namespace_global: bool,
    /// The import.
    pub import: Option<&'a ServiceImport>,
    /// The Service of the derived name.
    pub actual: Option<&'a Service>,
}

/// What to do about one derived Service.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// There is none, and none is needed.
    Leave,
    /// It is not needed any more.
    Delete,
    /// It should be this.
    Apply(Box<Service>),
    /// It should be this, and cannot become it.
    Recreate(Box<Service>),
    /// Somebody else's Service has its name.
    Clash,
}

/// Brings the derived Service of one import in line with it, and the import's IPs in line with the Service.
///
/// While the import is not what it should be nothing is done, and it is looked at again: what it should be may become what it
/// is without a write to it. An import that a user made
/// and nobody exports counts as none.
pub async fn reconcile(name: &NamespacedName, ctx: &Context) -> Result<(), apply::Error> {
    let Some(namespace_global) = ctx.namespace_gate(name) else {
        return Ok(());
    };
    if !service_import::is_settled(name, ctx) {
        if ctx.is_terminating(name) {
            return Ok(());
        }
        let object = format!("Service {}", name.derived());
        return Err(apply::Error::Unsettled { object });
    }
    let import = ctx.import(name);
    let import = import.filter(|import| service_import::is_ours(import));
    let actual = ctx.service(&name.derived());
    let observed = Observed {
        name,
        namespace_global,
        import: import.as_deref(),
        actual: actual.as_deref(),
    };
    let applied = apply(&observed, ctx).await;
    let Some(import) = observed.import else {
        return applied.map(drop);
    };
    let news = match &applied {
        Ok(_) => restrictions::withheld(import),
        Err(error) => restrictions::refusal(error),
    };
    if let Some(news) = news {
        ctx.writer.announce(CONTROLLER, import, &news).await;
    }
    virtual_ips::offer(import, applied?.as_ref(), ctx).await
}

async fn apply(observed: &Observed<'_>, ctx: &Context) -> Result<Option<Service>, apply::Error> {
    match (decide(observed), observed.actual) {
        (Decision::Apply(desired), Some(actual)) if is_same(&desired, actual) => {
            Ok(Some(actual.clone()))
        }
        (Decision::Apply(desired), Some(actual)) => {
            if let Some(patch) = restrictions::obstacles(&desired, actual) {
                ctx.writer.clear(CONTROLLER, actual, patch).await?;
            }
            write(&desired, ctx).await
        }
        (Decision::Recreate(desired), Some(actual)) => {
            info!("the derived Service has to be made anew: its virtual IP changes");
            ctx.writer.delete(CONTROLLER, actual).await?;
            write(&desired, ctx).await
        }
        (Decision::Apply(desired) | Decision::Recreate(desired), _) => write(&desired, ctx).await,
        (Decision::Delete, Some(actual)) => {
            info!("removing the derived Service");
            ctx.writer.delete(CONTROLLER, actual).await?;
            Ok(None)
        }
        (Decision::Clash, Some(actual)) => {
            error!(service = %actual.name_any(), "a Service that is not ours has the name of a derived Service; rename it");
            ctx.writer.announce(CONTROLLER, actual, &clash()).await;
            Ok(None)
        }
        (Decision::Delete | Decision::Clash | Decision::Leave, _) => Ok(None),
    }
}

async fn write(desired: &Service, ctx: &Context) -> Result<Option<Service>, apply::Error> {
    let strays = |applied: &Service| strays(desired, applied);
    let before = ctx.caches.services.before_write();
    let applied = ctx.writer.apply(CONTROLLER, desired, strays).await?;
    ctx.caches.services.learn(before, applied.clone());
    Ok(Some(applied))
}

/// Decides what a derived Service should be.
pub fn decide(observed: &Observed<'_>) -> Decision {
    let ours = |service: &Service| is_ours(service, observed.name);
    if observed.actual.is_some_and(|actual| !ours(actual)) {
        return Decision::Clash;
    }
    let import = observed
        .import
        .filter(|import| is_servable(observed, import));
    match (import, observed.actual) {
        (None, None) => Decision::Leave,
        (None, Some(_)) => Decision::Delete,
        (Some(import), None) => Decision::Apply(Box::new(build(observed.name, import))),
        (Some(_), Some(actual)) if actual.metadata.deletion_timestamp.is_some() => Decision::Leave,
        (Some(import), Some(actual)) => {
            let mut desired = build(observed.name, import);
            if is_headless(&desired) != is_headless(actual) || !is_owned_by(actual, import) {
                return Decision::Recreate(Box::new(desired));
            }
            desired.metadata.uid = actual.uid();
            Decision::Apply(Box::new(desired))
        }
    }
}

/// Whether this cluster can serve an import: in a global namespace, with a family that it has and, unless headless, a port.
fn is_servable(observed: &Observed<'_>, import: &ServiceImport) -> bool {
    let families = import.annotations().get(keys::SUPPORTED_IP_FAMILIES);
    let no_family = families.is_some_and(String::is_empty);
    let headless = import.spec.type_ == ImportType::Headless.as_str();
    observed.namespace_global
        && !no_family
        && import.metadata.deletion_timestamp.is_none()
        && (headless || !import.spec.ports.is_empty())
}

/// The derived Service of an import.
///
/// It has no selector, so that Kubernetes makes no slices for it; endpoints are matched by port name, so target ports do not
/// matter and are what the API server would fill in.
pub fn build(name: &NamespacedName, import: &ServiceImport) -> Service {
    let spec = &import.spec;
    let derived = name.derived();
    let mut labels = owned(import.metadata.labels.as_ref());
    labels.insert(keys::SERVICE_NAME.to_owned(), name.name.to_string());
    let mut annotations = owned(import.metadata.annotations.as_ref());
    annotations.insert(keys::GLOBAL.to_owned(), "true".to_owned());
    annotations.insert(keys::DERIVED_SERVICE.to_owned(), derived.name.to_string());
    restrictions::admit(&mut annotations);
    let headless = spec.type_ == ImportType::Headless.as_str();
    let policy = spec.internal_traffic_policy.as_deref();
    let affinity = spec
        .session_affinity
        .as_deref()
        .and_then(SessionAffinity::parse);
    let affinity = affinity
        .filter(|_| !headless && !mutant::is(Mutant::AffinityNotDerived))
        .unwrap_or(SessionAffinity::None);
    Service {
        metadata: ObjectMeta {
            namespace: Some(derived.namespace.to_string()),
            name: Some(derived.name.to_string()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: controlled_by(import),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: (headless && !mutant::is(Mutant::HeadlessWithIps))
                .then(|| HEADLESS.to_owned()),
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ports: Some(representable(&spec.ports).map(build_port).collect()),
            internal_traffic_policy: Some(
                policy
                    .unwrap_or(InternalTrafficPolicy::Cluster.as_str())
                    .to_owned(),
            ),
            traffic_distribution: spec.traffic_distribution.clone(),
            session_affinity: Some(affinity.to_string()),
            session_affinity_config: affinity_config(affinity, import),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn affinity_config(
    affinity: SessionAffinity,
    import: &ServiceImport,
) -> Option<SessionAffinityConfig> {
    let config = import.spec.session_affinity_config.as_ref();
    let client_ip = config.and_then(|config| config.client_ip.as_ref());
    let stated = client_ip.and_then(|client_ip| client_ip.timeout_seconds);
    match affinity {
        SessionAffinity::None => None,
        SessionAffinity::ClientIp => Some(SessionAffinityConfig {
            client_ip: Some(ClientIPConfig {
                timeout_seconds: Some(stated.unwrap_or(SESSION_TIMEOUT_DEFAULT)),
            }),
        }),
    }
}

/// The ports that one Service can have: Kubernetes wants a name for each of several. Those that go with the first stay, since
/// it comes from the oldest export.
fn representable(ports: &[ImportPort]) -> impl Iterator<Item = &ImportPort> {
    let first_is_unnamed = ports.first().is_some_and(|port| port.name.is_none());
    ports
        .iter()
        .enumerate()
        .filter(move |(index, port)| {
            if first_is_unnamed {
                *index == 0
            } else {
                port.name.is_some()
            }
        })
        .map(|(_, port)| port)
}

fn build_port(port: &ImportPort) -> ServicePort {
    ServicePort {
        name: port.name.clone(),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
        port: port.port,
        target_port: Some(IntOrString::Int(port.port)),
        node_port: None,
    }
}

/// Whether a Service was derived from the import of this name, by us or by Cilium.
fn is_ours(service: &Service, name: &NamespacedName) -> bool {
    let label = service.labels().get(keys::SERVICE_NAME);
    let owned = service
        .owner_references()
        .iter()
        .any(|owner| owner.kind == ServiceImport::kind(&()) && owner.name == name.name.as_str());
    owned || label.is_some_and(|label| label == name.name.as_str())
}

/// Whether a Service lives and dies with this import, or with none (then the reference is mended).
fn is_owned_by(service: &Service, import: &ServiceImport) -> bool {
    let other = |owner: &OwnerReference| {
        owner.kind == ServiceImport::kind(&()) && import.uid().is_none_or(|uid| uid != owner.uid)
    };
    !service.owner_references().iter().any(other)
}

fn is_headless(service: &Service) -> bool {
    let ip = service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref());
    ip == Some(HEADLESS)
}

/// What of a Service is ours to say, in a form that can be compared.
#[derive(Debug, PartialEq)]
struct Owned {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_uids: Vec<String>,
    ports: BTreeMap<(i32, String), ServicePort>,
    rest: Value,
}

impl Owned {
    fn of(service: &Service) -> Self {
        let spec = service.spec.clone().unwrap_or_default();
        let keyed = |port: ServicePort| {
            let protocol = port.protocol.clone().unwrap_or_default();
            ((port.port, protocol), port)
        };
        let selector = spec.selector.filter(|selector| !selector.is_empty());
        let rest = json!([
            spec.type_,
            spec.ip_family_policy,
            selector,
            spec.internal_traffic_policy,
            spec.traffic_distribution,
            spec.session_affinity,
            spec.session_affinity_config,
        ]);
        let owners = service
            .owner_references()
            .iter()
            .map(|owner| owner.uid.clone());
        Self {
            labels: service.labels().clone(),
            annotations: service.annotations().clone(),
            owner_uids: owners.collect(),
            ports: spec.ports.into_iter().flatten().map(keyed).collect(),
            rest,
        }
    }
}

fn is_same(desired: &Service, actual: &Service) -> bool {
    Owned::of(desired) == Owned::of(actual)
}

fn strays(desired: &Service, actual: &Service) -> Option<Value> {
    let (wanted, present) = (Owned::of(desired), Owned::of(actual));
    if wanted == present {
        return None;
    }
    let mut patch = json!({});
    for key in present
        .labels
        .keys()
        .filter(|key| !wanted.labels.contains_key(*key))
    {
        patch["metadata"]["labels"][key] = Value::Null;
    }
    for key in present
        .annotations
        .keys()
        .filter(|key| !wanted.annotations.contains_key(*key))
    {
        patch["metadata"]["annotations"][key] = Value::Null;
    }
    if wanted.owner_uids != present.owner_uids {
        patch["metadata"]["ownerReferences"] = json!(desired.owner_references());
    }
    if wanted.ports != present.ports {
        patch["spec"]["ports"] = json!(wanted.ports.values().collect::<Vec<_>>());
    }
    let (wanted, present) = (json!(desired.spec), json!(actual.spec));
    for field in ["selector", "trafficDistribution", "sessionAffinityConfig"] {
        if wanted.get(field).is_none() && present.get(field).is_some() {
            patch["spec"][field] = Value::Null;
        }
    }
    (patch != json!({})).then_some(patch)
}

fn clash() -> Announcement {
    Announcement {
        warning: true,
        reason: "DerivedServiceNameTaken",
        action: "DeriveService",
        note: "This Service has the name of a derived Service but is not one; it is left alone, and the ServiceImport gets no virtual IP. Rename it.".to_owned(),
    }
}

#[cfg(test)]
#[path = "derived_service_tests.rs"]
mod tests;
