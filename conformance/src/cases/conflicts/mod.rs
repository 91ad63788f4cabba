//! Exports that disagree: who wins, what is said, and how it ends.

pub mod ports;
pub mod precedence;
pub mod settings;
pub mod timing;

use kube::ResourceExt as _;
use serde_json::json;
use tombolo_api::{
    conditions::{
        CONFLICT, REASON_NO_CONFLICTS, REASON_PORT_CONFLICT, REASON_TYPE_CONFLICT, VALID,
    },
    v1beta1::ServiceImport,
};

use crate::{
    bugs::Bug,
    case::{Case, Failure, Outcome},
    cases::importing::life::{Imported, imported},
    context::Context,
    expect::{describe, of_type, with_ports},
    objects::{self, port, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "conflicts/port-union",
        title: "Differing ports give an import with the union of them and PortConflict on both exports",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(145)],
        features: &[],
        upstream: Some("I12"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(port_union(ctx)),
    },
    Case {
        id: "conflicts/port-number",
        title: "One port name with two numbers: the oldest export's number stays, PortConflict on both exports",
        rules: &[
            Rule(140),
            Rule(141),
            Rule(142),
            Rule(144),
            Rule(147),
            Rule(148),
        ],
        features: &[],
        upstream: Some("I13"),
        bugs: &[
            Bug("BC-03", "cilium#43251"),
            Bug("BC-04", "lighthouse@3136b91"),
        ],
        fails_first: "the import appears",
        run: |ctx| Box::pin(port_number(ctx)),
    },
    Case {
        id: "conflicts/port-name",
        title: "One port number with two names: the oldest export's name stays, PortConflict on both exports",
        rules: &[
            Rule(140),
            Rule(141),
            Rule(142),
            Rule(144),
            Rule(147),
            Rule(148),
        ],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(port_name(ctx)),
    },
    Case {
        id: "conflicts/headlessness",
        title: "A younger headless export does not change the type, TypeConflict on both exports",
        rules: &[Rule(140), Rule(141), Rule(142), Rule(144), Rule(149)],
        features: &[],
        upstream: Some("T1"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(headlessness(ctx)),
    },
    Case {
        id: "conflicts/oldest-not-first-cluster",
        title: "The oldest export wins from whichever cluster it comes",
        rules: &[Rule(141), Rule(144), Rule(149)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(oldest_not_first_cluster(ctx)),
    },
    Case {
        id: "conflicts/resolved",
        title: "When the exports agree again, the conflict is taken back on both",
        rules: &[Rule(140), Rule(155)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(resolved(ctx)),
    },
    Case {
        id: "conflicts/withdrawn",
        title: "When the oldest export goes, the conflict is taken back on the other",
        rules: &[Rule(34), Rule(155)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(withdrawn(ctx)),
    },
];

const BOTH: [usize; 2] = [0, 1];

/// Exports a ClusterIP Service from the first cluster, waits for the imports, then exports something else from the second.
async fn disagree(
    ctx: &Context,
    first: k8s_openapi::api::core::v1::Service,
    second: k8s_openapi::api::core::v1::Service,
) -> Result<Vec<ServiceImport>, Failure> {
    let Imported {
        export: oldest,
        imports,
        ..
    } = imported(ctx, first, "ClusterSetIP").await?;
    ctx.export_later(1, second, &oldest).await?;
    Ok(imports)
}

async fn in_conflict(ctx: &Context, reason: &str) -> Outcome {
    let step = "both exports are in conflict";
    ctx.conditions_until(step, BOTH, (CONFLICT, "True"), Some(reason))
        .await?;
    // A conflict says nothing about whether the export is acceptable.
    ctx.conditions_until("both exports are valid", BOTH, (VALID, "True"), None)
        .await
}

async fn conflict_is_over(ctx: &Context, clusters: &[usize]) -> Outcome {
    let calm = (CONFLICT, "False");
    let reason = Some(REASON_NO_CONFLICTS);
    ctx.conditions_until(
        "the conflict is over",
        clusters.iter().copied(),
        calm,
        reason,
    )
    .await
}

/// Fails where an import was replaced, or got another type.
fn undisturbed(ctx: &Context, before: &[ServiceImport], after: &[ServiceImport]) -> Outcome {
    for (cluster, (before, after)) in before.iter().zip(after).enumerate() {
        if before.uid() != after.uid() || before.spec.type_ != after.spec.type_ {
            let step = "the conflict does not disturb the import";
            return Err(ctx.failure(step, cluster, describe(before), describe(after)));
        }
    }
    Ok(())
}

async fn port_union(ctx: &Context) -> Outcome {
    let second = objects::service(vec![port("tcp", "TCP", 42), port("stcp", "SCTP", 142)]);
    let before = disagree(ctx, objects::service(upstream_ports()), second).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    let union = ["tcp 42/TCP", "udp 42/UDP", "stcp 142/SCTP"]
        .map(str::to_owned)
        .to_vec();
    let step = "the import has the union of the ports";
    let after = ctx
        .imports_until(step, ctx.everywhere(), "the union", with_ports(union))
        .await?;
    undisturbed(ctx, &before, &after)
}

async fn port_number(ctx: &Context) -> Outcome {
    let second = objects::service(vec![port("tcp", "TCP", 43)]);
    let before = disagree(ctx, objects::service(upstream_ports()), second).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    oldest_ports_stay(ctx, &before).await
}

async fn port_name(ctx: &Context) -> Outcome {
    let second = objects::service(vec![port("web", "TCP", 42), port("udp", "UDP", 42)]);
    let before = disagree(ctx, objects::service(upstream_ports()), second).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    oldest_ports_stay(ctx, &before).await
}

async fn oldest_ports_stay(ctx: &Context, before: &[ServiceImport]) -> Outcome {
    let oldest = ["tcp 42/TCP", "udp 42/UDP"].map(str::to_owned).to_vec();
    let step = "the import has the oldest export's ports";
    let accept = with_ports(oldest);
    let after = ctx
        .imports_until(step, ctx.everywhere(), "the oldest export's ports", accept)
        .await?;
    undisturbed(ctx, before, &after)
}

async fn headlessness(ctx: &Context) -> Outcome {
    let second = objects::headless(upstream_ports());
    let before = disagree(ctx, objects::service(upstream_ports()), second).await?;

    in_conflict(ctx, REASON_TYPE_CONFLICT).await?;
    let step = "the import is still of the oldest export's type";
    let accept = of_type("ClusterSetIP");
    let after = ctx
        .imports_until(step, ctx.everywhere(), "type ClusterSetIP", accept)
        .await?;
    undisturbed(ctx, &before, &after)
}

async fn oldest_not_first_cluster(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (_, oldest) = ctx.export(1, objects::headless(upstream_ports())).await?;
    ctx.imports_until(
        "the import appears",
        ctx.everywhere(),
        "type Headless",
        of_type("Headless"),
    )
    .await?;

    ctx.export_later(0, objects::service(upstream_ports()), &oldest)
        .await?;

    in_conflict(ctx, REASON_TYPE_CONFLICT).await?;
    let step = "the import is still of the oldest export's type";
    let expected = "type Headless";
    ctx.imports_until(step, ctx.everywhere(), expected, of_type("Headless"))
        .await
        .map(|_| ())
}

async fn resolved(ctx: &Context) -> Outcome {
    let second = objects::service(vec![port("tcp", "TCP", 43)]);
    let before = disagree(ctx, objects::service(upstream_ports()), second).await?;
    in_conflict(ctx, REASON_PORT_CONFLICT).await?;

    ctx.patch_service(1, &json!({ "spec": { "ports": upstream_ports() } }))
        .await?;

    conflict_is_over(ctx, &BOTH).await?;
    oldest_ports_stay(ctx, &before).await
}

async fn withdrawn(ctx: &Context) -> Outcome {
    let second = objects::service(vec![port("tcp", "TCP", 43)]);
    let before = disagree(ctx, objects::service(upstream_ports()), second).await?;
    in_conflict(ctx, REASON_PORT_CONFLICT).await?;

    ctx.unexport(0).await?;

    conflict_is_over(ctx, &[1]).await?;
    ctx.imports_stay("the import stays", &before).await
}
