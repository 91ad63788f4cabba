//! The file with the users of single peers: Cilium's `users.yaml`, from ConfigMap `clustermesh-remote-users`.
//!
//! A user that is not in it goes, so a file that cannot be read or is not complete says nothing about anybody.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use thiserror::Error;
use tombolo_core::names::ClusterName;

use super::desired::{REMOTE, REMOTE_PREFIX};

/// What is wrong with the file or an entry of it.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}; users stay as they are; check --cluster-users-config-path and the ConfigMap behind it", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no YAML of the expected form.
    #[error("{}: (the whole file): is not valid: {problem}; expected users: [{{name: remote-PEER, role: remote}}]; users stay as they are; correct the file", file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// What the parser says.
        problem: String,
    },
    /// It names nobody, not even explicitly.
    #[error("{}: users: missing; expected a list, [] for nobody; users stay as they are; complete the file", file.display())]
    Hollow {
        /// The file.
        file: PathBuf,
    },
    /// A user's name is not one of a peer.
    #[error("{}: users[{index}].name {name:?}: expected remote-PEER, PEER being a cluster name; the user is left out; correct it", file.display())]
    Name {
        /// The file.
        file: PathBuf,
        /// Which entry.
        index: usize,
        /// The name.
        name: String,
    },
    /// A user would get another role than that of peers.
    #[error("{}: users[{index}].role {role:?} of {name}: expected \"remote\", since peers only read; the user is left as it is; correct it", file.display())]
    Role {
        /// The file.
        file: PathBuf,
        /// Which entry.
        index: usize,
        /// The user.
        name: String,
        /// The role.
        role: String,
    },
}

impl FileError {
    /// Whether there is no such file.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Users to be there.
    pub(super) users: BTreeSet<String>,
    /// Users that are mentioned in bad entries: not made, not deleted.
    pub(super) kept: BTreeSet<String>,
    /// What is wrong with entries.
    pub(super) problems: Vec<FileError>,
}

#[derive(Deserialize)]
struct Written {
    users: Option<Vec<User>>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    name: String,
    #[serde(default)]
    role: String,
}

/// Reads the file.
pub(super) fn read(file: &Path) -> Result<Listed, FileError> {
    let text = std::fs::read_to_string(file).map_err(|source| FileError::Read {
        file: file.to_owned(),
        source,
    })?;
    parse(file, &text)
}

fn parse(file: &Path, text: &str) -> Result<Listed, FileError> {
    let hollow = || FileError::Hollow {
        file: file.to_owned(),
    };
    // Nothing but blanks is no document for the parser, and says as little.
    if text.trim().is_empty() {
        return Err(hollow());
    }
    let written: Written = serde_saphyr::from_str(text).map_err(|error| FileError::Parse {
        file: file.to_owned(),
        problem: error.to_string(),
    })?;
    let mut listed = Listed::default();
    for (index, User { name, role }) in written.users.ok_or_else(hollow)?.into_iter().enumerate() {
        let file = file.to_owned();
        let peer = name.strip_prefix(REMOTE_PREFIX).map(ClusterName::try_from);
        if !matches!(peer, Some(Ok(_))) {
            listed.problems.push(FileError::Name { file, index, name });
        } else if role == REMOTE {
            listed.users.insert(name);
        } else {
            listed.kept.insert(name.clone());
            listed.problems.push(FileError::Role {
                file,
                index,
                name,
                role,
            });
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Listed, FileError> {
        parse(Path::new("/etc/users.yaml"), text)
    }

    #[test]
    fn a_file_as_cilium_mounts_it_is_read() {
        let listed = parsed(
            "users:\n- name: remote-rome\n  role: remote\n- name: remote-oslo\n  role: remote\n",
        )
        .unwrap();

        assert_eq!(
            listed.users.into_iter().collect::<Vec<_>>(),
            ["remote-oslo", "remote-rome"]
        );
        assert!(listed.problems.is_empty());
    }

    #[test]
    fn only_an_explicit_empty_list_is_nobody() {
        assert!(parsed("users: []").unwrap().users.is_empty());

        for text in [
            "",
            "\n",
            "users:",
            "users: null",
            "other: 1",
            "users: [",
            "users: 5",
        ] {
            let error = parsed(text).expect_err(text).to_string();
            assert!(
                error.starts_with("/etc/users.yaml: ") && error.contains("users stay as they are"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_bad_entry_is_told_with_its_field_and_the_others_go_on() {
        let listed = parsed(
            "users:\n- {name: root, role: remote}\n- {name: remote-Rome, role: remote}\n- {name: remote-oslo, role: root}\n- {role: remote}\n- {name: remote-rome, role: remote}\n",
        )
        .unwrap();

        let told: Vec<_> = listed.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            listed.users.into_iter().collect::<Vec<_>>(),
            ["remote-rome"]
        );
        assert_eq!(listed.kept.into_iter().collect::<Vec<_>>(), ["remote-oslo"]);
        assert!(
            told[0].contains("users[0].name \"root\": expected remote-PEER"),
            "{told:?}"
        );
        assert!(
            told[1].contains("users[1].name \"remote-Rome\""),
            "{told:?}"
        );
        assert!(
            told[2].contains("users[2].role \"root\" of remote-oslo: expected \"remote\""),
            "{told:?}"
        );
        assert!(told[3].contains("users[3].name \"\""), "{told:?}");
    }
}
