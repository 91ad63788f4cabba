//! Types, IP families, session affinity and traffic policies that change while a service is exported.

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};
use tombolo_core::service::{
    ImportType, InternalTrafficPolicy, IpFamily, SessionAffinity, TrafficDistribution,
};

use crate::{
    fake_peers::export_from,
    world::{World, cluster_ip, condition, shared},
};

const CLUSTER_IP: &str = "{metadata: {name: web}, spec: {ports: [{name: http, port: 80}]}}";
const HEADLESS: &str =
    "{metadata: {name: web}, spec: {clusterIP: None, ports: [{name: http, port: 80}]}}";
const EXPORT: &str = "{metadata: {name: web}, spec: {exportedLabels: {team: pay}}}";

/// Waits for the status and the reason of `Valid`, and for the reason of `Conflict`, if there should be one.
async fn expect_export(world: &World, valid: (&str, &str), conflict: Option<&str>) -> Result<()> {
    let is = |export: &ServiceExport| {
        let status = export.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let of = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let found = of("Conflict").map(|condition| condition.reason.as_str());
        of("Valid").is_some_and(|found| (found.status.as_str(), found.reason.as_str()) == valid)
            && found == conflict
    };
    let what = format!("Valid is {valid:?}, Conflict {conflict:?}");
    world.expect("web", &what, is).await?;
    Ok(())
}

/// Waits for a ready import of a type, with so many IPs, and a derived Service that is headless or not.
async fn expect_type(world: &World, kind: ImportType, ips: usize) -> Result<ServiceImport> {
    let is = |import: &ServiceImport| {
        let found = import.spec.ips.clone().unwrap_or_default();
        import.spec.type_ == kind.as_str()
            && found.len() == ips
            && condition(import).as_deref() == Some("Ready")
    };
    let import = world
        .expect("web", &format!("{kind} with {ips} IPs"), is)
        .await?;
    let derived = world.name("web").derived().name.to_string();
    let headless = kind == ImportType::Headless;
    let is = |service: &Service| (cluster_ip(service).as_deref() == Some("None")) == headless;
    world
        .expect(&derived, "the derived Service has the type", is)
        .await?;
    Ok(import)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_becomes_external_is_withdrawn_and_comes_back() -> Result<()> {
    let (world, _) = shared().await?;
    world.create::<Service>(CLUSTER_IP).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    expect_type(&world, ImportType::ClusterSetIp, 1).await?;

    let external = json!({ "spec": {
        "type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null
    } });
    world.merge::<Service>("web", external).await?;

    expect_export(&world, ("False", "InvalidServiceType"), None).await?;
    world.expect_gone::<ServiceImport>("web").await?;

    let back = json!({ "spec": { "type": "ClusterIP", "externalName": null } });
    world.merge::<Service>("web", back).await?;

    expect_export(&world, ("True", "Valid"), Some("NoConflicts")).await?;
    expect_type(&world, ImportType::ClusterSetIp, 1).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_made_anew_headless_turns_the_import_and_back() -> Result<()> {
    let (world, _) = shared().await?;
    world.create::<ServiceExport>(EXPORT).await?;

    for (yaml, kind, ips) in [
        (CLUSTER_IP, ImportType::ClusterSetIp, 1),
        (HEADLESS, ImportType::Headless, 0),
        (CLUSTER_IP, ImportType::ClusterSetIp, 1),
    ] {
        world.delete::<Service>("web").await?;
        world.create::<Service>(yaml).await?;

        let import = expect_type(&world, kind, ips).await?;
        assert_eq!(import.spec.ips.is_some(), ips > 0, "{:?}", import.spec.ips);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_type_stands_until_its_export_goes() -> Result<()> {
    let (world, operator) = shared().await?;
    let name = world.name("web");
    operator.peers.export(export_from("east", &name));
    let before = expect_type(&world, ImportType::ClusterSetIp, 1).await?;

    world.create::<Service>(HEADLESS).await?;
    world.create::<ServiceExport>(EXPORT).await?;

    expect_export(&world, ("True", "Valid"), Some("TypeConflict")).await?;
    let import = expect_type(&world, ImportType::ClusterSetIp, 1).await?;
    assert_eq!(import.spec, before.spec);

    operator.peers.withdraw("east", &name);

    expect_export(&world, ("True", "Valid"), Some("NoConflicts")).await?;
    let after = expect_type(&world, ImportType::Headless, 0).await?;
    assert_eq!(
        after.metadata.uid, import.metadata.uid,
        "never a moment without an import"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ips_are_those_of_the_common_families_in_the_order_of_the_oldest() -> Result<()> {
    use IpFamily::{V4, V6};
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let families = |cluster: &str, families: &[IpFamily]| {
        let mut export = export_from(cluster, &name);
        export.ip_families = families.to_vec();
        operator.peers.export(export);
    };
    let expect = async |expected: &[&str]| -> Result<ServiceImport> {
        let is = |import: &ServiceImport| {
            let ips = import.spec.ips.clone().unwrap_or_default();
            let found = ips
                .iter()
                .map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" });
            import.spec.ip_families.clone().unwrap_or_default() == expected
                && found.eq(expected.iter().copied())
        };
        world
            .expect("web", &format!("families and IPs are {expected:?}"), is)
            .await
    };

    families("east", &[V6, V4]);
    let both = expect(&["IPv6", "IPv4"])
        .await?
        .spec
        .ips
        .unwrap_or_default();
    families("east", &[V4, V6]);
    let turned = expect(&["IPv4", "IPv6"])
        .await?
        .spec
        .ips
        .unwrap_or_default();
    assert_eq!(
        turned.iter().rev().collect::<Vec<_>>(),
        both.iter().collect::<Vec<_>>()
    );
    families("west", &[V6]);
    assert_eq!(
        expect(&["IPv6"]).await?.spec.ips.unwrap_or_default(),
        both[..1]
    );
    operator.peers.withdraw("west", &name);
    assert_eq!(
        expect(&["IPv4", "IPv6"])
            .await?
            .spec
            .ips
            .unwrap_or_default(),
        turned
    );

    // No family in common: the oldest export's, and a conflict that this cluster's export shows.
    families("east", &[V6]);
    world.create::<Service>(CLUSTER_IP).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    expect_export(&world, ("True", "Valid"), Some("IPFamilyConflict")).await?;
    expect(&["IPv6"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn affinity_and_traffic_policies_reach_the_derived_service_and_leave_it_again() -> Result<()>
{
    let (world, operator) = shared().await?;
    let name = world.name("web");
    let derived = name.derived().name.to_string();
    let expect =
        async |affinity: &str, timeout: Option<i32>, policy: &str, distribution: Option<&str>| {
            let is = |service: &Service| {
                let spec = service.spec.clone().unwrap_or_default();
                let config = spec
                    .session_affinity_config
                    .and_then(|config| config.client_ip);
                spec.session_affinity.as_deref() == Some(affinity)
                    && config.and_then(|config| config.timeout_seconds) == timeout
                    && spec.internal_traffic_policy.as_deref() == Some(policy)
                    && spec.traffic_distribution.as_deref() == distribution
            };
            let what = format!("{affinity} {timeout:?} {policy} {distribution:?}");
            world.expect(&derived, &what, is).await
        };
    let mut export = export_from("east", &name);
    export.session_affinity = SessionAffinity::ClientIp;
    export.session_affinity_timeout_seconds = Some(600);
    export.internal_traffic_policy = Some(InternalTrafficPolicy::Local);
    export.traffic_distribution = Some(TrafficDistribution::PreferSameZone);
    operator.peers.export(export.clone());
    let first: Service = expect("ClientIP", Some(600), "Local", Some("PreferSameZone")).await?;

    export.session_affinity_timeout_seconds = Some(1200);
    export.traffic_distribution = Some(TrafficDistribution::PreferSameNode);
    operator.peers.export(export.clone());
    expect("ClientIP", Some(1200), "Local", Some("PreferSameNode")).await?;

    // Kubernetes' default, since a ClientIP affinity needs a time-out.
    export.session_affinity_timeout_seconds = None;
    operator.peers.export(export);
    expect("ClientIP", Some(10_800), "Local", Some("PreferSameNode")).await?;

    operator.peers.export(export_from("east", &name));
    let last = expect("None", None, "Cluster", None).await?;
    assert_eq!(cluster_ip(&last), cluster_ip(&first));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_local_service_says_of_affinity_and_traffic_reaches_import_and_derived_service()
-> Result<()> {
    let (world, _) = shared().await?;
    let derived = world.name("web").derived().name.to_string();
    world.create::<Service>(CLUSTER_IP).await?;
    world.create::<ServiceExport>(EXPORT).await?;
    world.expect_ready("web").await?;

    let sticky = json!({ "spec": {
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 77 } },
        "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose",
    } });
    world.merge::<Service>("web", sticky).await?;

    let timeout = |config: Option<k8s_openapi::api::core::v1::SessionAffinityConfig>| {
        config.and_then(|config| config.client_ip?.timeout_seconds)
    };
    let is = |import: &ServiceImport| {
        import.spec.session_affinity.as_deref() == Some("ClientIP")
            && timeout(import.spec.session_affinity_config.clone()) == Some(77)
            && import.spec.internal_traffic_policy.as_deref() == Some("Local")
            && import.spec.traffic_distribution.as_deref() == Some("PreferClose")
    };
    world.expect("web", "the import says so", is).await?;
    let is = |service: &Service| {
        let spec = service.spec.clone().unwrap_or_default();
        spec.session_affinity.as_deref() == Some("ClientIP")
            && timeout(spec.session_affinity_config) == Some(77)
            && spec.internal_traffic_policy.as_deref() == Some("Local")
            && spec.traffic_distribution.as_deref() == Some("PreferClose")
    };
    world
        .expect(&derived, "the derived Service does so", is)
        .await?;
    Ok(())
}
