//! Which users and roles a mesh etcd has, and what has to change. Pure.
//!
//! Roles, ranges and names are those of Cilium's `etcdinit` (1.18 to 1.20), and STABLE: peers of any version rely on them.

use std::collections::BTreeSet;

use tombolo_core::{
    names::ClusterName,
    wire::key::{
        CACHE, CLUSTER_CONFIG, HEARTBEAT, STATE, SYNCED, canaries_prefix, cluster_config_key,
    },
};

use crate::kvstore::etcd::{Access, AccessChange, Grant, Right};

/// etcd's own role for everything, and the user that access control cannot be enabled without.
pub(super) const ROOT: &str = "root";
/// Role and user of peers.
pub(super) const REMOTE: &str = "remote";
/// Role of readers inside the cluster.
pub(super) const LOCAL: &str = "local";
/// How names of users of single peers begin.
pub(super) const REMOTE_PREFIX: &str = "remote-";

/// The user that writes the etcd of a cluster.
pub(super) fn admin(cluster: &ClusterName) -> String {
    format!("admin-{cluster}")
}

/// What a cluster's mesh etcd should have, with a user for each of these peers.
pub(super) fn desired(cluster: &ClusterName, peers: &BTreeSet<String>) -> Access {
    let one = |role: &str| BTreeSet::from([role.to_owned()]);
    let mut access = Access::default();
    access.users.insert(ROOT.to_owned(), one(ROOT));
    access.users.insert(admin(cluster), one(ROOT));
    access
        .users
        .insert(format!("{LOCAL}-{cluster}"), one(LOCAL));
    access.users.insert(REMOTE.to_owned(), one(REMOTE));
    for peer in peers {
        access.users.insert(peer.clone(), one(REMOTE));
    }
    let local = [
        prefix(HEARTBEAT),
        prefix(&format!("{CACHE}/")),
        prefix(&format!("{CLUSTER_CONFIG}/")),
        prefix(&format!("{SYNCED}/")),
    ];
    let remote = [
        prefix(HEARTBEAT),
        prefix(&format!("{STATE}/")),
        key(&cluster_config_key(cluster)),
        prefix(&canaries_prefix(cluster)),
    ];
    access.roles.insert(LOCAL.to_owned(), local.into());
    access.roles.insert(REMOTE.to_owned(), remote.into());
    access
}

/// What makes `actual` as desired, in an order in which nobody ever may do more than before or after. Users that are in
/// `actual` but not desired go, unless they are to be kept.
pub(super) fn changes(
    desired: &Access,
    actual: &Access,
    keep: &BTreeSet<String>,
) -> Vec<AccessChange> {
    let (no_roles, no_rights) = (BTreeSet::new(), BTreeSet::new());
    let (mut less, mut more) = (Vec::new(), Vec::new());
    for user in actual.users.keys() {
        if !desired.users.contains_key(user) && !keep.contains(user) {
            less.push(AccessChange::DeleteUser(user.clone()));
        }
    }
    for (role, wanted) in &desired.roles {
        if !actual.roles.contains_key(role) {
            more.push(AccessChange::AddRole(role.clone()));
        }
        let present = actual.roles.get(role).unwrap_or(&no_rights);
        let revoke = |grant: &Grant| AccessChange::Revoke(role.clone(), grant.clone());
        less.extend(present.difference(wanted).map(revoke));
        let grant = |grant: &Grant| AccessChange::Grant(role.clone(), grant.clone());
        more.extend(wanted.difference(present).map(grant));
    }
    for (user, wanted) in &desired.users {
        if !actual.users.contains_key(user) {
            more.push(AccessChange::AddUser(user.clone()));
        }
        let present = actual.users.get(user).unwrap_or(&no_roles);
        let revoke = |role: &String| AccessChange::RevokeRole(user.clone(), role.clone());
        less.extend(present.difference(wanted).map(revoke));
        let grant = |role: &String| AccessChange::GrantRole(user.clone(), role.clone());
        more.extend(wanted.difference(present).map(grant));
    }
    less.extend(more);
    less
}

fn prefix(text: &str) -> Grant {
    Grant {
        key: text.to_owned(),
        end: after(text),
        right: Right::Read,
    }
}

fn key(text: &str) -> Grant {
    Grant {
        key: text.to_owned(),
        end: String::new(),
        right: Right::Read,
    }
}

/// The first text after all that begin with this one.
fn after(prefix: &str) -> String {
    let mut bytes = prefix.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    String::from_utf8(bytes).expect("invariant: keys end with ASCII")
}
