//! What peers say, as synchronous tables: one row per (service, cluster).
//!
//! A row leaves only by [`Evidence`]; nothing here waits, locks or performs I/O. Every change returns the names that became dirty.

use std::collections::{BTreeMap, BTreeSet};

use tombolo_core::{
    evidence::{Complete, Evidence},
    names::{ClusterName, NamespacedName},
};

/// Rows of one kind, by service and by cluster.
#[derive(Debug, Clone)]
pub struct Table<T> {
    rows: BTreeMap<NamespacedName, BTreeMap<ClusterName, T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
        }
    }
}

impl<T: PartialEq> Table<T> {
    /// Sets a row; true when that changed something.
    pub fn set(&mut self, cluster: &ClusterName, name: &NamespacedName, row: T) -> bool {
        let clusters = self.rows.entry(name.clone()).or_default();
        if clusters.get(cluster) == Some(&row) {
            return false;
        }
        clusters.insert(cluster.clone(), row);
        true
    }

    /// Removes a row, given a reason that is good enough; true when there was one.
    pub fn remove(
        &mut self,
        cluster: &ClusterName,
        name: &NamespacedName,
        _evidence: Evidence,
    ) -> bool {
        let Some(clusters) = self.rows.get_mut(name) else {
            return false;
        };
        let removed = clusters.remove(cluster).is_some();
        if clusters.is_empty() {
            self.rows.remove(name);
        }
        removed
    }

    /// Removes the rows of a cluster that a complete list did not contain; returns their names.
    pub fn retain_listed(
        &mut self,
        cluster: &ClusterName,
        present: &BTreeSet<NamespacedName>,
        complete: Complete,
    ) -> Vec<NamespacedName> {
        let absent: Vec<_> = self
            .names_of(cluster)
            .filter(|name| !present.contains(name))
            .cloned()
            .collect();
        self.remove_all(cluster, absent, Evidence::AbsentFrom(complete))
    }

    /// Removes all rows of a cluster; returns their names.
    pub fn remove_cluster(
        &mut self,
        cluster: &ClusterName,
        evidence: Evidence,
    ) -> Vec<NamespacedName> {
        let names: Vec<_> = self.names_of(cluster).cloned().collect();
        self.remove_all(cluster, names, evidence)
    }

    /// The rows of one service, by cluster.
    pub fn rows(&self, name: &NamespacedName) -> impl Iterator<Item = (&ClusterName, &T)> {
        self.rows.get(name).into_iter().flatten()
    }

    /// The services that a cluster has a row for.
    pub fn names_of(&self, cluster: &ClusterName) -> impl Iterator<Item = &NamespacedName> {
        self.rows
            .iter()
            .filter(move |(_, clusters)| clusters.contains_key(cluster))
            .map(|(name, _)| name)
    }

    /// Every service with a row.
    pub fn names(&self) -> impl Iterator<Item = &NamespacedName> {
        self.rows.keys()
    }

    fn remove_all(
        &mut self,
        cluster: &ClusterName,
        names: Vec<NamespacedName>,
        evidence: Evidence,
    ) -> Vec<NamespacedName> {
        for name in &names {
            self.remove(cluster, name, evidence);
        }
        names
    }
}
