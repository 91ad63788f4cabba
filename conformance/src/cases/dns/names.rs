//! Names of ports, names that must not exist, and what is not there at names that do.

use simple_dns::TYPE;

use super::{
    NEEDS, answer_until,
    headless::{families, is_imported},
    imports_with_ips,
};
use crate::{
    case::{Case, Feature, Outcome},
    context::Context,
    lookup::{CLUSTERSET, Lookup, Srv},
    objects::{self, port},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "dns/named-ports",
        title: "Each named port of an import has an SRV record of its own, by protocol, and no other name has",
        rules: &[Rule(102), Rule(84), Rule(162)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(named_ports(ctx)),
    },
    Case {
        id: "dns/headless-named-ports",
        title: "Each named port of a headless import has an SRV record for each address of a pod, of both clusters",
        rules: &[Rule(108), Rule(84), Rule(162)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(headless_named_ports(ctx)),
    },
    Case {
        id: "dns/no-name",
        title: "Names that are reserved, or of what is not exported, do not exist; types that a name has not are merely absent",
        rules: &[Rule(86), Rule(81), Rule(10), Rule(162)],
        features: &[Feature::Workloads, Feature::Dns],
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(no_name(ctx)),
    },
    Case {
        id: "dns/version",
        title: "The ClusterSet's zone says which version of the specification it follows, and answers for an import",
        rules: &[Rule(100), Rule(162)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(version(ctx)),
    },
];

/// Versions of the schema: that of the specification, and the one CoreDNS says, which is Kubernetes' own.
const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];

async fn named_ports(ctx: &Context) -> Outcome {
    ctx.prepare().await?;

    let ports = vec![
        port("web", "TCP", 80),
        port("api", "TCP", 8080),
        port("web-udp", "UDP", 80),
    ];
    ctx.export(0, objects::service(ports)).await?;

    imports_with_ips(ctx).await?;
    let host = ctx.domain(CLUSTERSET);
    for cluster in ctx.everywhere() {
        for (label, number) in [
            ("_web._tcp", 80),
            ("_api._tcp", 8080),
            ("_web-udp._udp", 80),
        ] {
            let name = format!("{label}.{host}");
            let wanted = [Srv {
                port: number,
                target: host.clone(),
            }];
            let expected = format!("port {number} of {host}");
            let question = (name.as_str(), TYPE::SRV, expected.as_str());
            let step = "a named port has its record";
            answer_until(ctx, step, cluster, question, |it| it.services == wanted).await?;
        }
        for label in ["_web._udp", "_other._tcp", "_web-udp._tcp"] {
            let name = format!("{label}.{host}");
            let question = (name.as_str(), TYPE::SRV, "no such name");
            let step = "what is no port has no record";
            answer_until(ctx, step, cluster, question, Lookup::is_no_name).await?;
        }
    }
    Ok(())
}

async fn headless_named_ports(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let (first, second) = futures::try_join!(ctx.start_servers(0, 1), ctx.start_servers(1, 1))?;

    let (service, older) = ctx
        .export(0, objects::headless(objects::served_ports()))
        .await?;
    ctx.export_later(1, objects::headless(objects::served_ports()), &older)
        .await?;

    is_imported(ctx).await?;
    let families = families(service);
    let servers = [first, second].concat();
    let addresses = families
        .iter()
        .flat_map(|it| crate::workloads::addresses(&servers, it));
    let number = addresses.count();
    let host = ctx.domain(CLUSTERSET);
    for cluster in ctx.everywhere() {
        for label in ["_tcp._tcp", "_udp._udp"] {
            let name = format!("{label}.{host}");
            let expected = format!("port 42 of {number} hosts below {host}");
            let question = (name.as_str(), TYPE::SRV, expected.as_str());
            let step = "a named port has a record for each pod";
            answer_until(ctx, step, cluster, question, |it| {
                let below = |it: &Srv| it.port == 42 && it.target.ends_with(&format!(".{host}"));
                it.services.len() == number && it.services.iter().all(below)
            })
            .await?;
        }
    }
    Ok(())
}

async fn no_name(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    let mut silent = objects::service(objects::upstream_ports());
    silent.metadata.name = Some("silent".to_owned());
    ctx.create("create the Service that is not exported", 0, &silent)
        .await?;

    let one_family = objects::service_with(|spec| {
        spec.ip_family_policy = Some("SingleStack".to_owned());
    });
    ctx.export(0, one_family).await?;

    let imports = imports_with_ips(ctx).await?;
    let host = ctx.domain(CLUSTERSET);
    let silent = format!("silent.{}.svc.{CLUSTERSET}", ctx.namespace());
    let nobody = format!("hello.nobody-{}.svc.{CLUSTERSET}", ctx.namespace());
    for (cluster, import) in imports.iter().enumerate() {
        let status = import.status.clone().unwrap_or_default();
        let exporter = status.clusters.into_iter().flatten().next();
        let id = exporter.map_or_else(|| ctx.clusters[0].name.clone(), |it| it.cluster);
        let reserved = format!("{id}.{host}");
        let unknown = format!("10-0-0-1.{id}.{host}");
        for name in [&silent, &nobody, &reserved, &unknown] {
            for kind in [TYPE::A, TYPE::AAAA] {
                let question = (name.as_str(), kind, "no such name");
                let step = "what is not there has no name";
                answer_until(ctx, step, cluster, question, Lookup::is_no_name).await?;
            }
        }
        let v4 = import
            .spec
            .ip_families
            .iter()
            .flatten()
            .any(|it| it == "IPv4");
        let other = if v4 { TYPE::AAAA } else { TYPE::A };
        for kind in [other, TYPE::MX] {
            let question = (host.as_str(), kind, "the name, without such records");
            let step = "a type that the name has not is absent";
            answer_until(ctx, step, cluster, question, Lookup::is_no_data).await?;
        }
    }
    Ok(())
}

async fn version(ctx: &Context) -> Outcome {
    ctx.prepare().await?;
    ctx.export(0, objects::service(objects::upstream_ports()))
        .await?;
    imports_with_ips(ctx).await?;

    let name = format!("dns-version.{CLUSTERSET}");
    for cluster in ctx.everywhere() {
        let question = (name.as_str(), TYPE::TXT, "1.0.0 or 1.1.0");
        answer_until(ctx, "the zone says its version", cluster, question, |it| {
            it.texts.len() == 1 && VERSIONS.contains(&it.texts[0].as_str())
        })
        .await?;
    }
    Ok(())
}
