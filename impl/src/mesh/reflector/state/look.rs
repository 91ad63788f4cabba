//! How far the copies are, for those who ask. Changes nothing.

use tombolo_core::{
    names::ClusterName,
    wire::key::{self, Resource},
};

use super::{PeerCopy, Standing, State};
use crate::{mesh::ledger::Action, status::answer};

impl State {
    /// The copies as they are: of every peer that is configured, or of which something is left.
    pub(in crate::mesh::reflector) fn look(&self) -> Vec<answer::PeerCopy> {
        let copies = self.copies.names();
        let copies = copies.filter_map(|peer| Some((peer, self.copies.get(peer)?)));
        copies
            .map(|(peer, copy)| self.look_at(peer, copy))
            .collect()
    }

    fn look_at(&self, peer: &ClusterName, copy: &PeerCopy) -> answer::PeerCopy {
        let vouched = Resource::ALL.into_iter();
        let vouched = vouched.filter(|kind| self.vouches_now(peer, copy, *kind));
        let waiting = self.backlog.waiting_of(peer);
        answer::PeerCopy {
            cluster: peer.clone(),
            stays: copy.standing() == Standing::Configured,
            accepted: copy.is_accepted(),
            config: self.has_config(peer, copy),
            waiting: u64::try_from(waiting).unwrap_or(u64::MAX),
            steps: self.steps_left(peer, copy),
            canaries: vouched.collect(),
        }
    }

    /// Whether a canary stands, and vouches for what is written.
    fn vouches_now(&self, peer: &ClusterName, copy: &PeerCopy, kind: Resource) -> bool {
        copy.vouches(kind)
            && self.ledger.holds_ours(&key::canary_key(peer, kind, true))
            && self.backlog.is_idle(&(peer.clone(), kind))
    }

    /// How many cluster-configs and canaries are to be written or deleted. Those that wait for others count too.
    fn steps_left(&self, peer: &ClusterName, copy: &PeerCopy) -> u64 {
        let config = self
            .ledger
            .decide(&key::cluster_config_key(peer), copy.config());
        let canaries = Resource::ALL.into_iter().filter(|kind| {
            let canary = key::canary_key(peer, *kind, true);
            let due = copy.vouches(*kind) && !self.ledger.holds_ours(&canary);
            due || self.vouched_wrongly(peer, copy, *kind)
        });
        let config = u64::from(config != Action::Nothing);
        let drained = u64::from(copy.standing() == Standing::Draining);
        canaries.fold(config + drained, |steps, _| steps + 1)
    }
}
