//! Which cluster holds which numeric id. Ids are unique in a mesh: addresses and identities are told apart by them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tombolo_core::names::{ClusterId, ClusterName};

/// The ids that are taken. Clones are the same reservations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reservations {
    holders: Arc<Mutex<BTreeMap<ClusterId, ClusterName>>>,
}

impl Reservations {
    /// Takes an id for a cluster, beside those that it has; or says who holds it.
    pub(crate) fn take(&self, id: ClusterId, cluster: &ClusterName) -> Result<(), ClusterName> {
        let mut holders = self.holders();
        match holders.get(&id) {
            Some(holder) if holder == cluster => return Ok(()),
            Some(holder) => return Err(holder.clone()),
            None => {}
        }
        holders.insert(id, cluster.clone());
        Ok(())
    }

    /// Gives up every id of a cluster but this one.
    pub(crate) fn keep_only(&self, id: ClusterId, cluster: &ClusterName) {
        self.holders()
            .retain(|held, holder| holder != cluster || *held == id);
    }

    /// Gives up the id of a cluster.
    pub(crate) fn release(&self, cluster: &ClusterName) {
        self.holders().retain(|_, holder| holder != cluster);
    }

    fn holders(&self) -> MutexGuard<'_, BTreeMap<ClusterId, ClusterName>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_of_511_has_room_for_511_ids_and_no_two_clusters_share_one() {
        let ids = Reservations::default();
        let name = |number: u32| ClusterName::try_from(format!("c{number}")).unwrap();

        for number in 1..=511 {
            let id = ClusterId::try_from(number).unwrap();
            assert_eq!(ids.take(id, &name(number)), Ok(()));
            assert_eq!(ids.take(id, &name(number + 1)), Err(name(number)));
        }
    }

    #[test]
    fn an_id_has_one_holder_until_it_is_given_up() {
        let ids = Reservations::default();
        let (one, two) = (
            ClusterId::try_from(1).unwrap(),
            ClusterId::try_from(2).unwrap(),
        );
        let (a, b): (ClusterName, ClusterName) = ("a".try_into().unwrap(), "b".try_into().unwrap());

        assert_eq!(ids.take(one, &a), Ok(()));
        assert_eq!(ids.take(one, &a), Ok(()));
        assert_eq!(ids.take(one, &b), Err(a.clone()));
        assert_eq!(ids.take(two, &a), Ok(()));
        assert_eq!(ids.take(one, &b), Err(a.clone()), "not given up yet");
        ids.keep_only(two, &a);
        assert_eq!(ids.take(one, &b), Ok(()));
        ids.release(&a);
        assert_eq!(ids.take(two, &b), Ok(()));
    }
}
