//! `latency`: how long it takes from an export in one cluster to its import in another, and from an endpoint change to
//! the slice. Two clusters on this machine; times come from watches on the API servers.

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use comfy_table::Table;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, ResourceExt as _, api::PostParams};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceExportSpec, ServiceImport},
};
use tombolo_e2e::{
    events::Events,
    scene::Scene,
    stats::{Times, milliseconds},
};
use tombolo_testbed::{Error, FakePod, PodOptions, Testbed};

const A: usize = 0;
const B: usize = 1;

/// Measures export → import and endpoint → slice between two clusters on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often each is measured.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().repetitions).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error:#}");
            let assets = error
                .downcast_ref()
                .is_some_and(|it| matches!(it, Error::Assets(_)));
            ExitCode::from(if assets { 2 } else { 1 })
        }
    }
}

async fn run(repetitions: u16) -> Result<()> {
    let testbed = Testbed::start(2).await?;
    testbed.start_mesh().await?;
    let mut table = Table::new();
    table.set_header(["from → to", "count", "median", "p99", "slowest"]);
    for (what, times) in exports(&testbed, repetitions).await? {
        add(&mut table, what, times);
    }
    for (what, times) in endpoints(&testbed, repetitions).await? {
        add(&mut table, what, times);
    }
    println!("{table}");
    Ok(())
}

fn add(table: &mut Table, what: &str, times: Vec<Duration>) {
    if let Some(times) = Times::new(times) {
        let [median, p99, slowest] = [50, 99, 100].map(|it| milliseconds(times.percentile(it)));
        table.add_row([
            what.to_owned(),
            times.count().to_string(),
            median,
            p99,
            slowest,
        ]);
    }
}

fn progress(what: &str, done: u16, of: u16) {
    if stderr().is_terminal() {
        eprint!(
            "\r{what}: {done} of {of}{}",
            if done == of { "\n" } else { "" }
        );
    }
}

/// From the creation of a ServiceExport in A to what follows in B.
async fn exports(
    testbed: &Testbed,
    repetitions: u16,
) -> Result<Vec<(&'static str, Vec<Duration>)>> {
    let mut scene = Scene::new(testbed).await?;
    // The first one waits for what happens once after the definitions of the API were installed; it does not count.
    let names: Vec<_> = (0..=repetitions)
        .map(|number| format!("web-{number}"))
        .collect();
    for name in &names {
        scene.serve(A, name).await?;
    }
    let mut imports = Events::<ServiceImport>::watch(scene.api(B)).await?;
    let mut slices = Events::<EndpointSlice>::watch(scene.api(B)).await?;
    let exports = scene.api::<ServiceExport>(A);
    let [mut imported, mut ready, mut routed] = [(); 3].map(|()| Vec::new());
    for (number, name) in (0..).zip(&names) {
        let export = ServiceExport::new(name, ServiceExportSpec::default());
        let start = Instant::now();
        exports.create(&PostParams::default(), &export).await?;
        let is_it = |import: &ServiceImport| import.name_any() == *name;
        imported.push(imports.until("the import", is_it).await? - start);
        let has_ip = |import: &ServiceImport| is_it(import) && is_ready(import);
        ready.push(imports.until("the import with its IP", has_ip).await? - start);
        let of_export = |slice: &EndpointSlice| {
            slice.labels().get(keys::SERVICE_NAME) == Some(name) && has_endpoint(slice)
        };
        routed.push(slices.until("the slice", of_export).await? - start);
        progress("exports", number, repetitions);
    }
    for times in [&mut imported, &mut ready, &mut routed] {
        times.remove(0);
    }
    Ok(vec![
        ("ServiceExport in A → ServiceImport in B", imported),
        (
            "ServiceExport in A → ServiceImport in B, Ready with IP",
            ready,
        ),
        (
            "ServiceExport in A → EndpointSlice of the derived Service in B",
            routed,
        ),
    ])
}

fn is_ready(import: &ServiceImport) -> bool {
    let status = import.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    import.spec.ips.as_ref().is_some_and(|ips| !ips.is_empty())
        && conditions
            .iter()
            .any(|it| it.type_ == "Ready" && it.status == "True")
}

fn has_endpoint(slice: &EndpointSlice) -> bool {
    slice
        .endpoints
        .as_ref()
        .is_some_and(|endpoints| !endpoints.is_empty())
}

/// From a pod of A that becomes ready or unready to A's own slice and to the slice in B.
async fn endpoints(
    testbed: &Testbed,
    repetitions: u16,
) -> Result<Vec<(&'static str, Vec<Duration>)>> {
    let scene = Scene::with_exports(testbed, &[(A, "web")]).await?;
    let namespace = scene.namespace();
    let options = PodOptions::default().unready();
    let pod = testbed
        .cluster(A)
        .fake_pod(namespace, "toggled", &[("app", "web")], options)
        .await?;
    let address = pod
        .ips()
        .first()
        .context("a fake pod has an address")?
        .to_string();
    let own: Api<EndpointSlice> = scene.api(A);
    let remote: Api<EndpointSlice> = scene.api(B);
    let (mut own, mut remote) = (Events::watch(own).await?, Events::watch(remote).await?);
    let [mut all, mut mesh] = [(); 2].map(|()| Vec::new());
    for number in 1..=repetitions {
        let wanted = number % 2 == 1;
        let (changed, here, there) = toggle(&pod, wanted, &address, &mut own, &mut remote).await?;
        all.push(there - changed);
        mesh.push(there.saturating_duration_since(here));
        progress("endpoint changes", number, repetitions);
    }
    Ok(vec![
        ("EndpointSlice in A → EndpointSlice in B", mesh),
        ("pod ready or unready in A → EndpointSlice in B", all),
    ])
}

/// Changes a pod's readiness; returns when that was asked for, when A's own slice showed it, and when B's did.
async fn toggle(
    pod: &FakePod<'_>,
    ready: bool,
    address: &str,
    own: &mut Events<EndpointSlice>,
    remote: &mut Events<EndpointSlice>,
) -> Result<(Instant, Instant, Instant)> {
    let of_service = |slice: &EndpointSlice| {
        slice.address_type == "IPv4"
            && slice
                .labels()
                .get(keys::KUBERNETES_SERVICE_NAME)
                .is_some_and(|name| name == "web")
    };
    let of_import = |slice: &EndpointSlice| {
        slice.address_type == "IPv4" && slice.labels().contains_key(keys::SERVICE_NAME)
    };
    let start = Instant::now();
    pod.set_ready(ready).await?;
    let here = own
        .until("A's own slice", |slice| {
            of_service(slice) && routes(slice, address) == ready
        })
        .await?;
    let there = remote
        .until("B's slice", |slice| {
            of_import(slice) && routes(slice, address) == ready
        })
        .await?;
    Ok((start, here, there))
}

/// Whether traffic goes to that address by this slice.
fn routes(slice: &EndpointSlice, address: &str) -> bool {
    slice.endpoints.iter().flatten().any(|endpoint| {
        let ready = endpoint.conditions.as_ref().and_then(|it| it.ready) != Some(false);
        ready && endpoint.addresses.iter().any(|it| it == address)
    })
}
