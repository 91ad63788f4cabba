//! An operator that runs against a cluster of the testbed, and looks at that cluster.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Service, discovery::v1::EndpointSlice},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tombolo::{
    cluster::client,
    operator::{self, Options, triggers::Queues},
};
use tombolo_api::{keys, v1beta1::ServiceImport};
use tombolo_core::names::NamespacedName;
use tombolo_testbed::{Cluster, Testbed, eventually};

use crate::fake_peers::FakePeers;

/// Longest wait for something that takes milliseconds.
pub(crate) const BUDGET: Duration = Duration::from_secs(20);

/// A running operator. Dropping it stops it.
pub(crate) struct Operator {
    pub(crate) peers: FakePeers,
    writes: Arc<AtomicUsize>,
    cancel: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Operator {
    /// Starts an operator for a cluster, on a runtime of its own; `prepare` is done to the peers before it begins.
    pub(crate) fn start(cluster: &Cluster, prepare: impl FnOnce(&FakePeers)) -> Result<Self> {
        // A second installation fails, and that is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let queues = Queues::new();
        let peers = FakePeers::new(&queues);
        prepare(&peers);
        let writes = Arc::new(AtomicUsize::new(0));
        let cancel = CancellationToken::new();
        let counted = Arc::clone(&writes);
        let options = Options {
            cluster: cluster.name().try_into()?,
            default_global: true,
            install_crds: true,
            on_write: Arc::new(move |_, _| {
                counted.fetch_add(1, Ordering::SeqCst);
            }),
            on_ready: Box::new(|| {}),
        };
        let kubeconfig = cluster.kubeconfig()?.to_owned();
        let (remote, stop) = (Arc::new(peers.clone()), cancel.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let client = client::client(Some(&kubeconfig), None).await.unwrap();
                operator::run(client, options, remote, queues, stop)
                    .await
                    .unwrap();
            });
        });
        Ok(Self {
            peers,
            writes,
            cancel,
            thread: Some(thread),
        })
    }

    /// How many writes there were.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
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
