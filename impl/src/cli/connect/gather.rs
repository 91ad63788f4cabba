//! Reads what is known of a cluster, under the user's own rights. Reads only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::Duration,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Node, Secret, Service},
        networking::v1::ServiceCIDR,
    },
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, ObjectList},
};
use serde::de::DeserializeOwned;
use tombolo_api::v1beta1::ServiceImport;

use super::{
    ConnectError as Error,
    exposure::OWN_SERVICE,
    facts::{Held, Importer, Publisher, Site},
    files::{MESH_SECRET, OPERATOR_SECRET},
    installation::{self, Installation, Mesh},
    networks, objects, users,
};
use crate::cluster::client::{is_not_served, said};

/// How long an API server may take to answer all questions.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Secret with the authority that the chart makes.
const AUTHORITY: &str = "tombolo-ca";
/// The Service of the chart.
const SERVICE: &str = "clustermesh-apiserver";

/// A cluster that is looked at.
#[derive(Clone)]
pub(super) struct Place {
    /// A client with the user's rights.
    pub(super) client: Client,
    /// The context.
    pub(super) context: String,
    /// Namespace of the installation.
    pub(super) namespace: String,
}

impl Place {
    /// Namespaced objects of the installation.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn failed(&self, what: impl Into<String>, source: kube::Error) -> Error {
        Error::api(&self.context, what, source)
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let found = self.api::<K>().get_opt(name).await;
        let (kind, namespace) = (K::kind(&()), &self.namespace);
        found.map_err(|source| self.failed(format!("read {kind} {namespace}/{name}"), source))
    }
}

/// Reads everything, in time.
pub(super) async fn read(place: &Place) -> Result<Site, Error> {
    let late = |_| Error::Late {
        context: place.context.clone(),
        seconds: READ_TIMEOUT.as_secs(),
    };
    tokio::time::timeout(READ_TIMEOUT, read_all(place))
        .await
        .map_err(late)?
}

async fn read_all(place: &Place) -> Result<Site, Error> {
    let kubernetes = place.client.apiserver_version().await;
    let kubernetes = kubernetes.map_err(|source| place.failed("ask for its version", source))?;
    let params = ListParams::default().labels(installation::SELECTOR);
    let deployments = place.api::<Deployment>().list(&params).await;
    let deployments = deployments.map_err(|source| {
        place.failed(format!("list Deployments in {}", place.namespace), source)
    })?;
    let installed = installation::read(&place.context, &place.namespace, &deployments.items)?;
    let mut unknown = Vec::new();
    let (nodes, networks) = read_networks(place, &mut unknown).await;
    let mut card = installed.card.clone();
    card.networks = networks;
    let publisher = match &installed.mesh {
        Some(mesh) => Some(read_publisher(place, mesh).await?),
        None => None,
    };
    let shown = match &installed.shown_secret {
        Some(name) => place
            .get::<Secret>(name)
            .await?
            .as_ref()
            .and_then(objects::certified),
        None => None,
    };
    Ok(Site {
        context: place.context.clone(),
        namespace: place.namespace.clone(),
        release: installed.release.clone(),
        kubernetes: kubernetes.git_version,
        importer: importer(place, &installed, publisher.as_ref()),
        held: read_held(place, &mut unknown).await?,
        nodes: nodes.iter().map(objects::node).collect(),
        card,
        publisher,
        shown,
        unknown,
    })
}

async fn read_publisher(place: &Place, mesh: &Mesh) -> Result<Publisher, Error> {
    let server = match &mesh.server_secret {
        Some(name) => place.get::<Secret>(name).await?,
        None => None,
    };
    let authority = place.get::<Secret>(AUTHORITY).await?;
    let service = place.get::<Service>(SERVICE).await?;
    let same_name = place.get::<Service>(OWN_SERVICE).await?;
    let own_service = same_name.as_ref().filter(|it| objects::is_ours(it.meta()));
    Ok(Publisher {
        users: mesh.users,
        copies: mesh.copies,
        selector: mesh.selector.clone(),
        server: server.as_ref().and_then(objects::certified),
        authority: authority.as_ref().and_then(objects::authority),
        service: service.as_ref().and_then(objects::exposed),
        own_service: own_service.and_then(objects::exposed),
        service_taken: same_name.is_some() && own_service.is_none(),
    })
}

fn importer(
    place: &Place,
    installed: &Installation,
    publisher: Option<&Publisher>,
) -> Option<Importer> {
    let knows_own_store = installed.operator?;
    let port = publisher
        .and_then(|it| it.service.as_ref())
        .map_or(2379, |service| service.port);
    let copies = publisher.is_some_and(|it| it.copies);
    Some(if copies && knows_own_store {
        let namespace = &place.namespace;
        Importer::OwnStore {
            endpoint: format!("https://{SERVICE}.{namespace}.svc:{port}"),
        }
    } else {
        Importer::Peers
    })
}

async fn read_held(place: &Place, unknown: &mut Vec<String>) -> Result<Held, Error> {
    let mesh = place.get::<Secret>(MESH_SECRET).await?;
    let operator = place.get::<Secret>(OPERATOR_SECRET).await?;
    let users = place.get::<ConfigMap>(users::CONFIG_MAP).await?;
    Ok(Held {
        mesh: mesh.map(objects::of_secret),
        operator: operator.map(objects::of_secret),
        users: users.map(objects::of_config_map),
        imports: read_imports(place, unknown).await,
    })
}

/// ServiceImports by the clusters that they come from.
async fn read_imports(
    place: &Place,
    unknown: &mut Vec<String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let api: Api<ServiceImport> = Api::all(place.client.clone());
    match api.list(&ListParams::default()).await {
        Ok(listed) => {
            for (cluster, name) in listed.items.iter().flat_map(objects::origins) {
                imports.entry(cluster).or_default().insert(name);
            }
        }
        Err(error) if is_not_served(&error) => {}
        Err(error) => unknown.push(format!("what is imported: {}", said(&error))),
    }
    imports
}

/// Nodes and networks. What this user may not read is unknown, and said so.
async fn read_networks(
    place: &Place,
    unknown: &mut Vec<String>,
) -> (Vec<Node>, super::facts::Networks) {
    let params = ListParams::default();
    let nodes = Api::<Node>::all(place.client.clone()).list(&params).await;
    let nodes = items(nodes, "nodes", unknown);
    let cidrs = Api::<ServiceCIDR>::all(place.client.clone());
    let cidrs = items(cidrs.list(&params).await, "service networks", unknown);
    let system: Api<ConfigMap> = Api::namespaced(place.client.clone(), "kube-system");
    // Clusters that kubeadm did not make have none, and few users may read it.
    let kubeadm = system.get_opt("kubeadm-config").await.ok().flatten();
    let kubeadm = kubeadm.and_then(|map| map.data?.remove("ClusterConfiguration"));
    let networks = networks::read(&nodes, &cidrs, kubeadm.as_deref());
    if networks.pods.is_empty() {
        unknown.push(
            "pod networks: neither the nodes nor kubeadm say; check yourself that they do not overlap"
                .to_owned(),
        );
    }
    (nodes, networks)
}

/// What was listed; nothing, and that it is unknown, when it could not be.
fn items<K: Clone>(
    listed: kube::Result<ObjectList<K>>,
    what: &str,
    unknown: &mut Vec<String>,
) -> Vec<K> {
    match listed {
        Ok(list) => list.items,
        Err(error) => {
            unknown.push(format!("{what}: {}", said(&error)));
            Vec::new()
        }
    }
}
