//! How the traffic settings of a Service come out in its import.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use serde_json::{Value, json};
use tombolo_api::v1beta1::ServiceImport;

use super::content::{derived_name, ips_match, service_ports};
use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    context::Context,
    expect::{describe, port_texts},
    objects::{self, port},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "importing/session-affinity",
        title: "The import has the Service's session affinity and time-out",
        rules: &[Rule(15)],
        features: &[],
        upstream: Some("I3"),
        bugs: &[],
        fails_first: "the import has the Service's session affinity",
        run: |ctx| Box::pin(session_affinity(ctx)),
    },
    Case {
        id: "importing/internal-traffic-policy",
        title: "The import states the Service's internal traffic policy",
        rules: &[Rule(15)],
        features: &[],
        upstream: Some("I4"),
        bugs: &[],
        fails_first: "the import has the Service's internal traffic policy",
        run: |ctx| Box::pin(internal_traffic_policy(ctx)),
    },
    Case {
        id: "importing/traffic-distribution",
        title: "The import has the Service's traffic distribution",
        rules: &[Rule(15)],
        features: &[],
        upstream: Some("I5"),
        bugs: &[],
        fails_first: "the import has the Service's traffic distribution",
        run: |ctx| Box::pin(traffic_distribution(ctx)),
    },
    Case {
        id: "importing/follows-service",
        title: "The import follows every change of a setting of the Service",
        rules: &[Rule(15), Rule(19), Rule(64)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-14", "lighthouse#645")],
        fails_first: "the import has the Service's settings",
        run: |ctx| Box::pin(follows_service(ctx)),
    },
    Case {
        id: "importing/derived-affinity",
        title: "The derived Service has the import's session affinity and time-out, so that the traffic does, and follows both",
        rules: &[Rule(15), Rule(63), Rule(150)],
        features: &[Feature::DerivedService],
        upstream: None,
        bugs: &[],
        fails_first: "the derived Service has the session affinity and its time-out",
        run: |ctx| Box::pin(derived_affinity(ctx)),
    },
];

async fn session_affinity(ctx: &Context) -> Outcome {
    let service = objects::service(objects::upstream_ports());
    let step = "the import has the Service's session affinity";
    has(ctx, step, service, |service, import| {
        service.session_affinity == import.spec.session_affinity
            && service.session_affinity_config == import.spec.session_affinity_config
    })
    .await
}

async fn internal_traffic_policy(ctx: &Context) -> Outcome {
    let policy = Some("Cluster".to_owned());
    let service = objects::service_with(|spec| spec.internal_traffic_policy = policy);
    let step = "the import has the Service's internal traffic policy";
    has(ctx, step, service, |service, import| {
        service.internal_traffic_policy == import.spec.internal_traffic_policy
    })
    .await
}

async fn traffic_distribution(ctx: &Context) -> Outcome {
    let distribution = Some("PreferClose".to_owned());
    let service = objects::service_with(|spec| spec.traffic_distribution = distribution);
    let step = "the import has the Service's traffic distribution";
    has(ctx, step, service, |service, import| {
        service.traffic_distribution == import.spec.traffic_distribution
    })
    .await
}

/// Exports a Service and waits in every cluster for an import that is the same in something.
async fn has(
    ctx: &Context,
    step: &'static str,
    service: Service,
    same: impl Fn(&ServiceSpec, &ServiceImport) -> bool,
) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (service, _) = ctx.export(0, service).await?;
    let service = service.spec.unwrap_or_default();

    let accept = |import: &ServiceImport| {
        if same(&service, import) {
            return Ok(());
        }
        Err(settings(import))
    };
    ctx.imports_until(step, ctx.everywhere(), "the Service's value", accept)
        .await
        .map(|_| ())
}

async fn follows_service(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (service, _) = ctx
        .export(0, objects::service(objects::upstream_ports()))
        .await?;
    let step = "the import has the Service's settings";
    ctx.imports_until(step, ctx.everywhere(), "them", mirrors(&service))
        .await?;

    for (step, patch) in changes() {
        let service = ctx.patch_service(0, &json!({ "spec": patch })).await?;
        let expected = "the Service as it is now";
        ctx.imports_until(step, ctx.everywhere(), expected, mirrors(&service))
            .await?;
    }
    Ok(())
}

/// Three answers of the exported Service to the question where a client goes, one after the other. The second export, with
/// another time-out, has no say.
async fn derived_affinity(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (service, oldest) = ctx
        .export(0, objects::service(objects::upstream_ports()))
        .await?;
    let step = "the derived Service has the session affinity and its time-out";
    derived_like(ctx, step, &service).await?;

    let younger = objects::service_with(|spec| {
        let config = spec.session_affinity_config.get_or_insert_default();
        config.client_ip.get_or_insert_default().timeout_seconds = Some(20);
    });
    ctx.export_later(1, younger, &oldest).await?;
    for (step, patch) in [
        (
            "the derived Service follows the time-out",
            json!({ "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 77 } } }),
        ),
        (
            "the derived Service follows the session affinity",
            json!({ "sessionAffinity": "None", "sessionAffinityConfig": null }),
        ),
    ] {
        let service = ctx.patch_service(0, &json!({ "spec": patch })).await?;
        derived_like(ctx, step, &service).await?;
    }
    Ok(())
}

/// Waits in every cluster until the derived Service has the session affinity and time-out of an exported one.
async fn derived_like(ctx: &Context, step: &'static str, exported: &Service) -> Outcome {
    let affinity = |service: &Service| {
        let spec = service.spec.clone().unwrap_or_default();
        (spec.session_affinity, spec.session_affinity_config)
    };
    let wanted = &affinity(exported);
    let expected = format!("{wanted:?}");
    let one = |cluster| {
        ctx.until(step, cluster, &expected, move || async move {
            let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
            let name = derived_name(&import)?;
            let found = affinity(&ctx.api::<Service>(cluster).get(&name).await?);
            if found == *wanted {
                return Ok(());
            }
            Err(format!("{found:?}").into())
        })
    };
    try_join_all(ctx.everywhere().map(one)).await.map(|_| ())
}

/// One change for each setting, and the step at which the import has to follow.
fn changes() -> Vec<(&'static str, Value)> {
    let with_app = json!([{ "name": "tcp", "port": 42, "appProtocol": "http" }]);
    vec![
        (
            "the import follows the ports",
            json!({ "ports": [port("web", "TCP", 8443), port("udp", "UDP", 42)] }),
        ),
        (
            "the import follows the application protocol",
            json!({ "ports": with_app }),
        ),
        (
            "the import follows the time-out of the session affinity",
            json!({ "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 77 } } }),
        ),
        (
            "the import follows the session affinity",
            json!({ "sessionAffinity": "None", "sessionAffinityConfig": null }),
        ),
        (
            "the import follows the internal traffic policy",
            json!({ "internalTrafficPolicy": "Local" }),
        ),
        (
            "the import follows the traffic distribution",
            json!({ "trafficDistribution": "PreferClose" }),
        ),
        (
            "the import follows the traffic distribution's end",
            json!({ "trafficDistribution": null }),
        ),
        (
            "the import follows the IP families",
            json!({ "ipFamilyPolicy": "SingleStack" }),
        ),
    ]
}

/// Accepts imports with all settings of a Service, and IPs of its families.
fn mirrors(service: &Service) -> impl Fn(&ServiceImport) -> Result<(), String> {
    let ports = service_ports(service);
    let service = service.spec.clone().unwrap_or_default();
    move |import| {
        let spec = &import.spec;
        // `None` is the default, and as good as nothing.
        let affinity = |it: &Option<String>| it.clone().unwrap_or_else(|| "None".to_owned());
        let same = port_texts(import) == ports
            && affinity(&spec.session_affinity) == affinity(&service.session_affinity)
            && spec.session_affinity_config == service.session_affinity_config
            && spec.internal_traffic_policy == service.internal_traffic_policy
            && spec.traffic_distribution == service.traffic_distribution
            && spec.ip_families == service.ip_families;
        if same {
            return ips_match(import);
        }
        Err(settings(import))
    }
}

/// The settings of an import in one line.
pub(crate) fn settings(import: &ServiceImport) -> String {
    let spec = &import.spec;
    format!(
        "{}, affinity {:?} {:?}, internal traffic policy {:?}, traffic distribution {:?}",
        describe(import),
        spec.session_affinity,
        spec.session_affinity_config,
        spec.internal_traffic_policy,
        spec.traffic_distribution
    )
}
