//! A store that is a real etcd.
//!
//! One connection at a time, to one endpoint: endpoints behind one name may be different etcd clusters, and an answer of another
//! cluster than the one the connection began with is an error, never mixed in. After an error of the transport the next call
//! connects anew, to endpoints in random order, and reads the TLS files again. The client library neither restarts watches nor
//! keeps leases alive; those who watch and [`super::lease`] do.

use std::{
    error::Error as _,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_client::{
    Client, ConnectOptions, DeleteResponse, GetOptions, GetResponse, LeaseGrantResponse,
    LeaseRevokeResponse, PutOptions, PutResponse, ResponseHeader, WatchOptions,
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    Cursor, Entry, Error, KvStore, LeaseId, PAGE_ENTRIES, Page, Read, Scope, Step, Watch, backoff,
    config::{EtcdConfig, Target},
    tls, watching,
};

/// Longest wait for a connection to one endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest wait for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between HTTP/2 pings while a call is open. etcd closes connections of clients that ping more often than every 5 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(6);
/// Longest wait for the answer to a ping: a dead connection is noticed within 10 s.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// Largest answer, in bytes: a page of the largest values that etcd takes by default (1.5 MiB) and some room.
const MESSAGE_MAX: usize = PAGE_ENTRIES * (1536 * 1024 + 4096);
/// Key that every user of a mesh etcd may read (Cilium's `.heartbeat`); read once to see which cluster answers.
const PROBE_KEY: &str = "cilium/.heartbeat";

/// A store that is a real etcd. Connects at the first call.
#[derive(Debug, Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: EtcdConfig,
    session: Mutex<Option<Session>>,
    sessions: AtomicU64,
}

/// A connection to one endpoint.
#[derive(Clone)]
pub(super) struct Session {
    client: Client,
    number: u64,
    pub(super) endpoint: Arc<str>,
    pub(super) store_id: u64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("number", &self.number)
            .field("endpoint", &self.endpoint)
            .field("store_id", &self.store_id)
            .finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// A store that connects with this configuration.
    pub fn new(config: EtcdConfig) -> Self {
        Self {
            shared: Arc::new(Shared {
                config,
                session: Mutex::new(None),
                sessions: AtomicU64::new(0),
            }),
        }
    }

    /// The connection that is open, or a new one. Concurrent callers wait for the same attempt.
    async fn session(&self) -> Result<Session, Error> {
        let mut slot = self.shared.session.lock().await;
        if let Some(session) = &*slot {
            return Ok(session.clone());
        }
        let mut targets = self.shared.config.targets.clone();
        shuffle(&mut targets);
        let mut last = None;
        for target in &targets {
            match self.connect(target).await {
                Ok(session) => {
                    *slot = Some(session.clone());
                    return Ok(session);
                }
                Err(error @ Error::Config(_)) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("invariant: a configuration has at least one target"))
    }

    async fn connect(&self, target: &Target) -> Result<Session, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT)
            .with_keep_alive_while_idle(false);
        if let (Some(files), true) = (&self.shared.config.tls, target.url.starts_with("https")) {
            let mut tls = tls::read(files).await?;
            if let Some(name) = &target.server_name {
                tls = tls.domain_name(name);
            }
            options = options.with_tls(tls);
        }
        let attempt = async {
            let client = Client::connect([target.url.as_str()], Some(options)).await?;
            let probe = GetOptions::new().with_keys_only();
            let answer = client.kv_client().get(PROBE_KEY, Some(probe)).await?;
            Ok((client, header_of(answer.header())))
        };
        let (client, (store_id, _)) = match timeout(CONNECT_TIMEOUT, attempt).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(classify(&target.url, Step::Connect, &error)),
            Err(_) => {
                return Err(Error::Unreachable {
                    endpoint: target.url.clone(),
                    step: Step::Connect,
                    detail: format!("no answer within {CONNECT_TIMEOUT:?}"),
                });
            }
        };
        Ok(Session {
            client,
            number: self.shared.sessions.fetch_add(1, Ordering::Relaxed),
            endpoint: target.url.as_str().into(),
            store_id,
        })
    }

    /// Makes the next call connect anew, unless that has happened already.
    async fn forget(&self, session: &Session) {
        let mut slot = self.shared.session.lock().await;
        if slot
            .as_ref()
            .is_some_and(|open| open.number == session.number)
        {
            *slot = None;
        }
    }

    /// Makes a call in time and checks that the right cluster answered.
    async fn call<T, F, Fut>(&self, step: Step, request: F) -> Result<T, Error>
    where
        T: Answer,
        F: FnOnce(Client) -> Fut + Send,
        Fut: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let session = self.session().await?;
        let outcome = match timeout(REQUEST_TIMEOUT, request(session.client.clone())).await {
            Ok(Ok(answer)) => {
                check_store(&session, step, header_of(answer.header())).map(|()| answer)
            }
            Ok(Err(error)) => Err(classify(&session.endpoint, step, &error)),
            Err(_) => Err(Error::TimedOut {
                endpoint: session.endpoint.to_string(),
                step,
                after: REQUEST_TIMEOUT,
            }),
        };
        if let Err(error) = &outcome
            && breaks_connection(error)
        {
            self.forget(&session).await;
        }
        outcome
    }
}

impl KvStore for EtcdStore {
    fn endpoint(&self) -> String {
        self.shared.config.endpoints()
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
        let limit = i64::try_from(PAGE_ENTRIES).expect("invariant: a small constant");
        let mut options = GetOptions::new().with_limit(limit);
        let expected = cursor.as_ref().map_or(0, |cursor| cursor.revision);
        let first = match &cursor {
            None => {
                options = options.with_prefix();
                prefix.as_bytes().to_vec()
            }
            Some(Cursor { revision, after }) => {
                options = options
                    .with_range(prefix_end(prefix))
                    .with_revision(*revision);
                [after.as_bytes(), &[0]].concat()
            }
        };
        let answer = self
            .call(Step::List, |client| async move {
                let mut client = client.kv_client().max_decoding_message_size(MESSAGE_MAX);
                client.get(first, Some(options)).await
            })
            .await
            .map_err(|error| for_revision(error, expected))?;
        let (store_id, now) = header_of(answer.header());
        let revision = cursor.map_or(now, |cursor| cursor.revision);
        let after = answer
            .kvs()
            .last()
            .map(|kv| String::from_utf8_lossy(kv.key()).into_owned());
        Ok(Page {
            revision,
            store_id,
            entries: answer.kvs().iter().filter_map(entry).collect(),
            next: after
                .filter(|_| answer.more())
                .map(|after| Cursor { revision, after }),
        })
    }

    async fn watch(&self, scope: &Scope, from_revision: i64) -> Result<Watch, Error> {
        let session = self.session().await?;
        let mut options = WatchOptions::new()
            .with_start_revision(from_revision)
            .with_progress_notify()
            .with_fragment();
        if matches!(scope, Scope::Prefix(_)) {
            options = options.with_prefix();
        }
        let mut client = session
            .client
            .watch_client()
            .max_decoding_message_size(MESSAGE_MAX);
        let key = scope.as_str().to_owned();
        let started = timeout(REQUEST_TIMEOUT, async {
            let stream = client
                .watch(key, Some(options))
                .await
                .map_err(|error| classify(&session.endpoint, Step::Watch, &error))?;
            watching::start(&session, stream, from_revision).await
        });
        let outcome = started.await.unwrap_or_else(|_| {
            Err(Error::TimedOut {
                endpoint: session.endpoint.to_string(),
                step: Step::Watch,
                after: REQUEST_TIMEOUT,
            })
        });
        if let Err(error) = &outcome
            && breaks_connection(error)
        {
            self.forget(&session).await;
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
                classify(&session.endpoint, Step::KeepAlive, &error),
                Some(lease),
            )),
            Err(_) => Err(Error::TimedOut {
                endpoint: session.endpoint.to_string(),
                step: Step::KeepAlive,
                after: REQUEST_TIMEOUT,
            }),
        };
        if let Err(error) = &outcome
            && breaks_connection(error)
        {
            self.forget(&session).await;
        }
        outcome
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

    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<i64, Error> {
        let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
        let answer = self
            .call(Step::Put, |client| async move {
                client.kv_client().put(key, value, options).await
            })
            .await
            .map_err(|error| for_lease(error, lease))?;
        Ok(header_of(answer.header()).1)
    }

    async fn delete(&self, key: &str) -> Result<(i64, bool), Error> {
        let answer = self
            .call(Step::Delete, |client| async move {
                client.kv_client().delete(key, None).await
            })
            .await?;
        Ok((header_of(answer.header()).1, answer.deleted() > 0))
    }
}

/// An answer with a header.
trait Answer {
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! answers {
    ($($type:ty),+) => { $(impl Answer for $type {
        fn header(&self) -> Option<&ResponseHeader> {
            <$type>::header(self)
        }
    })+ };
}

answers!(
    GetResponse,
    PutResponse,
    DeleteResponse,
    LeaseGrantResponse,
    LeaseRevokeResponse
);

/// Cluster id and revision of a header.
pub(super) fn header_of(header: Option<&ResponseHeader>) -> (u64, i64) {
    header.map_or((0, 0), |header| (header.cluster_id(), header.revision()))
}

/// Whether the cluster that answered is the one that the connection began with.
pub(super) fn check_store(
    session: &Session,
    step: Step,
    (got, _): (u64, i64),
) -> Result<(), Error> {
    if got == session.store_id {
        return Ok(());
    }
    Err(Error::StoreChanged {
        endpoint: session.endpoint.to_string(),
        step,
        expected: session.store_id,
        got,
    })
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

fn shuffle(targets: &mut [Target]) {
    for last in (1..targets.len()).rev() {
        let below = u64::try_from(last + 1).expect("invariant: a list is not that long");
        let other =
            usize::try_from(backoff::random() % below).expect("invariant: below the length");
        targets.swap(last, other);
    }
}

/// Whether the next call should connect anew.
fn breaks_connection(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. }
        | Error::TimedOut { .. }
        | Error::StoreChanged { .. }
        | Error::StoreBehind { .. } => true,
        Error::Config(_)
        | Error::Denied { .. }
        | Error::Compacted { .. }
        | Error::LeaseNotFound { .. }
        | Error::Refused { .. } => false,
    }
}

/// gRPC's status codes, by number.
mod code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const INTERNAL: i32 = 13;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// The library's error as one of ours.
pub(super) fn classify(endpoint: &str, step: Step, error: &etcd_client::Error) -> Error {
    let endpoint = endpoint.to_owned();
    let detail = detail_of(error);
    let etcd_client::Error::GRpcStatus(status) = error else {
        return Error::Unreachable {
            endpoint,
            step,
            detail,
        };
    };
    match status.code() as i32 {
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => Error::Denied {
            endpoint,
            step,
            detail,
        },
        code::OUT_OF_RANGE if detail.contains("compacted") => Error::Compacted { endpoint, step },
        code::OUT_OF_RANGE if detail.contains("future revision") => Error::StoreBehind {
            endpoint,
            step,
            expected: 0,
            got: 0,
        },
        code::NOT_FOUND if detail.contains("lease") => Error::LeaseNotFound {
            endpoint,
            lease: LeaseId(0),
        },
        code::CANCELLED
        | code::UNKNOWN
        | code::DEADLINE_EXCEEDED
        | code::INTERNAL
        | code::UNAVAILABLE => Error::Unreachable {
            endpoint,
            step,
            detail,
        },
        _ => Error::Refused {
            endpoint,
            step,
            detail,
        },
    }
}

/// Puts the lease into an error that could not know it.
fn for_lease(error: Error, lease: Option<LeaseId>) -> Error {
    match (error, lease) {
        (Error::LeaseNotFound { endpoint, .. }, Some(lease)) => {
            Error::LeaseNotFound { endpoint, lease }
        }
        (error, _) => error,
    }
}

/// Puts the revision that was asked for into an error that could not know it.
fn for_revision(error: Error, revision: i64) -> Error {
    match error {
        Error::StoreBehind {
            endpoint,
            step,
            got,
            ..
        } => Error::StoreBehind {
            endpoint,
            step,
            expected: revision,
            got,
        },
        error => error,
    }
}

/// An error with its causes; the transport says the useful part last.
fn detail_of(error: &etcd_client::Error) -> String {
    let (mut text, mut source) = match error {
        etcd_client::Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        etcd_client::Error::TransportError(error) => (error.to_string(), error.source()),
        error => (error.to_string(), None),
    };
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
