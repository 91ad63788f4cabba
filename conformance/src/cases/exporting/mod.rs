//! What may be exported, and what the ServiceExport says about it.

pub mod service_types;

use serde_json::json;
use tombolo_api::conditions::{
    CONFLICT, REASON_INVALID_SERVICE_TYPE, REASON_NO_CONFLICTS, REASON_NO_SERVICE, VALID,
};

use crate::{
    bugs::Bug,
    case::{Case, Outcome},
    context::Context,
    expect::of_type,
    objects,
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "exporting/external-name",
        title: "An exported ExternalName Service is refused and imported nowhere",
        rules: &[Rule(53), Rule(170), Rule(171)],
        features: &[],
        upstream: Some("X1"),
        bugs: &[],
        fails_first: "the export is refused",
        run: |ctx| Box::pin(external_name(ctx)),
    },
    Case {
        id: "exporting/no-service",
        title: "An export without a Service is refused, and accepted when the Service comes",
        rules: &[Rule(11), Rule(170), Rule(171)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-18", "kubernetes/enhancements#5437")],
        fails_first: "the export is refused",
        run: |ctx| Box::pin(no_service(ctx)),
    },
    Case {
        id: "exporting/only-on-request",
        title: "Of two Services only the exported one is imported",
        rules: &[Rule(10), Rule(11)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the exported Service is imported",
        run: |ctx| Box::pin(only_on_request(ctx)),
    },
    Case {
        id: "exporting/no-conflict",
        title: "Equal exports of all clusters are valid and without conflict",
        rules: &[Rule(12), Rule(155), Rule(170)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "all exports are valid",
        run: |ctx| Box::pin(no_conflict(ctx)),
    },
];

async fn external_name(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;

    ctx.export(0, objects::external_name()).await?;

    let reason = Some(REASON_INVALID_SERVICE_TYPE);
    ctx.condition_until("the export is refused", 0, (VALID, "False"), reason)
        .await?;
    ctx.imports_stay_away("it is imported nowhere", ctx.everywhere())
        .await
}

async fn no_service(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    ctx.create("export", 0, &objects::export()).await?;
    let reason = Some(REASON_NO_SERVICE);
    ctx.condition_until("the export is refused", 0, (VALID, "False"), reason)
        .await?;
    ctx.imports_stay_away("it is imported nowhere", ctx.everywhere())
        .await?;

    let service = objects::service(objects::upstream_ports());
    ctx.create("create the Service", 0, &service).await?;

    ctx.condition_until("the export is accepted", 0, (VALID, "True"), None)
        .await?;
    let expected = "a ServiceImport of type ClusterSetIP";
    ctx.imports_until(
        "it is imported",
        ctx.everywhere(),
        expected,
        of_type("ClusterSetIP"),
    )
    .await
    .map(|_| ())
}

async fn only_on_request(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let mut exported = objects::service(objects::upstream_ports());
    exported.metadata.name = Some("exported".to_owned());
    let mut export = objects::export();
    export.metadata.name = exported.metadata.name.clone();

    let silent = objects::service(objects::upstream_ports());
    ctx.create("create the Service that is not exported", 0, &silent)
        .await?;
    ctx.create("create the Service", 0, &exported).await?;
    ctx.create("export", 0, &export).await?;

    let api = ctx.api::<tombolo_api::v1beta1::ServiceImport>(ctx.last());
    let api = &api;
    ctx.until(
        "the exported Service is imported",
        ctx.last(),
        "a ServiceImport",
        || async move {
            api.get_opt("exported")
                .await?
                .map(|_| ())
                .ok_or_else(|| "no ServiceImport".into())
        },
    )
    .await?;
    ctx.imports_stay_away("the other Service is not imported", ctx.everywhere())
        .await
}

async fn no_conflict(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    for cluster in ctx.everywhere() {
        ctx.export(cluster, objects::service(objects::upstream_ports()))
            .await?;
    }

    ctx.conditions_until(
        "all exports are valid",
        ctx.everywhere(),
        (VALID, "True"),
        None,
    )
    .await?;
    let calm = (CONFLICT, "False");
    let reason = Some(REASON_NO_CONFLICTS);
    ctx.conditions_until("no export is in conflict", ctx.everywhere(), calm, reason)
        .await?;

    // A change that all clusters make alike, one after the other, ends without conflict too.
    let ports = json!({ "spec": { "ports": [{ "name": "tcp", "port": 43, "protocol": "TCP" }] } });
    for cluster in ctx.everywhere() {
        ctx.patch_service(cluster, &ports).await?;
    }
    let wanted = vec!["tcp 43/TCP".to_owned()];
    let accept = crate::expect::with_ports(wanted);
    ctx.imports_until(
        "the change arrives",
        ctx.everywhere(),
        "port tcp 43/TCP",
        accept,
    )
    .await?;
    ctx.conditions_until(
        "no export is in conflict any more",
        ctx.everywhere(),
        calm,
        reason,
    )
    .await
}
