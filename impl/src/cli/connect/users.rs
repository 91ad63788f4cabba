//! The list of peers that may read an etcd: Cilium's `users.yaml`. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tombolo_core::names::ClusterName;

/// ConfigMap with the list. Cilium.
pub(super) const CONFIG_MAP: &str = "clustermesh-remote-users";
/// Its key.
pub(super) const KEY: &str = "users.yaml";
/// Annotation with the peers that `connect` has listed.
pub(super) const NOTED: &str = "tombolo/connected";

/// Role of peers in an etcd. Cilium.
const ROLE: &str = "remote";

/// A change of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Edit {
    /// Peers that may read.
    pub(super) add: BTreeSet<ClusterName>,
    /// Peers that may not any more.
    pub(super) remove: BTreeSet<ClusterName>,
}

/// The etcd user of a peer.
pub(super) fn user(peer: &ClusterName) -> String {
    format!("remote-{peer}")
}

/// The users of a list.
pub(super) fn listed(text: &str) -> Result<BTreeSet<String>, String> {
    let entries = entries(text)?;
    let names = entries.iter().filter_map(|entry| entry["name"].as_str());
    Ok(names.map(ToOwned::to_owned).collect())
}

/// The list after the change; none when it says that already. Other entries stay as they are.
pub(super) fn edited(text: Option<&str>, edit: &Edit) -> Result<Option<String>, String> {
    let mut entries = text.map_or(Ok(Vec::new()), entries)?;
    let removed: BTreeSet<_> = edit.remove.iter().map(user).collect();
    let before = entries.len();
    entries.retain(|entry| {
        let name = entry["name"].as_str().unwrap_or_default();
        !removed.contains(name)
    });
    let mut changed = entries.len() != before;
    for peer in &edit.add {
        let name = user(peer);
        if !entries.iter().any(|entry| entry["name"] == name.as_str()) {
            entries.push(json!({"name": name, "role": ROLE}));
            changed = true;
        }
    }
    if !changed && text.is_some() {
        return Ok(None);
    }
    let text =
        serde_saphyr::to_string(&json!({"users": entries})).map_err(|error| error.to_string())?;
    Ok(Some(text))
}

fn entries(text: &str) -> Result<Vec<Value>, String> {
    let hollow = || "has no list of users".to_owned();
    if text.trim().is_empty() {
        return Err(hollow());
    }
    let whole: Value =
        serde_saphyr::from_str(text).map_err(|error| format!("is not valid: {error}"))?;
    whole["users"].as_array().cloned().ok_or_else(hollow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(add: &[&str], remove: &[&str]) -> Edit {
        let names = |texts: &[&str]| {
            let names = texts.iter().map(|it| ClusterName::try_from(*it).unwrap());
            names.collect()
        };
        Edit {
            add: names(add),
            remove: names(remove),
        }
    }

    #[test]
    fn peers_are_added_and_removed_and_all_else_stays() {
        let first = edited(None, &edit(&["rome"], &[])).unwrap().unwrap();
        assert_eq!(first, "users:\n- name: remote-rome\n  role: remote\n");

        let second = edited(Some(&first), &edit(&["oslo"], &[]))
            .unwrap()
            .unwrap();
        assert_eq!(
            listed(&second).unwrap().into_iter().collect::<Vec<_>>(),
            ["remote-oslo", "remote-rome"]
        );
        assert_eq!(edited(Some(&second), &edit(&["rome"], &["bonn"])), Ok(None));

        let none = edited(Some(&first), &edit(&[], &["rome"]))
            .unwrap()
            .unwrap();
        assert_eq!(none, "users: []\n");
        assert_eq!(
            edited(None, &edit(&[], &[])),
            Ok(Some("users: []\n".to_owned()))
        );
    }

    #[test]
    fn entries_of_others_are_kept_as_they_are() {
        let text = "users:\n- {name: special, role: other, note: 1}\n";

        let edited = edited(Some(text), &edit(&["rome"], &[])).unwrap().unwrap();

        let value: Value = serde_saphyr::from_str(&edited).unwrap();
        assert_eq!(
            value["users"][0],
            json!({"name": "special", "role": "other", "note": 1})
        );
    }

    #[test]
    fn a_text_that_is_no_list_is_not_guessed_at() {
        for text in ["", "users:", "users: 5", "users: [", "other: 1"] {
            assert!(edited(Some(text), &edit(&["rome"], &[])).is_err(), "{text}");
        }
    }
}
