//! What is in an import: ports, IPs, exporting clusters, and the Service behind it.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::ResourceExt as _;
use serde_json::json;
use tombolo_api::{keys, v1beta1::ServiceImport};

use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    context::Context,
    expect::{describe, port_texts, with_ports},
    objects::{self, port, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "importing/ports",
        title: "The import's ports are those of the exported Service, and follow it",
        rules: &[Rule(15), Rule(144)],
        features: &[],
        upstream: Some("I7"),
        bugs: &[],
        fails_first: "the import has the Service's ports",
        run: |ctx| Box::pin(ports(ctx)),
    },
    Case {
        id: "importing/ips",
        title: "An import of type ClusterSetIP has an IP for each family, and keeps it while exporters come and go",
        rules: &[Rule(19), Rule(60), Rule(62), Rule(64)],
        features: &[],
        upstream: Some("I6"),
        bugs: &[Bug("BC-78", "cilium#37053")],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(ips(ctx)),
    },
    Case {
        id: "importing/derived-service",
        title: "The import's IPs are those of the Service that it names as derived, which has its ports and no selector",
        rules: &[Rule(60), Rule(63)],
        features: &[Feature::DerivedService],
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(derived_service(ctx)),
    },
    Case {
        id: "importing/no-ips-for-headless",
        title: "An import of type Headless never has an IP",
        rules: &[Rule(51), Rule(65)],
        features: &[],
        upstream: Some("H2"),
        bugs: &[Bug("BC-79", "mcs-api@8e35cab")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(no_ips_for_headless(ctx)),
    },
    Case {
        id: "importing/clusters",
        title: "The import's status lists the exporting clusters by names that are DNS labels, in every cluster the same",
        rules: &[Rule(4), Rule(12), Rule(38), Rule(144)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "one cluster is listed",
        run: |ctx| Box::pin(clusters(ctx)),
    },
];

async fn ports(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let mut ports = upstream_ports();
    ports[0].app_protocol = Some("kubernetes.io/h2c".to_owned());

    let (service, _) = ctx.export(0, objects::service(ports)).await?;

    let step = "the import has the Service's ports";
    let accept = with_ports(service_ports(&service));
    ctx.imports_until(step, ctx.everywhere(), "the Service's ports", accept)
        .await?;
    let patch = json!({ "spec": { "ports": [port("grpc", "TCP", 50), port("udp", "UDP", 42)] } });
    let changed = ctx.patch_service(0, &patch).await?;
    let step = "the import follows a change of the Service's ports";
    let accept = with_ports(service_ports(&changed));
    ctx.imports_until(step, ctx.everywhere(), "the Service's new ports", accept)
        .await
        .map(|_| ())
}

async fn ips(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    let imports = ctx
        .imports_until(
            "the import has IPs",
            ctx.everywhere(),
            "an IP for each family",
            ips_match,
        )
        .await?;

    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;
    let two = "the second exporter is listed";
    ctx.imports_until(two, ctx.everywhere(), "two clusters", listing(2))
        .await?;
    ctx.unexport(0).await?;
    let one = "the first exporter is no longer listed";
    let after = ctx
        .imports_until(one, ctx.everywhere(), "one cluster", listing(1))
        .await?;

    for (cluster, (before, after)) in imports.iter().zip(&after).enumerate() {
        if before.spec.ips != after.spec.ips || before.uid() != after.uid() {
            let expected = describe(before);
            return Err(ctx.failure(
                "the IPs are still the same",
                cluster,
                expected,
                describe(after),
            ));
        }
    }
    Ok(())
}

async fn derived_service(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;

    ctx.export(0, objects::service(upstream_ports())).await?;

    ctx.imports_until(
        "the import has IPs",
        ctx.everywhere(),
        "an IP for each family",
        ips_match,
    )
    .await?;
    for cluster in ctx.everywhere() {
        let expected = "a Service with the import's IPs and ports, without selector";
        ctx.until(
            "the derived Service is what the IPs belong to",
            cluster,
            expected,
            || async {
                let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
                let name = derived_name(&import)?;
                let service = ctx.api::<Service>(cluster).get(&name).await?;
                is_derived_of(&service, &import).map_err(Into::into)
            },
        )
        .await?;
    }
    Ok(())
}

async fn no_ips_for_headless(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;

    ctx.export(0, objects::headless(upstream_ports())).await?;

    let accept = crate::expect::of_type("Headless");
    let expected = "a ServiceImport of type Headless";
    ctx.imports_until("the import appears", ctx.everywhere(), expected, accept)
        .await?;
    let no_ips = |cluster| async move {
        let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
        if import.spec.ips.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        Err(describe(&import).into())
    };
    ctx.stays_in("the import has no IP", ctx.everywhere(), "no IPs", no_ips)
        .await
}

async fn clusters(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (_, first) = ctx.export(0, objects::service(upstream_ports())).await?;
    let step = "one cluster is listed";
    let one = ctx
        .imports_until(step, ctx.everywhere(), "one cluster", listing(1))
        .await?;

    ctx.export_later(1, objects::service(upstream_ports()), &first)
        .await?;

    let step = "two clusters are listed";
    let two = ctx
        .imports_until(step, ctx.everywhere(), "two clusters", listing(2))
        .await?;
    let everywhere = listed(&two[0]);
    for (cluster, (one, two)) in one.iter().zip(&two).enumerate() {
        let (one, two) = (listed(one), listed(two));
        if two != everywhere || !two.contains(&one[0]) {
            let expected = format!("{everywhere:?}, among them {one:?}");
            return Err(ctx.failure("the lists agree", cluster, expected, format!("{two:?}")));
        }
    }
    let step = "the names are different DNS labels";
    if everywhere[0] == everywhere[1] || !everywhere.iter().all(|name| is_dns_label(name)) {
        let expected = "two names of at most 63 letters, digits and dashes";
        return Err(ctx.failure(step, 0, expected, format!("{everywhere:?}")));
    }
    Ok(())
}

/// Whether a text is a DNS label as RFC 1123 has it, in lower case.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.chars().all(|letter| plain(letter) || letter == '-')
        && text.starts_with(plain)
        && text.ends_with(plain)
}

/// The name of the Service behind an import.
pub(crate) fn derived_name(import: &ServiceImport) -> Result<String, String> {
    let name = import.annotations().get(keys::DERIVED_SERVICE).cloned();
    name.ok_or_else(|| format!("no annotation {}", keys::DERIVED_SERVICE))
}

/// The exporting clusters of an import, sorted.
pub(crate) fn listed(import: &ServiceImport) -> Vec<String> {
    let status = import.status.clone().unwrap_or_default();
    let clusters = status.clusters.unwrap_or_default();
    let mut names: Vec<_> = clusters.into_iter().map(|entry| entry.cluster).collect();
    names.sort();
    names
}

/// Accepts imports that list so many clusters.
pub(crate) fn listing(count: usize) -> impl Fn(&ServiceImport) -> Result<(), String> {
    move |import| {
        if listed(import).len() == count {
            return Ok(());
        }
        Err(describe(import))
    }
}

/// Accepts imports with one IP for each of their families, in that order.
pub(crate) fn ips_match(import: &ServiceImport) -> Result<(), String> {
    let ips = import.spec.ips.clone().unwrap_or_default();
    let families = import.spec.ip_families.clone().unwrap_or_default();
    let family = |ip: &String| match ip.parse() {
        Ok(IpAddr::V4(_)) => "IPv4".to_owned(),
        Ok(IpAddr::V6(_)) => "IPv6".to_owned(),
        Err(_) => format!("not an IP: {ip}"),
    };
    let distinct: BTreeSet<_> = families.iter().collect();
    let once = distinct.len() == families.len();
    if once && !ips.is_empty() && ips.iter().map(family).eq(families) {
        return Ok(());
    }
    Err(describe(import))
}

fn is_derived_of(service: &Service, import: &ServiceImport) -> Result<(), String> {
    let spec = service.spec.clone().unwrap_or_default();
    let mut ips = spec.cluster_ips.unwrap_or_default();
    let mut wanted = import.spec.ips.clone().unwrap_or_default();
    ips.sort();
    wanted.sort();
    if ips != wanted {
        return Err(format!("cluster IPs {ips:?} for {}", describe(import)));
    }
    if service_ports(service) != port_texts(import) {
        return Err(format!(
            "ports {:?} for {}",
            service_ports(service),
            describe(import)
        ));
    }
    match spec.selector {
        Some(selector) if !selector.is_empty() => Err(format!("a selector {selector:?}")),
        _ => Ok(()),
    }
}

/// A Service's ports as the texts of [`port_texts`].
pub(crate) fn service_ports(service: &Service) -> Vec<String> {
    let ports = service
        .spec
        .clone()
        .unwrap_or_default()
        .ports
        .unwrap_or_default();
    let text = |port: &ServicePort| {
        let name = port.name.as_deref().unwrap_or_default();
        let protocol = port.protocol.as_deref().unwrap_or("(no protocol)");
        let app = port.app_protocol.as_deref().unwrap_or_default();
        format!("{name} {}/{protocol} {app}", port.port)
            .trim()
            .to_owned()
    };
    let mut texts: Vec<_> = ports.iter().map(text).collect();
    texts.sort();
    texts
}
