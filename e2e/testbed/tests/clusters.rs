//! Two real clusters: they answer, and fake pods become EndpointSlices.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use tombolo_testbed::{Cluster, PodOptions, Testbed, WaitError, eventually};

/// Longest wait for a controller of Kubernetes.
const BUDGET: Duration = Duration::from_secs(20);

#[tokio::test]
async fn two_clusters_answer_and_are_distinct() -> Result<()> {
    let bed = Testbed::shared().await?;

    let mut uids = BTreeSet::new();
    for cluster in bed.clusters() {
        let system = Api::<Namespace>::all(cluster.client())
            .get("kube-system")
            .await?;
        uids.insert(system.metadata.uid);
    }

    let names: Vec<_> = bed
        .clusters()
        .iter()
        .map(|it| (it.name(), it.id()))
        .collect();
    assert_eq!(names, [("a", 1), ("b", 2)]);
    assert_eq!(uids.len(), 2);
    Ok(())
}

#[tokio::test]
async fn clusters_are_dual_stack_and_their_addresses_differ() -> Result<()> {
    let bed = Testbed::shared().await?;
    let namespace = bed.namespace().await?;

    let mut ips = BTreeSet::new();
    for cluster in bed.clusters() {
        let service = create_service(cluster, &namespace).await?;
        ips.extend(
            service
                .spec
                .and_then(|spec| spec.cluster_ips)
                .unwrap_or_default(),
        );
    }

    assert_eq!(ips.len(), 4, "{ips:?}");
    for prefix in ["10.96.", "fd00:96::", "10.97.", "fd00:97::"] {
        assert!(
            ips.iter().any(|ip| ip.starts_with(prefix)),
            "{prefix} in {ips:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_fake_pod_is_in_the_slices_and_turns_unready() -> Result<()> {
    let bed = Testbed::shared().await?;
    let namespace = bed.namespace().await?;
    let cluster = bed.cluster(0);
    create_service(cluster, &namespace).await?;

    let options = PodOptions::default().tcp("http", 8080);
    let pod = cluster
        .fake_pod(&namespace, "web-0", &[("app", "web")], options)
        .await?;

    let seen = expect_endpoints(cluster, &namespace, true).await?;
    let ips: BTreeSet<_> = pod.ips().iter().map(ToString::to_string).collect();
    assert_eq!(seen, ips);

    pod.set_ready(false).await?;

    expect_endpoints(cluster, &namespace, false).await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_pod_leaves_the_slices() -> Result<()> {
    let bed = Testbed::shared().await?;
    let namespace = bed.namespace().await?;
    let cluster = bed.cluster(1);
    create_service(cluster, &namespace).await?;
    let options = PodOptions::default().tcp("http", 8080);
    let pod = cluster
        .fake_pod(&namespace, "web-0", &[("app", "web")], options)
        .await?;
    expect_endpoints(cluster, &namespace, true).await?;

    pod.delete().await?;

    eventually(BUDGET, "no endpoint", async || {
        let slices = slices(cluster, &namespace).await?;
        if slices
            .iter()
            .all(|slice| slice.endpoints.iter().flatten().next().is_none())
        {
            Ok(())
        } else {
            Err(format!("{slices:?}"))
        }
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_fake_pod_has_the_zone_of_its_cluster() -> Result<()> {
    let bed = Testbed::shared().await?;
    let namespace = bed.namespace().await?;
    let cluster = bed.cluster(1);
    create_service(cluster, &namespace).await?;
    let options = PodOptions::default().tcp("http", 8080);

    cluster
        .fake_pod(&namespace, "web-0", &[("app", "web")], options)
        .await?;
    expect_endpoints(cluster, &namespace, true).await?;

    let slices = slices(cluster, &namespace)
        .await
        .map_err(anyhow::Error::msg)?;
    let zones: BTreeSet<_> = slices
        .iter()
        .flat_map(|it| it.endpoints.iter().flatten())
        .map(|it| it.zone.as_deref())
        .collect();
    assert_eq!(zones, BTreeSet::from([Some("zone-b")]));
    Ok(())
}

#[tokio::test]
async fn every_namespace_is_new_and_exists_where_it_was_asked_for() -> Result<()> {
    let bed = Testbed::shared().await?;

    let both = bed.namespace().await?;
    let one = bed.cluster(0).namespace().await?;

    assert_ne!(both, one);
    for (index, name, expected) in [
        (0, &both, true),
        (1, &both, true),
        (0, &one, true),
        (1, &one, false),
    ] {
        let api = Api::<Namespace>::all(bed.cluster(index).client());
        assert_eq!(
            api.get_opt(name).await?.is_some(),
            expected,
            "{name} in {index}"
        );
    }
    Ok(())
}

async fn create_service(cluster: &Cluster, namespace: &str) -> Result<Service> {
    let service: Service = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "web" },
        "spec": {
            "ipFamilyPolicy": "RequireDualStack",
            "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "targetPort": "http" }],
        },
    }))?;
    let api = Api::namespaced(cluster.client(), namespace);
    Ok(api.create(&PostParams::default(), &service).await?)
}

/// Waits for one endpoint in an IPv4 and an IPv6 slice, ready or not; gives the addresses.
async fn expect_endpoints(
    cluster: &Cluster,
    namespace: &str,
    ready: bool,
) -> Result<BTreeSet<String>, WaitError> {
    eventually(BUDGET, "an IPv4 and an IPv6 endpoint", async || {
        let slices = slices(cluster, namespace).await?;
        let endpoints: Vec<_> = slices
            .iter()
            .flat_map(|slice| slice.endpoints.iter().flatten())
            .collect();
        let as_wanted = endpoints
            .iter()
            .all(|endpoint| endpoint.conditions.as_ref().and_then(|it| it.ready) == Some(ready));
        let with_port = slices.iter().all(|slice| {
            let ports = slice.ports.iter().flatten();
            ports.map(|port| port.port).eq([Some(8080)])
        });
        if endpoints.len() == 2 && as_wanted && with_port {
            Ok(endpoints
                .iter()
                .flat_map(|it| it.addresses.clone())
                .collect())
        } else {
            Err(format!("{slices:?}"))
        }
    })
    .await
}

async fn slices(cluster: &Cluster, namespace: &str) -> Result<Vec<EndpointSlice>, String> {
    let api = Api::<EndpointSlice>::namespaced(cluster.client(), namespace);
    let list = api.list(&ListParams::default()).await;
    list.map(|list| list.items)
        .map_err(|error| error.to_string())
}
