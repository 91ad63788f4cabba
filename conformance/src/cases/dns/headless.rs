//! Names of headless imports and of their pods.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use simple_dns::TYPE;
use tombolo_api::keys;

use super::{NEEDS, answer_until};
use crate::{
    case::{Case, Failure, Feature, Outcome},
    cases::endpoints::{
        slices::imported,
        state::{is_ready, labelled},
    },
    context::Context,
    expect::of_type,
    lookup::{self, CLUSTERSET, Lookup},
    objects::{self, HELLO},
    rules::Rule,
    workloads::{Server, addresses},
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "dns/headless",
        title: "In every cluster the name of a headless import leads to all its ready pods, in each family",
        rules: &[Rule(83), Rule(51), Rule(162)],
        features: NEEDS,
        upstream: Some("D4"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(headless(ctx)),
    },
    Case {
        id: "dns/headless-pods",
        title: "In every cluster each pod of a headless import has a name with its host name and its cluster's id",
        rules: &[Rule(85), Rule(105), Rule(126)],
        features: &[Feature::Workloads, Feature::Dns, Feature::EndpointSlices],
        upstream: Some("D5"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(pods(ctx)),
    },
    Case {
        id: "dns/headless-srv",
        title: "In every cluster the name of a headless import has an SRV record for each address of a pod, whose host leads there",
        rules: &[Rule(84), Rule(162)],
        features: NEEDS,
        upstream: Some("D6"),
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(srv(ctx)),
    },
    Case {
        id: "dns/headless-both",
        title: "In every cluster the name of a headless import leads to the ready pods of all exporting clusters, and follows them",
        rules: &[Rule(83), Rule(104), Rule(12), Rule(162)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(both(ctx)),
    },
];

/// Exports a headless Service of the first cluster, and waits for its import everywhere; gives the families that it has.
async fn export(ctx: &Context) -> Result<Vec<String>, Failure> {
    let (service, _) = ctx
        .export(0, objects::headless(objects::served_ports()))
        .await?;
    is_imported(ctx).await?;
    Ok(families(service))
}

/// Waits for the headless import everywhere.
pub(super) async fn is_imported(ctx: &Context) -> Outcome {
    let expected = "a ServiceImport of type Headless";
    ctx.imports_until(
        "the import appears",
        ctx.everywhere(),
        expected,
        of_type("Headless"),
    )
    .await?;
    Ok(())
}

/// The families that a Service has.
pub(super) fn families(service: Service) -> Vec<String> {
    service
        .spec
        .and_then(|it| it.ip_families)
        .unwrap_or_default()
}

/// Waits until the name leads to exactly these servers, in every cluster and family.
async fn leads_to(
    ctx: &Context,
    step: &'static str,
    families: &[String],
    servers: &[Server],
) -> Outcome {
    let name = &ctx.domain(CLUSTERSET);
    let asked = ctx.everywhere().map(async |cluster| {
        for family in families {
            let wanted = addresses(servers, family);
            let expected = format!("{wanted:?}");
            let question = (name.as_str(), lookup::of_family(family), expected.as_str());
            answer_until(ctx, step, cluster, question, |it| {
                it.addresses == wanted && it.answers == wanted.len()
            })
            .await?;
        }
        Ok(())
    });
    try_join_all(asked).await.map(|_| ())
}

async fn headless(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let servers = ctx.start_servers(0, 2).await?;

    let families = export(ctx).await?;

    leads_to(ctx, "the name leads to the pods", &families, &servers).await?;
    // What is imported must not pass for the Service's own (KEP-1645#126).
    let label = &format!("{}={HELLO}", keys::KUBERNETES_SERVICE_NAME);
    for family in &families {
        let wanted = &addresses(&servers, family);
        let step = "the Service's own slices hold its pods";
        let expected = format!("{wanted:?}, each once");
        ctx.until(step, 0, &expected, || async move {
            let slices = labelled(ctx, 0, label).await?;
            let of_family = slices.iter().filter(|it| it.address_type == *family);
            let endpoints: Vec<_> = of_family.flat_map(|it| &it.endpoints).flatten().collect();
            let found = endpoints.iter().flat_map(|it| &it.addresses);
            let found: BTreeSet<_> = found.filter_map(|it| it.parse().ok()).collect();
            let once = endpoints.len() == wanted.len() && endpoints.iter().all(|it| is_ready(it));
            let same = once && found == *wanted;
            same.then_some(())
                .ok_or_else(|| format!("{endpoints:?}").into())
        })
        .await?;
    }
    Ok(())
}

async fn pods(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let families = export(ctx).await?;

    // Created after the export, as upstream: the names follow.
    let servers = ctx.start_named_servers(0, 2).await?;

    leads_to(ctx, "the name leads to the pods", &families, &servers).await?;
    for cluster in ctx.everywhere() {
        let id = source_cluster(ctx, cluster, &families, &servers).await?;
        for server in &servers {
            let name = format!("{}.{id}.{}", server.name, ctx.domain(CLUSTERSET));
            for family in &families {
                let wanted = addresses(std::slice::from_ref(server), family);
                let expected = format!("{wanted:?}");
                let question = (name.as_str(), lookup::of_family(family), expected.as_str());
                let step = "the pod's name leads to the pod";
                answer_until(ctx, step, cluster, question, |it| it.addresses == wanted).await?;
            }
        }
    }
    Ok(())
}

/// The id of the exporting cluster, of which there is one, as its slices say; each of them has to hold all its servers, ready and
/// with their host names, and each family has to have one.
async fn source_cluster(
    ctx: &Context,
    cluster: usize,
    families: &[String],
    servers: &[Server],
) -> Result<String, Failure> {
    let step = "the slices name their cluster and its pods";
    let hosts: &BTreeSet<_> = &servers.iter().map(|it| it.name.as_str()).collect();
    let expected =
        format!("slices of one cluster, of each of {families:?}, each with {hosts:?} and ready");
    ctx.until(step, cluster, &expected, || async move {
        let slices = imported(ctx, cluster).await?;
        for slice in &slices {
            let endpoints: Vec<_> = slice.endpoints.iter().flatten().collect();
            let named = endpoints.iter().filter_map(|it| it.hostname.as_deref());
            let ready = endpoints.iter().all(|it| is_ready(it));
            if endpoints.len() != hosts.len() || named.collect::<BTreeSet<_>>() != *hosts || !ready
            {
                return Err(format!("{}: {endpoints:?}", slice.name_any()).into());
            }
        }
        let found: BTreeSet<_> = slices.iter().map(|it| it.address_type.as_str()).collect();
        if !families.iter().all(|it| found.contains(it.as_str())) {
            return Err(format!("slices of {found:?}").into());
        }
        let ids = slices
            .iter()
            .filter_map(|it| it.labels().get(keys::SOURCE_CLUSTER));
        let ids: BTreeSet<_> = ids.collect();
        match ids.into_iter().collect::<Vec<_>>().as_slice() {
            [id] => Ok((*id).clone()),
            other => Err(format!("{other:?}").into()),
        }
    })
    .await
}

async fn srv(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let servers = ctx.start_servers(0, 2).await?;

    let families = export(ctx).await?;

    let name = &ctx.domain(CLUSTERSET);
    let wanted: BTreeSet<_> = families
        .iter()
        .flat_map(|it| addresses(&servers, it))
        .collect();
    for cluster in ctx.everywhere() {
        let expected = format!(
            "port 42 of {} hosts, one for each of {wanted:?}",
            wanted.len()
        );
        let question = (name.as_str(), TYPE::SRV, expected.as_str());
        let hosts: BTreeSet<_> = wanted.iter().map(label).collect();
        let answer = answer_until(
            ctx,
            "the name has the pods' ports",
            cluster,
            question,
            |it| {
                let port = it.services.iter().all(|it| it.port == 42);
                let labels = it
                    .services
                    .iter()
                    .filter_map(|it| it.target.split('.').next());
                let labels: BTreeSet<_> = labels
                    .map(|it| it.trim_end_matches("-0").to_owned())
                    .collect();
                it.services.len() == wanted.len() && port && labels == hosts
            },
        );
        for service in answer.await?.services {
            leads_there(ctx, cluster, &service.target).await?;
        }
    }
    Ok(())
}

/// The first label of the name of a pod without host name: its address with hyphens. CoreDNS adds a zero to one that would end
/// in a hyphen, which is left out here.
fn label(address: &std::net::IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    text.trim_end_matches('-').to_owned()
}

/// The host of an SRV record has to lead to the address that its name has.
async fn leads_there(ctx: &Context, cluster: usize, target: &str) -> Outcome {
    let first = target.split('.').next().unwrap_or_default();
    let v4 = first.split('-').count() == 4 && !first.contains(|c: char| c.is_ascii_alphabetic());
    let kind = if v4 { TYPE::A } else { TYPE::AAAA };
    let step = "the host of the record leads to the pod";
    let own = first.trim_end_matches("-0");
    answer_until(ctx, step, cluster, (target, kind, "its address"), |it| {
        it.addresses.len() == 1 && it.addresses.iter().all(|it| label(it) == own)
    })
    .await
    .map(|_| ())
}

async fn both(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let first = ctx.start_servers(0, 1).await?;
    let families = export(ctx).await?;
    leads_to(
        ctx,
        "the name leads to the pods of the first cluster",
        &families,
        &first,
    )
    .await?;

    let second = ctx.start_servers(1, 2).await?;
    ctx.export(1, objects::headless(objects::served_ports()))
        .await?;
    let all = [first.clone(), second.clone()].concat();
    leads_to(
        ctx,
        "the name leads to the pods of both clusters",
        &families,
        &all,
    )
    .await?;

    ctx.turn(1, &second[0], false).await?;
    let ready = [first.clone(), vec![second[1].clone()]].concat();
    leads_to(ctx, "a pod that turns unready leaves", &families, &ready).await?;
    ctx.turn(1, &second[0], true).await?;
    leads_to(ctx, "a pod that is ready again comes back", &families, &all).await?;

    for (cluster, server) in [(0, &first[0]), (1, &second[0]), (1, &second[1])] {
        ctx.turn(cluster, server, false).await?;
    }
    let name = &ctx.domain(CLUSTERSET);
    let step = "without a ready pod there is no name";
    for cluster in ctx.everywhere() {
        let question = (name.as_str(), TYPE::A, "no such name");
        answer_until(ctx, step, cluster, question, Lookup::is_no_name).await?;
    }
    Ok(())
}
