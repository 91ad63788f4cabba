//! An etcd in a container as the subject of the battery.

use futures::future::LocalBoxFuture;
use libtest_mimic::Trial;
use tombolo_testbed::containers::EtcdContainer;

pub(crate) use super::testing_subject::{Subject, brief_ttl, budget, eventually};
use super::{KvStore as _, config::EtcdConfig, etcd::EtcdStore};

/// Tests of behaviours that are functions over [`Subject`]: each runs on an etcd in a container of its own.
macro_rules! battery {
    ($($behaviour:ident),+ $(,)?) => {
        /// The behaviours, as tests.
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            use $crate::kvstore::testing::{Container, Subject as _, trial};
            vec![$(trial(stringify!($behaviour), || {
                Box::pin(async { $behaviour(Container::start().await).await })
            })),+]
        }
    };
}

pub(crate) use battery;

/// A test with a runtime of its own.
pub(crate) fn trial(name: &str, test: fn() -> LocalBoxFuture<'static, ()>) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(test());
        Ok(())
    })
}

/// A real etcd in a container, to be broken.
pub(crate) struct Container(EtcdContainer);

impl Container {
    async fn ready(&self) {
        eventually("etcd answers", async || {
            self.store().get("probe").await.is_ok()
        })
        .await;
    }
}

impl Subject for Container {
    type Store = EtcdStore;

    async fn start() -> Self {
        let started = EtcdContainer::start().await;
        let container = Self(started.unwrap_or_else(|error| panic!("{error}")));
        container.ready().await;
        container
    }

    fn store(&self) -> EtcdStore {
        EtcdStore::new(EtcdConfig::from_urls(&[self.0.url()]).expect("a good URL"))
    }

    async fn compact(&self) {
        let probe = self.store().get("probe").await.expect("etcd answers");
        let client = etcd_client::Client::connect([self.0.url()], None).await;
        let mut client = client.expect("etcd answers");
        client
            .compact(probe.revision, None)
            .await
            .expect("etcd compacts");
    }

    async fn stop(&mut self) {
        self.0.kill().await.expect("the engine kills it");
    }

    async fn resume(&mut self) {
        self.0.resume().await.expect("the engine starts it");
        self.ready().await;
    }

    async fn wipe(&mut self) {
        self.0.wipe().await.expect("the engine replaces it");
        self.ready().await;
    }
}
