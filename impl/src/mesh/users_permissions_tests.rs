//! Who may do what, tried on a real etcd with client certificates, and written out: every user × every prefix × every operation.

use std::fs;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, Error, GetOptions, LeaseGrantResponse,
    PutOptions, Txn, TxnOp, UserAddOptions,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Options, run};
use crate::kvstore::{
    Error as StoreError, KvStore, Scope, testing::budget, testing_pki::SecureEtcd,
};

/// What a user may do with keys of paris' etcd: r(ead), l(ist), w(atch), p(ut), d(elete); `.` is refused.
const KEYS: &str = "\
user         cilium/.heartbeat  state  config/paris  config/rome  synced/paris  synced/rome  cache  other
admin-paris  rlwpd              rlwpd  rlwpd         rlwpd        rlwpd         rlwpd        rlwpd  rlwpd
local-paris  rlw..              .....  rlw..         rlw..        rlw..         rlw..        rlw..  .....
remote       rlw..              rlw..  r.w..         .....        rlw..         .....        .....  .....
remote-rome  rlw..              rlw..  r.w..         .....        rlw..         .....        .....  .....
remote-oslo  .....              .....  .....         .....        .....         .....        .....  .....
";

/// What a user may do with the rest of etcd. That whoever has a certificate of the authority may grant leases, and see members
/// and status, is etcd's doing; nothing can be put under such a lease.
const REST: &str = "\
operation                 admin-paris  local-paris  remote  remote-rome  remote-oslo
grant a lease             yes          yes          yes     yes          yes
put under it              yes          no           no      no           no
revoke it                 yes          yes          yes     yes          yes
keep the admin's lease    yes          no           no      no           no
revoke the admin's lease  yes          no           no      no           no
end the admin's keys so   yes          no           no      no           no
list users                yes          no           no      no           no
see own user              yes          yes          yes     yes          no
see user root             yes          no           no      no           no
list roles                yes          no           no      no           no
add a user                yes          no           no      no           no
get role root             yes          no           no      no           no
add a role                yes          no           no      no           no
disable access control    yes          no           no      no           no
txn that writes           yes          no           no      no           no
txn that reads all        yes          no           no      no           no
compact                   yes          no           no      no           no
defragment                yes          no           no      no           no
hash                      yes          no           no      no           no
snapshot                  yes          no           no      no           no
list members              yes          yes          yes     yes          yes
status                    yes          yes          yes     yes          yes
see alarms                yes          yes          yes     yes          yes
raise an alarm            yes          no           no      no           no
";

/// Users: those of the mesh, and one with a good certificate whom etcd does not know.
const USERS: [&str; 5] = [
    "admin-paris",
    "local-paris",
    "remote",
    "remote-rome",
    "remote-oslo",
];

/// One key under each prefix that roles tell apart, and the prefix that lists it.
const PLACES: [(&str, &str, &str); 8] = [
    (
        "cilium/.heartbeat",
        "cilium/.heartbeat",
        "cilium/.heartbeat",
    ),
    (
        "state",
        "cilium/state/services/v1/paris/shop/web",
        "cilium/state/",
    ),
    (
        "config/paris",
        "cilium/cluster-config/paris",
        "cilium/cluster-config/paris",
    ),
    (
        "config/rome",
        "cilium/cluster-config/rome",
        "cilium/cluster-config/rome",
    ),
    (
        "synced/paris",
        "cilium/synced/paris/cilium/state/services/v1",
        "cilium/synced/paris/",
    ),
    (
        "synced/rome",
        "cilium/synced/rome/cilium/cache/services/v1",
        "cilium/synced/rome/",
    ),
    (
        "cache",
        "cilium/cache/services/v1/rome/shop/web",
        "cilium/cache/",
    ),
    ("other", "other", "other"),
];

async fn bootstrapped() -> SecureEtcd {
    let secure = SecureEtcd::start("127.0.0.1");
    fs::write(
        secure.file("users.yaml"),
        "users: [{name: remote-rome, role: remote}]",
    )
    .unwrap();
    let options = Options {
        cluster: "paris".try_into().unwrap(),
        etcd: secure.config("admin-paris"),
        users_file: Some(secure.file("users.yaml")),
        gate: None,
    };
    let (tell, mut ready) = watch::channel(false);
    let cancel = CancellationToken::new();
    let running = tokio::spawn(run(options, tell, cancel.clone()));
    let waited = tokio::time::timeout(budget(), ready.wait_for(|ready| *ready)).await;
    waited.expect("in time").expect("it runs");
    cancel.cancel();
    running.await.unwrap().unwrap();
    secure
}

/// Whether the call was allowed; anything but an answer or a refusal is a failure of the test.
fn allowed<T>(outcome: Result<T, StoreError>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(StoreError::Denied { .. }) => false,
        Err(error) => panic!("neither answered nor refused: {error}"),
    }
}

fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}  "));
        text += cells.collect::<String>().trim_end();
        text += "\n";
    }
    text
}

#[tokio::test]
async fn every_user_may_do_with_every_key_what_is_written_here() {
    let secure = bootstrapped().await;
    let admin = secure.store("admin-paris");
    let mut rows = vec![vec!["user".to_owned()]];
    rows[0].extend(PLACES.map(|(name, _, _)| name.to_owned()));
    for user in USERS {
        let store = secure.store(user);
        let mut row = vec![user.to_owned()];
        for (_, key, prefix) in PLACES {
            let revision = admin.put(key, b"value".to_vec(), None).await.unwrap();
            let read = store.get(key).await;
            if let Ok(read) = &read {
                assert_eq!(read.entry.as_ref().unwrap().value, b"value", "{user} {key}");
            }
            let list = store.list(prefix).await;
            let watch = store.watch(&Scope::Key(key.to_owned()), revision).await;
            let put = store.put(key, b"other".to_vec(), None).await;
            let after_put = admin.get(key).await.unwrap().entry.unwrap();
            assert_eq!(after_put.value == b"other", put.is_ok(), "{user} {key}");
            let delete = store.delete(key).await;
            let there = admin.get(key).await.unwrap().entry.is_some();
            assert_eq!(there, delete.is_err(), "{user} {key}");
            let may = [
                ('r', allowed(read)),
                ('l', allowed(list)),
                ('w', allowed(watch)),
                ('p', allowed(put)),
                ('d', allowed(delete)),
            ];
            row.push(
                may.map(|(name, may)| if may { name } else { '.' })
                    .iter()
                    .collect(),
            );
        }
        rows.push(row);
    }

    let found = table(&rows);
    assert_eq!(found, KEYS, "found:\n{found}");
}

fn may<T>(outcome: Result<T, Error>) -> String {
    let refused = |text: &str| {
        let signs = [
            "permission denied",
            "user name is empty",
            "user name not found",
        ];
        signs.iter().any(|sign| text.contains(sign))
    };
    match outcome {
        Ok(_) => "yes".to_owned(),
        Err(error) if refused(&error.to_string()) => "no".to_owned(),
        Err(error) => format!("{error}"),
    }
}

type Found = Vec<(&'static str, String)>;

const LEASED: &str = "cilium/state/leased";

/// What a user may do with leases, of its own and of the admin.
async fn leases(admin: &mut Client, client: &mut Client) -> Found {
    let lease = admin.lease_grant(60, None).await.unwrap().id();
    let under = PutOptions::new().with_lease(lease);
    admin.put(LEASED, "value", Some(under)).await.unwrap();
    let own = client.lease_grant(60, None).await;
    let own_id = own.as_ref().map_or(1, LeaseGrantResponse::id);
    let under_own = PutOptions::new().with_lease(own_id);
    let mut found = vec![
        ("grant a lease", may(own)),
        (
            "put under it",
            may(client.put(LEASED, "x", Some(under_own)).await),
        ),
        ("revoke it", may(client.lease_revoke(own_id).await)),
        (
            "keep the admin's lease",
            may(client.lease_keep_alive(lease).await),
        ),
        (
            "revoke the admin's lease",
            may(client.lease_revoke(lease).await),
        ),
    ];
    let alive = admin.lease_time_to_live(lease, None).await.unwrap().ttl() > 0;
    let ended = if alive { "no" } else { "yes" };
    found.push(("end the admin's keys so", ended.to_owned()));
    found
}

/// What a user may do with users and roles.
async fn users(user: &str, client: &mut Client) -> Found {
    let (new, without) = (format!("new-{user}"), UserAddOptions::new().with_no_pwd());
    let disabled = if user == "admin-paris" {
        // Else the others would be asked for nothing.
        "yes".to_owned()
    } else {
        may(client.auth_disable().await)
    };
    vec![
        ("list users", may(client.user_list().await)),
        ("see own user", may(client.user_get(user).await)),
        ("see user root", may(client.user_get("root").await)),
        ("list roles", may(client.role_list().await)),
        (
            "add a user",
            may(client.user_add(new.as_str(), "", Some(without)).await),
        ),
        (
            "get role root",
            may(client.user_grant_role(user, "root").await),
        ),
        ("add a role", may(client.role_add(new.as_str()).await)),
        ("disable access control", disabled),
    ]
}

/// What a user may do with etcd itself.
async fn maintenance(admin: &mut Client, client: &mut Client) -> Found {
    let read = admin.get("none", None).await.unwrap();
    let revision = read.header().unwrap().revision();
    let write = Txn::new().and_then([TxnOp::put(LEASED, "x", None)]);
    let everything = GetOptions::new().with_all_keys();
    let read = Txn::new().and_then([TxnOp::get("", Some(everything))]);
    let (see, none) = (AlarmAction::Get, AlarmType::None);
    let member = admin.member_list().await.unwrap().members()[0].id();
    let mut no_space = AlarmOptions::new();
    no_space.with_member(member);
    let raised = client
        .alarm(
            AlarmAction::Activate,
            AlarmType::Nospace,
            Some(no_space.clone()),
        )
        .await;
    let calmed = admin
        .alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(no_space))
        .await;
    calmed.expect("the admin ends alarms");
    vec![
        ("txn that writes", may(client.txn(write).await)),
        ("txn that reads all", may(client.txn(read).await)),
        ("compact", may(client.compact(revision, None).await)),
        ("defragment", may(client.defragment().await)),
        ("hash", may(client.hash().await)),
        ("snapshot", may(first_of_snapshot(client).await)),
        ("list members", may(client.member_list().await)),
        ("status", may(client.status().await)),
        ("see alarms", may(client.alarm(see, none, None).await)),
        ("raise an alarm", may(raised)),
    ]
}

async fn first_of_snapshot(client: &mut Client) -> Result<(), Error> {
    client.snapshot().await?.message().await.map(drop)
}

#[tokio::test]
async fn every_user_may_do_beyond_keys_what_is_written_here() {
    let secure = bootstrapped().await;
    let mut admin = secure.raw("admin-paris").await;
    let mut columns = Vec::new();
    for user in USERS {
        let mut client = secure.raw(user).await;
        let mut column = leases(&mut admin, &mut client).await;
        column.extend(users(user, &mut client).await);
        column.extend(maintenance(&mut admin, &mut client).await);
        columns.push(column);
    }
    let mut rows = vec![vec!["operation".to_owned()]];
    rows[0].extend(USERS.map(ToOwned::to_owned));
    for (index, (name, _)) in columns[0].iter().enumerate() {
        let mut row = vec![(*name).to_owned()];
        row.extend(columns.iter().map(|column| column[index].1.clone()));
        rows.push(row);
    }

    let found = table(&rows);
    assert_eq!(found, REST, "found:\n{found}");
}
