//! Of which services a peer says something that was not taken: refused, or over its limits. That there is no row for them
//! means nothing. Synchronous, and bounded for each peer.

use std::collections::{BTreeMap, BTreeSet};

use tombolo_core::names::{ClusterName, NamespacedName};

use super::peer::RecordKind;

/// Most services of one kind of one peer that are remembered by name. When there are more, it is every service.
const NAMES_MAX: usize = 2000;

/// What is unknown of all peers.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    by_kind: BTreeMap<RecordKind, BTreeMap<ClusterName, Gap>>,
}

/// What is unknown of one kind of one peer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    /// These services.
    pub(super) names: BTreeSet<NamespacedName>,
    /// Or, beside them, any.
    pub(super) all: bool,
}

impl Gap {
    /// Adds a service.
    pub(super) fn add(&mut self, name: NamespacedName) {
        if self.names.len() < NAMES_MAX || self.names.contains(&name) {
            self.names.insert(name);
        } else {
            self.all = true;
        }
    }

    fn contains(&self, name: &NamespacedName) -> bool {
        self.all || self.names.contains(name)
    }

    fn is_closed(&self) -> bool {
        !self.all && self.names.is_empty()
    }
}

impl Gaps {
    /// Whether nothing is known of what the cluster says of a service.
    pub(super) fn contains(
        &self,
        cluster: &ClusterName,
        kind: RecordKind,
        name: &NamespacedName,
    ) -> bool {
        let gap = self.by_kind.get(&kind).and_then(|gaps| gaps.get(cluster));
        gap.is_some_and(|gap| gap.contains(name))
    }

    /// Whether that is so of any cluster.
    pub(super) fn contains_any(&self, kind: RecordKind, name: &NamespacedName) -> bool {
        let mut gaps = self.by_kind.get(&kind).into_iter().flatten();
        gaps.any(|(_, gap)| gap.contains(name))
    }

    /// What the cluster says of a service was not taken.
    pub(super) fn open(&mut self, cluster: &ClusterName, kind: RecordKind, name: NamespacedName) {
        let gaps = self.by_kind.entry(kind).or_default();
        gaps.entry(cluster.clone()).or_default().add(name);
    }

    /// What the cluster says of a service is known; whether it was not before.
    pub(super) fn close(
        &mut self,
        cluster: &ClusterName,
        kind: RecordKind,
        name: &NamespacedName,
    ) -> bool {
        let gap = self.by_kind.get_mut(&kind);
        let gap = gap.and_then(|gaps| gaps.get_mut(cluster));
        gap.is_some_and(|gap| gap.names.remove(name))
    }

    /// This is unknown, and nothing else; returns what is known now.
    pub(super) fn replace(&mut self, cluster: &ClusterName, kind: RecordKind, gap: Gap) -> Gap {
        let gaps = self.by_kind.entry(kind).or_default();
        let (names, all) = (gap.names.clone(), gap.all);
        let before = if gap.is_closed() {
            gaps.remove(cluster)
        } else {
            gaps.insert(cluster.clone(), gap)
        };
        let mut closed = before.unwrap_or_default();
        closed.names.retain(|name| !names.contains(name));
        closed.all &= !all;
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: RecordKind = RecordKind::Exports;

    fn rome() -> ClusterName {
        "rome".try_into().unwrap()
    }

    fn named(name: &str) -> NamespacedName {
        NamespacedName::parse("shop", name).unwrap()
    }

    #[test]
    fn only_what_a_gap_is_about_is_unknown() {
        let (mut gaps, oslo) = (Gaps::default(), "oslo".try_into().unwrap());
        gaps.open(&rome(), KIND, named("web"));

        assert!(gaps.contains(&rome(), KIND, &named("web")));
        assert!(!gaps.contains(&rome(), KIND, &named("db")));
        assert!(!gaps.contains(&rome(), RecordKind::Services, &named("web")));
        assert!(!gaps.contains(&oslo, KIND, &named("web")));
        assert!(gaps.contains_any(KIND, &named("web")));
        assert!(gaps.close(&rome(), KIND, &named("web")));
        assert!(!gaps.close(&rome(), KIND, &named("web")));
        assert!(!gaps.contains_any(KIND, &named("web")));
    }

    #[test]
    fn more_than_can_be_named_is_everything_until_it_is_told_anew() {
        let mut gaps = Gaps::default();
        for number in 0..=NAMES_MAX {
            gaps.open(&rome(), KIND, named(&format!("s{number}")));
        }
        assert!(gaps.contains(&rome(), KIND, &named("other")));
        gaps.close(&rome(), KIND, &named("s0"));
        assert!(gaps.contains(&rome(), KIND, &named("s0")));

        let mut some = Gap::default();
        some.add(named("s1"));
        let closed = gaps.replace(&rome(), KIND, some);

        assert!(closed.all && closed.names.len() == NAMES_MAX - 2);
        assert!(gaps.contains(&rome(), KIND, &named("s1")));
        assert!(!gaps.contains(&rome(), KIND, &named("s2")));
        let closed = gaps.replace(&rome(), KIND, Gap::default());
        assert_eq!(closed.names, [named("s1")].into());
    }
}
