//! Names of imports of type ClusterSetIP, as pods are told them.

pub mod headless;
pub mod names;

use futures::future::try_join_all;
use simple_dns::TYPE;
use tombolo_api::v1beta1::ServiceImport;

use crate::{
    case::{Case, Failure, Feature, Outcome},
    context::Context,
    expect::Seen,
    lookup::{self, CLUSTER, CLUSTERSET, Lookup, Srv},
    objects,
    rules::Rule,
};

/// What cases about names need.
pub(super) const NEEDS: &[Feature] = &[Feature::Workloads, Feature::Dns];

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "dns/cluster-set-ip",
        title: "In every cluster the name of an import leads to its clusterset IPs, in each family, and to nothing else",
        rules: &[Rule(82), Rule(81), Rule(40), Rule(162)],
        features: NEEDS,
        upstream: Some("D1"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(cluster_set_ip(ctx)),
    },
    Case {
        id: "dns/srv",
        title: "In every cluster the name of an import has one SRV record for each port number, with itself as host",
        rules: &[Rule(84), Rule(162)],
        features: NEEDS,
        upstream: Some("D2"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(srv(ctx)),
    },
    Case {
        id: "dns/cluster-local",
        title: "Names in cluster.local lead to the local Service, and to nothing in clusters without it",
        rules: &[Rule(70), Rule(71)],
        features: NEEDS,
        upstream: Some("D3"),
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(cluster_local(ctx)),
    },
];

/// Waits for imports with an IP of each family that they name, in every cluster.
pub(super) async fn imports_with_ips(ctx: &Context) -> Result<Vec<ServiceImport>, Failure> {
    let accept = |import: &ServiceImport| {
        let ips = import.spec.ips.as_ref().map_or(0, Vec::len);
        let families = import.spec.ip_families.as_ref().map_or(0, Vec::len);
        if ips > 0 && ips == families {
            return Ok(());
        }
        Err(crate::expect::describe(import))
    };
    let expected = "a ServiceImport with an IP of each family";
    ctx.imports_until("the import has IPs", ctx.everywhere(), expected, accept)
        .await
}

/// The IPs of an import with their families.
pub(super) fn ips(import: &ServiceImport) -> Vec<(String, String)> {
    let families = import.spec.ip_families.iter().flatten().cloned();
    families
        .zip(import.spec.ips.iter().flatten().cloned())
        .collect()
}

/// Waits until a question is answered so.
pub(super) async fn answer_until(
    ctx: &Context,
    step: &'static str,
    cluster: usize,
    (name, kind, expected): (&str, TYPE, &str),
    accept: impl Fn(&Lookup) -> bool,
) -> Result<Lookup, Failure> {
    let accept = &accept;
    let expected = format!("{name} {kind:?}: {expected}");
    ctx.until(step, cluster, &expected, || async move {
        let lookup = ctx.lookup(cluster, name, kind).await?;
        if accept(&lookup) {
            return Ok(lookup);
        }
        Err(Seen::from(format!("{lookup:?}")))
    })
    .await
}

async fn cluster_set_ip(ctx: &Context) -> Outcome {
    ctx.prepare().await?;

    ctx.export(0, objects::service(objects::upstream_ports()))
        .await?;

    let imports = imports_with_ips(ctx).await?;
    let name = &ctx.domain(CLUSTERSET);
    let asked = imports.iter().enumerate().map(async |(cluster, import)| {
        for (family, ip) in ips(import) {
            let kind = lookup::of_family(&family);
            let wanted = ip.parse().ok();
            let question = (name.as_str(), kind, &*ip);
            answer_until(ctx, "the name leads to the IP", cluster, question, |it| {
                it.answers == 1 && it.addresses.first().copied() == wanted
            })
            .await?;
        }
        Ok(())
    });
    try_join_all(asked).await.map(|_| ())
}

async fn srv(ctx: &Context) -> Outcome {
    ctx.prepare().await?;

    ctx.export(0, objects::service(objects::upstream_ports()))
        .await?;

    imports_with_ips(ctx).await?;
    let name = &ctx.domain(CLUSTERSET);
    let wanted = &[Srv {
        port: 42,
        target: name.clone(),
    }];
    let asked = ctx.everywhere().map(async |cluster| {
        let question = (
            name.as_str(),
            TYPE::SRV,
            "one record, port 42 of the name itself",
        );
        let accept = |it: &Lookup| it.services == wanted;
        answer_until(ctx, "the name has its port", cluster, question, accept).await
    });
    try_join_all(asked).await.map(|_| ())
}

async fn cluster_local(ctx: &Context) -> Outcome {
    ctx.prepare().await?;

    let (service, _) = ctx
        .export(0, objects::service(objects::upstream_ports()))
        .await?;

    imports_with_ips(ctx).await?;
    let name = &ctx.domain(CLUSTER);
    let spec = service.spec.unwrap_or_default();
    let families = spec.ip_families.into_iter().flatten();
    for (family, ip) in families.zip(spec.cluster_ips.into_iter().flatten()) {
        let wanted = ip.parse().ok();
        let question = (name.as_str(), lookup::of_family(&family), &*ip);
        answer_until(
            ctx,
            "the local name leads to the local Service",
            0,
            question,
            |it| it.answers == 1 && it.addresses.first().copied() == wanted,
        )
        .await?;
    }
    for cluster in 1..=ctx.last() {
        for kind in [TYPE::A, TYPE::AAAA] {
            let question = (name.as_str(), kind, "no such name");
            let step = "the local name leads nowhere else";
            answer_until(ctx, step, cluster, question, Lookup::is_no_name).await?;
        }
    }
    Ok(())
}
