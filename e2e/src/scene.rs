//! A namespace in all clusters, what was put into it, and what must follow from that.
//!
//! A scene keeps its own books of Services, exports and pods. From these [`Scene::expected`] says what each cluster must
//! hold, whatever happened on the way there: it is what a fresh mesh would come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Service, ServicePort, ServiceSpec},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde::de::DeserializeOwned;
use tombolo_api::v1beta1::{ServiceExport, ServiceExportSpec, ServiceImport};
use tombolo_testbed::{Cluster, Component, FakePod, PodOptions, Testbed, eventually, stays_for};

use crate::{
    records::Records,
    view::{Import, Objects, View, conditions, target},
};

/// Time for all clusters to come to rest after a fault, on a busy machine. Without fault it takes well under a second.
pub const SETTLE: Duration = Duration::from_mins(1);
/// Time for which something has to stay to count as kept.
pub const KEEP: Duration = Duration::from_secs(3);

const PORT: i32 = 80;
const PORT_NAME: &str = "http";

/// A scene.
pub struct Scene<'t> {
    testbed: &'t Testbed,
    clients: Vec<Client>,
    namespace: String,
    services: BTreeMap<(String, usize), Local<'t>>,
}

/// A Service of one cluster.
#[derive(Default)]
struct Local<'t> {
    exported: bool,
    pods: BTreeMap<String, FakePod<'t>>,
}

impl<'t> Scene<'t> {
    /// An empty scene: a namespace in every cluster.
    pub async fn new(testbed: &'t Testbed) -> Result<Self> {
        let namespace = testbed.namespace().await?;
        let clients = testbed.clusters().iter().map(Cluster::client).collect();
        Ok(Self {
            testbed,
            clients,
            namespace,
            services: BTreeMap::new(),
        })
    }

    /// A scene with those exports, each a cluster and a name, in which everything that follows from them is in place.
    pub async fn with_exports(testbed: &'t Testbed, exports: &[(usize, &str)]) -> Result<Self> {
        let mut scene = Self::new(testbed).await?;
        for (cluster, name) in exports {
            scene.export(*cluster, name).await?;
        }
        scene.settled().await.context("at the beginning")?;
        Ok(scene)
    }

    /// Its clusters.
    pub fn testbed(&self) -> &'t Testbed {
        self.testbed
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The scene's namespace of a cluster, as an API.
    pub fn api<K>(&self, cluster: usize) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.clients[cluster].clone(), &self.namespace)
    }

    /// Creates a Service with one pod.
    pub async fn serve(&mut self, cluster: usize, name: &str) -> Result<()> {
        let service = Service {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                selector: Some([("app".to_owned(), name.to_owned())].into()),
                ports: Some(vec![ServicePort {
                    name: Some(PORT_NAME.to_owned()),
                    port: PORT,
                    ..ServicePort::default()
                }]),
                ip_family_policy: Some("PreferDualStack".to_owned()),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        };
        self.api(cluster)
            .create(&PostParams::default(), &service)
            .await?;
        self.services
            .insert((name.to_owned(), cluster), Local::default());
        self.add_pod(cluster, name, "first").await
    }

    /// Creates a Service with one pod, and exports it.
    pub async fn export(&mut self, cluster: usize, name: &str) -> Result<()> {
        self.serve(cluster, name).await?;
        let export = ServiceExport::new(name, ServiceExportSpec::default());
        self.api(cluster)
            .create(&PostParams::default(), &export)
            .await?;
        self.local(cluster, name)?.exported = true;
        Ok(())
    }

    /// Deletes the export; the Service stays.
    pub async fn unexport(&mut self, cluster: usize, name: &str) -> Result<()> {
        self.api::<ServiceExport>(cluster)
            .delete(name, &DeleteParams::default())
            .await?;
        self.local(cluster, name)?.exported = false;
        Ok(())
    }

    /// Adds a ready pod to a Service.
    pub async fn add_pod(&mut self, cluster: usize, name: &str, pod: &str) -> Result<()> {
        let full = format!("{name}-{pod}");
        let testbed = self.testbed;
        let options = PodOptions::default();
        let labels = [("app", name)];
        let added = testbed
            .cluster(cluster)
            .fake_pod(&self.namespace, &full, &labels, options);
        let added = added.await?;
        self.local(cluster, name)?
            .pods
            .insert(pod.to_owned(), added);
        Ok(())
    }

    /// Removes a pod.
    pub async fn remove_pod(&mut self, cluster: usize, name: &str, pod: &str) -> Result<()> {
        let removed = self.local(cluster, name)?.pods.remove(pod);
        removed
            .with_context(|| format!("{name} has no pod {pod}"))?
            .delete()
            .await?;
        Ok(())
    }

    fn local(&mut self, cluster: usize, name: &str) -> Result<&mut Local<'t>> {
        let local = self.services.get_mut(&(name.to_owned(), cluster));
        local.with_context(|| format!("cluster {cluster} has no Service {name}"))
    }

    /// What a cluster must hold.
    pub fn expected(&self, cluster: usize) -> View {
        let mut view = View::default();
        for ((name, at), local) in &self.services {
            if !local.exported {
                continue;
            }
            let import = view.imports.entry(name.clone()).or_insert_with(|| Import {
                kind: "ClusterSetIP".to_owned(),
                ports: vec![format!("{PORT_NAME} {PORT}/TCP")],
                ips_of_derived: true,
                ..Import::default()
            });
            import
                .clusters
                .push(self.testbed.cluster(*at).name().to_owned());
            import.clusters.sort();
            for address in local.pods.values().flat_map(FakePod::ips) {
                import
                    .targets
                    .insert(target(PORT_NAME, &address.to_string(), PORT));
            }
            if *at == cluster {
                view.exports
                    .insert(name.clone(), conditions("True", "False"));
                view.records.insert(name.clone());
            }
        }
        view
    }

    /// What a cluster holds.
    pub async fn seen(&self, cluster: usize) -> Result<View> {
        let mut records = Records::of(self.testbed.cluster(cluster)).await?;
        let keys = records.exports(&self.namespace).await?;
        Ok(self.objects(cluster).await?.view(keys))
    }

    /// The objects of the namespace in a cluster.
    pub async fn objects(&self, cluster: usize) -> Result<Objects> {
        Ok(Objects {
            imports: self.list(cluster).await?,
            exports: self.list(cluster).await?,
            services: self.list(cluster).await?,
            slices: self.list(cluster).await?,
        })
    }

    async fn list<K>(&self, cluster: usize) -> Result<Vec<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        Ok(self
            .api::<K>(cluster)
            .list(&ListParams::default())
            .await?
            .items)
    }

    /// Waits until every cluster holds exactly what it must.
    pub async fn settled(&self) -> Result<()> {
        for (index, cluster) in self.testbed.clusters().iter().enumerate() {
            let wanted = self.expected(index);
            let what = format!(
                "cluster {} to hold what follows from all exports",
                cluster.name()
            );
            eventually(SETTLE, &what, async || {
                let seen = self
                    .seen(index)
                    .await
                    .map_err(|error| format!("{error:#}"))?;
                seen.difference(&wanted).map_or(Ok(()), Err)
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until one import of a cluster is as it must be, whatever the rest looks like.
    pub async fn import_settled(&self, cluster: usize, name: &str) -> Result<()> {
        let wanted = self.expected(cluster).imports.remove(name);
        let what = format!("the import {name} to be right in cluster {cluster}");
        eventually(SETTLE, &what, async || {
            let objects = self
                .objects(cluster)
                .await
                .map_err(|error| format!("{error:#}"))?;
            let seen = objects.view(BTreeSet::new()).imports.remove(name);
            if seen == wanted {
                Ok(())
            } else {
                Err(format!("{seen:?}, wanted {wanted:?}"))
            }
        })
        .await?;
        Ok(())
    }

    /// Waits until an import of a cluster is gone, whatever the books say.
    pub async fn import_gone(&self, cluster: usize, name: &str) -> Result<()> {
        let what = format!("the import {name} to be gone in cluster {cluster}");
        let api = self.api::<ServiceImport>(cluster);
        eventually(SETTLE, &what, async || match api.get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(import)) => Err(format!("{:?}", import.status)),
            Err(error) => Err(error.to_string()),
        })
        .await?;
        Ok(())
    }

    /// What is behind those imports of a cluster now, with the identity of each object.
    pub async fn holding(&self, cluster: usize, names: &[&str]) -> Result<Holding> {
        let objects = self.objects(cluster).await?;
        let view = objects.view(BTreeSet::new());
        let mut holding = Holding {
            cluster,
            imports: BTreeMap::new(),
        };
        for name in names {
            let Some(import) = view.imports.get(*name) else {
                bail!("there is no import {name}");
            };
            let uid = uid_of(&objects.imports, name);
            holding
                .imports
                .insert((*name).to_owned(), (uid, import.clone()));
        }
        Ok(holding)
    }

    /// Checks for [`KEEP`] that nothing of a holding is removed: the imports are the same objects, and no exporter and
    /// no endpoint is lost. More may come.
    pub async fn keeps(&self, holding: &Holding) -> Result<()> {
        stays_for(
            KEEP,
            "nothing that a peer exported is removed",
            async || {
                let objects = self.objects(holding.cluster).await;
                let objects = objects.map_err(|error| format!("{error:#}"))?;
                let view = objects.view(BTreeSet::new());
                for (name, (uid, before)) in &holding.imports {
                    let now = view
                        .imports
                        .get(name)
                        .ok_or_else(|| format!("{name} is gone"))?;
                    let lost: Vec<_> = before.targets.difference(&now.targets).collect();
                    let kept = before
                        .clusters
                        .iter()
                        .all(|cluster| now.clusters.contains(cluster));
                    if uid_of(&objects.imports, name) != *uid || !lost.is_empty() || !kept {
                        return Err(format!("{name}: {now:?}, before {before:?}"));
                    }
                }
                Ok(())
            },
        )
        .await?;
        Ok(())
    }

    /// A cluster's store starts from nothing while its publisher is dead, and stays so: nothing of a holding is removed.
    pub async fn keeps_while_empty(&self, peer: usize, holding: &Holding) -> Result<()> {
        let peer = self.testbed.cluster(peer);
        peer.kill9(Component::Mesh)?;
        peer.wipe_and_restart(Component::MeshEtcd).await?;
        self.keeps(holding)
            .await
            .context("while the store is empty")
    }
}

/// Imports of a cluster at one time.
pub struct Holding {
    cluster: usize,
    imports: BTreeMap<String, (Option<String>, Import)>,
}

fn uid_of(imports: &[ServiceImport], name: &str) -> Option<String> {
    imports
        .iter()
        .find(|import| import.name_any() == name)
        .and_then(ResourceExt::uid)
}
