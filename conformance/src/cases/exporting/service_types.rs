//! Services of other types than ClusterIP, types that change, and several exports side by side.

use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tombolo_api::conditions::{
    CONFLICT, READY, REASON_EXPORTED, REASON_INVALID_SERVICE_TYPE, REASON_NO_CONFLICTS,
    REASON_READY, VALID,
};

use crate::{
    bugs::Bug,
    case::{Case, Outcome},
    cases::importing::life::imported,
    context::Context,
    expect::of_type,
    objects::{self, HELLO, port, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "exporting/node-port",
        title: "A NodePort Service becomes an import of type ClusterSetIP and stays as it is",
        rules: &[Rule(52), Rule(70)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(other_type(ctx, "NodePort")),
    },
    Case {
        id: "exporting/load-balancer",
        title: "A LoadBalancer Service becomes an import of type ClusterSetIP and stays as it is",
        rules: &[Rule(52), Rule(70)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(other_type(ctx, "LoadBalancer")),
    },
    Case {
        id: "exporting/type-switch",
        title: "An export ends when its Service becomes an ExternalName, and comes back with the old type",
        rules: &[Rule(34), Rule(53), Rule(170), Rule(171)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-15", "antrea#4814")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(type_switch(ctx)),
    },
    Case {
        id: "exporting/two-services",
        title: "Two exports of one cluster with different ports are not in conflict",
        rules: &[Rule(11), Rule(155)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-09", "lighthouse#1439")],
        fails_first: "the first is without conflict",
        run: |ctx| Box::pin(two_services(ctx)),
    },
    Case {
        id: "exporting/ready",
        title: "A valid export becomes Ready, with one of the reasons for that",
        rules: &[Rule(172)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the export is ready",
        run: |ctx| Box::pin(ready(ctx)),
    },
];

async fn other_type(ctx: &Context, kind: &str) -> Outcome {
    let service = objects::service_with(|spec| spec.type_ = Some(kind.to_owned()));

    let before = &imported(ctx, service, "ClusterSetIP").await?.service;

    let same = |cluster| async move {
        let now: Service = ctx.api(cluster).get(HELLO).await?;
        if now.spec == before.spec {
            return Ok(());
        }
        Err(format!("{:?}", now.spec).into())
    };
    let step = "the local Service is unchanged";
    ctx.stays_in(step, [0], "the Service as it was created", same)
        .await
}

async fn type_switch(ctx: &Context) -> Outcome {
    let service = objects::service(upstream_ports());
    imported(ctx, service, "ClusterSetIP").await?;

    let away = json!({ "spec": { "type": "ExternalName", "externalName": "example.com" } });
    ctx.patch_service(0, &away).await?;

    let reason = Some(REASON_INVALID_SERVICE_TYPE);
    ctx.condition_until("the export is refused", 0, (VALID, "False"), reason)
        .await?;
    ctx.imports_gone("the import goes").await?;

    let back = json!({ "spec": { "type": "ClusterIP", "externalName": null } });
    ctx.patch_service(0, &back).await?;

    ctx.condition_until("the export is accepted again", 0, (VALID, "True"), None)
        .await?;
    let step = "the import comes back";
    let expected = "a ServiceImport of type ClusterSetIP";
    let accept = of_type("ClusterSetIP");
    ctx.imports_until(step, ctx.everywhere(), expected, accept)
        .await
        .map(|_| ())
}

async fn two_services(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    for (name, number) in [("first", 80), ("second", 9090)] {
        let mut service = objects::service(vec![port("http", "TCP", number)]);
        service.metadata.name = Some(name.to_owned());
        let mut export = objects::export();
        export.metadata.name = Some(name.to_owned());
        ctx.export_as(0, service, export).await?;
    }

    for (name, step) in [
        ("first", "the first is without conflict"),
        ("second", "the second is without conflict"),
    ] {
        let reason = Some(REASON_NO_CONFLICTS);
        ctx.condition_of(step, (0, name), (CONFLICT, "False"), reason)
            .await?;
    }
    Ok(())
}

async fn ready(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;

    ctx.export(0, objects::service(upstream_ports())).await?;

    let condition = ctx
        .condition_until("the export is ready", 0, (READY, "True"), None)
        .await?;
    if [REASON_EXPORTED, REASON_READY].contains(&condition.reason.as_str()) {
        return Ok(());
    }
    let expected = "reason Exported or Ready";
    Err(ctx.failure("the reason is one for true", 0, expected, condition.reason))
}
