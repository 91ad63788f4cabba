//! Where traffic goes for ports that share something, or have no name.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tombolo_api::conditions::{CONFLICT, REASON_PORT_CONFLICT};

use super::{
    state::{Target, add_pod, targets, targets_at, traffic_until},
    traffic::NEEDS,
};
use crate::{
    bugs::Bug,
    case::{Case, Outcome},
    context::Context,
    expect::with_ports,
    objects::{self, port, unnamed},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "endpoints/shared-target",
        title: "Two ports of a Service with one target port both lead to its pods",
        rules: &[Rule(15), Rule(63)],
        features: NEEDS,
        upstream: None,
        bugs: &[Bug("BC-01", "cilium#45109")],
        fails_first: "both ports lead to the pods",
        run: |ctx| Box::pin(shared_target(ctx)),
    },
    Case {
        id: "endpoints/unnamed-port",
        title: "The only port of a Service needs no name",
        rules: &[Rule(15), Rule(63)],
        features: NEEDS,
        upstream: None,
        bugs: &[Bug("BC-02", "cilium#40848")],
        fails_first: "the import has the port without a name",
        run: |ctx| Box::pin(unnamed_port(ctx)),
    },
    Case {
        id: "endpoints/port-each",
        title: "Two clusters with a port each: the import has both, and each leads to its cluster only",
        rules: &[Rule(140), Rule(145), Rule(146)],
        features: NEEDS,
        upstream: None,
        bugs: &[Bug("BC-05", "mcs-api@ee95747")],
        fails_first: "both exports are in conflict",
        run: |ctx| Box::pin(port_each(ctx)),
    },
];

async fn shared_target(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let ports = [("http", 80), ("http-alt", 81)].map(|(name, number)| {
        let mut shared = port(name, "TCP", number);
        shared.target_port = Some(IntOrString::Int(8080));
        shared
    });

    let service = objects::service(ports.to_vec());
    let (_, first) = ctx.export(0, service.clone()).await?;
    ctx.export_later(1, service, &first).await?;

    let both = [(0, 1), (1, 1)];
    let wanted =
        &targets_at(&both, ("http", "TCP"), 8080) | &targets_at(&both, ("http-alt", "TCP"), 8080);
    traffic_until(ctx, "both ports lead to the pods", &wanted).await
}

async fn unnamed_port(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;

    ctx.export(0, objects::service(vec![unnamed("TCP", 80)]))
        .await?;

    let step = "the import has the port without a name";
    let accept = with_ports(vec!["80/TCP".to_owned()]);
    ctx.imports_until(step, ctx.everywhere(), "port 80/TCP", accept)
        .await?;
    let wanted = targets(&[(0, 1)], ("", "TCP", 80));
    traffic_until(ctx, "the port leads to the pod", &wanted).await
}

async fn port_each(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let (_, first) = ctx
        .export(0, objects::service(vec![port("tcp", "TCP", 42)]))
        .await?;

    ctx.export_later(1, objects::service(vec![port("tcp2", "TCP", 4242)]), &first)
        .await?;

    let step = "both exports are in conflict";
    let reason = Some(REASON_PORT_CONFLICT);
    ctx.conditions_until(step, [0, 1], (CONFLICT, "True"), reason)
        .await?;
    let step = "the import has both ports";
    let both = vec!["tcp 42/TCP".to_owned(), "tcp2 4242/TCP".to_owned()];
    ctx.imports_until(step, ctx.everywhere(), "both ports", with_ports(both))
        .await?;
    let mut wanted: BTreeSet<Target> = targets(&[(0, 1)], ("tcp", "TCP", 42));
    wanted.extend(targets(&[(1, 1)], ("tcp2", "TCP", 4242)));
    traffic_until(ctx, "each port leads to its cluster", &wanted).await
}
