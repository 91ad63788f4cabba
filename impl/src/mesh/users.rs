//! Users and roles of this cluster's mesh etcd: peers read their share and write nothing.
//!
//! Level-triggered: what is there is compared with what should be, at the start, when the file with the peers' users changes, when
//! etcd was away, and every half minute. An etcd that was emptied is bootstrapped again. Access control is enabled only when etcd
//! asks clients for certificates and this client's certificate will have all rights: else nobody could undo it.

mod desired;
mod file;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use thiserror::Error;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tombolo_core::{names::ClusterName, wire::key::HEARTBEAT};
use tracing::{error, info, warn};

pub use self::file::FileError;
use self::{
    desired::{LOCAL, REMOTE, REMOTE_PREFIX, ROOT, admin, changes, desired},
    file::Listed,
};
use crate::{
    certificate::{Certificate, Unreadable},
    kvstore::{
        self, KvStore, Scope,
        backoff::Backoff,
        config::EtcdConfig,
        etcd::{AccessChange, EtcdStore},
    },
    telemetry::health::Gate,
};

/// Time between two looks at etcd's users that nothing else causes.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two looks at the file. Mounted ConfigMaps change by swapping links; a look costs microseconds.
const FILE_INTERVAL: Duration = Duration::from_secs(1);
/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What has to be known.
#[derive(Debug)]
pub struct Options {
    /// Whose etcd it is.
    pub cluster: ClusterName,
    /// How to reach it: with TLS files, of which the client certificate is the admin's.
    pub etcd: EtcdConfig,
    /// File with the users of single peers; without it such users are left alone.
    pub users_file: Option<PathBuf>,
    /// Open while users and roles are as they should be.
    pub gate: Option<Gate>,
}

/// Why users and roles cannot be brought about.
#[derive(Debug, Error)]
pub enum Error {
    /// Without certificates etcd cannot tell who calls.
    #[error(
        "{endpoints}: etcd's users are known by client certificates, and this connection has none; expected https endpoints with trusted-ca-file, cert-file and key-file in --etcd-config; add them (tombolo certs make), or leave --etcd-access-control and --cluster-users-enabled out"
    )]
    NoCertificate {
        /// Where etcd is.
        endpoints: String,
    },
    /// This client would lock itself out.
    #[error("{}: cert-file: common name {found:?}: expected {expected}, which has all rights; name that user's certificate (tombolo certs make)", file.display())]
    WrongUser {
        /// The certificate.
        file: PathBuf,
        /// Its common name.
        found: String,
        /// The name it should have.
        expected: String,
    },
    /// The certificate cannot be read.
    #[error("{}: cert-file: {source}; expected the admin's certificate in PEM; renew the file", file.display())]
    Certificate {
        /// The certificate.
        file: PathBuf,
        /// What is wrong.
        source: Unreadable,
    },
    /// etcd would lock everybody out.
    #[error(
        "{endpoints}: etcd answers clients without a certificate, so with access control it would refuse everybody; access control is not enabled; start etcd with --client-cert-auth and --trusted-ca-file"
    )]
    CertificatesNotAsked {
        /// Where etcd is.
        endpoints: String,
    },
    /// etcd does not do it.
    #[error(transparent)]
    Store(#[from] kvstore::Error),
}

/// Whether the flags and files can work at all; to be asked before anything else is started.
pub fn check(etcd: &EtcdConfig) -> Result<(), Error> {
    let https = |url: &str| url.starts_with("https://");
    let certificate = etcd.tls.as_ref().is_some_and(|tls| tls.client.is_some());
    if certificate && etcd.targets.iter().all(|target| https(&target.url)) {
        Ok(())
    } else {
        Err(Error::NoCertificate {
            endpoints: etcd.endpoints(),
        })
    }
}

/// Brings users and roles about, and keeps them, until cancelled; sets `ready` once they are there for the first time.
///
/// Ends with an error only at the start, when this client is not the admin. Everything else is logged and tried again.
pub async fn run(
    options: Options,
    ready: watch::Sender<bool>,
    cancel: CancellationToken,
) -> Result<(), Error> {
    check(&options.etcd)?;
    let users = Users {
        store: EtcdStore::new(options.etcd.clone()),
        options,
    };
    users.check_own_user()?;
    let keep = Box::pin(users.keep(ready));
    let _cancelled: Option<()> = cancel.run_until_cancelled(keep).await;
    Ok(())
}

struct Users {
    store: EtcdStore,
    options: Options,
}

impl Users {
    async fn keep(&self, ready: watch::Sender<bool>) {
        let known = Mutex::new((BTreeSet::new(), None));
        let converge = || async {
            let mut known = known.lock().await;
            let (told, text) = &mut *known;
            *text = self.file_text();
            self.converge(told).await
        };
        let disturbed = || async {
            let text = known.lock().await.1.clone();
            tokio::select! {
                () = self.store_away() => Disturbance::StoreAway,
                () = self.file_changed(text) => Disturbance::Other,
                () = tokio::time::sleep(RESYNC_INTERVAL) => Disturbance::Other,
            }
        };
        let tell = |good| {
            self.open_gate(good);
            if good {
                ready.send_replace(true);
            }
        };
        keep_up(converge, disturbed, tell).await;
    }

    /// Compares and changes, once.
    async fn converge(&self, told: &mut BTreeSet<String>) -> Result<(), Error> {
        let listed = self.listed(told);
        let enabled = self.store.access_enabled().await?;
        if !enabled {
            self.check_own_user()?;
            self.check_certificates_asked().await?;
        }
        let (users, kept) = match &listed {
            Some(listed) => (listed.users.clone(), listed.kept.clone()),
            None => Default::default(),
        };
        let wanted = desired(&self.options.cluster, &users);
        let of_peers = listed.is_some();
        let ours = |user: &str| {
            wanted.users.contains_key(user) || (of_peers && user.starts_with(REMOTE_PREFIX))
        };
        let actual = self.store.access(ours, &[LOCAL, REMOTE]).await?;
        for change in changes(&wanted, &actual, &kept) {
            info!(change = %Told(&change), "changing who may do what in the mesh etcd");
            self.store.change_access(change).await?;
        }
        if !enabled {
            self.store.enable_access().await?;
            info!("the mesh etcd asks from now on who calls");
        }
        Ok(())
    }

    /// What the file says; nothing when it is not followed or cannot be believed.
    fn listed(&self, told: &mut BTreeSet<String>) -> Option<Listed> {
        let file = self.options.users_file.as_deref()?;
        let (listed, problems) = match file::read(file) {
            Ok(mut listed) => {
                let problems = std::mem::take(&mut listed.problems);
                (Some(listed), problems)
            }
            Err(problem) => (None, vec![problem]),
        };
        let is_there = !problems.iter().any(FileError::is_missing);
        let texts: BTreeSet<_> = problems.iter().map(ToString::to_string).collect();
        for text in texts.difference(told) {
            if is_there {
                error!("{text}");
            } else {
                // As long as a cluster has no peers, nobody writes the file.
                info!("{text}");
            }
        }
        *told = texts;
        listed
    }

    /// Whether this client will be allowed everything.
    fn check_own_user(&self) -> Result<(), Error> {
        let client = self.options.etcd.tls.as_ref();
        let Some((file, _)) = client.and_then(|tls| tls.client.as_ref()) else {
            return check(&self.options.etcd);
        };
        let expected = admin(&self.options.cluster);
        let unreadable = |source| Error::Certificate {
            file: file.clone(),
            source,
        };
        let pem = read(file);
        let chain = Certificate::read_all(&pem).map_err(unreadable)?;
        let found = chain[0].common_name.clone().unwrap_or_default();
        if found == expected || found == ROOT {
            return Ok(());
        }
        Err(Error::WrongUser {
            file: file.clone(),
            found,
            expected,
        })
    }

    /// Whether etcd refuses who has no certificate.
    async fn check_certificates_asked(&self) -> Result<(), Error> {
        let mut anonymous = self.options.etcd.clone();
        if let Some(tls) = &mut anonymous.tls {
            tls.client = None;
        }
        match EtcdStore::new(anonymous).get(HEARTBEAT).await {
            Ok(_) => Err(Error::CertificatesNotAsked {
                endpoints: self.options.etcd.endpoints(),
            }),
            Err(kvstore::Error::Tls { .. } | kvstore::Error::Denied { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when etcd was away: it may have come back empty.
    async fn store_away(&self) {
        let scope = Scope::Key(HEARTBEAT.to_owned());
        if let Ok(mut watch) = self.store.watch(&scope, 0).await {
            while let Some(Ok(_)) = watch.next().await {}
        }
    }

    /// Returns when the file says something else than this.
    async fn file_changed(&self, text: Option<Vec<u8>>) {
        loop {
            tokio::time::sleep(FILE_INTERVAL).await;
            if self.file_text() != text {
                return;
            }
        }
    }

    fn file_text(&self) -> Option<Vec<u8>> {
        fs::read(self.options.users_file.as_deref()?).ok()
    }

    fn open_gate(&self, open: bool) {
        if let Some(gate) = &self.options.gate {
            gate.set(open);
        }
    }
}

/// What ended a time in which everything was as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    /// etcd was away, or does not let itself be watched: it may have been emptied.
    StoreAway,
    /// Something that asks for another look.
    Other,
}

/// Converges at once and after every disturbance, for ever, and tells whether all is as it should be. After failures, and when etcd
/// is away as soon as it was there, with growing pauses.
async fn keep_up<C, D>(converge: impl Fn() -> C, disturbed: impl Fn() -> D, tell: impl Fn(bool))
where
    C: Future<Output = Result<(), Error>>,
    D: Future<Output = Disturbance>,
{
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        if let Err(problem) = converge().await {
            tell(false);
            warn!(error = %problem, "users and roles of the mesh etcd are not as they should be; trying again");
            tokio::time::sleep(backoff.wait()).await;
            continue;
        }
        tell(true);
        let begin = Instant::now();
        let disturbance = disturbed().await;
        let held = begin.elapsed() >= RETRY.1;
        if held {
            backoff.reset();
        }
        if disturbance == Disturbance::StoreAway {
            tell(false);
            if !held {
                tokio::time::sleep(backoff.wait()).await;
            }
        }
    }
}

/// What is not there reads as nothing, which is no certificate.
fn read(file: &Path) -> Vec<u8> {
    fs::read(file).unwrap_or_default()
}

/// A change, for the log.
struct Told<'a>(&'a AccessChange);

impl std::fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            AccessChange::AddRole(role) => write!(f, "add role {role}"),
            AccessChange::Grant(role, grant) => {
                write!(f, "grant role {role} {:?} on {}", grant.right, grant.key)
            }
            AccessChange::Revoke(role, grant) => {
                write!(
                    f,
                    "revoke from role {role} {:?} on {}",
                    grant.right, grant.key
                )
            }
            AccessChange::AddUser(user) => write!(f, "add user {user}"),
            AccessChange::GrantRole(user, role) => write!(f, "grant user {user} role {role}"),
            AccessChange::RevokeRole(user, role) => {
                write!(f, "revoke from user {user} role {role}")
            }
            AccessChange::DeleteUser(user) => write!(f, "delete user {user}"),
        }
    }
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "users_permissions_tests.rs"]
mod permissions_tests;

#[cfg(test)]
#[path = "users_peer_tests.rs"]
mod peer_tests;
