//! A peer can be read again after much has changed in it. What takes something away is written before the rest: traffic still
//! goes to what is gone, while nobody knows yet of what has come.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_e2e::{
    hand_written::HandWritten,
    scene::{SETTLE, Scene},
};
use tombolo_testbed::{Component, Forwarder, Testbed, eventually, patience};

use crate::A;

/// Services of the peer. Each tenth loses something while the peer cannot be read, all others gain something.
const NAMES: usize = 80;

/// Of the names that gain, how many may be served before the last of those that lose: those that workers had in hand already,
/// and one for every eight that go first.
const BEFORE: usize = NAMES / 4;

const PEER: &str = "many";

const PORTS: [u16; 2] = [80, 443];

/// What becomes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A backend and a port more.
    Gains,
    /// A backend less.
    LosesBackend,
    /// It is exported no more.
    Ends,
}

fn fate(number: usize) -> Fate {
    match number % 20 {
        9 => Fate::LosesBackend,
        19 => Fate::Ends,
        _ => Fate::Gains,
    }
}

fn name(number: usize) -> String {
    format!("web-{number:02}")
}

fn addresses(number: usize, count: usize) -> Vec<String> {
    (1..=count)
        .map(|last| format!("10.77.{number}.{last}"))
        .collect()
}

/// The peer is cut off, and its world moves on. The API server stands still while A reads what happened, so that all of it is
/// to be written when it goes on.
pub(crate) async fn removals_go_first(testbed: &Testbed) -> Result<()> {
    let a = testbed.cluster(A);
    let scene = Scene::new(testbed).await?;
    let peer = HandWritten::start(a, PEER, scene.namespace()).await?;
    let exports = (0..NAMES).map(|number| peer.export(&name(number), &PORTS[..1]));
    peer.write(exports.collect()).await?;
    let between = Forwarder::start(peer.address()?).await?;
    a.write_peer(PEER, &format!("http://{}", between.address()))?;
    let derived = derived_services(&scene).await?;
    let service = |number: usize, backends, ports| {
        let derived = &derived[&name(number)];
        peer.service(derived, &addresses(number, backends), ports)
    };
    let services = (0..NAMES).map(|number| service(number, 2, &PORTS[..1]));
    peer.write(services.collect()).await?;
    until_all_have(&scene, 2 * NAMES).await?;

    peer.cut(&between, Component::Operator).await?;
    let exports = (0..NAMES).filter_map(|number| match fate(number) {
        Fate::Gains => Some(peer.export(&name(number), &PORTS)),
        Fate::LosesBackend => None,
        Fate::Ends => Some(peer.no_export(&name(number))),
    });
    let exports = peer.write(exports.collect()).await?;
    let services = (0..NAMES).map(|number| match fate(number) {
        Fate::Gains => service(number, 3, &PORTS),
        Fate::LosesBackend => service(number, 1, &PORTS[..1]),
        Fate::Ends => peer.no_service(&derived[&name(number)]),
    });
    let services = peer.write(services.collect()).await?;
    let imports: Api<ServiceImport> = scene.api(A);
    let slices: Api<EndpointSlice> = scene.api(A);
    let since = (now(&imports).await?, now(&slices).await?);

    a.pause(Component::ApiServer)?;
    between.switch(peer.address()?);
    let read = async {
        peer.until_read(Component::Operator, "serviceexports", exports)
            .await?;
        peer.until_read(Component::Operator, "services", services)
            .await
    };
    let read = read.await;
    a.resume(Component::ApiServer)?;
    read?;

    let changed = |number: &usize| fate(*number) == Fate::Gains;
    let gains: BTreeSet<_> = (0..NAMES).filter(changed).map(name).collect();
    let of_import = order(&imports, &since.0, NAMES * 19 / 20, |import, gone| {
        (gone || import.spec.ports.len() == 2).then(|| import.name_any())
    })
    .await
    .context("order of imports")?;
    let of_slices = order(&slices, &since.1, NAMES, |slice, gone| {
        let service = slice.labels().get(keys::KUBERNETES_SERVICE_NAME)?;
        let (name, _) = derived.iter().find(|(_, derived)| *derived == service)?;
        let number: usize = name.rsplit('-').next()?.parse().ok()?;
        let backends = slice.endpoints.iter().flatten().count();
        let done = match fate(number) {
            Fate::Gains => backends == 3,
            Fate::LosesBackend => backends == 1,
            Fate::Ends => gone || backends == 0,
        };
        done.then(|| name.clone())
    })
    .await
    .context("order of slices")?;
    removals_first("imports", &of_import, &gains)?;
    removals_first("slices", &of_slices, &gains)?;

    a.remove_peer(PEER)?;
    until_all_have(&scene, 0).await?;
    Ok(a.stop(Component::SecondMeshEtcd).await?)
}

/// Names of the derived Services by import, once all are there.
async fn derived_services(scene: &Scene<'_>) -> Result<BTreeMap<String, String>> {
    let found = eventually(SETTLE, "an import with IPs for each export", async || {
        let objects = scene.objects(A).await;
        let objects = objects.map_err(|error| format!("{error:#}"))?;
        let named = |import: &ServiceImport| {
            import.spec.ips.as_ref().filter(|ips| !ips.is_empty())?;
            let derived = import.annotations().get(keys::DERIVED_SERVICE)?;
            Some((import.name_any(), derived.clone()))
        };
        let derived: BTreeMap<_, _> = objects.imports.iter().filter_map(named).collect();
        let count = derived.len();
        (count == NAMES).then_some(derived).ok_or(count.to_string())
    });
    Ok(found.await?)
}

/// Waits until the slices have so many endpoints together.
async fn until_all_have(scene: &Scene<'_>, wanted: usize) -> Result<()> {
    eventually(SETTLE, &format!("{wanted} endpoints"), async || {
        let objects = scene.objects(A).await;
        let slices = objects.map_err(|error| format!("{error:#}"))?.slices;
        let endpoints = slices
            .iter()
            .flat_map(|slice| slice.endpoints.iter().flatten());
        let count = endpoints.count();
        (count == wanted).then_some(()).ok_or(count.to_string())
    })
    .await?;
    Ok(())
}

/// The version of a collection.
async fn now<K>(api: &Api<K>) -> Result<String>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let list = api.list(&ListParams::default()).await?;
    list.metadata
        .resource_version
        .context("a list has a version")
}

/// The names in the order in which they were done after that version, until so many are.
async fn order<K>(
    api: &Api<K>,
    since: &str,
    count: usize,
    done: impl Fn(&K, bool) -> Option<String>,
) -> Result<Vec<String>>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut names: Vec<String> = Vec::new();
    let follow = async {
        let mut events = Box::pin(api.watch(&WatchParams::default(), since).await?);
        while let Some(event) = events.try_next().await? {
            let name = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => done(&object, false),
                WatchEvent::Deleted(object) => done(&object, true),
                WatchEvent::Bookmark(_) => None,
                WatchEvent::Error(error) => return Err(kube::Error::Api(error)),
            };
            if let Some(name) = name.filter(|name| !names.contains(name)) {
                names.push(name);
                if names.len() == count {
                    break;
                }
            }
        }
        Ok(())
    };
    let followed = tokio::time::timeout(SETTLE * patience(), follow).await;
    followed.with_context(|| format!("{} of {count}", names.len()))??;
    ensure!(
        names.len() == count,
        "{} of {count}: {names:?}",
        names.len()
    );
    Ok(names)
}

fn removals_first(what: &str, order: &[String], gains: &BTreeSet<String>) -> Result<()> {
    let last = order.iter().rposition(|name| !gains.contains(name));
    let last = last.with_context(|| format!("no removal among the {what}"))?;
    let removals = order.iter().filter(|name| !gains.contains(*name)).count();
    let before = last + 1 - removals;
    println!(
        "{what}: {before} of {} names that gained something were served before the last of {removals} that lost something",
        order.len() - removals
    );
    ensure!(before <= BEFORE, "{what}: {before} before: {order:?}");
    Ok(())
}
