//! What a Service of type ClusterIP cannot have, although a peer may export it or somebody may set it.
//!
//! The API server refuses every write of a Service that has it, also one that would put the rest right. Kubernetes 1.36,
//! `apis/core/validation`, `validateService`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::{Value, json};
use tombolo_api::v1beta1::ServiceImport;

use super::super::apply::{self, Announcement};

/// Annotation that only Services of type LoadBalancer may have. Kubernetes.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Annotation that asks for topology aware routing. Kubernetes.
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// Older spelling of [`TOPOLOGY_MODE`]; where both are, they must be equal.
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

/// Takes out the annotations that a derived Service cannot have.
pub(super) fn admit(annotations: &mut BTreeMap<String, String>) {
    for key in refused(annotations) {
        annotations.remove(key);
    }
}

/// The keys of those annotations that the API server would refuse, each with its rule in mind.
fn refused(annotations: &BTreeMap<String, String>) -> Vec<&'static str> {
    let mut refused = Vec::new();
    if annotations.contains_key(SOURCE_RANGES) {
        refused.push(SOURCE_RANGES);
    }
    let (mode, hints) = (
        annotations.get(TOPOLOGY_MODE),
        annotations.get(TOPOLOGY_HINTS),
    );
    if mode.is_some() && hints.is_some() && mode != hints {
        refused.push(TOPOLOGY_HINTS);
    }
    refused
}

/// A patch that takes off `actual` what would make the API server refuse `desired`; none when there is nothing.
pub(super) fn obstacles(desired: &Service, actual: &Service) -> Option<Value> {
    let mut patch = json!({});
    for key in [SOURCE_RANGES, TOPOLOGY_MODE, TOPOLOGY_HINTS] {
        if actual.annotations().contains_key(key) && !desired.annotations().contains_key(key) {
            patch["metadata"]["annotations"][key] = Value::Null;
        }
    }
    let spec = actual.spec.as_ref();
    if spec.is_some_and(|spec| spec.load_balancer_source_ranges.is_some()) {
        patch["spec"]["loadBalancerSourceRanges"] = Value::Null;
    }
    (patch != json!({})).then_some(patch)
}

/// What people should know when annotations of an import cannot be on its derived Service.
pub(super) fn withheld(import: &ServiceImport) -> Option<Announcement> {
    let refused = refused(import.annotations());
    (!refused.is_empty()).then(|| Announcement {
        warning: true,
        reason: "AnnotationsNotDerived",
        action: "DeriveService",
        note: format!(
            "The derived Service goes without annotations that the API server refuses on a Service of type ClusterIP: {}. Take them out of spec.exportedAnnotations of the ServiceExport in the oldest exporting cluster.",
            refused.join(", ")
        ),
    })
}

/// What people should know when the API server refuses the derived Service; none when it was just not to be reached.
pub(super) fn refusal(error: &apply::Error) -> Option<Announcement> {
    error.refusal().map(|said| Announcement {
        warning: true,
        reason: "DerivedServiceRefused",
        action: "DeriveService",
        note: format!(
            "The API server refuses the derived Service, so this import has no virtual IP: {said}. Look for a quota, a policy or an admission webhook in this namespace; it is tried again."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testkit::object;

    /// What is exported, and the keys that are left of it.
    type Case = (
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
    );

    fn annotated(annotations: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        annotations.iter().map(owned).collect()
    }

    #[test]
    fn annotations_that_a_cluster_ip_service_cannot_have_are_taken_out() {
        let cases: [Case; 5] = [
            (&[("team", "pay")], &["team"]),
            (&[(SOURCE_RANGES, "10.0.0.0/8"), ("team", "pay")], &["team"]),
            (
                &[(TOPOLOGY_MODE, "Auto"), (TOPOLOGY_HINTS, "auto")],
                &[TOPOLOGY_MODE],
            ),
            (
                &[(TOPOLOGY_MODE, "Auto"), (TOPOLOGY_HINTS, "Auto")],
                &[TOPOLOGY_HINTS, TOPOLOGY_MODE],
            ),
            (&[(TOPOLOGY_HINTS, "Auto")], &[TOPOLOGY_HINTS]),
        ];

        for (exported, left) in cases {
            let mut annotations = annotated(exported);
            admit(&mut annotations);
            assert!(annotations.keys().eq(left), "{exported:?}: {annotations:?}");
        }
    }

    #[test]
    fn what_stands_in_the_way_is_taken_off_first_and_nothing_else() {
        let desired: Service = object(
            "{metadata: {annotations: {service.kubernetes.io/topology-mode: Auto}}, spec: {}}",
        );
        let free: Service =
            object("{metadata: {annotations: {other: '1'}}, spec: {type: NodePort}}");
        let blocked: Service = object(
            "
metadata:
  annotations:
    other: '1'
    service.kubernetes.io/topology-mode: Disabled
    service.kubernetes.io/topology-aware-hints: Disabled
    service.beta.kubernetes.io/load-balancer-source-ranges: 10.0.0.0/8
spec: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8]}
",
        );

        assert_eq!(obstacles(&desired, &free), None);
        assert_eq!(
            obstacles(&desired, &blocked),
            Some(json!({
                "metadata": { "annotations": { SOURCE_RANGES: null, TOPOLOGY_HINTS: null } },
                "spec": { "loadBalancerSourceRanges": null },
            }))
        );
    }
}
