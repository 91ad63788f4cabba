//! What the definitions accept and the rules refuse: it ends in a condition or in a record that is left out, and then there
//! is peace.

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use serde_json::{Value, json};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_core::{
    names::{ClusterName, NamespacedName},
    wire::{cluster_service, service_export},
};

use crate::{
    at_rest::alone,
    fake_peers::FakePeers,
    world::{Operator, World, condition},
};

/// Looks at everything that must cause no write.
const PASSES: usize = 4;

/// An export of `east` as it stands in the store, with one member changed.
fn record(name: &NamespacedName, member: &str, value: Value) -> Value {
    let mut record = json!({
        "cluster": "east", "namespace": name.namespace.as_str(), "name": name.name.as_str(),
        "exportCreationTimestamp": "2026-01-01T00:00:00Z", "type": "ClusterSetIP", "sessionAffinity": "None",
        "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }], "ipFamilies": ["IPv4"],
    });
    record[member] = value;
    record
}

/// Reads a record as it comes from a store; the reason why it is left out, if it is.
fn read_export(peers: &FakePeers, name: &NamespacedName, record: &Value) -> Option<&'static str> {
    let east = ClusterName::try_from("east").unwrap();
    let suffix = format!(
        "{}/{}",
        name.namespace,
        record["name"].as_str().unwrap_or_default()
    );
    match service_export::decode(&east, &suffix, record.to_string().as_bytes()) {
        Ok(export) => {
            peers.export(export);
            None
        }
        Err(error) => Some(error.reason()),
    }
}

/// Records that no peer should write, each under a name of its own, and why they are left out.
fn refused_records(world: &World, peers: &FakePeers) -> Result<Vec<NamespacedName>> {
    let cases = [
        (
            "no-time",
            "exportCreationTimestamp",
            json!("0001-01-01T00:00:00Z"),
            "Unset",
        ),
        ("no-ports", "ports", json!([]), "BreaksRule"),
        ("null-ports", "ports", Value::Null, "BreaksRule"),
        (
            "port-zero",
            "ports",
            json!([{ "name": "http", "protocol": "TCP", "port": 0 }]),
            "BreaksRule",
        ),
        (
            "mixed-names",
            "ports",
            json!([{ "name": "http", "port": 80 }, { "port": 81 }]),
            "BreaksRule",
        ),
        ("upper-case", "name", json!("Upper-Case"), "InvalidName"),
        (
            "bad-label",
            "labels",
            json!({ "bad key!": "1" }),
            "BreaksRule",
        ),
        (
            "bad-annotation",
            "annotations",
            json!({ "bad key!": "1" }),
            "BreaksRule",
        ),
    ];
    let mut names = Vec::new();
    for (name, member, value, reason) in cases {
        let name = world.name(name);
        let found = read_export(peers, &name, &record(&name, member, value));
        ensure!(found == Some(reason), "{name}: {found:?}");
        names.push(name);
    }
    Ok(names)
}

/// The reasons of a ServiceExport's conditions.
async fn expect_reasons(world: &World, name: &str, reasons: &[&str]) -> Result<()> {
    let is = |export: &ServiceExport| {
        let status = export.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let found: Vec<_> = conditions
            .iter()
            .map(|condition| condition.reason.as_str())
            .collect();
        found.len() == reasons.len() && reasons.iter().all(|reason| found.contains(reason))
    };
    world
        .expect(name, &format!("reasons {reasons:?}"), is)
        .await?;
    Ok(())
}

/// Exports of this cluster that cannot be, or not quite: the status says why.
async fn local_exports(world: &World) -> Result<()> {
    let service = |name: &str| {
        format!("{{metadata: {{name: {name}}}, spec: {{ports: [{{name: http, port: 80}}]}}}}")
    };
    let large = "x".repeat(256 * 1024);
    for (name, spec, reason) in [
        (
            "bad-key",
            "{exportedLabels: {'bad key!': '1'}}".to_owned(),
            "InvalidExportedLabels",
        ),
        (
            "bad-value",
            "{exportedLabels: {a: '-'}}".to_owned(),
            "InvalidExportedLabels",
        ),
        (
            "bad-note",
            "{exportedAnnotations: {'/x': '1'}}".to_owned(),
            "InvalidExportedAnnotations",
        ),
        (
            "large-note",
            format!("{{exportedAnnotations: {{x: {large}}}}}"),
            "InvalidExportedAnnotations",
        ),
    ] {
        world.create::<Service>(&service(name)).await?;
        world
            .create::<ServiceExport>(&format!("{{metadata: {{name: {name}}}, spec: {spec}}}"))
            .await?;
        expect_reasons(world, name, &[reason, "Pending"]).await?;
        world.expect_gone::<ServiceImport>(name).await?;
    }
    // No Service can have these names.
    for name in ["dotted.name".to_owned(), "n".repeat(64)] {
        world
            .create::<ServiceExport>(&format!("{{metadata: {{name: {name}}}}}"))
            .await?;
        expect_reasons(world, &name, &["NoService", "Pending"]).await?;
    }
    // Neither a spec nor ports are needed.
    world
        .create::<Service>("{metadata: {name: bare}, spec: {clusterIP: None, selector: {app: x}}}")
        .await?;
    world
        .create::<ServiceExport>("{metadata: {name: bare}}")
        .await?;
    expect_reasons(world, "bare", &["Valid", "Ready", "NoConflicts"]).await?;
    world.expect_ready("bare").await?;
    Ok(())
}

/// Nine ports of one name: one of them is served, and who exports the name too is told.
async fn nine_ports(world: &World, operator: &Operator) -> Result<()> {
    let name = world.name("nine");
    let ports: Vec<_> = (80..89)
        .map(|port| json!({ "name": "http", "protocol": "TCP", "port": port }))
        .collect();
    let refused = read_export(
        &operator.peers,
        &name,
        &record(&name, "ports", json!(ports)),
    );
    ensure!(refused.is_none(), "{refused:?}");
    let import = world.expect_ready("nine").await?;
    ensure!(import.spec.ports.len() == 1, "{:?}", import.spec.ports);
    world
        .create::<Service>("{metadata: {name: nine}, spec: {ports: [{name: http, port: 80}]}}")
        .await?;
    world
        .create::<ServiceExport>("{metadata: {name: nine}}")
        .await?;
    expect_reasons(world, "nine", &["Valid", "Ready", "PortConflict"]).await
}

/// Named and unnamed ports, which one Service cannot have together.
async fn named_and_unnamed(world: &World, operator: &Operator) -> Result<()> {
    let name = world.name("mixed");
    let ports = json!([{ "protocol": "TCP", "port": 80 }]);
    let refused = read_export(&operator.peers, &name, &record(&name, "ports", ports));
    ensure!(refused.is_none(), "{refused:?}");
    world
        .create::<Service>("{metadata: {name: mixed}, spec: {ports: [{name: http, port: 8080}]}}")
        .await?;
    world
        .create::<ServiceExport>("{metadata: {name: mixed}}")
        .await?;
    expect_reasons(world, "mixed", &["Valid", "Ready", "PortConflict"]).await?;
    let import = world.expect_ready("mixed").await?;
    ensure!(import.spec.ports.len() == 2, "{:?}", import.spec.ports);
    Ok(())
}

/// A bad host name costs the host name, not the endpoint.
async fn bad_hostname(world: &World, operator: &Operator) -> Result<()> {
    let name = world.name("hosts");
    let refused = read_export(&operator.peers, &name, &record(&name, "labels", json!({})));
    ensure!(refused.is_none(), "{refused:?}");
    let derived = name.derived();
    let record = json!({
        "cluster": "east", "clusterID": 9, "namespace": derived.namespace.as_str(), "name": derived.name.as_str(),
        "frontends": {}, "backends": { "10.1.0.1": { "http": { "Protocol": "TCP", "Port": 8080 } } },
        "hostnames": { "10.1.0.1": "Not_a.hostname" }, "labels": {}, "selector": {},
        "includeExternal": true, "shared": true,
    });
    let east = ClusterName::try_from("east").unwrap();
    let suffix = format!("{}/{}", derived.namespace, derived.name);
    let mut dropped = Vec::new();
    let service =
        cluster_service::decode(&east, &suffix, record.to_string().as_bytes(), &mut dropped)?;
    ensure!(dropped.len() == 1, "{dropped:?}");
    operator.peers.serve(service);
    let slices = world
        .expect_addresses(derived.name.as_str(), keys::MANAGED_BY_MESH, &["10.1.0.1"])
        .await?;
    let hostname = |slice: &EndpointSlice| {
        slice
            .endpoints
            .iter()
            .flatten()
            .find_map(|endpoint| endpoint.hostname.clone())
    };
    ensure!(hostname(&slices[0]).is_none(), "{slices:?}");
    Ok(())
}

/// Annotations that the API server refuses on a derived Service cost the annotation, not the Service.
async fn refused_annotations(world: &World, operator: &Operator) -> Result<()> {
    let name = world.name("annotated");
    let withheld = [
        "service.beta.kubernetes.io/load-balancer-source-ranges",
        "service.kubernetes.io/topology-aware-hints",
    ];
    let annotations = json!({
        withheld[0]: "10.0.0.0/8", withheld[1]: "disabled", "service.kubernetes.io/topology-mode": "Auto",
    });
    let record = record(&name, "annotations", annotations.clone());
    let refused = read_export(&operator.peers, &name, &record);
    ensure!(refused.is_none(), "{refused:?}");
    let import = world.expect_ready("annotated").await?;
    let derived: Service = world.api().get(name.derived().name.as_str()).await?;
    for (key, value) in annotations.as_object().unwrap() {
        let exported = import.annotations().get(key).map(String::as_str);
        ensure!(exported == value.as_str(), "{key}: {exported:?}");
        let carried = derived.annotations().contains_key(key);
        ensure!(carried != withheld.contains(&key.as_str()), "{key}");
    }
    world
        .expect_event("annotated", "AnnotationsNotDerived")
        .await
}

/// Imports that a user made: the definition accepts nine ports of one name, and port 0.
async fn hand_made_imports(world: &World) -> Result<Vec<ServiceImport>> {
    let nine = "{name: http, port: 80}, ".repeat(9);
    let mut made = Vec::new();
    for (name, ports) in [
        ("made-nine", nine.trim_end_matches(", ")),
        ("made-zero", "{port: 0}"),
        ("made-none", ""),
    ] {
        let yaml = format!(
            "{{metadata: {{name: {name}}}, spec: {{type: ClusterSetIP, ports: [{ports}]}}}}"
        );
        made.push(world.create::<ServiceImport>(&yaml).await?);
    }
    Ok(made)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_ends_in_a_reason_and_then_in_peace() -> Result<()> {
    let (_turn, world, operator) = alone().await?;
    let refused = refused_records(&world, &operator.peers)?;
    local_exports(&world).await?;
    nine_ports(&world, operator).await?;
    named_and_unnamed(&world, operator).await?;
    bad_hostname(&world, operator).await?;
    refused_annotations(&world, operator).await?;
    let made = hand_made_imports(&world).await?;
    let before = operator.settled().await?;

    for _ in 0..PASSES {
        operator.peers.set_loading(&[]);
        operator.settled().await?;
    }

    let done = operator.counts().since(&before);
    assert_eq!(done.all_writes(), 0, "{done:?}");
    assert!(done.all_reconciles() >= PASSES, "{done:?}");
    let failed: Vec<_> = done
        .reconciles
        .keys()
        .filter(|(_, outcome)| *outcome != "Done")
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    for name in refused {
        world
            .expect_gone::<ServiceImport>(name.name.as_str())
            .await?;
    }
    for made in made {
        let now: ServiceImport = world.api().get(&made.name_any()).await?;
        assert_eq!(now.resource_version(), made.resource_version());
        assert_eq!(condition(&now), None);
    }
    Ok(())
}
