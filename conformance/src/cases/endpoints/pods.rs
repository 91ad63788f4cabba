//! EndpointSlices of pods that run. What the cases of [`super::slices`] and [`super::presence`] check with pods that nobody runs, for
//! clusters where they cannot be had.

use std::{collections::BTreeSet, net::IpAddr};

use kube::ResourceExt as _;
use tombolo_api::keys;

use super::{presence, slices::imported};
use crate::{
    case::{Case, Feature, Outcome},
    context::Context,
    expect::{Seen, of_type},
    objects::{self, HELLO, upstream_ports},
    rules::Rule,
    workloads::Server,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "endpoints/labels-of-pods",
        title: "Every cluster, the exporter too, has marked EndpointSlices of the exporter's running pods, which go with the export",
        rules: &[
            Rule(121),
            Rule(122),
            Rule(123),
            Rule(124),
            Rule(125),
            Rule(126),
            Rule(127),
        ],
        features: &[Feature::Workloads, Feature::EndpointSlices],
        upstream: Some("E1"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(labels(ctx)),
    },
    Case {
        id: "endpoints/presence-of-pods",
        title: "The import says whether EndpointSlices of running pods are there, and it is true",
        rules: &[Rule(39)],
        features: &[Feature::Workloads],
        upstream: None,
        bugs: &[],
        fails_first: "the import says what is there",
        run: |ctx| Box::pin(says_what_is_there(ctx)),
    },
];

async fn labels(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let servers = ctx.start_servers(0, 1).await?;

    ctx.export(0, objects::service(upstream_ports())).await?;

    let expected = "a ServiceImport of type ClusterSetIP";
    let step = "the import appears";
    let imports = ctx.imports_until(step, ctx.everywhere(), expected, of_type("ClusterSetIP"));
    imports.await?;
    for cluster in ctx.everywhere() {
        let step = "the slices of the running pods are there";
        let expected = "marked EndpointSlices with every address of the pod";
        let servers = &servers;
        ctx.until(step, cluster, expected, || marked(ctx, cluster, servers))
            .await?;
    }

    ctx.unexport(0).await?;
    for cluster in ctx.everywhere() {
        ctx.until(
            "the slices go",
            cluster,
            "no EndpointSlice",
            || async move {
                match imported(ctx, cluster).await?.len() {
                    0 => Ok(()),
                    left => Err(format!("{left} of them").into()),
                }
            },
        )
        .await?;
    }
    Ok(())
}

async fn marked(ctx: &Context, cluster: usize, servers: &[Server]) -> Result<(), Seen> {
    let slices = imported(ctx, cluster).await?;
    let mut found = BTreeSet::<IpAddr>::new();
    for slice in &slices {
        let manager = slice.labels().get(keys::MANAGED_BY).map(String::as_str);
        let name = slice.labels().get(keys::SERVICE_NAME).map(String::as_str);
        let kubernetes = [None, Some(keys::MANAGED_BY_KUBERNETES)].contains(&manager);
        // Kubernetes' own label would count them to the local Service.
        let local = slice.labels().get(keys::KUBERNETES_SERVICE_NAME);
        if kubernetes || name != Some(HELLO) || local.is_some_and(|it| it == HELLO) {
            return Err(format!("labels {:?}", slice.labels()).into());
        }
        let endpoints = slice.endpoints.iter().flatten();
        found.extend(
            endpoints
                .flat_map(|it| &it.addresses)
                .filter_map(|it| it.parse::<IpAddr>().ok()),
        );
    }
    let wanted = servers
        .iter()
        .flat_map(|it| &it.addresses)
        .copied()
        .collect();
    if found == wanted {
        return Ok(());
    }
    Err(format!("addresses {found:?}").into())
}

async fn says_what_is_there(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    futures::try_join!(ctx.start_servers(0, 1), ctx.start_servers(1, 1))?;

    presence::exported_and_true(ctx, objects::service(upstream_ports())).await
}
