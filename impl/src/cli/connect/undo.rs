//! What is to be written so that clusters no longer read each other: exactly what `connect` wrote. Pure.

use std::collections::BTreeSet;

use tombolo_core::names::ClusterName;

use super::{
    exposure::OWN_SERVICE,
    facts::{Object, Site},
    files::{self, Data, MESH_SECRET, OPERATOR_SECRET},
    steps::{Change, Plan, Stage, Step, Write},
    users::{self, Edit},
};

/// Names of imports that are told, at most.
const NAMES_MAX: usize = 5;

/// Takes these peers out of clusters, each by its number.
pub(super) fn build(sites: &[(&Site, BTreeSet<ClusterName>)]) -> Plan {
    let mut plan = Plan::default();
    for (index, (site, peers)) in sites.iter().enumerate() {
        for peer in peers {
            plan.links.push((index, peer.clone()));
            plan.imports(site, peer);
            for (stage, name, object) in [
                (Stage::Operator, OPERATOR_SECRET, &site.held.operator),
                (Stage::Mesh, MESH_SECRET, &site.held.mesh),
            ] {
                if let Some(object) = object {
                    plan.take_out((index, site), stage, (name, object), peer, peers);
                }
            }
        }
        plan.let_out(index, site, peers);
    }
    let mut plan = plan.settle(false);
    // The other way round than what is written when they are connected.
    plan.steps.sort_by_key(|step| match step.stage {
        Stage::Operator => 0,
        Stage::Mesh => 1,
        Stage::Users => 2,
        Stage::Exposure | Stage::Rest => 3,
    });
    plan
}

impl Plan {
    fn take_out(
        &mut self,
        (index, site): (usize, &Site),
        stage: Stage,
        (name, object): (&'static str, &Object),
        peer: &ClusterName,
        all: &BTreeSet<ClusterName>,
    ) {
        let keys = files::keys_of(object, peer);
        if keys.is_empty() {
            return;
        }
        let advice =
            format!("take {peer} out of clustermesh.config.clusters there, and run helm upgrade");
        if let Some(refusal) = files::of_helm(site, "Secret", name, object, advice) {
            return self.refuse(refusal);
        }
        let own = files::manager(peer);
        let managers = keys.iter().filter_map(|key| object.managers.get(*key));
        if !managers.into_iter().any(|it| it.contains(&own)) {
            let keys: Vec<_> = keys.into_iter().collect();
            self.notices.push(format!(
                "{}: Secret {name}: {}: not written by tombolo connect, and left as it is; remove it yourself",
                site.name(),
                keys.join(", ")
            ));
            return;
        }
        let write = if !goes_whole(object, all) {
            Some(Write::Peer {
                secret: name,
                peer: peer.clone(),
                data: Data::new(),
                ours: false,
            })
        } else if with_keys(object, all).next_back() == Some(peer) {
            Some(Write::DeleteSecret(name, object.version.clone()))
        } else {
            None
        };
        self.steps.push(Step {
            site: index,
            stage,
            change: Change::Remove,
            object: format!("Secret {name}"),
            what: keys.into_iter().collect::<Vec<_>>().join(", "),
            write,
        });
    }

    /// Users of peers that may not read any more, and the Service when nobody is left.
    fn let_out(&mut self, index: usize, site: &Site, peers: &BTreeSet<ClusterName>) {
        let Some(held) = &site.held.users else {
            return;
        };
        let text = held.data.get(users::KEY).map_or(b"".as_slice(), |it| it);
        let listed = users::listed(&String::from_utf8_lossy(text)).unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) = peers
            .iter()
            .filter(|peer| listed.contains(&users::user(peer)))
            .partition(|peer| held.noted.contains(peer.as_str()));
        for peer in others {
            self.notices.push(format!(
                "{}: ConfigMap {}: user {}: not listed by tombolo connect, and left as it is; remove it yourself",
                site.name(),
                users::CONFIG_MAP,
                users::user(peer)
            ));
        }
        for peer in &ours {
            let edit = Edit {
                remove: [(*peer).clone()].into(),
                ..Edit::default()
            };
            self.steps.push(Step {
                site: index,
                stage: Stage::Users,
                change: Change::Remove,
                object: format!("ConfigMap {}", users::CONFIG_MAP),
                what: format!("user {}", users::user(peer)),
                write: Some(Write::Users(edit)),
            });
        }
        let stays = held
            .noted
            .iter()
            .any(|noted| !peers.iter().any(|peer| peer.as_str() == noted));
        let publisher = site.publisher.as_ref();
        let service = publisher.and_then(|it| it.own_service.as_ref());
        if let (Some(service), false) = (service, stays) {
            self.steps.push(Step {
                site: index,
                stage: Stage::Rest,
                change: Change::Remove,
                object: format!("Service {OWN_SERVICE}"),
                what: "no peer is left that connect let in".to_owned(),
                write: Some(Write::DeleteService(service.version.clone())),
            });
        }
    }

    /// What a cluster imports from a peer, and loses.
    fn imports(&mut self, site: &Site, peer: &ClusterName) {
        let Some(names) = site.held.imports.get(peer.as_str()) else {
            return;
        };
        let some: Vec<_> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
        let more = names.len().saturating_sub(NAMES_MAX);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        self.notices.push(format!(
            "{} loses what it imports from {peer}: {}{more}",
            site.name(),
            some.join(", ")
        ));
    }
}

/// Whether nothing is left of an object without these peers, and it is `connect`'s.
fn goes_whole(object: &Object, peers: &BTreeSet<ClusterName>) -> bool {
    let goes = |key: &String| {
        peers.iter().any(|peer| {
            let managers = object.managers.get(key);
            files::keys_of(object, peer).contains(key.as_str())
                && managers.is_some_and(|it| it.contains(&files::manager(peer)))
        })
    };
    object.ours && object.data.keys().all(goes)
}

/// The peers that an object says something of.
fn with_keys<'a>(
    object: &Object,
    peers: &'a BTreeSet<ClusterName>,
) -> impl DoubleEndedIterator<Item = &'a ClusterName> {
    peers
        .iter()
        .filter(|peer| !files::keys_of(object, peer).is_empty())
}
