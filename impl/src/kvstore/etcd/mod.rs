//! A store that is a real etcd.
//!
//! One connection at a time, to one endpoint: endpoints behind one name may be different etcd clusters, and an answer of another
//! cluster than the one the connection began with is an error, never mixed in. After an error of the transport the next call
//! connects anew, to endpoints in random order, and reads the TLS files again. The client library neither restarts watches nor
//! keeps leases alive; those who watch and [`super::lease`] do.

use std::time::Duration;

use etcd_client::{GetOptions, GetResponse};
use tokio::time::timeout;

use super::{
    Attempt, Change, Condition, Cursor, Entry, Error, KvStore, LeaseId, PAGE_BYTES_MAX, Page,
    PageLimit, Read, Scope, Step, Watch,
};

mod access;
mod conditional;
mod failure;
mod session;
mod tls;
mod watching;

pub use access::{Access, AccessChange, Grant, Right};
use failure::{for_lease, for_revision};
pub use session::EtcdStore;
use session::{REQUEST_TIMEOUT, header_of};

/// Largest answer to a watch, in bytes: etcd splits them into pieces of its --max-request-bytes (1.5 MiB by default) and one
/// event.
const WATCH_ANSWER_MAX: usize = 2 * PAGE_BYTES_MAX;

impl KvStore for EtcdStore {
    fn endpoint(&self) -> String {
        self.endpoints()
    }

    async fn get(&self, key: &str) -> Result<Read, Error> {
        let answer = self
            .call(Step::Get, |client| async move {
                client.kv_client().get(key, None).await
            })
            .await?;
        let (store_id, revision) = header_of(answer.header());
        Ok(Read {
            revision,
            store_id,
            entry: answer.kvs().first().and_then(entry),
        })
    }

    async fn page(&self, prefix: &str, cursor: Option<Cursor>) -> Result<Page, Error> {
        let mut limit = cursor.as_ref().map_or(PageLimit::FIRST, |at| at.limit);
        let answer = loop {
            let answer = range(self, prefix, cursor.as_ref(), limit).await;
            match (answer, limit.smaller()) {
                (Err(Error::AnswerTooLarge { .. }), Some(smaller)) => limit = smaller,
                (answer, _) => break answer?,
            }
        };
        let (store_id, now) = header_of(answer.header());
        let revision = cursor.map_or(now, |cursor| cursor.revision);
        let last = answer.kvs().last().filter(|_| answer.more());
        let after = last.map(|kv| kv.key().to_vec());
        let sizes = answer.kvs().iter();
        let limit = limit.after(sizes.map(|kv| kv.key().len() + kv.value().len()));
        let entries = answer.kvs().iter().filter_map(entry).collect();
        Ok(Page {
            revision,
            store_id,
            entries,
            next: after.map(|after| Cursor {
                revision,
                after,
                limit,
            }),
        })
    }

    async fn watch(&self, scope: &Scope, from_revision: i64) -> Result<Watch, Error> {
        let session = self.session().await?;
        let started = timeout(
            REQUEST_TIMEOUT,
            watching::start(self, &session, scope, from_revision),
        );
        let outcome = started.await.unwrap_or_else(|_| {
            Err(Error::TimedOut {
                endpoint: session.endpoint.to_string(),
                step: Step::Watch,
                after: REQUEST_TIMEOUT,
            })
        });
        if let Err(error) = &outcome {
            self.settle(&session, error).await;
        }
        outcome
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, Error> {
        let seconds = i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        let answer = self
            .call(Step::Grant, |client| async move {
                client.lease_client().grant(seconds, None).await
            })
            .await?;
        Ok(LeaseId(answer.id()))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let session = self.session().await?;
        let mut client = session.client.lease_client();
        let outcome = match timeout(REQUEST_TIMEOUT, client.keep_alive(lease.0)).await {
            Ok(Ok(_)) => Ok(()),
            // The library's own error for an answer with a time-to-live of 0.
            Ok(Err(etcd_client::Error::LeaseKeepAliveError(_))) => Err(Error::LeaseNotFound {
                endpoint: session.endpoint.to_string(),
                lease,
            }),
            Ok(Err(error)) => Err(for_lease(
                session.classify(Step::KeepAlive, &error),
                Some(lease),
            )),
            Err(_) => Err(Error::TimedOut {
                endpoint: session.endpoint.to_string(),
                step: Step::KeepAlive,
                after: REQUEST_TIMEOUT,
            }),
        };
        if let Err(error) = &outcome {
            self.settle(&session, error).await;
        }
        outcome
    }

    async fn lease_exists(&self, lease: LeaseId) -> Result<bool, Error> {
        let answer = self
            .call(Step::LeaseStatus, |client| async move {
                client.lease_client().time_to_live(lease.0, None).await
            })
            .await?;
        // -1 when it is gone.
        Ok(answer.ttl() > 0)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let outcome = self
            .call(Step::Revoke, |client| async move {
                client.lease_client().revoke(lease.0).await
            })
            .await;
        match outcome.map_err(|error| for_lease(error, Some(lease))) {
            Ok(_) | Err(Error::LeaseNotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn change_if(
        &self,
        conditions: &[Condition],
        key: &str,
        change: Change,
    ) -> Result<Attempt<(i64, bool)>, Error> {
        // Large, and part of every write: callers would carry it.
        Box::pin(conditional::change_if(self, conditions, key, change)).await
    }
}

/// Asks for a page with so many entries.
async fn range(
    store: &EtcdStore,
    prefix: &str,
    cursor: Option<&Cursor>,
    limit: PageLimit,
) -> Result<GetResponse, Error> {
    let limit = i64::try_from(limit.get()).expect("invariant: a small number");
    let mut options = GetOptions::new().with_limit(limit);
    let first = match cursor {
        None => {
            options = options.with_prefix();
            prefix.as_bytes().to_vec()
        }
        Some(Cursor {
            revision, after, ..
        }) => {
            options = options
                .with_range(prefix_end(prefix))
                .with_revision(*revision);
            [after.as_slice(), &[0]].concat()
        }
    };
    let answer = store
        .call(Step::List, |client| async move {
            let mut client = client.kv_client().max_decoding_message_size(PAGE_BYTES_MAX);
            client.get(first, Some(options)).await
        })
        .await;
    let expected = cursor.map_or(0, |cursor| cursor.revision);
    answer.map_err(|error| for_revision(error, expected))
}

/// The entry, if its key is text. Keys of a mesh are; any other is nobody's.
pub(super) fn entry(kv: &etcd_client::KeyValue) -> Option<Entry> {
    Some(Entry {
        key: kv.key_str().ok()?.to_owned(),
        value: kv.value().to_vec(),
        create_revision: kv.create_revision(),
        mod_revision: kv.mod_revision(),
        lease: Some(kv.lease()).filter(|&lease| lease != 0).map(LeaseId),
    })
}

fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}
