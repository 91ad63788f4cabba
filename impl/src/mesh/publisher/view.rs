//! What can be seen of the publisher from outside: how far it is, and how it has shown that.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, registry::Registry};
use tombolo_core::{names::ClusterName, wire::key::Resource};

use super::{Keys, Publisher};
use crate::{
    kvstore::KvStore,
    mesh::{
        failure_log::FailureLog,
        inquiry::{Found, Inquiries, Respondent, Sign},
    },
    status::answer::{self, Asked, Failures, Lease, OwnStore},
    telemetry::series::Metric,
};

/// A view of the publisher, from before it runs until after it ended. Clones are the same view.
#[derive(Clone, Default)]
pub struct View {
    inquiries: Inquiries,
    seen: Arc<Mutex<Option<Weak<dyn Seen>>>>,
    failures: FailureLog,
}

/// A running publisher.
pub(super) trait Seen: Send + Sync {
    /// What it has done so far.
    fn look(&self, asked: Asked, failures: Failures) -> OwnStore;
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    /// The deadmen of the publisher's parts are among these.
    pub fn inquiries(&self) -> &Inquiries {
        &self.inquiries
    }

    /// Asks the store and the publisher; none when it does not run. Takes at most `bound`.
    pub async fn ask(&self, bound: Duration) -> Option<OwnStore> {
        let (_, found): (_, Found) = self.inquiries.ask_all(bound).await.pop_first()?;
        let publisher = self.running()?;
        Some(publisher.look(Asked::of(&found), self.failures.look()))
    }

    /// Shows gauges of the publisher; they have no series while it does not run.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    fn running(&self) -> Option<Arc<dyn Seen>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().and_then(Weak::upgrade)
    }

    /// A publisher begins.
    pub(super) fn show(&self, publisher: Weak<dyn Seen>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(publisher);
    }

    /// The publisher can be asked how far it is.
    pub(super) fn respondent<S: KvStore>(
        &self,
        cluster: &ClusterName,
        store: &S,
        keys: &Keys,
    ) -> Arc<Respondent> {
        let name = "publisher of the own store";
        self.inquiries
            .register_part(cluster, name.to_owned(), store.clone(), keys.config.clone())
    }

    /// Something failed.
    pub(super) fn failed(&self, reason: &'static str, error: &impl fmt::Display) {
        self.failures.note(reason, error);
    }
}

const PUBLISHED: Metric = Metric::new(
    "tombolo_publisher_published",
    "Whether everything that is known is in the own store: 1, else 0",
);
const KEYS: Metric = Metric::new("tombolo_publisher_keys", "Keys in the own store");
const WAITING: Metric = Metric::new(
    "tombolo_publisher_queue_depth",
    "Names that wait to be published, are tried again later or are in work",
);
const LEFT_OUT: Metric = Metric::new(
    "tombolo_publisher_left_out",
    "Names of which something cannot be published as it is",
);
const CONFIRMED: Metric = Metric::new(
    "tombolo_publisher_lease_confirmed_seconds",
    "Time since the own store last prolonged all leases of the records",
);

impl Collector for View {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let unasked = Asked {
            head: None,
            error: None,
            age_seconds: 0.0,
            current: Vec::new(),
        };
        let running = self.running();
        let store = running.map(|it| it.look(unasked, Failures::default()));
        let (store, alone): (_, [(&str, &str); 0]) = (store.as_ref(), []);
        let mut complete = PUBLISHED.gauge(&mut encoder)?;
        if let Some(store) = store {
            complete.set(&alone, u32::from(store.published))?;
        }
        let mut keys = KEYS.gauge(&mut encoder)?;
        for of in store.iter().flat_map(|store| &store.keys) {
            keys.set(&[("kind", of.kind.as_str())], of.count)?;
        }
        let mut waiting = WAITING.gauge(&mut encoder)?;
        if let Some(store) = store {
            waiting.set(&alone, store.waiting)?;
        }
        let mut left_out = LEFT_OUT.gauge(&mut encoder)?;
        if let Some(store) = store {
            left_out.set(&alone, store.left_out.count)?;
        }
        let mut confirmed = CONFIRMED.gauge(&mut encoder)?;
        if let Some(ago) = store.and_then(|store| store.lease.confirmed_seconds_ago) {
            confirmed.set(&alone, ago)?;
        }
        Ok(())
    }
}

impl<S: KvStore> Seen for Publisher<S> {
    fn look(&self, asked: Asked, failures: Failures) -> OwnStore {
        let waiting = self.queue.len();
        let state = self.state();
        let count = |prefix: &str| {
            let keys = state.ledger.keys().filter(|key| key.starts_with(prefix));
            u64::try_from(keys.count()).unwrap_or(u64::MAX)
        };
        let keys = [
            ("services", &self.keys.services),
            ("serviceexports", &self.keys.exports),
            ("canaries", &self.keys.canaries),
            ("cluster-config", &self.keys.config),
        ];
        OwnStore {
            endpoints: self.store.endpoint(),
            asked,
            published: self.is_complete(&state),
            keys: keys
                .map(|(kind, prefix)| answer::Keys {
                    kind: kind.to_owned(),
                    count: count(prefix),
                })
                .into(),
            waiting: u64::try_from(waiting).unwrap_or(u64::MAX),
            left_out: state.left_out.look(),
            lease: Lease::of(self.leases.held(), self.options.lease_ttl),
            failures,
        }
    }
}

/// What the publisher watches of the own keys.
pub(super) const SIGNS: [Sign; 4] = [
    Sign::Records(Resource::Services),
    Sign::Records(Resource::ServiceExports),
    Sign::Canaries,
    Sign::Config,
];
