//! Users and roles on a real etcd that knows its clients by certificate.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::task::JoinHandle;

use super::*;
use crate::kvstore::{
    etcd::{Grant, Right},
    testing::{budget, eventually},
    testing_pki::{SecureEtcd, replace},
};

/// The mesh role's part that keeps users and roles.
struct Running {
    secure: SecureEtcd,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
    ready: watch::Receiver<bool>,
}

const USERS: &str = "users:\n- {name: remote-rome, role: remote}\n";

fn cluster() -> ClusterName {
    "paris".try_into().unwrap()
}

impl Running {
    /// Keeps the users of an etcd that is empty, with a file of users.
    async fn start() -> Self {
        let secure = SecureEtcd::start("127.0.0.1");
        fs::write(secure.file("users.yaml"), USERS).unwrap();
        let mut running = Self::over(secure, true);
        running.until_ready().await;
        running
    }

    fn over(secure: SecureEtcd, users: bool) -> Self {
        let options = Options {
            cluster: cluster(),
            etcd: secure.config("admin-paris"),
            users_file: users.then(|| secure.file("users.yaml")),
            gate: None,
        };
        let (tell, ready) = watch::channel(false);
        let cancel = CancellationToken::new();
        let task = tokio::spawn(run(options, tell, cancel.clone()));
        Self {
            secure,
            cancel,
            task,
            ready,
        }
    }

    async fn until_ready(&mut self) {
        let ready = self.ready.wait_for(|ready| *ready);
        let ready = tokio::time::timeout(budget(), ready).await;
        ready.expect("in time").expect("it runs");
    }

    async fn stop(self) -> SecureEtcd {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
        self.secure
    }

    fn admin(&self) -> EtcdStore {
        self.secure.store("admin-paris")
    }
}

/// What keeps users, to be told when to.
fn users(secure: &SecureEtcd) -> Users {
    Users {
        options: Options {
            cluster: cluster(),
            etcd: secure.config("admin-paris"),
            users_file: Some(secure.file("users.yaml")),
            gate: None,
        },
        store: secure.store("admin-paris"),
    }
}

/// Everything that etcd has, as `etcdctl` would list it.
async fn dump(store: &EtcdStore) -> String {
    let access = store.access(|_| true, &["local", "remote"]).await.unwrap();
    let mut text = String::new();
    for (user, roles) in &access.users {
        let roles: Vec<_> = roles.iter().map(String::as_str).collect();
        writeln!(text, "user {user}: {}", roles.join(",")).unwrap();
    }
    for (role, grants) in &access.roles {
        for grant in grants {
            let Grant { key, end, right } = grant;
            writeln!(text, "role {role}: {right:?} [{key}, {end})").unwrap();
        }
    }
    text
}

/// As recorded of Cilium 1.20.2's `etcdinit`, for cluster paris, and one user of a peer.
const AS_CILIUM: &str = "\
user admin-paris: root
user local-paris: local
user remote: remote
user remote-rome: remote
user root: root
role local: Read [cilium/.heartbeat, cilium/.heartbeau)
role local: Read [cilium/cache/, cilium/cache0)
role local: Read [cilium/cluster-config/, cilium/cluster-config0)
role local: Read [cilium/synced/, cilium/synced0)
role remote: Read [cilium/.heartbeat, cilium/.heartbeau)
role remote: Read [cilium/cluster-config/paris, )
role remote: Read [cilium/state/, cilium/state0)
role remote: Read [cilium/synced/paris/, cilium/synced/paris0)
";

#[tokio::test]
async fn an_empty_etcd_gets_ciliums_users_and_roles_and_asks_who_calls() {
    let running = Running::start().await;

    let admin = running.admin();
    assert_eq!(dump(&admin).await, AS_CILIUM);
    assert!(admin.access_enabled().await.unwrap());
}

#[tokio::test]
async fn a_second_life_changes_nothing_and_finishes_what_the_first_began() {
    let secure = SecureEtcd::start("127.0.0.1");
    let store = secure.store("admin-paris");
    SecureEtcd::until_connected(&store).await;
    // As after a crash in between: a user without role, a role that may too much, nobody asked yet.
    let write = Grant {
        key: "cilium/state/".to_owned(),
        end: "cilium/state0".to_owned(),
        right: Right::ReadWrite,
    };
    for change in [
        AccessChange::AddUser("root".to_owned()),
        AccessChange::AddRole("remote".to_owned()),
        AccessChange::Grant("remote".to_owned(), write),
        AccessChange::AddUser("remote".to_owned()),
        AccessChange::AddUser("somebody".to_owned()),
    ] {
        store.change_access(change).await.unwrap();
    }
    fs::write(secure.file("users.yaml"), USERS).unwrap();
    let mut first = Running::over(secure, true);
    first.until_ready().await;
    let bootstrapped = dump(&store).await;
    let secure = first.stop().await;
    let before = store.get("a").await.unwrap().revision;

    let mut second = Running::over(secure, true);
    second.until_ready().await;

    let expected = AS_CILIUM.replace(
        "role local: Read [cilium/.h",
        "user somebody: \nrole local: Read [cilium/.h",
    );
    assert_eq!(bootstrapped, expected);
    assert_eq!(dump(&store).await, bootstrapped);
    assert_eq!(store.get("a").await.unwrap().revision, before);
}

#[tokio::test]
async fn an_etcd_that_was_emptied_is_bootstrapped_again() {
    let mut running = Running::start().await;
    let admin = running.admin();

    running.secure.etcd.restart_empty();

    eventually("access control is back", async || {
        admin.access_enabled().await.is_ok_and(|enabled| enabled)
    })
    .await;
    assert_eq!(dump(&admin).await, AS_CILIUM);
}

#[tokio::test]
async fn users_follow_the_file() {
    let running = Running::start().await;
    let admin = running.admin();
    let file = running.secure.file("users.yaml");
    let users = async || {
        let access = admin.access(|user| user.starts_with("remote-"), &[]).await;
        access.unwrap().users.into_keys().collect::<Vec<_>>()
    };

    replace(
        &file,
        "users:\n- {name: remote-rome, role: remote}\n- {name: remote-oslo, role: remote}\n",
    );
    eventually("oslo may read", async || {
        users().await == ["remote-oslo", "remote-rome"]
    })
    .await;
    replace(&file, "users:\n- {name: remote-oslo, role: remote}\n");
    eventually("rome is gone", async || users().await == ["remote-oslo"]).await;
    replace(&file, "users: []\n");
    eventually("nobody is left", async || users().await.is_empty()).await;
}

#[tokio::test]
async fn a_missing_broken_or_hollow_file_removes_nobody() {
    let running = Running::start().await;
    let secure = running.stop().await;
    let users = users(&secure);
    let file = secure.file("users.yaml");

    for broken in ["", "users:", "users: [", "- a"] {
        replace(&file, broken);
        let mut told = BTreeSet::new();
        users.converge(&mut told).await.unwrap();
        assert!(told.pop_first().unwrap().contains("users stay as they are"));
        assert_eq!(dump(&users.store).await, AS_CILIUM, "{broken:?}");
    }
    fs::remove_file(&file).unwrap();
    users.converge(&mut BTreeSet::new()).await.unwrap();

    assert_eq!(dump(&users.store).await, AS_CILIUM);
}

#[tokio::test]
async fn a_user_that_was_removed_while_the_role_was_down_goes_at_its_start() {
    let running = Running::start().await;
    let secure = running.stop().await;
    fs::write(secure.file("users.yaml"), "users: []\n").unwrap();

    let mut running = Running::over(secure, true);
    running.until_ready().await;

    let dumped = dump(&running.admin()).await;
    assert_eq!(dumped, AS_CILIUM.replace("user remote-rome: remote\n", ""));
}

#[tokio::test]
async fn without_a_file_users_of_peers_are_left_alone() {
    let running = Running::start().await;
    let secure = running.stop().await;

    let mut running = Running::over(secure, false);
    running.until_ready().await;

    assert_eq!(dump(&running.admin()).await, AS_CILIUM);
}

#[tokio::test]
async fn access_control_is_not_enabled_when_etcd_asks_for_no_certificates() {
    let secure = SecureEtcd::start_with("127.0.0.1", false);
    let store = secure.store("admin-paris");
    SecureEtcd::until_connected(&store).await;

    let error = users(&secure)
        .converge(&mut BTreeSet::new())
        .await
        .unwrap_err();

    assert!(
        matches!(error, Error::CertificatesNotAsked { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("--client-cert-auth"), "{error}");
    assert!(!store.access_enabled().await.unwrap());
}

#[tokio::test]
async fn a_client_that_would_lock_itself_out_is_refused_at_the_start() {
    let secure = SecureEtcd::start("127.0.0.1");
    let run_as = async |etcd: EtcdConfig| {
        let options = Options {
            cluster: cluster(),
            etcd,
            users_file: None,
            gate: None,
        };
        let (tell, _ready) = watch::channel(false);
        let ended = run(options, tell, CancellationToken::new()).await;
        ended.unwrap_err().to_string()
    };

    let plain = run_as(EtcdConfig::from_urls(&["http://127.0.0.1:1"]).unwrap()).await;
    let other = run_as(secure.config("admin-rome")).await;

    assert!(
        plain.contains("this connection has none") && plain.contains("--etcd-config"),
        "{plain}"
    );
    assert!(
        other.contains(
            "admin-rome.crt: cert-file: common name \"admin-rome\": expected admin-paris"
        ),
        "{other}"
    );
}

#[tokio::test]
async fn a_user_that_is_removed_while_connected_is_refused_and_never_answered_with_nothing() {
    let running = Running::start().await;
    running
        .admin()
        .put("cilium/state/a", b"1".to_vec(), None)
        .await
        .unwrap();
    let rome = running.secure.store("remote-rome");
    assert_eq!(rome.list("cilium/state/").await.unwrap().entries.len(), 1);

    replace(&running.secure.file("users.yaml"), "users: []\n");
    eventually("rome is refused", async || {
        rome.get("cilium/state/a").await.is_err()
    })
    .await;
    let errors = [
        rome.get("cilium/state/a").await.unwrap_err(),
        rome.list("cilium/state/").await.unwrap_err(),
        rome.watch(&Scope::Prefix("cilium/state/".to_owned()), 0)
            .await
            .unwrap_err(),
    ];
    replace(&running.secure.file("users.yaml"), USERS);

    for error in errors {
        assert_eq!(error.reason(), "Denied", "{error}");
        let text = error.to_string();
        let named = text.contains("user \"remote-rome\"") && text.contains("remote-rome.crt");
        assert!(named && text.contains("users.yaml"), "{text}");
    }
    eventually("rome reads again", async || {
        rome.get("cilium/state/a").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_watch_that_is_open_outlives_its_user_until_the_connection_ends() {
    let mut running = Running::start().await;
    let admin = running.admin();
    let rome = running.secure.store("remote-rome");
    let scope = Scope::Prefix("cilium/state/".to_owned());
    let mut watch = rome.watch(&scope, 0).await.unwrap();

    replace(&running.secure.file("users.yaml"), "users: []\n");
    eventually("rome is refused", async || {
        rome.get("cilium/state/a").await.is_err()
    })
    .await;
    admin
        .put("cilium/state/a", b"1".to_vec(), None)
        .await
        .unwrap();
    let seen = tokio::time::timeout(budget(), watch.next()).await.unwrap();
    running.secure.etcd.restart();
    let ended = tokio::time::timeout(budget(), watch.next()).await.unwrap();
    SecureEtcd::until_connected(&admin).await;

    // As docs/guide/security.md says.
    assert_eq!(seen.unwrap().unwrap().events.len(), 1);
    assert!(ended.unwrap().is_err());
    let error = rome.watch(&scope, 0).await.unwrap_err();
    assert_eq!(error.reason(), "Denied", "{error}");
}

/// How often it is converged within a minute when the watch of etcd ends after so long each time.
async fn looks_within_a_minute(held: Duration) -> usize {
    let looks = AtomicUsize::new(0);
    let converge = || async {
        let looks = looks.fetch_add(1, Ordering::Relaxed);
        assert!(looks < 1000, "without a pause");
        Ok(())
    };
    let disturbed = || async {
        tokio::time::sleep(held).await;
        Disturbance::StoreAway
    };
    let keep = keep_up(converge, disturbed, |_| {});
    let ended = tokio::time::timeout(Duration::from_mins(1), keep).await;
    assert!(ended.is_err(), "it goes on for ever");
    looks.into_inner()
}

#[tokio::test(start_paused = true)]
async fn an_etcd_that_can_be_changed_but_not_watched_is_not_looked_at_without_end() {
    let at_once = looks_within_a_minute(Duration::ZERO).await;
    let after_a_while = looks_within_a_minute(Duration::from_secs(3)).await;

    assert!((30..=70).contains(&at_once), "{at_once}");
    // Once the watch held, what it missed is looked at without a pause.
    assert!((20..=21).contains(&after_a_while), "{after_a_while}");
}
