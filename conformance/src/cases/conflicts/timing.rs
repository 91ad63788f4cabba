//! Exports of one second, and when conditions changed.

use futures::future::try_join;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use tombolo_api::{
    conditions::{
        CONFLICT, REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT, REASON_PORT_CONFLICT,
        REASON_TYPE_CONFLICT, VALID,
    },
    v1beta1::{ServiceExport, ServiceImport},
};

use super::{BOTH, in_conflict};
use crate::{
    case::{Case, Failure, Feature, Outcome},
    cases::importing::{
        content::{listed, listing},
        life::imported,
    },
    context::{Context, created},
    expect::of_type,
    objects::{self, HELLO, port, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "conflicts/tie-break",
        title: "Of two exports of the same second that of the lesser cluster name wins",
        rules: &[Rule(140), Rule(141), Rule(144)],
        features: &[Feature::TiesByName],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(tie_break(ctx)),
    },
    Case {
        id: "conflicts/transition-times",
        title: "The time of a condition stays while its status does, whatever else is written",
        rules: &[Rule(175)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(transition_times(ctx)),
    },
];

/// How often two exports are made before the clocks of the API servers are taken to differ.
const ATTEMPTS: usize = 20;

async fn tie_break(ctx: &Context) -> Outcome {
    let service = objects::service(upstream_ports());
    imported(ctx, service, "ClusterSetIP").await?;
    let step = "the exporter is listed";
    let import = ctx.import_until(step, 0, "one cluster", listing(1)).await?;
    let first = listed(&import).remove(0);
    ctx.unexport(0).await?;
    ctx.imports_gone("the import goes").await?;
    let headless = objects::headless(upstream_ports());
    ctx.create("create the Service", 1, &headless).await?;

    export_in_one_second(ctx).await?;

    in_conflict(ctx, REASON_TYPE_CONFLICT).await?;
    let step = "the lesser cluster name wins";
    let expected = "both clusters, and the type of the one whose name is the lesser";
    let accept = |import: &ServiceImport| {
        listing(2)(import)?;
        let first_is_lesser = listed(import)[0] == first;
        of_type(if first_is_lesser {
            "ClusterSetIP"
        } else {
            "Headless"
        })(import)
    };
    ctx.imports_until(step, ctx.everywhere(), expected, accept)
        .await
        .map(|_| ())
}

/// Exports from both clusters, again and again until both exports have the same creation time.
async fn export_in_one_second(ctx: &Context) -> Outcome {
    let export = objects::export();
    let mut seen = String::new();
    for _ in 0..ATTEMPTS {
        let exports = BOTH.map(|cluster| ctx.create("export", cluster, &export));
        let [first, second] = exports;
        let (first, second) = try_join(first, second).await?;
        let (first, second) = (created(&first), created(&second));
        if first == second {
            return Ok(());
        }
        seen = format!("{first:?} and {second:?}");
        try_join(gone(ctx, 0), gone(ctx, 1)).await?;
    }
    let expected = "two exports of the same second, by the clocks of both API servers";
    let failure = ctx.failure("export in one second", 1, expected, seen);
    Err(failure.of_set_up())
}

/// Deletes the export, and waits until it is gone.
async fn gone(ctx: &Context, cluster: usize) -> Outcome {
    ctx.unexport(cluster).await?;
    let exports = ctx.api::<ServiceExport>(cluster);
    let exports = &exports;
    let step = "the export goes";
    ctx.until(step, cluster, "no ServiceExport", || async move {
        match exports.get_opt(HELLO).await? {
            None => Ok(()),
            Some(_) => Err("a ServiceExport".into()),
        }
    })
    .await
}

async fn transition_times(ctx: &Context) -> Outcome {
    let service = objects::service(upstream_ports());
    let oldest = imported(ctx, service, "ClusterSetIP").await?.export;
    let valid = condition(ctx, 0, VALID).await?;

    ctx.later_than(0, valid.last_transition_time.0).await?;
    let second = objects::service(vec![port("tcp", "TCP", 43)]);
    ctx.export_later(1, second, &oldest).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    same_time(ctx, 0, &valid).await?;

    let mut before = Vec::new();
    for cluster in BOTH {
        for kind in [VALID, CONFLICT] {
            let condition = condition(ctx, cluster, kind).await?;
            let time = condition.last_transition_time.0;
            ctx.later_than(cluster, time).await?;
            before.push((cluster, condition));
        }
    }
    let other = json!({ "ports": upstream_ports(), "internalTrafficPolicy": "Local" });
    ctx.patch_service(1, &json!({ "spec": other })).await?;

    let step = "both exports are in conflict over something else";
    let reasons = [REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT];
    ctx.conflicts_until(step, BOTH, &reasons, &[]).await?;
    for (cluster, condition) in &before {
        same_time(ctx, *cluster, condition).await?;
    }
    Ok(())
}

async fn condition(ctx: &Context, cluster: usize, kind: &str) -> Result<Condition, Failure> {
    let step = "read the condition";
    ctx.condition_until(step, cluster, (kind, "True"), None)
        .await
}

/// Fails where a condition, still true, has another time than before.
async fn same_time(ctx: &Context, cluster: usize, before: &Condition) -> Outcome {
    let now = condition(ctx, cluster, &before.type_).await?;
    let (before, now) = (before, &now);
    if before.last_transition_time == now.last_transition_time {
        return Ok(());
    }
    let text =
        |condition: &Condition| format!("{} {}", condition.type_, condition.last_transition_time.0);
    let step = "a condition that stays true keeps its time";
    Err(ctx.failure(step, cluster, text(before), text(now)))
}
