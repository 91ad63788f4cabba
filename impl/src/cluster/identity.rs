//! Reads who this cluster is from its ClusterProperties, and keeps watching them while a role runs.
//!
//! Whether flags and properties agree is decided in `tombolo_core::identity`. A cluster without the About API is an ordinary
//! one; one whose API server does not answer, or refuses, is not known, and is asked again.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::watcher::{self, watcher},
};
use tokio_util::sync::CancellationToken;
use tombolo_api::about::ClusterProperty;
use tombolo_core::identity::{
    CLUSTER, CLUSTERSET, Changed, Error, Identity, Recorded, Stated, check_unchanged, decide,
};
use tracing::{info, warn};

use crate::cluster::client::{get_if_served, is_not_served, watching};

/// Delay before the properties are read again after a failure; doubled up to [`READ_RETRY_MAX`].
const READ_RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest delay between attempts to read. Short, since a restarted API server is back within seconds.
const READ_RETRY_MAX: Duration = Duration::from_secs(3);

/// Delay before a failed watch is tried again.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// Delay before a cluster without the About API is asked for it again.
const ABSENT_RETRY: Duration = Duration::from_mins(1);

/// A failing watch is logged at most this often.
const WATCH_FAILURE_LOGGED: Duration = Duration::from_mins(10);

/// What the ClusterProperties say. Neither a missing property nor a missing About API is an error.
pub async fn read(client: &Client) -> Result<Recorded, kube::Error> {
    let api: Api<ClusterProperty> = Api::all(client.clone());
    let value = async |name| {
        let property = get_if_served(&api, name).await?;
        Ok::<_, kube::Error>(property.map(|property| property.spec.value))
    };
    Ok(Recorded {
        cluster: value(CLUSTER.property).await?,
        clusterset: value(CLUSTERSET.property).await?,
    })
}

/// Finds out who this cluster is, asking the API server until it answers; none when cancelled.
pub async fn resolve(
    client: &Client,
    stated: &Stated,
    cancel: &CancellationToken,
) -> Result<Option<Identity>, Error> {
    let mut delay = READ_RETRY_FIRST;
    loop {
        match cancel.run_until_cancelled(read(client)).await {
            None => return Ok(None),
            Some(Ok(recorded)) => {
                let identity = decide(stated, &recorded)?;
                let clusterset = identity.clusterset.as_deref().unwrap_or_default();
                info!(cluster = %identity.cluster, clusterset, ?recorded, "this cluster is known");
                return Ok(Some(identity));
            }
            Some(Err(error)) => {
                warn!(%error, ?delay, "cannot read ClusterProperties; check that the API server is reachable and that this user may get, list and watch clusterproperties.about.k8s.io; trying again");
            }
        }
        let wait = tokio::time::sleep(delay);
        if cancel.run_until_cancelled(wait).await.is_none() {
            return Ok(None);
        }
        delay = (delay * 2).min(READ_RETRY_MAX);
    }
}

/// Watches the properties until cancelled; ends with an error when one says something else than the role runs as.
pub async fn guard(
    client: Client,
    identity: &Identity,
    cancel: &CancellationToken,
) -> Result<(), Changed> {
    cancel
        .run_until_cancelled(follow(Api::all(client), identity))
        .await
        .unwrap_or(Ok(()))
}

async fn follow(api: Api<ClusterProperty>, identity: &Identity) -> Result<(), Changed> {
    let mut events = pin!(watcher(api, watching()));
    let mut logged: Option<Instant> = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitApply(property) | watcher::Event::Apply(property)) => {
                check_unchanged(identity, &said_by(&property))?;
            }
            Ok(watcher::Event::Delete(property)) => {
                if said_by(&property) != Recorded::default() {
                    warn!(
                        property = property.name_any(),
                        "the ClusterProperty is gone; this process goes on under the name it has. Members have to state it (KEP-1645#180)"
                    );
                }
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) if is_absent(&error) => tokio::time::sleep(ABSENT_RETRY).await,
            Err(error) => {
                if logged.is_none_or(|at| at.elapsed() > WATCH_FAILURE_LOGGED) {
                    warn!(%error, "cannot watch ClusterProperties; trying again");
                    logged = Some(Instant::now());
                }
                tokio::time::sleep(WATCH_RETRY).await;
            }
        }
    }
    Ok(())
}

fn said_by(property: &ClusterProperty) -> Recorded {
    let value = |fact: &str| (property.name_any() == fact).then(|| property.spec.value.clone());
    Recorded {
        cluster: value(CLUSTER.property),
        clusterset: value(CLUSTERSET.property),
    }
}

/// Whether the API server does not know the kind.
fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source)
    | watcher::Error::WatchStartFailed(source)
    | watcher::Error::WatchFailed(source)) = error
    else {
        return false;
    };
    is_not_served(source)
}
