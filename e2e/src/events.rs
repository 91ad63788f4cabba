//! A watch that remembers when each event arrived: what times are measured by, never by looking again and again.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, task::JoinHandle};

/// Longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(30);

/// An event of a watch: the object as it became, or nothing when it was deleted, and when that was seen.
#[derive(Debug)]
pub struct Event<K> {
    /// When the event arrived.
    pub at: Instant,
    /// The object.
    pub object: K,
}

/// Events of all objects of a kind in a namespace, from now on. Ends with its value.
pub struct Events<K> {
    received: mpsc::UnboundedReceiver<Event<K>>,
    task: JoinHandle<()>,
}

impl<K> Events<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Starts to watch; changes made after this returned are seen.
    pub async fn watch(api: Api<K>) -> Result<Self> {
        let list = api.list_metadata(&ListParams::default().limit(1)).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        // The longest that an API server lets a watch live.
        let params = WatchParams::default().timeout(290);
        let stream = api.watch(&params, &version).await?;
        let (sender, received) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut stream = stream.boxed();
            while let Ok(Some(event)) = stream.try_next().await {
                let at = Instant::now();
                let object = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => break,
                };
                if sender.send(Event { at, object }).is_err() {
                    break;
                }
            }
        });
        Ok(Self { received, task })
    }

    /// Waits for an object that is accepted; events before it are let go. Returns when it arrived.
    pub async fn until(&mut self, what: &str, accept: impl Fn(&K) -> bool) -> Result<Instant> {
        let wait = async {
            while let Some(event) = self.received.recv().await {
                if accept(&event.object) {
                    return Ok(event.at);
                }
            }
            bail!("the watch ended before {what}")
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .with_context(|| format!("{what}: not seen within {PATIENCE:?}"))?
    }
}

impl<K> Drop for Events<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
