//! Reads the endpoints behind an import out of the API, and says what should be there.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::{ResourceExt as _, api::ListParams};
use tombolo_api::keys;

use crate::{
    case::{Failure, Outcome},
    cases::importing::content::derived_name,
    context::Context,
    expect::Seen,
    objects::TARGET_OFFSET,
};

/// One place that traffic for a port can go to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Name of the Service's port.
    pub port: String,
    /// Protocol.
    pub protocol: String,
    /// Where to.
    pub address: IpAddr,
    /// Which port there.
    pub number: i32,
}

/// The addresses of pod `number` of a cluster, IPv4 first. Different in every cluster.
pub fn addresses(cluster: usize, number: usize) -> [String; 2] {
    let net = 100 + cluster;
    [
        format!("10.{net}.0.{number}"),
        format!("fd00:{net}::{number}"),
    ]
}

/// Adds pod `number` to a cluster, ready, with its addresses.
pub async fn add_pod(ctx: &Context, cluster: usize, number: usize) -> Outcome {
    let addresses = addresses(cluster, number);
    let addresses = addresses.each_ref().map(String::as_str);
    ctx.add_pod(cluster, &pod(number), &addresses, None).await
}

/// The name of pod `number`, in whichever cluster.
pub fn pod(number: usize) -> String {
    format!("hello-{number}")
}

/// The targets that ready pods make: `(cluster, number)` each, for one port of the Service.
pub fn targets(pods: &[(usize, usize)], port: (&str, &str, i32)) -> BTreeSet<Target> {
    let (name, protocol, number) = port;
    targets_at(pods, (name, protocol), number + TARGET_OFFSET)
}

/// The same for a port of that name and protocol with that target.
pub fn targets_at(
    pods: &[(usize, usize)],
    (name, protocol): (&str, &str),
    number: i32,
) -> BTreeSet<Target> {
    let all = pods
        .iter()
        .flat_map(|&(cluster, pod)| addresses(cluster, pod));
    all.map(|address| Target {
        port: name.to_owned(),
        protocol: protocol.to_owned(),
        address: address.parse().expect("invariant: addresses are made here"),
        number,
    })
    .collect()
}

/// The slices behind the import of a cluster: those of its derived Service.
pub async fn derived_slices(ctx: &Context, cluster: usize) -> Result<Vec<EndpointSlice>, Seen> {
    let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
    let derived = derived_name(&import)?;
    let label = format!("{}={derived}", keys::KUBERNETES_SERVICE_NAME);
    labelled(ctx, cluster, &label).await
}

/// The slices with that label.
pub async fn labelled(
    ctx: &Context,
    cluster: usize,
    label: &str,
) -> Result<Vec<EndpointSlice>, Seen> {
    let list = ListParams::default().labels(label);
    Ok(ctx.api::<EndpointSlice>(cluster).list(&list).await?.items)
}

/// Ready, as far as is known: a condition that is not there counts as true.
pub fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|it| it.ready) != Some(false)
}

/// Where traffic can go by those slices: ready endpoints, per port.
pub fn ready_targets(slices: &[EndpointSlice]) -> BTreeSet<Target> {
    let mut targets = BTreeSet::new();
    for slice in slices {
        let ready = slice.endpoints.iter().flatten().filter(|it| is_ready(it));
        let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
        for address in addresses.filter_map(|address| address.parse().ok()) {
            for port in slice.ports.iter().flatten() {
                targets.insert(Target {
                    port: port.name.clone().unwrap_or_default(),
                    protocol: port.protocol.clone().unwrap_or_default(),
                    address,
                    number: port.port.unwrap_or_default(),
                });
            }
        }
    }
    targets
}

/// Waits in every cluster until traffic goes exactly to those targets, of the families that the import has.
pub async fn traffic_until(
    ctx: &Context,
    step: &'static str,
    wanted: &BTreeSet<Target>,
) -> Result<(), Failure> {
    let one = |cluster| {
        ctx.until(
            step,
            cluster,
            "exactly the ready pods of the exporters, per port",
            move || async move {
                let slices = derived_slices(ctx, cluster).await?;
                let families = import_families(ctx, cluster).await?;
                let of_import = |target: &&Target| families.contains(family(target.address));
                let wanted = wanted.iter().filter(of_import).cloned().collect();
                compare(&wanted, &ready_targets(&slices)).map_err(Seen::from)
            },
        )
    };
    futures::future::try_join_all(ctx.everywhere().map(one))
        .await
        .map(|_| ())
}

async fn import_families(ctx: &Context, cluster: usize) -> Result<BTreeSet<String>, Seen> {
    let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
    let families = import.spec.ip_families.unwrap_or_default();
    if families.is_empty() {
        return Err("an import without ipFamilies".into());
    }
    Ok(families.into_iter().collect())
}

fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

fn compare(wanted: &BTreeSet<Target>, found: &BTreeSet<Target>) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    let list = |targets: Vec<&Target>| {
        let texts = targets.into_iter().map(|target| {
            let Target {
                port,
                protocol,
                address,
                number,
            } = target;
            format!("{port}/{protocol} → {address} {number}")
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    Err(format!(
        "missing: [{}], too many: [{}]",
        list(wanted.difference(found).collect()),
        list(found.difference(wanted).collect())
    ))
}

/// A slice in one line.
pub fn describe(slice: &EndpointSlice) -> String {
    format!(
        "slice {} with labels {:?}",
        slice.name_any(),
        slice.labels()
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};

    use super::*;

    fn slice(address: &str, ready: Option<bool>) -> EndpointSlice {
        EndpointSlice {
            address_type: "IPv4".to_owned(),
            endpoints: Some(vec![Endpoint {
                addresses: vec![address.to_owned()],
                conditions: Some(EndpointConditions {
                    ready,
                    ..EndpointConditions::default()
                }),
                ..Endpoint::default()
            }]),
            ports: Some(vec![EndpointPort {
                name: Some("tcp".to_owned()),
                protocol: Some("TCP".to_owned()),
                port: Some(42 + TARGET_OFFSET),
                ..EndpointPort::default()
            }]),
            ..EndpointSlice::default()
        }
    }

    #[test]
    fn an_endpoint_without_condition_counts_as_ready_and_an_unready_one_does_not() {
        let slices = [slice("10.100.0.1", None), slice("10.100.0.2", Some(false))];

        let found = ready_targets(&slices);

        let addresses: Vec<_> = found
            .iter()
            .map(|target| target.address.to_string())
            .collect();
        assert_eq!(addresses, ["10.100.0.1"]);
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_are_told_apart() {
        let wanted = targets(&[(0, 1)], ("tcp", "TCP", 42));
        let found = ready_targets(&[slice("10.101.0.1", Some(true))]);

        let message = compare(&wanted, &found).unwrap_err();

        assert!(
            message.contains("missing: [tcp/TCP → 10.100.0.1 8042"),
            "{message}"
        );
        assert!(
            message.ends_with("too many: [tcp/TCP → 10.101.0.1 8042]"),
            "{message}"
        );
    }
}
