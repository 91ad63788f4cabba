//! What a cluster's DNS is made of, read from its API server. Reads only.

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::ConfigMap,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tombolo_api::GROUP;

use super::{args::ConfigureArgs, error::Error, rights};
use crate::cluster::client::{get_if_served, is_not_served};

/// Name of the DaemonSet and the ConfigMap of NodeLocal DNS, in the namespace of CoreDNS.
pub const NODE_LOCAL: &str = "node-local-dns";

/// The ClusterRole and the ClusterRoleBinding with CoreDNS' right to read imports.
pub const ROLE: &str = "tombolo-coredns";

/// Label of objects that this command made, and its value.
pub const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tombolo-dns");

/// The version of the API that CoreDNS reads.
pub const SERVED: &str = "v1alpha1";

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// Whether the version of the API that CoreDNS reads is served.
    pub served: bool,
    /// CoreDNS.
    pub deployment: Deployment,
    /// Its Corefile.
    pub config: ConfigMap,
    /// Whose rights CoreDNS has.
    pub account: String,
    /// Whether that account may list and watch imports.
    pub may_read: bool,
    /// The role with the name of ours, if there is one.
    pub role: Option<ClusterRole>,
    /// The binding with the name of ours, if there is one.
    pub binding: Option<ClusterRoleBinding>,
    /// Whether there is a cache on nodes.
    pub node_local: bool,
    /// Its Corefile.
    pub node_local_config: Option<ConfigMap>,
}

impl Observed {
    /// The role, if this command made it.
    pub fn own_role(&self) -> Option<&ClusterRole> {
        self.role.as_ref().filter(|it| is_ours(&it.metadata))
    }

    /// The binding, if this command made it.
    pub fn own_binding(&self) -> Option<&ClusterRoleBinding> {
        self.binding.as_ref().filter(|it| is_ours(&it.metadata))
    }

    /// The kinds of which somebody else has made an object with the name of ours.
    pub fn foreign(&self) -> Vec<&'static str> {
        let role = self.role.is_some() && self.own_role().is_none();
        let binding = self.binding.is_some() && self.own_binding().is_none();
        let kinds = [(role, "ClusterRole"), (binding, "ClusterRoleBinding")];
        let kinds = kinds.into_iter().filter(|(is_foreign, _)| *is_foreign);
        kinds.map(|(_, kind)| kind).collect()
    }
}

fn is_ours(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(MADE_BY.0));
    label.map(String::as_str) == Some(MADE_BY.1)
}

/// Reads everything.
pub async fn observe(client: &Client, args: &ConfigureArgs) -> Result<Observed, Error> {
    let namespace = &args.coredns_namespace;
    let name = &args.coredns_deployment_name;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = read(&deployments, "Deployment", name).await?;
    let deployment = deployment.ok_or_else(|| Error::NoDeployment {
        namespace: namespace.clone(),
        name: name.clone(),
    })?;
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let name = &args.coredns_configmap_name;
    let config = read(&configs, "ConfigMap", name).await?;
    let config = config.ok_or_else(|| Error::NoConfigMap {
        namespace: namespace.clone(),
        name: name.clone(),
    })?;
    let pods = deployment.spec.template.spec.as_ref();
    let named = pods.and_then(|it| it.service_account_name.clone());
    let account = args.coredns_service_account_name.clone().or(named);
    let account = account.unwrap_or_else(|| "default".to_owned());
    let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    Ok(Observed {
        served: served(client).await?,
        may_read: rights::may_read(client, namespace, &account).await?,
        role: read(&Api::all(client.clone()), "ClusterRole", ROLE).await?,
        binding: read(&Api::all(client.clone()), "ClusterRoleBinding", ROLE).await?,
        node_local: read(&daemons, "DaemonSet", NODE_LOCAL).await?.is_some(),
        node_local_config: read(&configs, "ConfigMap", NODE_LOCAL).await?,
        account,
        deployment,
        config,
    })
}

async fn read<K>(api: &Api<K>, kind: &'static str, name: &str) -> Result<Option<K>, Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let object = get_if_served(api, name).await;
    object.map_err(|source| Error::Read {
        what: format!("{kind} {name}"),
        source: source.into(),
    })
}

/// Asks what CoreDNS asks at its start. Whether the definition exists says less: it may not be served yet, or no more.
async fn served(client: &Client) -> Result<bool, Error> {
    match client
        .list_api_group_resources(&format!("{GROUP}/{SERVED}"))
        .await
    {
        Ok(list) => Ok(list.resources.iter().any(|it| it.name == "serviceimports")),
        Err(error) if is_not_served(&error) => Ok(false),
        Err(source) => Err(Error::Read {
            what: format!("which kinds {GROUP}/{SERVED} has"),
            source: source.into(),
        }),
    }
}
