//! The election among replicas, on a real API server.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tombolo::operator::leadership::{self, Election, LEASE_NAME, Settings, Tenure};
use tombolo_testbed::{Testbed, eventually, stays_for};

use crate::world::{BUDGET, World};

/// A replica that stands for election. Dropping it is a death: the Lease is not given back.
struct Replica {
    tenure: Tenure,
    identity: String,
    resign: CancellationToken,
    running: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Replica {
    fn start(client: &Client, namespace: &str) -> Self {
        let settings = Settings {
            namespace: namespace.to_owned(),
            name: LEASE_NAME.to_owned(),
            identity: leadership::identity(),
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(200),
        };
        settings.check().unwrap();
        let identity = settings.identity.clone();
        let election = Election::by_lease(settings);
        let (tenure, resign) = (election.tenure(), CancellationToken::new());
        let (client, end) = (client.clone(), resign.clone());
        let running = tokio::spawn(async move { election.run(&client, &end).await });
        Self {
            tenure,
            identity,
            resign,
            running,
        }
    }

    fn leads(&self) -> bool {
        self.tenure.check().is_ok()
    }

    async fn until_leads(&self) {
        tokio::time::timeout(BUDGET, self.tenure.begun())
            .await
            .expect("a replica that should lead does not");
    }

    async fn until_stands_by(&self) {
        tokio::time::timeout(BUDGET, self.tenure.lapsed())
            .await
            .expect("a replica that should not lead does");
    }
}

async fn world() -> Result<World> {
    World::new(Testbed::shared().await?.cluster(0)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_leads_and_who_resigns_is_followed_at_once() -> Result<()> {
    let world = world().await?;
    let mut replicas: Vec<_> = (0..3)
        .map(|_| Replica::start(&world.client, &world.namespace))
        .collect();

    for left in (1..=replicas.len()).rev() {
        eventually(
            Duration::from_millis(2_500),
            "one replica leads",
            async || {
                let leaders = replicas.iter().filter(|replica| replica.leads()).count();
                (leaders == 1)
                    .then_some(())
                    .ok_or(format!("{leaders} of {left} lead"))
            },
        )
        .await?;
        let leader = replicas.iter().position(Replica::leads).expect("one leads");
        let leader = replicas.swap_remove(leader);
        leader.resign.cancel();
        leader.until_stands_by().await;
        eventually(BUDGET, "who resigned has ended", async || {
            leader
                .running
                .is_finished()
                .then_some(())
                .ok_or_else(String::new)
        })
        .await?;
    }
    let lease = world.api::<Lease>().get(LEASE_NAME).await?;
    let spec = lease.spec.expect("a Lease has a spec");
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_transitions, Some(2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_is_followed_when_the_lease_ends_and_not_before() -> Result<()> {
    let world = world().await?;
    let first = Replica::start(&world.client, &world.namespace);
    first.until_leads().await;
    let second = Replica::start(&world.client, &world.namespace);
    let waits = async || {
        let (first, second) = (first.leads(), second.leads());
        (first && !second)
            .then_some(())
            .ok_or(format!("{first} {second}"))
    };
    stays_for(Duration::from_secs(4), "the first leads alone", waits).await?;

    let died = tokio::time::Instant::now();
    first.running.abort();
    second.until_leads().await;
    let took = died.elapsed();

    assert!(!first.leads(), "both may write");
    assert!(took >= Duration::from_millis(2_700), "{took:?}");
    assert!(took <= Duration::from_secs(6), "{took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_deleted_is_made_again_and_the_leader_stays() -> Result<()> {
    let world = world().await?;
    let replica = Replica::start(&world.client, &world.namespace);
    replica.until_leads().await;
    let leases = world.api::<Lease>();

    leases.delete(LEASE_NAME, &DeleteParams::default()).await?;

    let holder = eventually(BUDGET, "the Lease is there again", async || {
        assert!(replica.leads(), "it lost what nobody has taken");
        let lease = leases
            .get(LEASE_NAME)
            .await
            .map_err(|error| error.to_string())?;
        lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .ok_or_else(String::new)
    });
    assert_eq!(holder.await?, replica.identity);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_another_in_its_lease_steps_down_until_that_one_is_silent() -> Result<()> {
    let world = world().await?;
    let replica = Replica::start(&world.client, &world.namespace);
    replica.until_leads().await;

    let patch = json!({ "spec": { "holderIdentity": "intruder", "leaseDurationSeconds": 2 } });
    world
        .api::<Lease>()
        .patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    let taken = tokio::time::Instant::now();

    replica.until_stands_by().await;
    let noticed = taken.elapsed();
    replica.until_leads().await;
    let back = taken.elapsed();

    assert!(noticed <= Duration::from_millis(1_500), "{noticed:?}");
    assert!(back >= Duration::from_secs(2), "{back:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_namespace_nobody_leads_and_with_it_somebody_does() -> Result<()> {
    let world = world().await?;
    let name = format!("{}-later", world.namespace);
    let replica = Replica::start(&world.client, &name);
    stays_for(Duration::from_secs(1), "nobody leads", async || {
        (!replica.leads()).then_some(()).ok_or_else(String::new)
    })
    .await?;

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    replica.until_leads().await;

    namespaces.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}
