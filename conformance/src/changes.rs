//! Tells cases that something changed in their namespace, so that they look again at once instead of at intervals.
//!
//! One watch per kind and cluster serves all cases of a run. It must never decide anything: a watch that fails or is
//! refused only makes cases look less often.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt as _, pin_mut};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Resource,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet};
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};

use crate::clusters::Cluster;

type Bells = Mutex<BTreeMap<(usize, String), watch::Sender<()>>>;

/// The watches of a run. They end when it is dropped.
#[derive(Default)]
pub(crate) struct Changes {
    bells: Arc<Bells>,
    _watches: JoinSet<()>,
}

impl Changes {
    /// Watches what implementations write.
    pub(crate) fn watch(clusters: &[Cluster]) -> Self {
        let bells = Arc::new(Bells::default());
        let mut watches = JoinSet::new();
        for (number, cluster) in clusters.iter().enumerate() {
            watches.spawn(ring::<ServiceExport>(number, cluster, &bells));
            watches.spawn(ring::<ServiceImport>(number, cluster, &bells));
            watches.spawn(ring::<Service>(number, cluster, &bells));
            watches.spawn(ring::<EndpointSlice>(number, cluster, &bells));
        }
        Self {
            bells,
            _watches: watches,
        }
    }

    /// What changes when something in that namespace of that cluster does.
    pub(crate) fn of(&self, cluster: usize, namespace: &str) -> watch::Receiver<()> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        let bell = bells.entry((cluster, namespace.to_owned())).or_default();
        bell.subscribe()
    }
}

/// Rings the bell of each namespace in which an object of that kind changes.
fn ring<K>(
    number: usize,
    cluster: &Cluster,
    bells: &Arc<Bells>,
) -> impl Future<Output = ()> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let objects = Api::<PartialObjectMeta<K>>::all(cluster.client.clone());
    let events = watcher::watcher(objects, watcher::Config::default()).default_backoff();
    let namespaces = events.filter_map(async |event| match event.ok()? {
        Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
            object.metadata.namespace
        }
        Event::Init | Event::InitDone => None,
    });
    ring_all(number, namespaces, Arc::clone(bells))
}

async fn ring_all(number: usize, namespaces: impl Stream<Item = String>, bells: Arc<Bells>) {
    pin_mut!(namespaces);
    while let Some(namespace) = namespaces.next().await {
        let bells = bells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.get(&(number, namespace)) {
            bell.send_replace(());
        }
    }
}
