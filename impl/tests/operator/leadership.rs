//! The election among replicas, on a real API server.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    coordination::v1::{Lease, LeaseSpec},
    core::v1::Namespace,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tombolo::operator::leadership::{self, Election, LEASE_NAME, Settings, Tenure};
use tombolo_testbed::{Testbed, eventually, patience, stays_for};

use crate::world::{BUDGET, World};

/// How long others believe a holder that does not renew.
const LEASE: Duration = Duration::from_secs(3);

/// A time of the election, or what comes of one, on a machine that may do much at the same time: all are longer by one factor.
fn unhurried(time: Duration) -> Duration {
    time * patience()
}

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
            lease_duration: unhurried(LEASE),
            renew_deadline: unhurried(Duration::from_secs(2)),
            retry_period: unhurried(Duration::from_millis(200)),
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
        tokio::time::timeout(unhurried(BUDGET), self.tenure.begun())
            .await
            .expect("a replica that should lead does not");
    }

    async fn until_stands_by(&self) {
        tokio::time::timeout(unhurried(BUDGET), self.tenure.lapsed())
            .await
            .expect("a replica that should not lead does");
    }
}

async fn world() -> Result<World> {
    World::new(Testbed::shared().await?.cluster(0)).await
}

/// What the Lease says.
async fn lease(world: &World) -> Result<LeaseSpec> {
    let lease = world.api::<Lease>().get(LEASE_NAME).await?;
    lease.spec.context("a Lease has a spec")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_leads_and_who_resigns_is_followed_at_once() -> Result<()> {
    let world = world().await?;
    let mut replicas: Vec<_> = (0..3)
        .map(|_| Replica::start(&world.client, &world.namespace))
        .collect();

    for left in (1..=replicas.len()).rev() {
        // Sooner than the Lease would end.
        let at_once = Duration::from_millis(2_500);
        let leader = eventually(at_once, "one replica leads", async || {
            let leads = |at: &usize| replicas[*at].leads();
            let leaders: Vec<_> = (0..left).filter(leads).collect();
            match leaders[..] {
                [leader] => Ok(leader),
                _ => Err(format!("{} of {left} lead", leaders.len())),
            }
        });
        let leader = replicas.swap_remove(leader.await?);
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
    let spec = lease(&world).await?;
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
    let longer = unhurried(LEASE + Duration::from_secs(1));
    stays_for(longer, "the first leads alone", waits).await?;

    first.running.abort();
    let last = lease(&world).await?;
    second.until_leads().await;

    assert!(!first.leads(), "both may write");
    assert_eq!(last.holder_identity.as_ref(), Some(&first.identity));
    let claimed = lease(&world).await?;
    assert_eq!(claimed.holder_identity.as_ref(), Some(&second.identity));
    // Both replicas have the clock of this machine. When the first died a renewal may have been under way, which `last` is not:
    // then the second has waited for longer, not for less.
    let renewed = last.renew_time.context("a renewal has a time")?;
    let acquired = claimed.acquire_time.context("a claim has a time")?;
    let took: Duration = acquired.0.duration_since(renewed.0).try_into()?;
    assert!(took >= unhurried(LEASE), "{took:?}");
    assert!(took <= unhurried(2 * LEASE), "{took:?}");
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

    let believed = unhurried(Duration::from_secs(2));
    let patch = json!({ "spec": {
        "holderIdentity": "intruder", "leaseDurationSeconds": believed.as_secs(),
    }});
    // The replica may see the intruder before the test has its answer.
    let before = Instant::now();
    world
        .api::<Lease>()
        .patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    let taken = Instant::now();

    replica.until_stands_by().await;
    let noticed = taken.elapsed();
    replica.until_leads().await;
    let back = before.elapsed();

    // Sooner than its right would end by the clock.
    let at_once = unhurried(Duration::from_millis(1_500));
    assert!(noticed <= at_once, "{noticed:?}");
    assert!(back >= believed, "{back:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_namespace_nobody_leads_and_with_it_somebody_does() -> Result<()> {
    let world = world().await?;
    let name = format!("{}-later", world.namespace);
    let replica = Replica::start(&world.client, &name);
    let some_attempts = unhurried(Duration::from_secs(1));
    stays_for(some_attempts, "nobody leads", async || {
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
