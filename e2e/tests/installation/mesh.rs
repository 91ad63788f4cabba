//! Two clusters with the chart each, their pods' processes started as a kubelet would.

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Pod, Secret, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tombolo_e2e::{
    chart::{
        Account, Helm, Installation, Manifests,
        helm::NAMESPACE,
        pods::{self, Source},
    },
    scene::{SETTLE, Scene},
    view::conditions,
};
use tombolo_testbed::{Cluster, Role, Testbed, eventually};

use super::{A, B};

/// Time for the API server's controllers to make pods of Deployments.
const PODS: Duration = Duration::from_mins(1);

/// Flags of etcd that say where the testbed keeps it.
const PLACES: [&str; 5] = [
    "--data-dir",
    "--name",
    "--listen-peer-urls",
    "--initial-advertise-peer-urls",
    "--initial-cluster",
];

/// One cluster with the chart, and where its processes are.
struct Site<'t> {
    release: Installation<'t>,
    manifests: Manifests,
    etcd: SocketAddr,
    directory: PathBuf,
}

pub(crate) async fn of_two_installations(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = Site::install(testbed, &helm, A, None).await?;
    let authority = a.release.api::<Secret>().get("tombolo-ca").await?;
    let b = Site::install(testbed, &helm, B, Some(authority)).await?;
    for site in [&a, &b] {
        site.pods_are_admitted().await?;
        site.start_etcd().await?;
    }
    // A mesh role waits for the definitions that the operators install, its peer's too.
    tokio::try_join!(
        a.start_mesh(),
        b.start_mesh(),
        a.start_operator(),
        b.start_operator(),
    )?;

    let mut scene = Scene::new(testbed).await?;
    scene.export(A, "web").await?;
    scene.export(B, "shop").await?;
    for (cluster, name) in [(A, "web"), (A, "shop"), (B, "web"), (B, "shop")] {
        scene.import_settled(cluster, name).await?;
    }
    for (cluster, name) in [(A, "web"), (B, "shop")] {
        let what = format!("the export {name} to be valid");
        eventually(SETTLE, &what, async || {
            let objects = scene.objects(cluster).await;
            let view = objects.map_err(|error| format!("{error:#}"))?;
            let seen = view.view(BTreeSet::new()).exports.remove(name);
            if seen == Some(conditions("True", "False")) {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await?;
    }
    scene.add_pod(A, "web", "second").await?;
    scene.import_settled(B, "web").await?;
    a.tells_in_an_event(scene.namespace()).await?;
    scene.unexport(A, "web").await?;
    scene.import_gone(B, "web").await?;
    for site in [&a, &b] {
        site.is_well().await?;
        site.nothing_was_forbidden()?;
        site.accounts_read_no_secrets().await?;
    }
    Ok(())
}

fn port(testbed: &Testbed, cluster: usize) -> Result<SocketAddr> {
    let url = testbed.cluster(cluster).second_mesh_etcd_endpoint()?;
    let address = url.strip_prefix("http://").context("a URL without TLS")?;
    Ok(address.parse()?)
}

impl<'t> Site<'t> {
    async fn install(
        testbed: &'t Testbed,
        helm: &'t Helm,
        index: usize,
        authority: Option<Secret>,
    ) -> Result<Self> {
        let cluster = testbed.cluster(index);
        let release = Installation::prepare(helm, cluster).await?;
        let shared = authority.is_some();
        if let Some(mut secret) = authority {
            // As `kubectl get -o yaml | kubectl create` gives it over.
            secret.metadata.uid = None;
            secret.metadata.resource_version = None;
            secret.metadata.managed_fields = None;
            let created = release.api().create(&PostParams::default(), &secret).await;
            created.context("the authority is copied")?;
        }
        let peer = 1 - index;
        let (name, id) = (cluster.name(), cluster.id());
        let (other, port_of_other) = (testbed.cluster(peer).name(), port(testbed, peer)?.port());
        let notes = release.install(&format!(
            "cluster: {{name: {name}, id: {id}}}\nclustermesh:\n  config:\n    clusters: \
             [{{name: {other}, ips: [127.0.0.1], port: {port_of_other}}}]\n  \
             apiserver: {{tls: {{authMode: cluster}}}}\n"
        ))?;
        ensure!(notes.contains(&format!("Peers:\n\n  {other}\n")), "{notes}");
        let directory = testbed.directory().join(format!("site-{name}"));
        fs::create_dir_all(&directory)?;
        let manifests = release.manifests()?;
        ensure!(manifests.get("Secret", "tombolo-ca").is_some() || shared);
        Ok(Self {
            manifests,
            release,
            etcd: port(testbed, index)?,
            directory,
        })
    }

    fn cluster(&self) -> &'t Cluster {
        self.release.cluster()
    }

    /// The namespace takes only pods that can do no harm.
    async fn pods_are_admitted(&self) -> Result<()> {
        let pods = self.release.api::<Pod>();
        eventually(PODS, "the pods of both roles to be made", async || {
            let params = ListParams::default().labels("app.kubernetes.io/name=tombolo");
            let listed = pods
                .list(&params)
                .await
                .map_err(|error| error.to_string())?;
            let names: Vec<_> = listed.iter().map(ResourceExt::name_any).collect();
            let count = |role: &str| names.iter().filter(|name| name.contains(role)).count();
            if (count("operator"), count("mesh")) == (2, 1) {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await?;
        Ok(())
    }

    fn pod(&self, deployment: &'static str) -> Result<pods::Pod<'_>> {
        let found = self.manifests.get("Deployment", deployment);
        Ok(pods::Pod::of(found.context("the chart has it")?))
    }

    fn source(&self) -> Source<'static> {
        Source {
            client: self.cluster().client(),
            namespace: NAMESPACE,
        }
    }

    /// The arguments of a container, with its files in place.
    async fn prepared(
        &self,
        deployment: &'static str,
        container: &str,
        words: &[(&str, &str)],
    ) -> Result<Vec<String>> {
        let pod = self.pod(deployment)?;
        let root = self.directory.join(container);
        let mounts = pod.mount(container, &self.source(), &root, words).await?;
        Ok(mounts.arguments(pod.container(container)?, words))
    }

    async fn start_etcd(&self) -> Result<()> {
        let here = format!("https://{}", self.etcd);
        let metrics = free_address()?;
        let words = [
            ("https://0.0.0.0:2379", here.as_str()),
            ("https://127.0.0.1:2379", here.as_str()),
            ("http://0.0.0.0:9963", &format!("http://{metrics}")),
            ("$(POD_UID)", self.cluster().name()),
        ];
        let mut flags = self.prepared("tombolo-mesh", "etcd", &words).await?;
        flags.retain(|flag| {
            !PLACES
                .iter()
                .any(|place| flag.starts_with(&format!("{place}=")))
        });
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        self.cluster()
            .start_second_mesh_etcd_with(&flags, metrics)
            .await?;
        Ok(())
    }

    async fn start_mesh(&self) -> Result<()> {
        let here = format!("https://{}", self.etcd);
        let words = [("https://127.0.0.1:2379", here.as_str())];
        let flags = self.prepared("tombolo-mesh", "mesh", &words).await?;
        self.start(Role::Mesh, flags, "tombolo-mesh").await
    }

    async fn start_operator(&self) -> Result<()> {
        let here = format!("https://{}", self.etcd);
        let words = [(
            "https://clustermesh-apiserver.tombolo-system.svc:2379",
            here.as_str(),
        )];
        let flags = self
            .prepared("tombolo-operator", "operator", &words)
            .await?;
        self.start(Role::Operator, flags, "tombolo-operator").await
    }

    async fn start(&self, role: Role, mut flags: Vec<String>, account: &str) -> Result<()> {
        let account = self.account(account).await?;
        // The first two are the names of the command and the role.
        flags.drain(..2);
        flags.retain(|flag| !flag.starts_with("--health-address="));
        flags.push(format!("--kubeconfig={}", account.kubeconfig.display()));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        Ok(self.cluster().start_role(role, &flags).await?)
    }

    async fn account(&self, name: &str) -> Result<Account> {
        self.release.account(name, &self.directory).await
    }

    /// An Event is made about a Service that no endpoints of peers are written for.
    async fn tells_in_an_event(&self, namespace: &str) -> Result<()> {
        let service = serde_json::from_value(json!({
            "metadata": {"name": "withheld", "annotations": {
                "service.cilium.io/global": "true",
                "service.cilium.io/global-sync-endpoint-slices": "false",
            }},
            "spec": {"ports": [{"port": 80}]},
        }))?;
        let client = self.cluster().client();
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        services.create(&PostParams::default(), &service).await?;
        let events: Api<Event> = Api::namespaced(client, namespace);
        eventually(SETTLE, "an Event about the Service", async || {
            let listed = events.list(&ListParams::default()).await;
            let listed = listed.map_err(|error| error.to_string())?;
            let reasons: Vec<_> = listed.iter().map(|event| event.reason.clone()).collect();
            let told = reasons
                .iter()
                .any(|it| it.as_deref() == Some("RemoteEndpointsWithheld"));
            told.then_some(()).ok_or_else(|| format!("{reasons:?}"))
        })
        .await?;
        Ok(())
    }

    /// `tombolo status` finds nothing to complain about.
    async fn is_well(&self) -> Result<()> {
        let mut command = tokio::process::Command::new(tombolo_testbed::tombolo().await?);
        command.args(["status", "--wait", "--timeout", "60s"]);
        for role in [Role::Mesh, Role::Operator] {
            let address = self.cluster().role_address(role)?;
            command.arg(format!("--address=http://{address}"));
        }
        let output = command.output().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}: {text}", self.cluster().name());
        Ok(())
    }

    fn nothing_was_forbidden(&self) -> Result<()> {
        for (component, log) in self.cluster().logs()? {
            if ![Role::Mesh, Role::Operator]
                .map(Into::into)
                .contains(&component)
            {
                continue;
            }
            let text = fs::read_to_string(&log)?;
            ensure!(text.lines().count() > 3, "{component} logs");
            let told = text
                .lines()
                .find(|line| line.to_lowercase().contains("forbidden"));
            ensure!(told.is_none(), "{component}: {told:?}");
        }
        Ok(())
    }

    async fn accounts_read_no_secrets(&self) -> Result<()> {
        for name in ["tombolo-operator", "tombolo-mesh"] {
            let client = self.account(name).await?.client;
            for namespace in ["kube-system", "default", NAMESPACE] {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let (listed, read) = (
                    secrets.list(&ListParams::default()).await.map(drop),
                    secrets.get("tombolo-ca").await.map(drop),
                );
                for answer in [listed, read] {
                    ensure!(is_forbidden(&answer), "{name} in {namespace}: {answer:?}");
                }
            }
            let everywhere: Api<Secret> = Api::all(client);
            let answer = everywhere.list(&ListParams::default()).await.map(drop);
            ensure!(is_forbidden(&answer), "{name}: {answer:?}");
        }
        Ok(())
    }
}

fn is_forbidden(answer: &Result<(), kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
