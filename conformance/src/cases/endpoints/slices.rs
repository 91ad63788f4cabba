//! How imported EndpointSlices are marked, and that the local Service keeps its own.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use tombolo_api::{keys, v1beta1::ServiceImport};

use super::state::{add_pod, addresses, derived_slices, describe, labelled};
use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    cases::importing::content::{is_dns_label, listed},
    context::Context,
    expect::Seen,
    objects::{self, HELLO, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "endpoints/labels",
        title: "Every cluster has marked EndpointSlices for each exporter, of one source cluster each, which go with the export",
        rules: &[
            Rule(5),
            Rule(121),
            Rule(122),
            Rule(123),
            Rule(124),
            Rule(125),
            Rule(126),
            Rule(127),
            Rule(129),
        ],
        features: &[Feature::Backends, Feature::EndpointSlices],
        upstream: Some("E1"),
        bugs: &[Bug("BC-17", "aws-cloud-map-mcs-controller-for-k8s#254")],
        fails_first: "every cluster has slices of both exporters",
        run: |ctx| Box::pin(labels(ctx)),
    },
    Case {
        id: "endpoints/headless",
        title: "A headless import has the endpoints of both clusters with their host names, in every cluster",
        rules: &[Rule(51), Rule(122), Rule(126)],
        features: &[Feature::Backends, Feature::EndpointSlices],
        upstream: None,
        bugs: &[],
        fails_first: "the host names of both clusters are there",
        run: |ctx| Box::pin(headless(ctx)),
    },
    Case {
        id: "endpoints/local-service",
        title: "The local Service keeps its own endpoints and gets no others",
        rules: &[Rule(70)],
        features: &[
            Feature::Backends,
            Feature::EndpointSlices,
            Feature::DerivedService,
        ],
        upstream: None,
        bugs: &[],
        fails_first: "the import has the endpoints of both clusters",
        run: |ctx| Box::pin(local_service(ctx)),
    },
];

pub(crate) async fn imported(ctx: &Context, cluster: usize) -> Result<Vec<EndpointSlice>, Seen> {
    labelled(
        ctx,
        cluster,
        &format!("{}={HELLO},{}", keys::SERVICE_NAME, keys::SOURCE_CLUSTER),
    )
    .await
}

fn addresses_of(slice: &EndpointSlice) -> impl Iterator<Item = &String> {
    slice
        .endpoints
        .iter()
        .flatten()
        .flat_map(|endpoint| &endpoint.addresses)
}

async fn labels(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;

    for cluster in ctx.everywhere() {
        let step = "every cluster has slices of both exporters";
        let expected = "slices that are marked and hold one source cluster's endpoints each";
        ctx.until(step, cluster, expected, || async move {
            let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
            well_marked(&imported(ctx, cluster).await?, &import).map_err(Seen::from)
        })
        .await?;
    }
    ctx.unexport(0).await?;
    ctx.unexport(1).await?;
    for cluster in ctx.everywhere() {
        ctx.until(
            "the slices go with the exports",
            cluster,
            "no slices",
            || async move {
                match imported(ctx, cluster).await?.first() {
                    None => Ok(()),
                    Some(slice) => Err(describe(slice).into()),
                }
            },
        )
        .await?;
    }
    Ok(())
}

/// Checks the marks, and that the endpoints of both clusters' pods are there in every family, each cluster's under a source
/// cluster of its own.
fn well_marked(slices: &[EndpointSlice], import: &ServiceImport) -> Result<(), String> {
    let mut sources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for slice in slices {
        match slice.labels().get(keys::MANAGED_BY).map(String::as_str) {
            None | Some(keys::MANAGED_BY_KUBERNETES) => return Err(describe(slice)),
            Some(_) => {}
        }
        let source = slice
            .labels()
            .get(keys::SOURCE_CLUSTER)
            .cloned()
            .unwrap_or_default();
        if !is_cluster_id(&source) {
            return Err(describe(slice));
        }
        let of_type = addresses_of(slice).map(|it| format!("{} {it}", slice.address_type));
        sources.entry(source).or_default().extend(of_type);
    }
    sources.retain(|_, addresses| !addresses.is_empty());

    let exporters = listed(import);
    let families = import.spec.ip_families.clone().unwrap_or_default();
    let of_cluster = |cluster| -> BTreeSet<String> {
        let typed = ["IPv4", "IPv6"].into_iter().zip(addresses(cluster, 1));
        let in_import = typed.filter(|(family, _)| families.iter().any(|it| it == family));
        in_import
            .map(|(family, address)| format!("{family} {address}"))
            .collect()
    };
    let mut wanted: Vec<_> = [0, 1].map(of_cluster).into();
    let mut found: Vec<_> = sources.values().cloned().collect();
    wanted.sort();
    found.sort();
    if !families.is_empty() && found == wanted && sources.keys().eq(&exporters) {
        return Ok(());
    }
    Err(format!(
        "endpoints by source cluster {sources:?}, exporters {exporters:?}"
    ))
}

/// Whether a text is one DNS label or two (`KEP-1645#5`).
fn is_cluster_id(text: &str) -> bool {
    let mut labels = text.splitn(3, '.');
    labels.clone().count() <= 2 && labels.all(is_dns_label)
}

async fn headless(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    for cluster in [0, 1] {
        let addresses = addresses(cluster, 1);
        let addresses = addresses.each_ref().map(String::as_str);
        let hostname = format!("host-{cluster}");
        ctx.add_pod(cluster, "hello-1", &addresses, Some(&hostname))
            .await?;
    }
    let (_, first) = ctx.export(0, objects::headless(upstream_ports())).await?;
    ctx.export_later(1, objects::headless(upstream_ports()), &first)
        .await?;

    let wanted: BTreeSet<_> = [0, 1]
        .into_iter()
        .map(|cluster| (format!("host-{cluster}"), addresses(cluster, 1)[0].clone()))
        .collect();
    for cluster in ctx.everywhere() {
        let step = "the host names of both clusters are there";
        let expected = format!("in IPv4 slices exactly {wanted:?}");
        let wanted = &wanted;
        ctx.until(step, cluster, &expected, || async move {
            let slices = imported(ctx, cluster).await?;
            let v4 = slices.iter().filter(|slice| slice.address_type == "IPv4");
            let found: BTreeSet<_> = v4
                .flat_map(|slice| slice.endpoints.iter().flatten())
                .flat_map(|endpoint| {
                    let hostname = endpoint.hostname.clone().unwrap_or_default();
                    endpoint
                        .addresses
                        .iter()
                        .map(move |ip| (hostname.clone(), ip.clone()))
                })
                .collect();
            if found == *wanted {
                return Ok(());
            }
            Err(format!("{found:?}").into())
        })
        .await?;
    }
    Ok(())
}

async fn local_service(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    add_pod(ctx, 0, 1).await?;
    add_pod(ctx, 1, 1).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;

    for cluster in ctx.everywhere() {
        let step = "the import has the endpoints of both clusters";
        ctx.until(step, cluster, "two IPv4 endpoints", || async move {
            let slices = derived_slices(ctx, cluster).await?;
            let all: BTreeSet<_> = slices.iter().flat_map(addresses_of).collect();
            let both = [0, 1]
                .iter()
                .all(|&cluster| all.contains(&addresses(cluster, 1)[0]));
            if both {
                Ok(())
            } else {
                Err(format!("{all:?}").into())
            }
        })
        .await?;
    }
    let only_own = |cluster| async move {
        let label = format!("{}={HELLO}", keys::KUBERNETES_SERVICE_NAME);
        let slices = labelled(ctx, cluster, &label).await?;
        let all: BTreeSet<_> = slices.iter().flat_map(addresses_of).collect();
        let own = addresses(cluster, 1);
        if all.iter().all(|address| own.contains(address)) && !all.is_empty() {
            return Ok(());
        }
        Err(format!("{all:?}").into())
    };
    let step = "the local Service has its own endpoints only";
    ctx.stays_in(step, [0, 1], "only its own pod", only_own)
        .await
}
