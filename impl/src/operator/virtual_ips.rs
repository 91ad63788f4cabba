//! What a ServiceImport says of its derived Service: its name, in an annotation, and its virtual IPs, in `spec.ips`.
//!
//! Part of the derived Service controller, and written under its field manager. It must never touch another field of the import.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_core::families;

use crate::operator::{
    apply::{self, Controller},
    context::Context,
};

const CONTROLLER: Controller = Controller::DerivedService;

/// Writes the name and the IPs of the derived Service into the import; takes them out when there is none.
pub(super) async fn offer(
    import: &ServiceImport,
    service: Option<&Service>,
    ctx: &Context,
) -> Result<(), apply::Error> {
    let offer = service.map(|service| Offer::of(import, service));
    if offer.as_ref().is_some_and(|offer| offer.is_in(import))
        || (offer.is_none() && !has_offer(import))
    {
        return Ok(());
    }
    let body = offer_body(import, offer.as_ref());
    let strays = |applied: &ServiceImport| (offer.is_none() && has_offer(applied)).then(no_offer);
    let before = ctx.caches.imports.before_write();
    let applied = ctx
        .writer
        .apply_fields(CONTROLLER, import, &body, strays)
        .await?;
    ctx.caches.imports.learn(before, applied);
    Ok(())
}

/// What an import says of its derived Service.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer {
    /// Name of the derived Service.
    pub derived: String,
    /// Its virtual IPs; none when it is headless.
    pub ips: Vec<String>,
}

impl Offer {
    /// What an import says when `service` is its derived Service.
    pub fn of(import: &ServiceImport, service: &Service) -> Self {
        let spec = service.spec.as_ref();
        let cluster_ips = spec.and_then(|spec| spec.cluster_ips.as_ref());
        let parsed = cluster_ips
            .into_iter()
            .flatten()
            .filter_map(|ip| ip.parse().ok());
        let cluster_ips: Vec<IpAddr> = parsed.collect();
        let annotation = import.annotations().get(keys::SUPPORTED_IP_FAMILIES);
        let supported = annotation.and_then(|text| families::from_annotation(text));
        let ips = families::import_ips(&cluster_ips, supported.as_deref());
        Self {
            derived: service.name_any(),
            ips: ips.iter().map(ToString::to_string).collect(),
        }
    }

    fn is_in(&self, import: &ServiceImport) -> bool {
        let annotation = import.annotations().get(keys::DERIVED_SERVICE);
        annotation == Some(&self.derived) && import.spec.ips.clone().unwrap_or_default() == self.ips
    }
}

fn has_offer(import: &ServiceImport) -> bool {
    let ips = import.spec.ips.as_ref();
    import.annotations().contains_key(keys::DERIVED_SERVICE)
        || ips.is_some_and(|ips| !ips.is_empty())
}

fn offer_body(import: &ServiceImport, offer: Option<&Offer>) -> Value {
    let mut body = json!({
        "apiVersion": ServiceImport::api_version(&()),
        "kind": ServiceImport::kind(&()),
        "metadata": { "name": import.name_any(), "uid": import.uid() },
    });
    if let Some(offer) = offer {
        body["metadata"]["annotations"][keys::DERIVED_SERVICE] = json!(offer.derived);
        if !offer.ips.is_empty() {
            body["spec"]["ips"] = json!(offer.ips);
        }
    }
    body
}

fn no_offer() -> Value {
    json!({
        "metadata": { "annotations": { keys::DERIVED_SERVICE: null } },
        "spec": { "ips": null },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testkit::object;

    fn import(kind: &str) -> ServiceImport {
        object(&format!(
            "
metadata:
  {{name: web, namespace: shop, uid: import-1, annotations: {{clustermesh.cilium.io/supported-ip-families: 'IPv6,IPv4'}}}}
spec: {{type: {kind}, ports: [{{name: http, port: 80}}]}}
"
        ))
    }

    fn derived(cluster_ips: &str) -> Service {
        object(&format!(
            "{{metadata: {{name: derived-x, namespace: shop}}, spec: {{clusterIPs: {cluster_ips}}}}}"
        ))
    }

    #[test]
    fn the_import_offers_the_ips_in_the_order_of_its_families() {
        let import = import("ClusterSetIP");

        let offer = Offer::of(&import, &derived("[10.96.0.7, 'fd00:96::7']"));

        assert_eq!(offer.ips, ["fd00:96::7", "10.96.0.7"]);
        assert!(!offer.is_in(&import));
        let body = offer_body(&import, Some(&offer));
        assert_eq!(body["spec"]["ips"], json!(["fd00:96::7", "10.96.0.7"]));
        assert_eq!(body["metadata"]["uid"], "import-1");
    }

    #[test]
    fn a_headless_import_offers_no_ips() {
        let import = import("Headless");

        let offer = Offer::of(&import, &derived("[None]"));

        assert!(offer.ips.is_empty());
        assert!(offer_body(&import, Some(&offer)).get("spec").is_none());
    }

    #[test]
    fn an_import_that_is_not_served_offers_nothing() {
        let mut import = import("ClusterSetIP");
        import.spec.ips = Some(vec!["10.96.0.7".to_owned()]);

        let body = offer_body(&import, None);

        assert!(has_offer(&import));
        assert!(body.get("spec").is_none());
        assert!(body["metadata"].get("annotations").is_none());
    }
}
