//! What an installation of the chart says of itself: its Deployments. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, PodSpec, SecretProjection, Volume},
};
use kube::ResourceExt;
use tombolo_core::names::ClusterName;

use super::{ConnectError as Error, facts::Card, facts::Networks};

/// Label of everything of Tombolo.
pub(super) const SELECTOR: &str = "app.kubernetes.io/name=tombolo";

/// Annotation with the Helm release of an object.
pub(super) const RELEASE: &str = "meta.helm.sh/release-name";

const COMPONENT: &str = "app.kubernetes.io/component";
const VERSION: &str = "app.kubernetes.io/version";

/// An installation.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    pub(super) card: Card,
    pub(super) release: String,
    /// The mesh role.
    pub(super) mesh: Option<Mesh>,
    /// The operator: whether it has certificates for the own etcd.
    pub(super) operator: Option<bool>,
    /// Secret with the certificate that peers with the same authority are shown.
    pub(super) shown_secret: Option<String>,
}

/// The Deployment of the mesh role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mesh {
    pub(super) users: bool,
    pub(super) copies: bool,
    pub(super) selector: BTreeMap<String, String>,
    pub(super) server_secret: Option<String>,
}

/// Reads the Deployments of a namespace.
pub(super) fn read(
    context: &str,
    namespace: &str,
    deployments: &[Deployment],
) -> Result<Installation, Error> {
    let of = |component: &str| {
        let mut found = deployments.iter();
        found.find(|it| it.labels().get(COMPONENT).map(String::as_str) == Some(component))
    };
    let (mesh, operator) = (of("mesh"), of("operator"));
    let Some(any) = mesh.or(operator) else {
        return Err(Error::NotInstalled {
            context: context.to_owned(),
            namespace: namespace.to_owned(),
        });
    };
    let role = if mesh.is_some() { "mesh" } else { "operator" };
    let arguments = arguments(any, role);
    let flag = |name: &str| value(&arguments, name);
    let bad = |flag: &'static str| Error::BadInstallation {
        context: context.to_owned(),
        object: format!("Deployment {namespace}/{}", any.name_any()),
        flag,
    };
    let number = |name: &'static str| {
        let text = flag(name).ok_or_else(|| bad(name))?;
        text.parse::<u32>().map_err(|_| bad(name))
    };
    let cluster = flag("--cluster-name").unwrap_or_default();
    let card = Card {
        cluster: ClusterName::try_from(cluster).map_err(|_| bad("--cluster-name"))?,
        id: number("--cluster-id")?,
        max_clusters: number("--max-connected-clusters")?,
        version: any.labels().get(VERSION).cloned().unwrap_or_default(),
        networks: Networks::default(),
    };
    let release = any.annotations().get(RELEASE).cloned();
    Ok(Installation {
        card,
        release: release.unwrap_or_else(|| "RELEASE".to_owned()),
        mesh: mesh.map(read_mesh),
        operator: operator.map(|it| certificate_secret(it, "local").is_some()),
        shown_secret: certificate_secret(any, "common"),
    })
}

fn read_mesh(deployment: &Deployment) -> Mesh {
    let arguments = arguments(deployment, "mesh");
    let selector = &deployment.spec.selector;
    let server = volumes(deployment).find(|it| it.name == "etcd-server");
    let server = server.and_then(|it| it.secret.as_ref()?.secret_name.clone());
    Mesh {
        users: arguments.iter().any(|it| it == "--cluster-users-enabled"),
        copies: value(&arguments, "--clustermesh-config").is_some(),
        selector: selector.match_labels.clone().unwrap_or_default(),
        server_secret: server,
    }
}

fn pod(deployment: &Deployment) -> Option<&PodSpec> {
    deployment.spec.template.spec.as_ref()
}

fn volumes(deployment: &Deployment) -> impl Iterator<Item = &Volume> {
    pod(deployment)
        .into_iter()
        .flat_map(|it| it.volumes.iter().flatten())
}

fn arguments(deployment: &Deployment, container: &str) -> Vec<String> {
    let containers = pod(deployment).into_iter().flat_map(|it| &it.containers);
    let found = containers
        .into_iter()
        .find(|it: &&Container| it.name == container);
    found.and_then(|it| it.args.clone()).unwrap_or_default()
}

/// The value of `--flag=value`.
fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    arguments
        .iter()
        .find_map(|it| it.strip_prefix(flag)?.strip_prefix('='))
}

/// The Secret from which certificates with this prefix are mounted beside the peers' files.
fn certificate_secret(deployment: &Deployment, prefix: &str) -> Option<String> {
    let path = format!("{prefix}-etcd-client.crt");
    let sources = volumes(deployment).filter_map(|it| it.projected.as_ref());
    let sources = sources.flat_map(|it| it.sources.iter().flatten());
    let secrets = sources.filter_map(|it| it.secret.as_ref());
    let has = |it: &&SecretProjection| it.items.iter().flatten().any(|item| item.path == path);
    secrets.into_iter().find(has).map(|it| it.name.clone())
}
