//! Whether an import says truly that EndpointSlices of it are there.

use k8s_openapi::api::core::v1::Service;
use tombolo_api::conditions::READY;

use super::{slices::imported, state::add_pod};
use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    cases::importing::content::listing,
    context::Context,
    expect::Seen,
    objects::{self, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "endpoints/presence",
        title: "The import of a ClusterIP Service says whether EndpointSlices are there, and it is true",
        rules: &[Rule(39)],
        features: &[Feature::Backends],
        upstream: None,
        bugs: &[Bug("BC-105", "kubernetes/enhancements@ab7b1889e")],
        fails_first: "the import says what is there",
        run: |ctx| Box::pin(presence(ctx, objects::service(upstream_ports()))),
    },
    Case {
        id: "endpoints/presence-headless",
        title: "The import of a headless Service says whether EndpointSlices are there, and it is true",
        rules: &[Rule(39)],
        features: &[Feature::Backends],
        upstream: None,
        bugs: &[Bug("BC-105", "kubernetes/enhancements@ab7b1889e")],
        fails_first: "the import says what is there",
        run: |ctx| Box::pin(presence(ctx, objects::headless(upstream_ports()))),
    },
];

async fn presence(ctx: &Context, service: Service) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;

    exported_and_true(ctx, service).await
}

/// Exports a Service of both clusters, which has pods in both, and checks what the imports say.
pub(super) async fn exported_and_true(ctx: &Context, service: Service) -> Outcome {
    let (_, first) = ctx.export(0, service.clone()).await?;
    ctx.export_later(1, service, &first).await?;

    for cluster in ctx.everywhere() {
        let step = "the import says what is there";
        let expected =
            "endpointSliceObjects Present with slices of both exporters, or Absent without any";
        ctx.until(step, cluster, expected, || says_truth(ctx, cluster))
            .await?;
    }
    let step = "it goes on to say so";
    ctx.stays_in(step, ctx.everywhere(), "the same", |cluster| {
        says_truth(ctx, cluster)
    })
    .await
}

/// An import that is still being made says nothing yet: that slices are absent counts once it is ready.
async fn says_truth(ctx: &Context, cluster: usize) -> Result<(), Seen> {
    let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
    listing(2)(&import)?;
    let status = import.status.unwrap_or_default();
    let ready = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == READY && condition.status == "True");
    let said = status.endpoint_slice_objects;
    let slices = imported(ctx, cluster).await?;
    match (said.as_deref(), slices.len()) {
        (Some("Present"), 2..) => Ok(()),
        (Some("Absent"), 0) if ready => Ok(()),
        (_, number) => Err(format!(
            "endpointSliceObjects {said:?}, {number} EndpointSlices, ready: {ready}"
        )
        .into()),
    }
}
