//! What peers say, as synchronous tables: one row per (service, cluster).
//!
//! A row leaves only by [`Evidence`]; nothing here waits, locks or performs I/O. Every change returns the names that became
//! dirty, and costs no more than the rows it touches: a second index lists the services of each cluster.

use std::collections::{BTreeMap, BTreeSet};

use tombolo_core::{
    evidence::{Complete, Evidence},
    names::{ClusterName, NamespacedName},
};

/// Rows of one kind, by service and by cluster.
#[derive(Debug, Clone)]
pub struct Table<T> {
    rows: BTreeMap<NamespacedName, BTreeMap<ClusterName, T>>,
    names: BTreeMap<ClusterName, BTreeSet<NamespacedName>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }
}

impl<T: PartialEq> Table<T> {
    /// Sets a row; true when that changed something.
    pub fn set(&mut self, cluster: &ClusterName, name: &NamespacedName, row: T) -> bool {
        let clusters = self.rows.entry(name.clone()).or_default();
        match clusters.get_mut(cluster) {
            Some(present) if *present == row => return false,
            Some(present) => *present = row,
            None => {
                clusters.insert(cluster.clone(), row);
                let names = self.names.entry(cluster.clone()).or_default();
                names.insert(name.clone());
            }
        }
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
        if removed && let Some(names) = self.names.get_mut(cluster) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(cluster);
            }
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

    /// The row of a cluster.
    pub fn row(&self, cluster: &ClusterName, name: &NamespacedName) -> Option<&T> {
        self.rows.get(name)?.get(cluster)
    }

    /// The rows of one service, by cluster.
    pub fn rows(&self, name: &NamespacedName) -> impl Iterator<Item = (&ClusterName, &T)> {
        self.rows.get(name).into_iter().flatten()
    }

    /// The services that a cluster has a row for.
    pub fn names_of(&self, cluster: &ClusterName) -> impl Iterator<Item = &NamespacedName> {
        self.names.get(cluster).into_iter().flatten()
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

#[cfg(test)]
mod tests {
    use tombolo_core::evidence::Canary;

    use super::*;

    fn cluster(name: &str) -> ClusterName {
        name.try_into().unwrap()
    }

    fn name(name: &str) -> NamespacedName {
        NamespacedName::parse("shop", name).unwrap()
    }

    #[test]
    fn setting_an_equal_row_changes_nothing() {
        let mut table = Table::default();

        assert!(table.set(&cluster("a"), &name("web"), 1));
        assert!(!table.set(&cluster("a"), &name("web"), 1));
        assert!(table.set(&cluster("a"), &name("web"), 2));
        assert_eq!(
            table
                .rows(&name("web"))
                .map(|(_, row)| *row)
                .collect::<Vec<_>>(),
            [2]
        );
    }

    #[test]
    fn a_complete_list_removes_only_what_it_lacks_of_its_own_cluster() {
        let mut table = Table::default();
        for (of, service) in [("a", "one"), ("a", "two"), ("b", "one"), ("b", "three")] {
            table.set(&cluster(of), &name(service), ());
        }
        let complete = Complete::from_list(Canary::seen(1), 2).unwrap();

        let removed = table.retain_listed(&cluster("a"), &BTreeSet::from([name("two")]), complete);

        assert_eq!(removed, [name("one")]);
        assert_eq!(
            table.names_of(&cluster("a")).collect::<Vec<_>>(),
            [&name("two")]
        );
        assert_eq!(table.names_of(&cluster("b")).count(), 2);
        assert_eq!(table.rows(&name("one")).count(), 1);
    }

    #[test]
    fn a_removed_cluster_leaves_nothing_behind() {
        let mut table = Table::default();
        table.set(&cluster("a"), &name("one"), ());
        table.set(&cluster("a"), &name("two"), ());

        let removed = table.remove_cluster(&cluster("a"), Evidence::PeerRemoved);

        assert_eq!(removed, [name("one"), name("two")]);
        assert_eq!(table.names().count(), 0);
        assert_eq!(table.names_of(&cluster("a")).count(), 0);
        assert!(!table.remove(&cluster("a"), &name("one"), Evidence::PeerRemoved));
    }
}
