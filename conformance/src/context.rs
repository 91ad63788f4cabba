//! What a case works with: the clusters, a namespace of its own, time budgets, and the verbs to set things up.
//!
//! Verbs act on cluster numbers, in the order in which the clusters were given. They change only the case's namespace.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::try_join_all;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Namespace, Pod, Service},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::watch;
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};

use crate::{
    budgets::Budgets,
    case::{Blame, Failure},
    changes::Changes,
    clusters::Cluster,
    connection::with_causes,
    objects::{self, HELLO},
};

/// Between two looks at the clock of an API server.
const CLOCK: Duration = Duration::from_millis(100);

/// A wait that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The step.
    pub step: &'static str,
    /// How long it took.
    pub took: Duration,
}

/// The world of one run of one case.
pub struct Context {
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) budgets: Budgets,
    changes: Arc<Changes>,
    namespace: String,
    beside: OnceLock<Box<Context>>,
    slowest: Mutex<Option<Wait>>,
}

impl Context {
    /// A world with that namespace, which does not exist yet.
    pub(crate) fn new(
        clusters: Vec<Cluster>,
        budgets: Budgets,
        changes: Arc<Changes>,
        namespace: String,
    ) -> Self {
        Self {
            clusters,
            budgets,
            changes,
            namespace,
            beside: OnceLock::new(),
            slowest: Mutex::new(None),
        }
    }

    /// The same world with another namespace, which does not exist yet. The same one at every call.
    pub fn beside(&self) -> &Self {
        self.beside.get_or_init(|| {
            Box::new(Self::new(
                self.clusters.clone(),
                self.budgets,
                Arc::clone(&self.changes),
                format!("{}-beside", self.namespace),
            ))
        })
    }

    /// The world with the other namespace, if the case asked for it.
    pub(crate) fn has_beside(&self) -> Option<&Self> {
        self.beside.get().map(Box::as_ref)
    }

    /// The wait that took longest so far.
    pub fn slowest(&self) -> Option<Wait> {
        *self.slowest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waited(&self, wait: Wait) {
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        if slowest.is_none_or(|slowest| slowest.took < wait.took) {
            *slowest = Some(wait);
        }
    }

    /// What changes when an object in the case's namespace of a cluster does.
    pub(crate) fn changes(&self, cluster: usize) -> watch::Receiver<()> {
        self.changes.of(cluster, &self.namespace)
    }

    /// The numbers of all clusters.
    pub fn everywhere(&self) -> std::ops::Range<usize> {
        0..self.clusters.len()
    }

    /// The number of the last cluster.
    pub fn last(&self) -> usize {
        self.clusters.len() - 1
    }

    /// The namespace of this run.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The case's namespace of a cluster, as an API.
    pub fn api<K>(&self, cluster: usize) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(cluster), &self.namespace)
    }

    fn client(&self, cluster: usize) -> Client {
        self.clusters[cluster].client.clone()
    }

    pub(crate) fn failure(
        &self,
        step: &'static str,
        cluster: usize,
        expected: impl Into<String>,
        observed: impl Into<String>,
    ) -> Failure {
        Failure {
            step,
            cluster: self.clusters[cluster].name.clone(),
            expected: expected.into(),
            observed: observed.into(),
            blame: Blame::Implementation,
        }
    }

    fn refused(&self, step: &'static str, cluster: usize) -> impl Fn(kube::Error) -> Failure {
        move |error| {
            let observed = with_causes(&error);
            let expected = "the API server to accept it";
            self.failure(step, cluster, expected, observed).of_set_up()
        }
    }

    /// Makes the namespace in those clusters.
    pub async fn create_namespace(
        &self,
        clusters: impl IntoIterator<Item = usize>,
    ) -> Result<(), Failure> {
        let create = async |cluster: usize| {
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            };
            Api::all(self.client(cluster))
                .create(&PostParams::default(), &namespace)
                .await
                .map(|_| ())
                .map_err(self.refused("create the namespace", cluster))
        };
        try_join_all(clusters.into_iter().map(create))
            .await
            .map(|_| ())
    }

    /// Deletes its namespaces everywhere, pods at once. Does not wait; errors are left to the next run.
    pub async fn delete_namespaces(&self) {
        self.delete_namespace().await;
        if let Some(beside) = self.has_beside() {
            beside.delete_namespace().await;
        }
    }

    async fn delete_namespace(&self) {
        for cluster in self.everywhere() {
            let pods = self.api::<Pod>(cluster);
            let at_once = DeleteParams::default().grace_period(0);
            let _ = pods
                .delete_collection(&at_once, &ListParams::default())
                .await;
            let namespaces = Api::<Namespace>::all(self.client(cluster));
            let _ = namespaces
                .delete(&self.namespace, &DeleteParams::background())
                .await;
        }
    }

    /// Creates an object; returns it as the API server keeps it.
    pub async fn create<K>(
        &self,
        step: &'static str,
        cluster: usize,
        object: &K,
    ) -> Result<K, Failure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        self.api::<K>(cluster)
            .create(&PostParams::default(), object)
            .await
            .map_err(self.refused(step, cluster))
    }

    /// Creates the Service and its ServiceExport.
    pub async fn export(
        &self,
        cluster: usize,
        service: Service,
    ) -> Result<(Service, ServiceExport), Failure> {
        self.export_as(cluster, service, objects::export()).await
    }

    /// Creates the Service and that ServiceExport.
    pub async fn export_as(
        &self,
        cluster: usize,
        service: Service,
        export: ServiceExport,
    ) -> Result<(Service, ServiceExport), Failure> {
        let service = self.create("create the Service", cluster, &service).await?;
        let export = self.create("export", cluster, &export).await?;
        Ok((service, export))
    }

    /// Creates the Service and an export that is younger than `older`, by the clock of the API server.
    pub async fn export_later(
        &self,
        cluster: usize,
        service: Service,
        older: &ServiceExport,
    ) -> Result<(Service, ServiceExport), Failure> {
        self.later(cluster, older).await?;
        self.export(cluster, service).await
    }

    /// Waits until an export of that cluster would be younger than `older`, by the clock of its API server.
    pub async fn later(&self, cluster: usize, older: &ServiceExport) -> Result<(), Failure> {
        match created(older) {
            Some(time) => self.later_than(cluster, time).await,
            None => Ok(()),
        }
    }

    /// Waits until the clock of that cluster's API server, which counts seconds, is past a time.
    pub async fn later_than(&self, cluster: usize, time: jiff::Timestamp) -> Result<(), Failure> {
        let exports = self.api::<ServiceExport>(cluster);
        let mut rehearsal = objects::export();
        rehearsal.metadata.name = Some("rehearsal".to_owned());
        let (exports, rehearsal) = (&exports, &rehearsal);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let dry_run = &dry_run;
        let expected = format!("a new export to be younger than {time}");
        let step = "the clock moves on";
        let pace = (CLOCK, self.budgets.start);
        self.until_within(pace, step, (cluster, &expected), || async move {
            let new = created(&exports.create(dry_run, rehearsal).await?);
            if new.is_some_and(|new| new > time) {
                return Ok(());
            }
            Err(format!("a new one from {new:?}").into())
        })
        .await
        .map_err(Failure::of_set_up)
    }

    /// Deletes the ServiceExport.
    pub async fn unexport(&self, cluster: usize) -> Result<(), Failure> {
        self.api::<ServiceExport>(cluster)
            .delete(HELLO, &DeleteParams::default())
            .await
            .map(|_| ())
            .map_err(self.refused("delete the export", cluster))
    }

    /// Changes the Service by a merge patch.
    pub async fn patch_service(&self, cluster: usize, patch: &Value) -> Result<Service, Failure> {
        self.api::<Service>(cluster)
            .patch(HELLO, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(self.refused("change the Service", cluster))
    }

    /// Changes the ServiceExport by a merge patch.
    pub async fn patch_export(
        &self,
        cluster: usize,
        patch: &Value,
    ) -> Result<ServiceExport, Failure> {
        self.api::<ServiceExport>(cluster)
            .patch(HELLO, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(self.refused("change the export", cluster))
    }

    /// Adds a pod that the Service selects, with an address in each family, running and ready.
    pub async fn add_pod(
        &self,
        cluster: usize,
        name: &str,
        addresses: &[&str],
        hostname: Option<&str>,
    ) -> Result<(), Failure> {
        let node = self.clusters[cluster].fake_node.as_deref();
        let node = node.expect("invariant: cases with pods ask for the feature `backends`");
        let pod = objects::pod(name, node, hostname);
        self.accepted("create a pod", cluster, &pod).await?;
        let ips: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "podIP": addresses[0], "podIPs": ips, "phase": "Running" });
        self.patch_pod_status(cluster, name, status).await?;
        self.set_ready(cluster, name, true).await
    }

    /// Reports a pod as ready or not.
    pub async fn set_ready(&self, cluster: usize, name: &str, ready: bool) -> Result<(), Failure> {
        let status = if ready { "True" } else { "False" };
        let conditions = json!({ "conditions": [{ "type": "Ready", "status": status }] });
        self.patch_pod_status(cluster, name, conditions).await
    }

    async fn patch_pod_status(
        &self,
        cluster: usize,
        name: &str,
        status: Value,
    ) -> Result<(), Failure> {
        let patch = json!({ "status": status });
        self.api::<Pod>(cluster)
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map(|_| ())
            .map_err(self.refused("report on a pod", cluster))
    }

    /// Deletes a pod at once.
    pub async fn delete_pod(&self, cluster: usize, name: &str) -> Result<(), Failure> {
        self.api::<Pod>(cluster)
            .delete(name, &DeleteParams::default().grace_period(0))
            .await
            .map(|_| ())
            .map_err(self.refused("delete a pod", cluster))
    }

    /// The import of a cluster, if there is one.
    pub async fn import(&self, cluster: usize) -> Result<Option<ServiceImport>, kube::Error> {
        self.api::<ServiceImport>(cluster).get_opt(HELLO).await
    }
}

/// When an export was made, by the clock of its API server, which counts seconds.
pub(crate) fn created(export: &ServiceExport) -> Option<jiff::Timestamp> {
    export
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0)
}
