//! What is worth knowing about a failure, collected into a directory: objects, the records of the mesh, logs.
//!
//! It must never fail itself: what cannot be read is replaced by the reason.

use std::{
    fmt::Write as _,
    fs,
    future::Future,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::FutureExt as _;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::{Cluster, Testbed};

/// Longest that one look may take: what failed may not answer.
const LOOK: Duration = Duration::from_secs(5);

/// Kinds of objects that are collected: group, version, kind.
const KINDS: [(&str, &str, &str); 5] = [
    ("multicluster.x-k8s.io", "v1beta1", "ServiceExport"),
    ("multicluster.x-k8s.io", "v1beta1", "ServiceImport"),
    ("", "v1", "Service"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("", "v1", "Pod"),
];

impl Testbed {
    /// Writes the objects of a namespace, the mesh's records and the logs of all clusters into a directory, says where,
    /// and keeps it.
    pub async fn collect_evidence(&self, namespace: &str) -> PathBuf {
        self.keep_logs("evidence is collected");
        let directory = self.directory().join(format!("evidence-{namespace}"));
        for cluster in self.clusters() {
            let own = directory.join(cluster.name());
            if let Err(error) = fs::create_dir_all(&own) {
                eprintln!("testbed: {}: {error}", own.display());
                continue;
            }
            for kind in KINDS {
                write(
                    &own,
                    &format!("{}.yaml", kind.2),
                    &objects(cluster, namespace, kind).await,
                );
            }
            write(&own, "mesh-etcd.txt", &records(cluster).await);
            for (component, log) in cluster.logs().unwrap_or_default() {
                let _ = fs::copy(log, own.join(format!("{component}.log")));
            }
        }
        eprintln!("testbed: evidence is in {}", directory.display());
        directory
    }

    /// Runs `test`; when it panics or returns an error, collects evidence before that goes on.
    pub async fn with_evidence<T, E>(
        &self,
        namespace: &str,
        test: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let outcome = AssertUnwindSafe(test).catch_unwind().await;
        if !matches!(outcome, Ok(Ok(_))) {
            self.collect_evidence(namespace).await;
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn write(directory: &Path, name: &str, content: &str) {
    let path = directory.join(name);
    if let Err(error) = fs::write(&path, content) {
        eprintln!("testbed: {}: {error}", path.display());
    }
}

async fn objects(cluster: &Cluster, namespace: &str, kind: (&str, &str, &str)) -> String {
    let (group, version, kind) = kind;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api = Api::<DynamicObject>::namespaced_with(cluster.client(), namespace, &resource);
    let parameters = ListParams::default();
    let list = match tokio::time::timeout(LOOK, api.list(&parameters)).await {
        Ok(Ok(list)) => list,
        Ok(Err(error)) => return format!("# not readable: {error}\n"),
        Err(_) => return format!("# no answer within {LOOK:?}\n"),
    };
    list.items
        .into_iter()
        .fold(String::new(), |text, mut object| {
            object.metadata.managed_fields = None;
            let yaml =
                serde_saphyr::to_string(&object).unwrap_or_else(|error| format!("# {error}\n"));
            text + "---\n" + &yaml
        })
}

/// All keys and values of the cluster's mesh etcd.
async fn records(cluster: &Cluster) -> String {
    if !cluster.is_reached_from_here() {
        return "# not read: this etcd listens in another network namespace\n".to_owned();
    }
    let endpoint = match cluster.mesh_etcd_endpoint() {
        Ok(endpoint) => endpoint,
        Err(error) => return format!("# {error}\n"),
    };
    let read = async {
        let mut client = etcd_client::Client::connect([endpoint], None).await?;
        client
            .get("", Some(etcd_client::GetOptions::new().with_all_keys()))
            .await
    };
    let answer = match tokio::time::timeout(LOOK, read).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return format!("# not readable: {error}\n"),
        Err(_) => return format!("# no answer within {LOOK:?}\n"),
    };
    let revision = answer
        .header()
        .map_or(0, etcd_client::ResponseHeader::revision);
    answer
        .kvs()
        .iter()
        .fold(format!("# revision {revision}\n"), |mut text, record| {
            let key = String::from_utf8_lossy(record.key());
            let value = String::from_utf8_lossy(record.value());
            let _ = writeln!(
                text,
                "{key} @{} lease {:x}\n  {value}",
                record.mod_revision(),
                record.lease()
            );
            text
        })
}
