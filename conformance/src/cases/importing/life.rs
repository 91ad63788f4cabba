//! Where imports exist and how long they live.

use k8s_openapi::api::core::v1::Service;
use tombolo_api::{
    conditions::VALID,
    v1beta1::{ServiceExport, ServiceImport},
};

use crate::{
    case::{Case, Failure, Outcome},
    context::Context,
    expect::of_type,
    objects::{self, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "importing/last-export",
        title: "An import lives in every cluster as long as there is at least one export",
        rules: &[Rule(12), Rule(14), Rule(30), Rule(33), Rule(34)],
        features: &[],
        upstream: Some("S1"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(last_export(ctx)),
    },
    Case {
        id: "importing/cluster-set-ip",
        title: "A ClusterIP Service becomes an import of type ClusterSetIP in each cluster, and goes with its export",
        rules: &[Rule(14), Rule(30), Rule(34), Rule(50), Rule(170)],
        features: &[],
        upstream: Some("I1"),
        bugs: &[],
        fails_first: "the export is accepted",
        run: |ctx| Box::pin(cluster_set_ip(ctx)),
    },
    Case {
        id: "importing/headless",
        title: "A headless Service becomes an import of type Headless in each cluster, and goes with its export",
        rules: &[Rule(14), Rule(30), Rule(34), Rule(51)],
        features: &[],
        upstream: Some("H1"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(headless(ctx)),
    },
    Case {
        id: "importing/no-namespace",
        title: "A cluster without the namespace gets no import, and gets it when the namespace comes",
        rules: &[Rule(30), Rule(31)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears where the namespace is",
        run: |ctx| Box::pin(no_namespace(ctx)),
    },
    Case {
        id: "importing/local-unchanged",
        title: "Exporting and importing leave the local Services of that name as they are",
        rules: &[Rule(70)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(local_unchanged(ctx)),
    },
];

/// What was exported from the first cluster, and what came of it in every cluster.
pub(crate) struct Imported {
    /// The Service, as the API server keeps it.
    pub(crate) service: Service,
    /// Its export.
    pub(crate) export: ServiceExport,
    /// The import in each cluster, in their order.
    pub(crate) imports: Vec<ServiceImport>,
}

/// How most cases begin: makes the namespace everywhere, exports a Service from the first cluster and waits for its import,
/// of that type, in every cluster.
pub(crate) async fn imported(
    ctx: &Context,
    service: Service,
    wanted: &'static str,
) -> Result<Imported, Failure> {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (service, export) = ctx.export(0, service).await?;
    Ok(Imported {
        service,
        export,
        imports: appears(ctx, wanted).await?,
    })
}

/// Waits for an import of that type in every cluster.
async fn appears(ctx: &Context, wanted: &'static str) -> Result<Vec<ServiceImport>, Failure> {
    let expected = format!("a ServiceImport of type {wanted}");
    let (step, accept) = ("the import appears", of_type(wanted));
    ctx.imports_until(step, ctx.everywhere(), &expected, accept)
        .await
}

const CLUSTER_SET_IP: &str = "a ServiceImport of type ClusterSetIP";

async fn last_export(ctx: &Context) -> Outcome {
    let service = objects::service(upstream_ports());
    let Imported {
        export: first,
        imports,
        ..
    } = imported(ctx, service, "ClusterSetIP").await?;

    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;
    ctx.imports_stay("it stays when a second cluster exports", &imports)
        .await?;
    ctx.unexport(0).await?;
    ctx.imports_stay("it stays when the first export goes", &imports)
        .await?;
    ctx.unexport(1).await?;

    ctx.imports_gone("it goes with the last export").await
}

async fn cluster_set_ip(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;

    ctx.export(0, objects::service(upstream_ports())).await?;

    ctx.condition_until("the export is accepted", 0, (VALID, "True"), None)
        .await?;
    appears(ctx, "ClusterSetIP").await?;
    ctx.unexport(0).await?;
    ctx.imports_gone("the import goes").await
}

async fn headless(ctx: &Context) -> Outcome {
    imported(ctx, objects::headless(upstream_ports()), "Headless").await?;

    ctx.unexport(0).await?;
    ctx.imports_gone("the import goes").await
}

async fn no_namespace(ctx: &Context) -> Outcome {
    let last = ctx.last();
    ctx.create_namespace(0..last).await?;

    ctx.export(0, objects::service(upstream_ports())).await?;

    let step = "the import appears where the namespace is";
    ctx.imports_until(step, 0..last, CLUSTER_SET_IP, of_type("ClusterSetIP"))
        .await?;
    ctx.imports_stay_away("no import where the namespace is missing", [last])
        .await?;
    ctx.create_namespace([last]).await?;
    let step = "the import appears when the namespace comes";
    ctx.import_until(step, last, CLUSTER_SET_IP, of_type("ClusterSetIP"))
        .await
        .map(|_| ())
}

async fn local_unchanged(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let mut before = Vec::new();
    for cluster in ctx.everywhere() {
        let service = objects::service(upstream_ports());
        before.push(ctx.create("create the Service", cluster, &service).await?);
    }

    ctx.create("export", 0, &objects::export()).await?;

    appears(ctx, "ClusterSetIP").await?;
    let before = &before;
    let step = "the local Service is unchanged";
    let expected = "the Service as it was created";
    ctx.stays_in(step, ctx.everywhere(), expected, |cluster| async move {
        let now: Service = ctx.api(cluster).get(objects::HELLO).await?;
        let before = &before[cluster];
        let same = now.spec == before.spec
            && now.metadata.labels == before.metadata.labels
            && now.metadata.annotations == before.metadata.annotations
            && now.metadata.finalizers == before.metadata.finalizers
            && now.metadata.uid == before.metadata.uid;
        if same {
            return Ok(());
        }
        Err(format!("{now:?}").into())
    })
    .await
}
