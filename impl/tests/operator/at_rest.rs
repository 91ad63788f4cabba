//! An operator that has nothing to do does nothing, and what it does it does soon.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_testbed::{Testbed, eventually, stays_for};

use crate::{
    fake_peers::{export_from, service_from},
    world::{Operator, World},
};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_when_nothing_has_changed() -> Result<()> {
    // A cluster of its own: any other test would make writes.
    let testbed = Testbed::start(1).await?;
    let world = World::new(testbed.cluster(0)).await?;
    let operator = Operator::start(testbed.cluster(0), |_| {})?;
    for name in ["a", "b", "c"] {
        let name = world.name(name);
        operator.peers.export(export_from("east", &name));
        operator.peers.serve(service_from(
            "east",
            &name.derived(),
            &["10.1.0.1", "fd00:1::1"],
        ));
        world.expect_ready(name.name.as_str()).await?;
        world
            .expect_addresses(
                name.derived().name.as_str(),
                keys::MANAGED_BY_MESH,
                &["10.1.0.1"],
            )
            .await?;
    }
    world.create::<Service>("{metadata: {name: a}, spec: {ports: [{name: http, port: 80}], sessionAffinity: ClientIP}}").await?;
    world
        .create::<ServiceExport>("{metadata: {name: a}}")
        .await?;
    let both = |import: &ServiceImport| {
        let status = import.status.clone().unwrap_or_default();
        status.clusters.is_some_and(|clusters| clusters.len() == 2)
    };
    world.expect("a", "both clusters export it", both).await?;
    settled(&operator).await?;
    let before = operator.writes();

    // A full pass.
    operator.peers.set_loading(&[]);

    stays_for(Duration::from_secs(1), "no write", async || {
        let writes = operator.writes();
        (writes == before)
            .then_some(())
            .ok_or_else(|| format!("{} writes", writes - before))
    })
    .await?;
    println!("{before} writes in all");
    Ok(())
}

/// Waits until there was no write for a quarter of a second.
async fn settled(operator: &Operator) -> Result<()> {
    let mut last = (operator.writes(), Instant::now());
    eventually(
        Duration::from_secs(20),
        "writes come to an end",
        async || {
            let writes = operator.writes();
            if writes != last.0 {
                last = (writes, Instant::now());
            }
            let quiet = last.1.elapsed() > Duration::from_millis(250);
            quiet
                .then_some(())
                .ok_or_else(|| format!("{writes} writes"))
        },
    )
    .await?;
    Ok(())
}
