//! Who may do what in an etcd: its users, its roles, and whether it asks at all.
//!
//! Users have no passwords: etcd takes a client's user from the common name of its certificate. Names and keys are text here;
//! what others keep under names that are no text is none of ours.

use etcd_client::{
    Client, Permission, PermissionType, RoleRevokePermissionOptions, UserAddOptions,
};
use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{Error, Step},
    session::EtcdStore,
};

/// What may be done with keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Read and watch.
    Read,
    /// Write and delete.
    Write,
    /// Both.
    ReadWrite,
}

/// A right on a range of keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The key, or the first key of the range.
    pub key: String,
    /// First key after the range; empty for the one key.
    pub end: String,
    /// What may be done.
    pub right: Right,
}

/// Users with their roles, and roles with their rights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Roles of each user.
    pub users: BTreeMap<String, BTreeSet<String>>,
    /// Rights of each role.
    pub roles: BTreeMap<String, BTreeSet<Grant>>,
}

/// A change of users, roles or rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessChange {
    /// A new role, without rights.
    AddRole(String),
    /// A role gets a right.
    Grant(String, Grant),
    /// A role loses a right.
    Revoke(String, Grant),
    /// A new user, without password and roles.
    AddUser(String),
    /// A user gets a role.
    GrantRole(String, String),
    /// A user loses a role.
    RevokeRole(String, String),
    /// A user goes. Watches that it has open stay until its connection ends.
    DeleteUser(String),
}

impl EtcdStore {
    /// Whether etcd asks who calls. Needs no rights.
    pub async fn access_enabled(&self) -> Result<bool, Error> {
        // There is no call that says it and that everybody may make; this one says so first of all.
        let asked = self
            .call(Step::Access, |client: Client| async move {
                let root = ("root".to_owned(), String::new());
                client.auth_client().authenticate(root.0, root.1).await
            })
            .await;
        match asked {
            Ok(_) | Err(Error::Denied { .. }) => Ok(true),
            Err(Error::Refused { detail, .. }) if detail.contains("not enabled") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes etcd ask from now on. Needs a user `root` with the role `root`. No error when it does already.
    pub async fn enable_access(&self) -> Result<(), Error> {
        self.call(Step::Access, |client| async move {
            client.auth_client().auth_enable().await
        })
        .await
        .map(drop)
    }

    /// Reads the roles of these users and the rights of these roles, as far as they exist.
    pub async fn access(
        &self,
        wanted: impl Fn(&str) -> bool + Send,
        roles: &[&str],
    ) -> Result<Access, Error> {
        let mut access = Access::default();
        let users = self
            .call(Step::Access, |client| async move {
                client.auth_client().user_list().await
            })
            .await?;
        for user in users.users().iter().filter(|user| wanted(user)).cloned() {
            let name = user.clone();
            let answer = self
                .call(Step::Access, |client| async move {
                    client.auth_client().user_get(name).await
                })
                .await;
            if let Some(answer) = unless_gone(answer)? {
                let roles = answer.roles().iter().cloned();
                access.users.insert(user, roles.collect());
            }
        }
        let existing = self
            .call(Step::Access, |client| async move {
                client.auth_client().role_list().await
            })
            .await?;
        for role in existing
            .roles()
            .iter()
            .filter(|role| roles.contains(&role.as_str()))
        {
            let name = role.clone();
            let answer = self
                .call(Step::Access, |client| async move {
                    client.auth_client().role_get(name).await
                })
                .await;
            if let Some(answer) = unless_gone(answer)? {
                let grants = answer.permissions().iter().map(grant).collect();
                access.roles.insert(role.clone(), grants);
            }
        }
        Ok(access)
    }

    /// Makes a change.
    pub async fn change_access(&self, change: AccessChange) -> Result<(), Error> {
        let step = Step::Access;
        match change {
            AccessChange::AddRole(role) => {
                let add = |client: Client| async move { client.auth_client().role_add(role).await };
                self.call(step, add).await.map(drop)
            }
            AccessChange::Grant(role, grant) => {
                let permission = Permission::new(kind(grant.right), grant.key);
                let permission = permission.with_range_end(grant.end);
                let add = |client: Client| async move {
                    client
                        .auth_client()
                        .role_grant_permission(role, permission)
                        .await
                };
                self.call(step, add).await.map(drop)
            }
            AccessChange::Revoke(role, grant) => {
                let options = RoleRevokePermissionOptions::new().with_range_end(grant.end);
                let revoke = |client: Client| async move {
                    client
                        .auth_client()
                        .role_revoke_permission(role, grant.key, Some(options))
                        .await
                };
                self.call(step, revoke).await.map(drop)
            }
            AccessChange::AddUser(user) => {
                let options = UserAddOptions::new().with_no_pwd();
                let add = |client: Client| async move {
                    client.auth_client().user_add(user, "", Some(options)).await
                };
                self.call(step, add).await.map(drop)
            }
            AccessChange::GrantRole(user, role) => {
                let grant = |client: Client| async move {
                    client.auth_client().user_grant_role(user, role).await
                };
                self.call(step, grant).await.map(drop)
            }
            AccessChange::RevokeRole(user, role) => {
                let revoke = |client: Client| async move {
                    client.auth_client().user_revoke_role(user, role).await
                };
                self.call(step, revoke).await.map(drop)
            }
            AccessChange::DeleteUser(user) => {
                let delete =
                    |client: Client| async move { client.auth_client().user_delete(user).await };
                self.call(step, delete).await.map(drop)
            }
        }
    }
}

/// The answer about a user or role that was listed; none when it went since.
fn unless_gone<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Refused { detail, .. }) if detail.contains("name not found") => Ok(None),
        Err(error) => Err(error),
    }
}

fn kind(right: Right) -> PermissionType {
    match right {
        Right::Read => PermissionType::Read,
        Right::Write => PermissionType::Write,
        Right::ReadWrite => PermissionType::Readwrite,
    }
}

fn grant(permission: &Permission) -> Grant {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let right = if permission.get_type() == PermissionType::Read as i32 {
        Right::Read
    } else if permission.get_type() == PermissionType::Write as i32 {
        Right::Write
    } else {
        Right::ReadWrite
    };
    Grant {
        key: text(permission.key()),
        end: text(permission.range_end()),
        right,
    }
}
