//! What a watch delivers.
//!
//! A watch never restarts itself: whoever watches knows from which revision to go on, and what to distrust after a gap.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt, stream::BoxStream};

use super::{Entry, Error};

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The key was written.
    Put(Entry),
    /// The key is gone: deleted, or its lease ended.
    Delete {
        /// The key.
        key: String,
        /// Revision of the store at which it went. Keys that go with one lease go at one revision.
        mod_revision: i64,
    },
}

impl Event {
    /// The key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// Revision of the store at which it happened.
    pub fn mod_revision(&self) -> i64 {
        match self {
            Self::Put(entry) => entry.mod_revision,
            Self::Delete { mod_revision, .. } => *mod_revision,
        }
    }
}

/// Changes that came together, in the store's order. One revision may be spread over several batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchBatch {
    /// Revision up to which everything was delivered, less what is left of that very revision: go on **from** it, not after it.
    pub revision: i64,
    /// Id of the etcd cluster.
    pub store_id: u64,
    /// The changes; empty when the store only reports its progress.
    pub events: Vec<Event>,
}

/// A running watch: a stream that ends after its first error. Dropping it ends the watch.
pub struct Watch {
    batches: BoxStream<'static, Result<WatchBatch, Error>>,
    asker: Asker,
}

/// Asks the store how far a watch is. The answer comes through the watch itself, behind every event before it: a batch without
/// events. A store that is behind in delivering may leave a question unanswered, so ask again.
#[derive(Clone)]
pub struct Asker(Arc<dyn Fn() + Send + Sync>);

impl Asker {
    /// Asks, without waiting.
    pub fn ask(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}

impl Watch {
    /// A watch that delivers what the stream does; `ask` makes the stream deliver a batch without events.
    pub(crate) fn new(
        batches: impl Stream<Item = Result<WatchBatch, Error>> + Send + 'static,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            batches: batches.boxed(),
            asker: Asker(Arc::new(ask)),
        }
    }

    /// Asks the store how far this watch is.
    pub fn asker(&self) -> &Asker {
        &self.asker
    }
}

impl WatchBatch {
    /// Revision up to which everything was delivered, that one included.
    pub fn delivered(&self) -> i64 {
        if self.events.is_empty() {
            self.revision
        } else {
            self.revision - 1
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Stream for Watch {
    type Item = Result<WatchBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.batches.poll_next_unpin(cx)
    }
}
