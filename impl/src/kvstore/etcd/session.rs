//! The connection to etcd: one endpoint at a time, made anew when it broke, every answer checked for the cluster it is of.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_client::{
    AuthEnableResponse, AuthenticateResponse, Client, ConnectOptions, DeleteResponse, GetOptions,
    GetResponse, LeaseGrantResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse, PutResponse,
    ResponseHeader, RoleAddResponse, RoleGetResponse, RoleGrantPermissionResponse,
    RoleListResponse, RoleRevokePermissionResponse, TxnResponse, UserAddResponse,
    UserDeleteResponse, UserGetResponse, UserGrantRoleResponse, UserListResponse,
    UserRevokeRoleResponse,
};
use jiff::Timestamp;
use tokio::{sync::Mutex, time::timeout};

use super::{
    super::{
        Error, Step, backoff,
        config::{EtcdConfig, Target},
    },
    failure::{breaks_connection, classify},
    tls,
};

/// Longest wait for a connection to one endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest wait for an answer.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between HTTP/2 pings while a call is open. etcd closes connections of clients that ping more often than every 5 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(6);
/// Longest wait for the answer to a ping: a dead connection is noticed within 10 s.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(4);
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
    pub(super) client: Client,
    number: u64,
    pub(super) endpoint: Arc<str>,
    /// Who calls, in words.
    pub(super) user: Arc<str>,
    pub(super) store_id: u64,
}

impl Session {
    /// The client library's error as one of ours.
    pub(super) fn classify(&self, step: Step, error: &etcd_client::Error) -> Error {
        classify(&self.endpoint, &self.user, step, error)
    }
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

    /// The endpoints of the configuration, for messages.
    pub(super) fn endpoints(&self) -> String {
        self.shared.config.endpoints()
    }

    /// The connection that is open, or a new one. Concurrent callers wait for the same attempt.
    pub(super) async fn session(&self) -> Result<Session, Error> {
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
        let mut loaded = None;
        if let (Some(files), true) = (&self.shared.config.tls, target.url.starts_with("https")) {
            let files = tls::read(files).await?;
            options = options.with_tls(files.options(target));
            loaded = Some(files);
        }
        let user = tls::user(loaded.as_ref());
        let attempt = async {
            let client = Client::connect([target.url.as_str()], Some(options)).await?;
            let probe = GetOptions::new().with_keys_only();
            let answer = client.kv_client().get(PROBE_KEY, Some(probe)).await?;
            Ok((client, header_of(answer.header())))
        };
        let outcome = match timeout(CONNECT_TIMEOUT, attempt).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(classify(&target.url, &user, Step::Connect, &error)),
            Err(_) => Err(Error::Unreachable {
                endpoint: target.url.clone(),
                step: Step::Connect,
                detail: format!("no answer within {CONNECT_TIMEOUT:?}"),
            }),
        };
        let (client, (store_id, _)) = match (outcome, &loaded) {
            (Ok(connected), _) => connected,
            (Err(error @ Error::Unreachable { .. }), Some(loaded)) => {
                let fault = Box::pin(loaded.diagnose(target, Timestamp::now())).await;
                let file = self.shared.config.file.clone();
                let endpoint = target.url.clone();
                return Err(fault.map_or(error, |fault| Error::Tls {
                    file,
                    endpoint,
                    fault: Box::new(fault),
                }));
            }
            (Err(error), _) => return Err(error),
        };
        Ok(Session {
            client,
            number: self.shared.sessions.fetch_add(1, Ordering::Relaxed),
            endpoint: target.url.as_str().into(),
            user: user.into(),
            store_id,
        })
    }

    /// After an error that breaks the connection: makes the next call connect anew, unless that has happened already.
    pub(super) async fn settle(&self, session: &Session, error: &Error) {
        if !breaks_connection(error) {
            return;
        }
        let mut slot = self.shared.session.lock().await;
        if slot
            .as_ref()
            .is_some_and(|open| open.number == session.number)
        {
            *slot = None;
        }
    }

    /// Makes a call in time and checks that the right cluster answered.
    pub(super) async fn call<T, F, Fut>(&self, step: Step, request: F) -> Result<T, Error>
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
            Ok(Err(error)) => Err(session.classify(step, &error)),
            Err(_) => Err(Error::TimedOut {
                endpoint: session.endpoint.to_string(),
                step,
                after: REQUEST_TIMEOUT,
            }),
        };
        if let Err(error) = &outcome {
            self.settle(&session, error).await;
        }
        outcome
    }
}

/// An answer with a header.
pub(super) trait Answer {
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
    LeaseRevokeResponse,
    LeaseTimeToLiveResponse,
    TxnResponse,
    AuthEnableResponse,
    AuthenticateResponse,
    RoleAddResponse,
    RoleGetResponse,
    RoleGrantPermissionResponse,
    RoleListResponse,
    RoleRevokePermissionResponse,
    UserAddResponse,
    UserDeleteResponse,
    UserGetResponse,
    UserGrantRoleResponse,
    UserListResponse,
    UserRevokeRoleResponse
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

fn shuffle(targets: &mut [Target]) {
    for last in (1..targets.len()).rev() {
        let below = u64::try_from(last + 1).expect("invariant: a list is not that long");
        let other =
            usize::try_from(backoff::random() % below).expect("invariant: below the length");
        targets.swap(last, other);
    }
}
