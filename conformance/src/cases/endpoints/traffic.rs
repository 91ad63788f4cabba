//! Where traffic to an import would go, in every cluster.

use std::collections::BTreeSet;

use super::state::{Target, add_pod, pod, targets, traffic_until};
use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    context::Context,
    objects::{self, port, upstream_ports},
    rules::Rule,
};

pub(super) const NEEDS: &[Feature] = &[
    Feature::Backends,
    Feature::EndpointSlices,
    Feature::DerivedService,
];

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "endpoints/traffic",
        title: "In every cluster traffic goes exactly to the ready pods of both clusters, per port, and follows them",
        rules: &[Rule(12), Rule(15), Rule(41), Rule(63), Rule(122), Rule(144)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "traffic goes to the pods of the first cluster",
        run: |ctx| Box::pin(follows_pods(ctx)),
    },
    Case {
        id: "endpoints/not-exported",
        title: "Pods of a cluster that has the Service and no export get no traffic, not even from their own cluster",
        rules: &[Rule(13), Rule(63)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "traffic goes to the exporting cluster",
        run: |ctx| Box::pin(not_exported(ctx)),
    },
    Case {
        id: "endpoints/port-of-one",
        title: "Traffic to a port that one cluster exposes goes to that cluster only",
        rules: &[Rule(145), Rule(146)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "each port leads to its cluster",
        run: |ctx| Box::pin(port_of_one(ctx)),
    },
    Case {
        id: "endpoints/port-conflict",
        title: "Traffic to a disputed port goes to the cluster whose definition won",
        rules: &[Rule(142), Rule(146)],
        features: NEEDS,
        upstream: None,
        bugs: &[Bug("BC-03", "cilium#43251")],
        fails_first: "traffic goes to the pods of the first cluster",
        run: |ctx| Box::pin(port_conflict(ctx)),
    },
    Case {
        id: "endpoints/unexport",
        title: "When one of two clusters ends its export, its pods get no more traffic",
        rules: &[Rule(14), Rule(127)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "traffic goes to both clusters",
        run: |ctx| Box::pin(unexport(ctx)),
    },
];

const TCP: (&str, &str, i32) = ("tcp", "TCP", 42);
const UDP: (&str, &str, i32) = ("udp", "UDP", 42);

/// The targets of both ports of the upstream suite's Service.
fn both_ports(pods: &[(usize, usize)]) -> BTreeSet<Target> {
    &targets(pods, TCP) | &targets(pods, UDP)
}

async fn follows_pods(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 0, 2).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    let wanted = both_ports(&[(0, 1), (0, 2)]);
    traffic_until(
        ctx,
        "traffic goes to the pods of the first cluster",
        &wanted,
    )
    .await?;

    add_pod(ctx, 1, 1).await?;
    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;
    let wanted = both_ports(&[(0, 1), (0, 2), (1, 1)]);
    traffic_until(ctx, "traffic goes to the pods of both clusters", &wanted).await?;

    add_pod(ctx, 1, 2).await?;
    let wanted = both_ports(&[(0, 1), (0, 2), (1, 1), (1, 2)]);
    traffic_until(ctx, "an added pod gets traffic", &wanted).await?;

    ctx.set_ready(0, &pod(1), false).await?;
    let wanted = both_ports(&[(0, 2), (1, 1), (1, 2)]);
    traffic_until(ctx, "an unready pod gets no traffic", &wanted).await?;

    ctx.delete_pod(1, &pod(1)).await?;
    let wanted = both_ports(&[(0, 2), (1, 2)]);
    traffic_until(ctx, "a deleted pod gets no traffic", &wanted).await?;

    ctx.set_ready(0, &pod(1), true).await?;
    let wanted = both_ports(&[(0, 1), (0, 2), (1, 2)]);
    traffic_until(ctx, "a pod that is ready again gets traffic", &wanted).await?;

    for (cluster, number) in [(0, 1), (0, 2), (1, 2)] {
        ctx.delete_pod(cluster, &pod(number)).await?;
    }
    traffic_until(ctx, "without pods there is no target", &BTreeSet::new()).await
}

async fn not_exported(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let bystander = objects::service(upstream_ports());
    ctx.create("create the Service that is not exported", 1, &bystander)
        .await?;

    ctx.export(0, objects::service(upstream_ports())).await?;

    traffic_until(
        ctx,
        "traffic goes to the exporting cluster",
        &both_ports(&[(0, 1)]),
    )
    .await?;
    // Whatever the bystander's pods do, they are not part of the service.
    add_pod(ctx, 1, 2).await?;
    add_pod(ctx, 0, 2).await?;
    let wanted = both_ports(&[(0, 1), (0, 2)]);
    traffic_until(
        ctx,
        "traffic still goes to the exporting cluster only",
        &wanted,
    )
    .await
}

async fn port_of_one(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;

    let second = vec![port("tcp", "TCP", 42), port("extra", "TCP", 142)];
    ctx.export_later(1, objects::service(second), &first)
        .await?;

    let wanted = &targets(&[(0, 1), (1, 1)], TCP) | &targets(&[(0, 1)], UDP);
    let wanted = &wanted | &targets(&[(1, 1)], ("extra", "TCP", 142));
    traffic_until(ctx, "each port leads to its cluster", &wanted).await
}

async fn port_conflict(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    let before = both_ports(&[(0, 1)]);
    traffic_until(
        ctx,
        "traffic goes to the pods of the first cluster",
        &before,
    )
    .await?;

    let second = vec![port("tcp", "TCP", 43), port("udp", "UDP", 42)];
    ctx.export_later(1, objects::service(second), &first)
        .await?;

    let wanted = &targets(&[(0, 1)], TCP) | &targets(&[(0, 1), (1, 1)], UDP);
    traffic_until(
        ctx,
        "the disputed port still leads to the first cluster only",
        &wanted,
    )
    .await
}

async fn unexport(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;
    let wanted = both_ports(&[(0, 1), (1, 1)]);
    traffic_until(ctx, "traffic goes to both clusters", &wanted).await?;

    ctx.unexport(0).await?;

    let wanted = both_ports(&[(1, 1)]);
    traffic_until(
        ctx,
        "traffic goes to the cluster that still exports",
        &wanted,
    )
    .await
}
