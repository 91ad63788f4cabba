//! Traffic settings, labels and IP families that differ between exports.

use k8s_openapi::api::core::v1::{Service, SessionAffinityConfig};
use tombolo_api::{
    conditions::{
        CONFLICT, REASON_ANNOTATIONS_CONFLICT, REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT,
        REASON_IP_FAMILY_CONFLICT, REASON_LABELS_CONFLICT, REASON_SESSION_AFFINITY_CONFIG_CONFLICT,
        REASON_SESSION_AFFINITY_CONFLICT, REASON_TRAFFIC_DISTRIBUTION_CONFLICT,
    },
    v1beta1::{ServiceExport, ServiceImport},
};

use super::{BOTH, disagree, undisturbed};
use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    cases::importing::{content::listing, metadata::with_metadata, settings::settings},
    context::Context,
    expect::{Seen, conditions, describe},
    objects::{self, HELLO, service_with, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "conflicts/session-affinity",
        title: "Differing session affinity: the oldest export's stays, SessionAffinityConflict on both exports",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(150)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(session_affinity(ctx)),
    },
    Case {
        id: "conflicts/session-affinity-timeout",
        title: "Differing time-outs: the oldest export's stays, SessionAffinityConfigConflict on both exports",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(150)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(session_affinity_timeout(ctx)),
    },
    Case {
        id: "conflicts/internal-traffic-policy",
        title: "Differing internal traffic policies: the oldest export's stays, and both exports say so",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(151)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(internal_traffic_policy(ctx)),
    },
    Case {
        id: "conflicts/traffic-distribution",
        title: "Differing traffic distributions: the oldest export's stays, and both exports say so",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(152)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(traffic_distribution(ctx)),
    },
    Case {
        id: "conflicts/exported-metadata",
        title: "Differing exported labels and annotations: the oldest export's stay whole, both exports are in conflict",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(153)],
        features: &[Feature::ExportedMetadata],
        upstream: Some("L1"),
        bugs: &[Bug("BC-19", "KEP-1645#17")],
        fails_first: "the import has the first export's labels",
        run: |ctx| Box::pin(exported_metadata(ctx)),
    },
    Case {
        id: "conflicts/ip-families",
        title: "One family here, two there: every IP of the import reaches all backends, or IPFamilyConflict says that it does not",
        rules: &[Rule(21), Rule(144)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-77", "cilium#42145")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(ip_families(ctx)),
    },
    Case {
        id: "conflicts/no-common-ip-family",
        title: "IPv4 here, IPv6 there: the import has the oldest export's family, IPFamilyConflict on both exports",
        rules: &[Rule(21), Rule(140), Rule(144)],
        features: &[Feature::DualStack],
        upstream: None,
        bugs: &[Bug("BC-77", "cilium#42145")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(no_common_ip_family(ctx)),
    },
];

async fn session_affinity(ctx: &Context) -> Outcome {
    let second = service_with(|spec| {
        spec.session_affinity = Some("None".to_owned());
        spec.session_affinity_config = None;
    });
    let reason = REASON_SESSION_AFFINITY_CONFLICT;
    // Whether a cluster without affinity has a differing time-out is a matter of taste.
    let also = [REASON_SESSION_AFFINITY_CONFIG_CONFLICT];
    oldest_wins(
        ctx,
        (objects::service(upstream_ports()), second),
        (reason, &also),
    )
    .await
}

async fn session_affinity_timeout(ctx: &Context) -> Outcome {
    let second = service_with(|spec| {
        let config: &mut SessionAffinityConfig =
            spec.session_affinity_config.get_or_insert_default();
        config.client_ip.get_or_insert_default().timeout_seconds = Some(20);
    });
    let reason = REASON_SESSION_AFFINITY_CONFIG_CONFLICT;
    oldest_wins(
        ctx,
        (objects::service(upstream_ports()), second),
        (reason, &[]),
    )
    .await
}

async fn internal_traffic_policy(ctx: &Context) -> Outcome {
    let second = service_with(|spec| spec.internal_traffic_policy = Some("Local".to_owned()));
    let reason = REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT;
    oldest_wins(
        ctx,
        (objects::service(upstream_ports()), second),
        (reason, &[]),
    )
    .await
}

async fn traffic_distribution(ctx: &Context) -> Outcome {
    let first = service_with(|spec| spec.traffic_distribution = Some("PreferClose".to_owned()));
    let reason = REASON_TRAFFIC_DISTRIBUTION_CONFLICT;
    oldest_wins(
        ctx,
        (first, objects::service(upstream_ports())),
        (reason, &[]),
    )
    .await
}

/// Two exports disagree for one reason: both say so, and the import keeps all settings that it had.
async fn oldest_wins(
    ctx: &Context,
    (first, second): (Service, Service),
    (reason, also): (&str, &[&str]),
) -> Outcome {
    let before = disagree(ctx, first, second).await?;

    let step = "both exports are in conflict";
    ctx.conflicts_until(step, BOTH, &[reason], also).await?;
    let step = "both exporters are listed";
    let after = ctx
        .imports_until(step, ctx.everywhere(), "two clusters", listing(2))
        .await?;
    for (cluster, (before, after)) in before.iter().zip(&after).enumerate() {
        let (before, after) = (without_ips(before), without_ips(after));
        if before.spec != after.spec {
            let step = "the import has the oldest export's settings";
            return Err(ctx.failure(step, cluster, settings(&before), settings(&after)));
        }
    }
    undisturbed(ctx, &before, &after)
}

/// The IPs may come later than the rest; that they stay is for other cases.
fn without_ips(import: &ServiceImport) -> ServiceImport {
    let mut import = import.clone();
    import.spec.ips = None;
    import
}

async fn exported_metadata(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let export = objects::export_with("dummy-label", "dummy-annotation");
    let service = objects::service(upstream_ports());
    let (_, oldest) = ctx.export_as(0, service.clone(), export).await?;
    let second = ["dummy-label2", "dummy-annotation2"];
    let accept = || with_metadata("dummy-label", "dummy-annotation", &second);
    let step = "the import has the first export's labels";
    ctx.imports_until(step, ctx.everywhere(), "these", accept())
        .await?;

    ctx.later(1, &oldest).await?;
    ctx.export_as(1, service, objects::export_with(second[0], second[1]))
        .await?;

    let step = "both exports are in conflict";
    let reasons = [REASON_LABELS_CONFLICT, REASON_ANNOTATIONS_CONFLICT];
    let found = ctx.conflicts_until(step, BOTH, &[], &reasons).await?;
    let step = "the import has the oldest export's labels and annotations, and none of the other's";
    ctx.imports_until(step, ctx.everywhere(), "these", accept())
        .await?;
    match found.iter().find(|condition| condition.message.is_empty()) {
        None => Ok(()),
        Some(condition) => {
            let step = "the conflict is described";
            Err(ctx.failure(step, 0, "a message", condition.reason.clone()))
        }
    }
}

async fn ip_families(ctx: &Context) -> Outcome {
    let second = service_with(|spec| spec.ip_family_policy = Some("SingleStack".to_owned()));
    disagree(ctx, objects::service(upstream_ports()), second).await?;

    families_are_honest(ctx).await
}

async fn no_common_ip_family(ctx: &Context) -> Outcome {
    let single = |family: &str| {
        service_with(|spec| {
            spec.ip_family_policy = Some("SingleStack".to_owned());
            spec.ip_families = Some(vec![family.to_owned()]);
        })
    };
    disagree(ctx, single("IPv4"), single("IPv6")).await?;

    let step = "both exports are in conflict";
    ctx.conflicts_until(step, BOTH, &[REASON_IP_FAMILY_CONFLICT], &[])
        .await?;
    let step = "the import has the oldest export's family first";
    let accept = |import: &ServiceImport| {
        let families = import.spec.ip_families.clone().unwrap_or_default();
        match families.first().map(String::as_str) {
            Some("IPv4") => Ok(()),
            Some(_) | None => Err(describe(import)),
        }
    };
    ctx.imports_until(step, ctx.everywhere(), "IPv4", accept)
        .await?;
    families_are_honest(ctx).await
}

/// Waits in every cluster until the import's families are said to reach a part of the backends only exactly where they do.
async fn families_are_honest(ctx: &Context) -> Outcome {
    let mut exported = Vec::new();
    for cluster in BOTH {
        let service: Service = ctx
            .until("read the Service", cluster, "the Service", || async {
                Ok(ctx.api::<Service>(cluster).get(HELLO).await?)
            })
            .await?;
        exported.push(
            service
                .spec
                .unwrap_or_default()
                .ip_families
                .unwrap_or_default(),
        );
    }
    let exported = &exported;
    for cluster in ctx.everywhere() {
        let step = "the import's families reach all backends, or both exports are in conflict";
        let expected = "IPFamilyConflict exactly where a family is not in both clusters";
        ctx.until(step, cluster, expected, || async move {
            let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
            listing(2)(&import)?;
            let families = import.spec.ip_families.clone().unwrap_or_default();
            let common = |family| exported.iter().all(|own| own.contains(family));
            let partial = !families.iter().all(common);
            for exporter in BOTH {
                let said = says_family_conflict(ctx, exporter).await?;
                if said != partial || families.is_empty() {
                    let seen = describe(&import);
                    return Err(format!("IPFamilyConflict {said} in {exporter}, {seen}").into());
                }
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn says_family_conflict(ctx: &Context, cluster: usize) -> Result<bool, Seen> {
    let export: ServiceExport = ctx.api(cluster).get(HELLO).await?;
    let conditions = conditions(&export);
    let conflict = conditions.iter().find(|it| it.type_ == CONFLICT);
    let conflict = conflict.ok_or("no condition Conflict")?;
    let named = conflict
        .reason
        .split(',')
        .any(|it| it == REASON_IP_FAMILY_CONFLICT);
    Ok(conflict.status == "True" && named)
}
