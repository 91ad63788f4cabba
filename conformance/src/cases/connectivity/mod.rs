//! Packets to an import, from every cluster: the upstream suite's cases.
//!
//! A server names itself in its answer, so that it is known who answered. That commands run in the pods that ask was shown when they
//! started, and is shown again with every question: silence is only silence when the command has run to its end.

pub mod backends;

use futures::future::try_join_all;
use tombolo_api::v1beta1::ServiceImport;

use super::dns::{imports_with_ips, ips};
use crate::{
    case::{Case, Feature, Outcome},
    context::Context,
    lookup::{CLUSTER, CLUSTERSET},
    objects::{self, served, served_ports},
    rules::Rule,
    traffic::{Answer, Target, answers},
    workloads::Server,
};

/// What cases about packets need.
const NEEDS: &[Feature] = &[Feature::Workloads, Feature::Dns, Feature::Connectivity];

/// How often what is not exported is asked for, as upstream.
const SILENCE: usize = 20;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "connectivity/not-exported",
        title: "A Service that is not exported cannot be reached by its ClusterSet's name, while its neighbour is imported",
        rules: &[Rule(10), Rule(70)],
        features: &[Feature::Workloads],
        upstream: Some("C1"),
        bugs: &[],
        fails_first: "the neighbour is imported",
        run: |ctx| Box::pin(not_exported(ctx)),
    },
    Case {
        id: "connectivity/exported",
        title: "In every cluster an exported Service is reached by its name, and by each of its IPs",
        rules: &[Rule(63), Rule(40), Rule(71), Rule(81)],
        features: NEEDS,
        upstream: Some("C2"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(exported(ctx)),
    },
    Case {
        id: "connectivity/exporting-only",
        title: "Of two clusters with the Service only the one that exports it is reached, from either",
        rules: &[Rule(13), Rule(63), Rule(71)],
        features: NEEDS,
        upstream: Some("C3"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(exporting_only(ctx)),
    },
    Case {
        id: "connectivity/disputed-port",
        title: "A port name with two numbers leads only to the cluster that exposes the number that won",
        rules: &[Rule(146), Rule(145), Rule(142)],
        features: NEEDS,
        upstream: Some("C4"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(disputed_port(ctx)),
    },
    Case {
        id: "connectivity/port-of-one",
        title: "Each port leads only to the cluster that exposes it",
        rules: &[Rule(146), Rule(145)],
        features: NEEDS,
        upstream: Some("C5"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(port_of_one(ctx)),
    },
];

async fn not_exported(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let servers = ctx.start_servers(0, 1).await?;
    let service = objects::service(served_ports());
    ctx.create("create the Service that is not exported", 0, &service)
        .await?;
    let mut neighbour = objects::service(served_ports());
    neighbour.metadata.name = Some("neighbour".to_owned());
    let mut export = objects::export();
    export.metadata.name = neighbour.metadata.name.clone();
    ctx.export_as(0, neighbour, export).await?;

    // Somebody is at work here who would have imported it too.
    let step = "the neighbour is imported";
    let imported = ctx.everywhere().map(async |cluster| {
        let imports = &ctx.api::<ServiceImport>(cluster);
        ctx.until(
            step,
            cluster,
            "a ServiceImport `neighbour`",
            || async move {
                let import = imports.get_opt("neighbour").await?;
                import.map(drop).ok_or_else(|| "no ServiceImport".into())
            },
        )
        .await
    });
    try_join_all(imported).await?;
    // The server answers, and the pod that asks can ask.
    let local = Target::tcp(ctx.domain(CLUSTER), 42);
    ctx.answered_by(
        "the local name leads to the pod",
        0,
        &local,
        &answers(&servers, 42),
    )
    .await?;
    let name = ctx.domain(CLUSTERSET);
    for cluster in ctx.everywhere() {
        let step = "the ClusterSet's name leads nowhere";
        for family in ["IPv4", "IPv6"] {
            let target = Target::tcp(&name, 42).over(family);
            ctx.silent(step, cluster, &target, SILENCE).await?;
        }
    }
    Ok(())
}

/// Waits in every cluster until each IP of the import, and the name over the IP's family, is answered at a port by exactly
/// those servers.
async fn reached(ctx: &Context, step: &'static str, ports: &[(u16, Vec<Answer>)]) -> Outcome {
    let imports = imports_with_ips(ctx).await?;
    let asked = imports.iter().enumerate().map(async |(cluster, import)| {
        for (port, wanted) in ports {
            let wanted = wanted.iter().copied().collect();
            for (family, ip) in ips(import) {
                let name = ctx.domain(CLUSTERSET);
                let by_name = Target::tcp(name, *port).over(&family);
                for target in [Target::tcp(ip, *port), by_name] {
                    ctx.answered_by(step, cluster, &target, &wanted).await?;
                }
            }
        }
        Ok(())
    });
    try_join_all(asked).await.map(|_| ())
}

/// What the servers of one cluster say at their port 42.
fn of(servers: &[Server]) -> Vec<Answer> {
    answers(servers, 42).into_iter().collect()
}

async fn exported(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let servers = ctx.start_servers(0, 1).await?;

    ctx.export(0, objects::service(served_ports())).await?;

    reached(ctx, "the pod answers", &[(42, of(&servers))]).await
}

async fn exporting_only(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let (servers, _) = futures::try_join!(ctx.start_servers(0, 1), ctx.start_servers(1, 1))?;
    let bystander = objects::service(served_ports());
    ctx.create("create the Service that is not exported", 1, &bystander)
        .await?;

    ctx.export(0, objects::service(served_ports())).await?;

    reached(
        ctx,
        "only the exporting cluster's pod answers",
        &[(42, of(&servers))],
    )
    .await
}

async fn disputed_port(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let (first, _) = futures::try_join!(ctx.start_servers(0, 1), ctx.start_servers(1, 1))?;
    let (_, older) = ctx.export(0, objects::service(served_ports())).await?;
    imports_with_ips(ctx).await?;

    let second = objects::service(vec![served("tcp", "TCP", 4242, 42)]);
    ctx.export_later(1, second, &older).await?;
    let conflict = ("Conflict", "True");
    ctx.conditions_until("the exports are in conflict", 0..2, conflict, None)
        .await?;

    reached(
        ctx,
        "only the cluster with that number answers",
        &[(42, of(&first))],
    )
    .await
}

async fn port_of_one(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let (first, second) = futures::try_join!(ctx.start_servers(0, 1), ctx.start_servers(1, 1))?;
    let (_, older) = ctx.export(0, objects::service(served_ports())).await?;
    imports_with_ips(ctx).await?;

    let other = objects::service(vec![served("tcp2", "TCP", 4242, 42)]);
    ctx.export_later(1, other, &older).await?;

    let ports = [(42, of(&first)), (4242, of(&second))];
    reached(ctx, "each port leads to its cluster", &ports).await
}
