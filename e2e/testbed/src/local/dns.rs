//! Cluster DNS: CoreDNS with the zones `cluster.local` and `clusterset.local`.

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};

use super::images::COREDNS_IMAGE;
use crate::api::Network;

/// Field manager of what the testbed applies.
const MANAGER: &str = "tombolo-testbed";

/// Creates the MCS-API's CRDs, without which CoreDNS does not become ready, and CoreDNS.
pub(super) async fn apply(client: &Client, network: Network) -> Result<(), kube::Error> {
    for crd in tombolo_api::crds::ALL {
        apply_documents(client, crd).await?;
    }
    let [v4, v6] = network.dns();
    let text = include_str!("coredns.yaml")
        .replace("COREDNS_IMAGE", COREDNS_IMAGE)
        .replace("DNS_V4", &v4)
        .replace("DNS_V6", &v6);
    apply_documents(client, &text).await
}

/// Gives a cluster that has a CoreDNS the zones and rights of the same: only what CoreDNS is told, not how it runs.
pub(crate) async fn configure(client: &Client) -> Result<(), kube::Error> {
    for crd in tombolo_api::crds::ALL {
        apply_documents(client, crd).await?;
    }
    for document in include_str!("coredns.yaml").split("\n---\n") {
        let kind = documents(document)[0]
            .types
            .clone()
            .unwrap_or_default()
            .kind;
        if ["ClusterRole", "ConfigMap"].contains(&kind.as_str()) {
            apply_documents(client, document).await?;
        }
    }
    Ok(())
}

async fn apply_documents(client: &Client, text: &str) -> Result<(), kube::Error> {
    for object in documents(text) {
        let kind = object.types.clone().unwrap_or_default();
        let resource = ApiResource::from_gvk(&group_version_kind(&kind));
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch(&name, &parameters, &Patch::Apply(&object))
            .await?;
    }
    Ok(())
}

/// The objects of a file of this project.
fn documents(text: &str) -> Vec<DynamicObject> {
    let texts = text.split("\n---\n");
    let parsed = texts.map(|text| {
        serde_saphyr::from_str::<DynamicObject>(text)
            .expect("invariant: manifests of the testbed are objects, a test reads them")
    });
    parsed.collect()
}

fn group_version_kind(types: &TypeMeta) -> GroupVersionKind {
    let (group, version) = types
        .api_version
        .rsplit_once('/')
        .unwrap_or(("", &types.api_version));
    GroupVersionKind::gvk(group, version, &types.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_an_object_with_a_kind() {
        let objects = documents(include_str!("coredns.yaml"));

        let kinds: Vec<_> = objects
            .iter()
            .map(|it| group_version_kind(it.types.as_ref().unwrap()).kind)
            .collect();
        assert_eq!(kinds.last().unwrap(), "Service");
        assert_eq!(kinds.len(), 6);
        for crd in tombolo_api::crds::ALL {
            let types = documents(crd)[0].types.clone().unwrap();
            assert_eq!(group_version_kind(&types).group, "apiextensions.k8s.io");
        }
    }
}
