//! What a namespace held when a case failed. Reads only; what cannot be read is said in its place.

use std::fmt::Write as _;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Service, discovery::v1::EndpointSlice},
};
use kube::{Resource, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};

use crate::context::Context;

/// The exports, imports, Services and EndpointSlices of the case's namespace in every cluster, as YAML documents.
pub async fn collect(ctx: &Context) -> String {
    let mut text = String::new();
    for cluster in ctx.everywhere() {
        let name = &ctx.clusters[cluster].name;
        // Writing into a String cannot fail.
        let _ = writeln!(text, "# cluster {name}, namespace {}", ctx.namespace());
        text += &objects::<ServiceExport>(ctx, cluster).await;
        text += &objects::<ServiceImport>(ctx, cluster).await;
        text += &objects::<Service>(ctx, cluster).await;
        text += &objects::<EndpointSlice>(ctx, cluster).await;
    }
    text
}

async fn objects<K>(ctx: &Context, cluster: usize) -> String
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let list = match ctx.api::<K>(cluster).list(&ListParams::default()).await {
        Ok(list) => list,
        Err(error) => return format!("# {}: {error}\n", K::plural(&())),
    };
    let mut text = String::new();
    for mut object in list.items {
        object.meta_mut().managed_fields = None;
        let yaml = match serde_saphyr::to_string(&object) {
            Ok(yaml) => yaml,
            Err(error) => format!("# {error}\n"),
        };
        let _ = writeln!(text, "--- # {}\n{yaml}", K::kind(&()));
    }
    text
}
