//! Namespaces of their own for tests that share clusters.
//!
//! They are not removed with provider `api`: the clusters end with the run, and removing one takes 5 s. On clusters that
//! live longer, the label finds them.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::{Cluster, Error, LocalError, Testbed, eventually};

/// Label on every namespace that a testbed made.
const LABEL: (&str, &str) = ("app.kubernetes.io/created-by", "tombolo-testbed");

/// Longest wait for the account of a new namespace. It takes well under a second on an idle machine.
const ACCOUNT_BUDGET: Duration = Duration::from_secs(30);

impl Testbed {
    /// A new namespace with the same name in every cluster.
    pub async fn namespace(&self) -> Result<String, Error> {
        let clusters: Vec<&Cluster> = self.clusters().iter().collect();
        self.namespace_in(&clusters).await
    }

    /// A new namespace with the same name in these clusters only.
    pub async fn namespace_in(&self, clusters: &[&Cluster]) -> Result<String, Error> {
        let name = unique_name();
        futures::future::try_join_all(clusters.iter().map(|it| it.create_namespace(&name))).await?;
        Ok(name)
    }
}

impl Cluster {
    /// A new namespace in this cluster.
    pub async fn namespace(&self) -> Result<String, Error> {
        let name = unique_name();
        self.create_namespace(&name).await?;
        Ok(name)
    }

    /// Creates the namespace with this name.
    pub async fn create_namespace(&self, name: &str) -> Result<(), Error> {
        let (key, value) = LABEL;
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(key.to_owned(), value.to_owned())].into()),
                ..Default::default()
            },
            ..Default::default()
        };
        let created = Api::all(self.client())
            .create(&PostParams::default(), &namespace)
            .await;
        created.map_err(|error| self.api_error(format!("create namespace {name}"), error))?;
        self.takes_pods(name).await
    }

    /// Where there are nodes, waits until the namespace has the account without which no pod is taken.
    async fn takes_pods(&self, namespace: &str) -> Result<(), Error> {
        if self.nodes("run pods").is_err() {
            return Ok(());
        }
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        let what = format!("the ServiceAccount default of {namespace}");
        let there = eventually(ACCOUNT_BUDGET, &what, async || {
            let found = accounts.get("default").await;
            found.map(drop).map_err(|error| error.to_string())
        });
        let not_ready = |source| LocalError::NotReady {
            cluster: self.name().to_owned(),
            source,
        };
        Ok(there.await.map_err(not_ready)?)
    }
}

/// A name that no earlier run on the same clusters has used.
fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let millis = jiff::Timestamp::now().as_millisecond();
    format!("t-{millis:x}-{:x}-{count}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_valid_labels() {
        let [a, b] = [unique_name(), unique_name()];

        assert_ne!(a, b);
        assert!(
            a.len() < 63 && a.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'),
            "{a}"
        );
    }
}
