//! What each role is made of.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tombolo_core::{
    identity::{Identity, Stated},
    names::{ClusterId, ClusterName},
};

use super::{
    components::{Component, Parts, run_all, stop_on_signals},
    counters::{count_reconciles, count_writes},
    election::{self, controllers},
    reach::{checks, client_of},
    reflection::Reflection,
    role_args::{ClusterArgs, MeshArgs, OperatorArgs, Role},
};
use crate::{
    cluster::identity,
    kvstore::{config::EtcdConfig, etcd::EtcdStore},
    mesh::{
        config_dir,
        metrics::{self, Counterpart},
        peers::{LocalCluster, RemoteState, Statuses, run_peers},
        publisher::{self, Metrics, View, records::Publishing},
        reflector, users,
    },
    operator::{self, context::Caches, gauges, triggers::Queues},
    status::{
        answer::Member,
        pages::{Source, peer_checks},
    },
    telemetry::health::Health,
};

/// Flags that contradict each other.
#[derive(Debug, Error)]
#[error(
    "--cluster-id {id}: expected 1 to {max}, as --max-connected-clusters is {max}; choose a smaller id, or 511 for both sides of the mesh"
)]
pub(super) struct IdTooLarge {
    id: u32,
    max: u32,
}

/// Runs a role until it fails or the process is told to stop.
pub(super) fn run(role: Role) -> Result<()> {
    // kube and etcd-client both find their cryptography here; a second call would fail, and there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        let cancel = CancellationToken::new();
        stop_on_signals(&cancel)?;
        let parts = match role {
            Role::Mesh(args) => mesh(args, &cancel).await?,
            Role::Operator(args) => operator(args, &cancel).await?,
        };
        run_all(parts, cancel).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn mesh(args: MeshArgs, cancel: &CancellationToken) -> Result<Parts> {
    check_id(&args.cluster)?;
    let etcd = own_etcd(&args)?;
    let api_server = client_of(&args.cluster).await?;
    let client = api_server.client.clone();
    let (identify, name) = identify(&args.cluster, &client, cancel);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let reflection = Reflection::of(&args, &mut registry)?;
    let (asking, reach) = api_server.reach(&mut registry, cancel);
    let view = View::default();
    view.register(&mut registry);
    let peers = reflection.as_ref().map(Reflection::statuses);
    let copies = reflection.as_ref().map(Reflection::view);
    let health = Health::new(registry).with_pulses(view.inquiries().pulses().clone());
    let health = copying(health, peers.as_ref(), copies.as_ref()).with_checks(checks(&reach));
    let gate = health.gate("published");
    let (users, allowed) = keep_users(&args, &etcd, name.clone(), &health, cancel);
    let store = EtcdStore::new(etcd);
    let shown = Source {
        role: "mesh",
        who: name.member(args.cluster.cluster_id),
        health: health.clone(),
        peers,
        store: Some(view.clone()),
        copies,
        api_server: reach,
        controllers: None,
    };
    let reflect =
        reflection.map(|part| part.component(&health, name.clone(), store.clone(), cancel.clone()));
    let health = shown.shown();
    let (last, finished) = serve(health, &args.cluster, cancel);
    let stop = cancel.clone();
    let publish = async move {
        let Some(cluster) = name.get(&stop).await else {
            return Ok(());
        };
        let options = publisher::Options {
            publishing: Publishing {
                cluster,
                id: args.cluster.cluster_id,
                default_global_namespace: args.cluster.default_global_namespace,
            },
            max_connected_clusters: args.cluster.max_connected_clusters,
            lease_ttl: args.lease_ttl,
            metrics,
            view,
            gate: Some(gate),
        };
        Ok(Box::pin(publisher::run(client, store, options, stop)).await?)
    };
    let publish = Component {
        name: "publisher",
        run: Box::pin(publish),
    };
    // Nothing is written before etcd asks who reads it.
    let writers = [publish].into_iter().chain(reflect);
    let writers = writers.map(|part| once_allowed(part, allowed.clone(), cancel.clone()));
    let parts = [identify, asking].into_iter();
    Ok(Parts {
        components: parts.chain(writers).chain(users).collect(),
        last,
        finished,
    })
}

/// How this cluster's etcd is reached; checked for what keeping its users needs.
fn own_etcd(args: &MeshArgs) -> Result<EtcdConfig> {
    let etcd = match &args.etcd_config {
        Some(file) => EtcdConfig::read(file)?,
        None => EtcdConfig::from_urls(&args.etcd_endpoints)?,
    };
    if keeps_users(args) {
        users::check(&etcd)?;
    }
    Ok(etcd)
}

/// Health with the deadmen of what follows peers, and a check for each peer.
fn watched(health: Health, peers: &Statuses) -> Health {
    health
        .with_pulses(peers.inquiries().pulses().clone())
        .with_checks(peer_checks(peers))
}

/// Health with what follows peers and copies them, when the role does.
fn copying(health: Health, peers: Option<&Statuses>, copies: Option<&reflector::View>) -> Health {
    let health = match peers {
        Some(peers) => watched(health, peers),
        None => health,
    };
    let pulses = copies.map(|copies| copies.inquiries().pulses().clone());
    pulses.into_iter().fold(health, Health::with_pulses)
}

fn keeps_users(args: &MeshArgs) -> bool {
    args.etcd_access_control || args.cluster_users_enabled
}

/// The component that keeps users and roles of the mesh etcd, if there is to be one, and what tells when they are there.
fn keep_users(
    args: &MeshArgs,
    etcd: &EtcdConfig,
    name: OwnName,
    health: &Health,
    cancel: &CancellationToken,
) -> (Option<Component>, watch::Receiver<bool>) {
    if !keeps_users(args) {
        return (None, watch::channel(true).1);
    }
    let (tell, allowed) = watch::channel(false);
    let (gate, stop, etcd) = (health.gate("access"), cancel.clone(), etcd.clone());
    let users_file = args
        .cluster_users_enabled
        .then(|| args.cluster_users_config_path.clone());
    let run = async move {
        let Some(cluster) = name.get(&stop).await else {
            return Ok(());
        };
        let options = users::Options {
            cluster,
            etcd,
            users_file,
            gate: Some(gate),
        };
        Ok(users::run(options, tell, stop).await?)
    };
    let component = Component {
        name: "users",
        run: Box::pin(run),
    };
    (Some(component), allowed)
}

/// A part that begins its work once it is allowed to.
fn once_allowed(
    part: Component,
    mut allowed: watch::Receiver<bool>,
    stop: CancellationToken,
) -> Component {
    let Component { name, run } = part;
    let run = async move {
        let waited = stop.run_until_cancelled(allowed.wait_for(|allowed| *allowed));
        if waited.await.is_some_and(|allowed| allowed.is_ok()) {
            run.await
        } else {
            Ok(())
        }
    };
    Component {
        name,
        run: Box::pin(run),
    }
}

async fn operator(args: OperatorArgs, cancel: &CancellationToken) -> Result<Parts> {
    check_id(&args.cluster)?;
    config_dir::check(&args.clustermesh_config)?;
    let api_server = client_of(&args.cluster).await?;
    let client = api_server.client.clone();
    let (identify, name) = identify(&args.cluster, &client, cancel);
    let queues = Queues::new();
    let reported = queues.clone();
    let remote = RemoteState::new(Arc::new(move |dirty| reported.remote(&dirty)));
    let mut registry = Registry::default();
    remote.register_metrics(&mut registry);
    metrics::register(&mut registry, remote.statuses(), Counterpart::Operator);
    let on_write = count_writes(&mut registry);
    let on_reconcile = count_reconciles(&mut registry);
    let caches = Caches::new();
    operator::metrics::register(&mut registry, &caches);
    let election = election::of(&args.election, &client)?;
    gauges::register(&mut registry, election.tenure(), &queues);
    let (asking, reach) = api_server.reach(&mut registry, cancel);
    let statuses = remote.statuses().clone();
    let health = watched(Health::new(registry), &statuses).with_checks(checks(&reach));
    let ready = health.gate("controllers");
    let health = Source {
        role: "operator",
        who: name.member(args.cluster.cluster_id),
        health,
        peers: Some(statuses),
        store: None,
        copies: None,
        api_server: reach,
        controllers: Some(controllers(&election, &queues)),
    }
    .shown();
    let (last, finished) = serve(health, &args.cluster, cancel);
    let follow = follow_peers(&args, name.clone(), remote.clone(), cancel.clone());
    let stop = cancel.clone();
    let control = async move {
        let Some(cluster) = name.get(&stop).await else {
            return Ok(());
        };
        let options = operator::Options {
            cluster,
            default_global: args.cluster.default_global_namespace,
            install_crds: args.install_crds,
            caches,
            election,
            pace: args.pace(),
            on_write,
            on_reconcile,
            on_ready: Box::new(move || ready.set(true)),
        };
        Ok(operator::run(client, options, Arc::new(remote), queues, stop).await?)
    };
    let control = Component {
        name: "controllers",
        run: Box::pin(control),
    };
    Ok(Parts {
        components: vec![identify, asking, follow, control],
        last,
        finished,
    })
}

fn follow_peers(
    args: &OperatorArgs,
    name: OwnName,
    state: RemoteState,
    stop: CancellationToken,
) -> Component {
    let (id, max_connected) = (args.cluster.cluster_id, args.cluster.max_connected_clusters);
    let (directory, options) = (args.clustermesh_config.clone(), args.peers.options());
    let run = async move {
        let Some(name) = name.get(&stop).await else {
            return Ok(());
        };
        let local = LocalCluster {
            name,
            id,
            max_connected,
        };
        Ok(run_peers(directory, local, state, options, stop).await?)
    };
    Component {
        name: "peers",
        run: Box::pin(run),
    }
}

/// The name of this cluster, once it is known.
#[derive(Clone)]
pub(super) struct OwnName(watch::Receiver<Option<Identity>>);

impl OwnName {
    /// Who this cluster is, for those who ask.
    fn member(&self, id: ClusterId) -> Box<dyn Fn() -> Option<Member> + Send + Sync> {
        let known = self.0.clone();
        Box::new(move || {
            let name = known.borrow().as_ref()?.cluster.to_string();
            Some(Member { name, id: id.get() })
        })
    }

    /// Waits for the name; none when the role stops before it is known.
    pub(super) async fn get(&self, cancel: &CancellationToken) -> Option<ClusterName> {
        let mut known = self.0.clone();
        let found = cancel.run_until_cancelled(known.wait_for(Option::is_some));
        let identity = found.await?.ok()?.clone()?;
        Some(identity.cluster)
    }
}

/// The component that finds out who this cluster is and stops the role when that changes, and where it tells the name.
fn identify(
    args: &ClusterArgs,
    client: &kube::Client,
    cancel: &CancellationToken,
) -> (Component, OwnName) {
    let stated = Stated {
        cluster: args.cluster_name.clone(),
        clusterset: args.clusterset_name.clone(),
    };
    let (tell, known) = watch::channel(None);
    let (client, stop) = (client.clone(), cancel.clone());
    let run = async move {
        let Some(identity) = identity::resolve(&client, &stated, &stop).await? else {
            return Ok(());
        };
        tell.send_replace(Some(identity.clone()));
        Ok(identity::guard(client, &identity, &stop).await?)
    };
    let component = Component {
        name: "identity",
        run: Box::pin(run),
    };
    (component, OwnName(known))
}

fn check_id(args: &ClusterArgs) -> Result<(), IdTooLarge> {
    let (id, max) = (args.cluster_id.get(), args.max_connected_clusters);
    if id > max {
        Err(IdTooLarge { id, max })
    } else {
        Ok(())
    }
}

/// The health endpoint, and what tells it that everything else has ended.
fn serve(
    health: Health,
    args: &ClusterArgs,
    cancel: &CancellationToken,
) -> (Component, CancellationToken) {
    let (address, stop, finished) = (
        args.health_address,
        cancel.clone(),
        CancellationToken::new(),
    );
    let end = finished.clone();
    let component = Component {
        name: "health endpoint",
        run: Box::pin(async move { Ok(health.serve(address, stop, end).await?) }),
    };
    (component, finished)
}
