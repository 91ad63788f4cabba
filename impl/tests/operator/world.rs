//! An operator that runs against a cluster of the testbed, and looks at that cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tombolo::{
    cluster::client,
    operator::{
        self, Options, apply::Pace, context::Caches, leadership::Election, triggers::Queues,
    },
};
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_core::names::NamespacedName;
use tombolo_testbed::{Cluster, Testbed, eventually};

use crate::fake_peers::FakePeers;

/// Longest wait for something that takes milliseconds.
pub(crate) const BUDGET: Duration = Duration::from_secs(20);

/// How many looks in a row must find an operator idle before it counts as at rest: what the API server has still to tell it makes
/// it work again between two of them.
const IDLE_LOOKS: usize = 12;

/// A running operator. Dropping it stops it.
pub(crate) struct Operator {
    pub(crate) peers: FakePeers,
    queues: Queues,
    counts: Arc<Mutex<Counts>>,
    cancel: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What an operator has done since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Writes to the API server, by controller and verb.
    pub(crate) writes: BTreeMap<(&'static str, &'static str), usize>,
    /// Names worked on, by controller and outcome.
    pub(crate) reconciles: BTreeMap<(&'static str, &'static str), usize>,
}

impl Counts {
    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut counts = self.clone();
        for (key, count) in &mut counts.writes {
            *count -= before.writes.get(key).unwrap_or(&0);
        }
        for (key, count) in &mut counts.reconciles {
            *count -= before.reconciles.get(key).unwrap_or(&0);
        }
        counts.writes.retain(|_, count| *count > 0);
        counts.reconciles.retain(|_, count| *count > 0);
        counts
    }

    /// All writes.
    pub(crate) fn all_writes(&self) -> usize {
        self.writes.values().sum()
    }

    /// All names worked on.
    pub(crate) fn all_reconciles(&self) -> usize {
        self.reconciles.values().sum()
    }
}

impl Operator {
    /// Starts an operator for a cluster, on a runtime of its own; `prepare` is done to the peers before it begins.
    pub(crate) fn start(cluster: &Cluster, prepare: impl FnOnce(&FakePeers)) -> Result<Self> {
        Self::start_with(cluster, true, prepare)
    }

    /// As [`Self::start`], with a default for namespaces without annotation.
    pub(crate) fn start_with(
        cluster: &Cluster,
        default_global: bool,
        prepare: impl FnOnce(&FakePeers),
    ) -> Result<Self> {
        // A second installation fails, and that is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let queues = Queues::new();
        let peers = FakePeers::new(&queues);
        prepare(&peers);
        let counts = Arc::new(Mutex::new(Counts::default()));
        let cancel = CancellationToken::new();
        let (written, worked) = (Arc::clone(&counts), Arc::clone(&counts));
        let options = Options {
            cluster: cluster.name().try_into()?,
            default_global,
            install_crds: true,
            caches: Caches::new(),
            election: Election::uncontested(),
            pace: Pace::unlimited(),
            on_write: Arc::new(move |controller, verb| {
                let mut counts = written.lock().unwrap();
                let key = (controller.as_str(), verb.as_str());
                *counts.writes.entry(key).or_default() += 1;
            }),
            on_reconcile: Arc::new(move |controller, outcome| {
                let mut counts = worked.lock().unwrap();
                let key = (controller.as_str(), outcome);
                *counts.reconciles.entry(key).or_default() += 1;
            }),
            on_ready: Box::new(|| {}),
        };
        let kubeconfig = cluster.kubeconfig()?.to_owned();
        let (remote, stop) = (Arc::new(peers.clone()), cancel.clone());
        let handed = queues.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let client = client::client(Some(&kubeconfig), None).await.unwrap();
                operator::run(client, options, remote, handed, stop)
                    .await
                    .unwrap();
            });
        });
        Ok(Self {
            peers,
            queues,
            counts,
            cancel,
            thread: Some(thread),
        })
    }

    /// What it has done so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap().clone()
    }

    /// Waits until look after look it has nothing to do and has done nothing since the one before.
    pub(crate) async fn settled(&self) -> Result<Counts> {
        let (mut last, mut looks) = (self.counts(), 0);
        let settled = eventually(BUDGET, "the operator comes to rest", async || {
            // In this order: whatever leaves a queue was counted before.
            let (to_do, counts) = (self.to_do(), self.counts());
            let idle = to_do == 0 && counts == last;
            looks = if idle { looks + 1 } else { 0 };
            last.clone_from(&counts);
            if looks >= IDLE_LOOKS {
                Ok(counts)
            } else {
                Err(format!("{to_do} names to work on, {counts:?}"))
            }
        });
        Ok(settled.await?)
    }

    /// How many names wait, are in work, or are tried again later.
    fn to_do(&self) -> usize {
        let names = self.queues.all().map(|(_, queue)| queue.len());
        names.iter().sum::<usize>() + self.queues.misnamed_exports.len()
    }

    /// Stops it and waits until it has ended.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A namespace of a cluster, for one test.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// The first cluster of the shared testbed with an operator that all tests of it share, and a namespace for one test.
pub(crate) async fn shared() -> Result<(World, &'static Operator)> {
    static OPERATOR: OnceCell<Operator> = OnceCell::const_new();
    let cluster = Testbed::shared().await?.cluster(0);
    let operator = OPERATOR
        .get_or_try_init(async || Operator::start(cluster, |_| {}))
        .await?;
    Ok((World::new(cluster).await?, operator))
}

impl World {
    /// A new namespace.
    pub(crate) async fn new(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            client: cluster.client(),
            namespace: cluster.namespace().await?,
        })
    }

    /// Annotates its Namespace as global or not.
    pub(crate) async fn gate(&self, value: &str) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { keys::NAMESPACE_GLOBAL: value } } });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        namespaces.patch(&self.namespace, &params, &patch).await?;
        Ok(())
    }

    pub(crate) fn name(&self, name: &str) -> NamespacedName {
        NamespacedName::parse(&self.namespace, name).unwrap()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create<K>(&self, yaml: &str) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_saphyr::from_str(yaml)?;
        // The definitions may be a moment old.
        let api = self.api::<K>();
        let created = eventually(BUDGET, "the object is accepted", async || {
            let created = api.create(&PostParams::default(), &object).await;
            created.map_err(|error| error.to_string())
        });
        created.await.context("create")
    }

    /// Deletes an object; that it is gone already is fine.
    pub(crate) async fn delete<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        match self.api::<K>().delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let api = self.api::<K>();
        api.patch(name, &params, &patch).await.context("patch")
    }

    /// Waits until an object exists and `is` of it.
    pub(crate) async fn expect<K>(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&K) -> bool,
    ) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api = self.api::<K>();
        let seen = eventually(BUDGET, what, async || {
            match api.get_opt(name).await.map_err(|error| error.to_string())? {
                Some(object) if is(&object) => Ok(object),
                Some(object) => Err(serde_json::json!(object).to_string()),
                None => Err(format!("no {} {name}", K::kind(&()))),
            }
        });
        Ok(seen.await?)
    }

    /// Waits until an object does not exist.
    pub(crate) async fn expect_gone<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api = self.api::<K>();
        let what = format!("{} {name} is gone", K::kind(&()));
        let gone = eventually(BUDGET, &what, async || {
            match api.get_opt(name).await.map_err(|error| error.to_string())? {
                Some(object) => Err(format!("{object:?}")),
                None => Ok(()),
            }
        });
        Ok(gone.await?)
    }

    /// Waits until an import is ready.
    pub(crate) async fn expect_ready(&self, name: &str) -> Result<ServiceImport> {
        self.expect(name, "the import is ready", |import: &ServiceImport| {
            condition(import).as_deref() == Some("Ready")
        })
        .await
    }

    pub(crate) async fn slices(&self, service: &str) -> Result<Vec<EndpointSlice>> {
        let selector = format!("{}={service}", keys::KUBERNETES_SERVICE_NAME);
        let listed = self
            .api()
            .list(&ListParams::default().labels(&selector))
            .await?;
        Ok(listed.items)
    }

    /// Waits until the slices of a Service that a manager made have exactly these addresses.
    pub(crate) async fn expect_addresses(
        &self,
        service: &str,
        manager: &str,
        expected: &[&str],
    ) -> Result<Vec<EndpointSlice>> {
        let expected: BTreeSet<_> = expected.iter().map(|text| (*text).to_owned()).collect();
        let seen = eventually(BUDGET, "the slices have these addresses", async || {
            let slices = self
                .slices(service)
                .await
                .map_err(|error| error.to_string())?;
            let ours: Vec<_> = slices
                .into_iter()
                .filter(|slice| {
                    slice
                        .labels()
                        .get(keys::MANAGED_BY)
                        .is_some_and(|by| by == manager)
                })
                .collect();
            let endpoints = ours
                .iter()
                .flat_map(|slice| slice.endpoints.iter().flatten());
            let found: BTreeSet<_> = endpoints
                .flat_map(|endpoint| endpoint.addresses.clone())
                .collect();
            if found == expected {
                Ok(ours)
            } else {
                Err(format!("{found:?}"))
            }
        });
        Ok(seen.await?)
    }

    /// The reasons of Events about an object.
    pub(crate) async fn expect_event(&self, name: &str, reason: &str) -> Result<()> {
        let api = self.api::<k8s_openapi::api::events::v1::Event>();
        let seen = eventually(BUDGET, "there is an Event", async || {
            let events = api
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let about = |event: &&k8s_openapi::api::events::v1::Event| {
                let regarding = event
                    .regarding
                    .as_ref()
                    .and_then(|about| about.name.as_deref());
                regarding == Some(name)
            };
            let reasons: Vec<_> = events
                .items
                .iter()
                .filter(about)
                .filter_map(|event| event.reason.clone())
                .collect();
            if reasons.iter().any(|found| found == reason) {
                Ok(())
            } else {
                Err(format!("{reasons:?}"))
            }
        });
        Ok(seen.await?)
    }
}

/// Reason of an import's condition.
pub(crate) fn condition(import: &ServiceImport) -> Option<String> {
    let conditions = import.status.as_ref()?.conditions.as_ref()?;
    conditions.first().map(|condition| condition.reason.clone())
}

pub(crate) fn cluster_ip(service: &Service) -> Option<String> {
    service.spec.as_ref()?.cluster_ip.clone()
}
