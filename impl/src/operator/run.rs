//! Runs the operator: fills the caches, then lets workers take names from the queues while this replica leads, until it is
//! told to stop.
//!
//! A write in hand is finished before it stops, and only then the Lease is given back. Nothing is decided here.

use std::{collections::BTreeSet, hash::Hash, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client, api::ListParams};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tombolo_core::{
    names::{ClusterName, NamespacedName},
    service::IpFamily,
};
use tracing::{Instrument, debug, info, info_span, warn};

use crate::{
    cluster::cache::ObjectKey,
    operator::{
        apply::{self, Controller, OnWrite, Pace, Writer},
        context::{Caches, Context},
        crds, derived_service, endpoint_slice_mirror, endpoint_slice_sync,
        leadership::{Election, Tenure},
        remote::Remote,
        service_export, service_import,
        triggers::Queues,
    },
    queue::Queue,
};

/// Workers of each controller. A name is never in the hands of two.
const WORKERS: usize = 4;

/// Time between full passes over all names, which mend what no event has told of.
const FULL_PASS_INTERVAL: Duration = Duration::from_mins(10);

/// Delay before the operator tries again to begin; doubled up to [`BEGIN_RETRY_MAX`].
const BEGIN_RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest delay between attempts to begin.
const BEGIN_RETRY_MAX: Duration = Duration::from_secs(3);

/// How long writes in hand may take after the operator was told to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Told of each name that a controller has worked on, and how it ended: `Done`, or the reason of the failure.
pub type OnReconcile = Arc<dyn Fn(Controller, &'static str) + Send + Sync>;

/// Settings of the operator.
pub struct Options {
    /// This cluster.
    pub cluster: ClusterName,
    /// Whether namespaces without annotation are global.
    pub default_global: bool,
    /// Whether to install the CRDs.
    pub install_crds: bool,
    /// Empty caches, which it fills; whoever shows what is in them has a clone.
    pub caches: Caches,
    /// Which replica writes.
    pub election: Election,
    /// How fast it writes at most.
    pub pace: Pace,
    /// Told of each write, for metrics.
    pub on_write: OnWrite,
    /// Told of each name that was worked on, for metrics.
    pub on_reconcile: OnReconcile,
    /// Called once the caches are filled: from then on this replica can lead, or take over.
    pub on_ready: Box<dyn FnOnce() + Send>,
}

/// Why the operator cannot go on.
#[derive(Debug, Error)]
pub enum Error {
    /// A part of it ended that should not.
    #[error(
        "a {part} of the operator ended by itself; this is a bug, see the log for a panic; start the operator again"
    )]
    Ended {
        /// Which part.
        part: &'static str,
    },
}

impl Error {
    /// Short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "Ended",
        }
    }
}

/// Why the operator cannot begin yet.
#[derive(Debug, Error)]
enum NotYet {
    #[error(
        "cannot list ServiceCIDRs, which tell the IP families of this cluster: {0}; check that the API server is reachable, is Kubernetes 1.33 or newer, and that the operator may list servicecidrs"
    )]
    Families(#[from] kube::Error),
    #[error(
        "the cluster has no ServiceCIDR yet, which would tell its IP families; a new one takes a moment to make it"
    )]
    NoFamilies,
}

/// Runs until cancelled. `queues` are those that the changes of `remote` are reported to.
pub async fn run(
    client: Client,
    options: Options,
    remote: Arc<dyn Remote>,
    queues: Queues,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let election = options.election.clone();
    let (resign, kept) = (CancellationToken::new(), CancellationToken::new());
    let standing = Box::pin(async {
        tokio::select! {
            () = election.run(&client, &resign) => {}
            () = kept.cancelled() => {}
        }
    });
    let controlling = Box::pin(async {
        let outcome = control(client.clone(), options, remote, queues, &cancel).await;
        // With a write still under way nobody else should be invited to write; the Lease ends by itself.
        let finished = matches!(outcome, Ok(Rest::Finished));
        let end = if finished { &resign } else { &kept };
        end.cancel();
        outcome.map(|_| ())
    });
    tokio::join!(standing, controlling).1
}

/// In which state everything was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// No write is under way.
    Finished,
    /// Writes were dropped that the API server may still carry out.
    Dropped,
}

/// Runs the controllers until cancelled.
async fn control(
    client: Client,
    options: Options,
    remote: Arc<dyn Remote>,
    queues: Queues,
    cancel: &CancellationToken,
) -> Result<Rest, Error> {
    let install = options.install_crds;
    let tenure = options.election.tenure();
    let Some(families) = begin(&client, cancel).await else {
        return Ok(Rest::Finished);
    };
    info!(cluster = %options.cluster, ?families, "the operator begins");
    let ctx = Arc::new(Context {
        caches: options.caches,
        remote,
        writer: Writer::new(
            client.clone(),
            options.on_write,
            tenure.clone(),
            options.pace,
        ),
        cluster: options.cluster,
        default_global: options.default_global,
        families,
    });
    let mut watches = JoinSet::new();
    if install {
        let (client, tenure) = (client.clone(), tenure.clone());
        let (ctx, queues) = (Arc::clone(&ctx), queues.clone());
        let mended = move || queues.everything_changed(&ctx);
        watches.spawn(async move { crds::keep(&client, &tenure, mended).await });
    }
    let filled = async {
        if install {
            crds::served(&client).await;
        }
        watch(&mut watches, &client, &ctx, &queues);
        synced(&ctx.caches).await;
    };
    if cancel.run_until_cancelled(filled).await.is_none() {
        return Ok(Rest::Finished);
    }
    queues.hold();
    let mut workers = JoinSet::new();
    employ(&mut workers, &ctx, &queues, &options.on_reconcile, cancel);
    (options.on_ready)();
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = terms(&ctx, &queues, &tenure) => {}
        _ = workers.join_next() => return Err(Error::Ended { part: "worker" }),
        _ = watches.join_next() => return Err(Error::Ended { part: "watch" }),
    }
    let finished = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIMEOUT, finished).await.is_err() {
        warn!("writes in hand took too long; they are dropped");
        return Ok(Rest::Dropped);
    }
    Ok(Rest::Finished)
}

/// Asks for the IP families, again and again until the API server tells them; none when cancelled.
///
/// An API server that is down when the operator starts comes back, and then the operator should be there.
async fn begin(client: &Client, cancel: &CancellationToken) -> Option<BTreeSet<IpFamily>> {
    let mut delay = BEGIN_RETRY_FIRST;
    loop {
        match cancel.run_until_cancelled(families(client)).await? {
            Ok(families) => return Some(families),
            Err(error) => warn!(%error, ?delay, "cannot begin; trying again"),
        }
        cancel
            .run_until_cancelled(tokio::time::sleep(delay))
            .await?;
        delay = (delay * 2).min(BEGIN_RETRY_MAX);
    }
}

/// The IP families that Services of this cluster can have. A cluster says so by its ServiceCIDRs (Kubernetes 1.33).
async fn families(client: &Client) -> Result<BTreeSet<IpFamily>, NotYet> {
    let api: Api<ServiceCIDR> = Api::all(client.clone());
    let listed = api.list(&ListParams::default()).await?;
    let specs = listed.items.into_iter().filter_map(|item| item.spec);
    let cidrs = specs.flat_map(|spec| spec.cidrs.unwrap_or_default());
    let family = |cidr: String| {
        let address = cidr.split('/').next()?.parse().ok()?;
        Some(IpFamily::of(address))
    };
    let families: BTreeSet<_> = cidrs.filter_map(family).collect();
    if families.is_empty() {
        return Err(NotYet::NoFamilies);
    }
    Ok(families)
}

/// Fills the caches; each change marks names dirty.
fn watch(watches: &mut JoinSet<()>, client: &Client, ctx: &Arc<Context>, queues: &Queues) {
    let caches = &ctx.caches;
    let (cache, q, c) = (caches.namespaces.clone(), queues.clone(), Arc::clone(ctx));
    let api = Api::all(client.clone());
    watches.spawn(async move { cache.run(api, |change| q.namespace(&change, &c)).await });
    let (cache, q) = (caches.services.clone(), queues.clone());
    let api = Api::all(client.clone());
    watches.spawn(async move { cache.run(api, |change| q.service(&change)).await });
    let (cache, q) = (caches.exports.clone(), queues.clone());
    let api = Api::all(client.clone());
    watches.spawn(async move { cache.run(api, |change| q.export(&change)).await });
    let (cache, q) = (caches.imports.clone(), queues.clone());
    let api = Api::all(client.clone());
    watches.spawn(async move { cache.run(api, |change| q.import(&change)).await });
    let (cache, q, all) = (caches.slices.clone(), queues.clone(), caches.clone());
    let api = Api::all(client.clone());
    watches.spawn(async move { cache.run(api, |change| q.slice(&change, &all)).await });
}

async fn synced(caches: &Caches) {
    caches.namespaces.synced().await;
    caches.services.synced().await;
    caches.exports.synced().await;
    caches.imports.synced().await;
    caches.slices.synced().await;
}

/// Starts the workers of every controller.
fn employ(
    workers: &mut JoinSet<()>,
    ctx: &Arc<Context>,
    queues: &Queues,
    on_reconcile: &OnReconcile,
    cancel: &CancellationToken,
) {
    for (controller, queue) in queues.all() {
        for _ in 0..WORKERS {
            let (queue, ctx, cancel) = (queue.clone(), Arc::clone(ctx), cancel.clone());
            let tell = Arc::clone(on_reconcile);
            workers.spawn(async move { work(controller, &queue, &ctx, &tell, &cancel).await });
        }
    }
    let (queue, ctx) = (queues.misnamed_exports.clone(), Arc::clone(ctx));
    let (tell, cancel) = (Arc::clone(on_reconcile), cancel.clone());
    workers.spawn(async move { refuse(&queue, &ctx, &tell, &cancel).await });
}

async fn work(
    controller: Controller,
    queue: &Queue<NamespacedName>,
    ctx: &Context,
    on_reconcile: &OnReconcile,
    cancel: &CancellationToken,
) {
    loop {
        let name = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            name = queue.next() => name,
        };
        let span = info_span!(
            "reconcile", %controller, namespace = %name.namespace, name = %name.name, cluster = %ctx.cluster
        );
        let outcome = reconcile(controller, &name, ctx)
            .instrument(span.clone())
            .await;
        on_reconcile(controller, ending(&outcome));
        span.in_scope(|| settle(queue, &name, outcome));
    }
}

/// The worker of ServiceExports with impossible names.
async fn refuse(
    queue: &Queue<ObjectKey>,
    ctx: &Context,
    on_reconcile: &OnReconcile,
    cancel: &CancellationToken,
) {
    loop {
        let key = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            key = queue.next() => key,
        };
        let outcome = service_export::refuse(&key, ctx).await;
        on_reconcile(Controller::ServiceExport, ending(&outcome));
        settle(queue, &key, outcome);
    }
}

fn ending(outcome: &Result<(), apply::Error>) -> &'static str {
    outcome.as_ref().err().map_or("Done", apply::Error::reason)
}

fn settle<K: Ord + Clone + Hash>(queue: &Queue<K>, name: &K, outcome: Result<(), apply::Error>) {
    match outcome {
        Ok(()) => queue.done(name),
        Err(error @ apply::Error::NamespaceTerminating { .. }) => {
            info!(%error, "nothing more to do");
            queue.done(name);
        }
        Err(error @ apply::Error::NotLeading { .. }) => {
            debug!(%error, "left to the leader");
            queue.done(name);
        }
        Err(error @ (apply::Error::Stale { .. } | apply::Error::Unsettled { .. })) => {
            let delay = queue.retry(name);
            debug!(%error, ?delay, "trying again");
        }
        Err(error @ apply::Error::Refused { .. }) => {
            let delay = queue.retry(name);
            warn!(%error, ?delay, "trying again");
        }
    }
}

fn reconcile<'a>(
    controller: Controller,
    name: &'a NamespacedName,
    ctx: &'a Context,
) -> BoxFuture<'a, Result<(), apply::Error>> {
    match controller {
        Controller::ServiceImport => Box::pin(service_import::reconcile(name, ctx)),
        Controller::ServiceExport => Box::pin(service_export::reconcile(name, ctx)),
        Controller::DerivedService => Box::pin(derived_service::reconcile(name, ctx)),
        Controller::EndpointSliceMirror => Box::pin(endpoint_slice_mirror::reconcile(name, ctx)),
        Controller::EndpointSliceSync => Box::pin(endpoint_slice_sync::reconcile(name, ctx)),
        Controller::Crds => Box::pin(async { Ok(()) }),
    }
}

/// Lets workers work while this replica leads. Everything is looked at when its term begins: what another leader left undone, or
/// what this one was kept from.
async fn terms(ctx: &Context, queues: &Queues, tenure: &Tenure) {
    loop {
        tenure.begun().await;
        tokio::select! {
            () = full_passes(ctx, queues) => {}
            () = tenure.lapsed() => {}
        }
        queues.hold();
    }
}

/// Marks all names dirty whenever the silence of a peer may have got another meaning, and now and then.
async fn full_passes(ctx: &Context, queues: &Queues) {
    let mut changes = ctx.remote.changes();
    loop {
        changes.mark_unchanged();
        queues.everything_changed(ctx);
        // The first time after the names were marked: a queue that is handed out and empty has nothing left to do.
        queues.resume();
        let _ = tokio::time::timeout(FULL_PASS_INTERVAL, changes.changed()).await;
    }
}
