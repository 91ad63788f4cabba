//! What is to be written so that clusters read each other: facts in, steps out. Pure but for the signing of certificates.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tombolo_core::names::ClusterName;

use super::{
    check,
    credentials::{self, Decided, Read},
    exposure::{self, Endpoint, Exposure, OWN_SERVICE, Reach, Wish},
    facts::{Importer, Object, Publisher, Site},
    files::{self, Data, MESH_SECRET, OPERATOR_SECRET},
    refusal::Refusal,
    steps::{Change, Plan, Stage, Step, Write},
    users::{self, Edit},
};

/// What the plan rests on besides the facts.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    /// What the user says of each cluster.
    pub(super) wishes: &'a [Wish],
    /// Whether to go on in spite of what may be wrong.
    pub(super) force: bool,
    /// Now.
    pub(super) now: Timestamp,
}

/// A full mesh of these clusters.
pub(super) fn build(sites: &[Site], settings: Settings<'_>) -> Plan {
    let mut plan = Plan::default();
    let default = Wish::default();
    for (a, site) in sites.iter().enumerate() {
        plan.refusals.extend(check::alone(&site.card));
        plan.notices.extend(notices(site));
        for (b, other) in sites.iter().enumerate().skip(a + 1) {
            let wish = |index: usize| settings.wishes.get(index).unwrap_or(&default);
            let inside = [a, b].map(|it| wish(it).exposure == Some(Exposure::ClusterIp));
            plan.check(site, other, inside.contains(&true));
        }
    }
    // With one name or id, what follows would be about the wrong cluster.
    if plan
        .refusals
        .iter()
        .any(|it| matches!(it, Refusal::SameName { .. }))
    {
        return plan;
    }
    for source in 0..sites.len() {
        plan.read_by_all(sites, source, settings);
    }
    plan.settle(settings.force)
}

impl Plan {
    fn check(&mut self, a: &Site, b: &Site, by_service_networks: bool) {
        if a.card.cluster == b.card.cluster {
            self.refusals.push(Refusal::SameName {
                a: format!("context {}", a.context),
                b: format!("context {}", b.context),
                cluster: a.card.cluster.to_string(),
            });
            return;
        }
        self.refusals
            .extend(check::between(&a.card, &b.card, by_service_networks));
        let reads =
            |reader: &Site, read: &Site| reader.importer.is_some() && read.publisher.is_some();
        match (reads(a, b), reads(b, a)) {
            (false, false) => self.refusals.push(Refusal::Nothing {
                a: a.name().to_owned(),
                b: b.name().to_owned(),
            }),
            (true, false) => self.notices.push(one_way(a, b)),
            (false, true) => self.notices.push(one_way(b, a)),
            (true, true) => {}
        }
    }

    /// Everything by which the others read one cluster.
    fn read_by_all(&mut self, sites: &[Site], source: usize, settings: Settings<'_>) {
        let site = &sites[source];
        let Some(publisher) = &site.publisher else {
            return;
        };
        let readers = sites.iter().enumerate();
        let readers = readers.filter(|(index, it)| *index != source && it.importer.is_some());
        let readers: Vec<_> = readers.collect();
        let names = readers
            .iter()
            .map(|(_, reader)| reader.card.cluster.clone());
        self.let_in(source, site, names.collect());
        let endpoint = self.reach(sites, source, settings);
        for (index, reader) in readers {
            let peer = &site.card.cluster;
            self.links.push((index, peer.clone()));
            let before = secret_for_reading(reader).1;
            let read = Read { site, publisher };
            match credentials::decide(reader, read, before, settings.now) {
                Err(refusal) => self.refuse(refusal),
                Ok(decided) => {
                    if let Some(endpoint) = &endpoint {
                        self.tell(index, reader, peer, (endpoint, &decided));
                    }
                }
            }
        }
    }

    /// How a cluster is reached; none as long as that is not known.
    pub(super) fn reach(
        &mut self,
        sites: &[Site],
        source: usize,
        settings: Settings<'_>,
    ) -> Option<Endpoint> {
        let site = &sites[source];
        let publisher = site.publisher.as_ref()?;
        let peer = &site.card.cluster;
        let before = sites.iter().map(|it| secret_for_reading(it).1);
        let before = before.map(|object| files::addresses_before(object, peer));
        let before = before.max_by_key(Vec::len).unwrap_or_default();
        let default = Wish::default();
        let wish = settings.wishes.get(source).unwrap_or(&default);
        let reach = match exposure::reach(site, publisher, wish, &before) {
            Ok(reach) => reach,
            Err(refusal) => {
                self.refuse(refusal);
                return None;
            }
        };
        match reach {
            Reach::Known(endpoint) => {
                self.reached.push((source, endpoint.to_string()));
                return Some(endpoint);
            }
            Reach::Make(exposure) => self.expose(sites, source, publisher, exposure),
            Reach::Waiting { service } => self.pending.push(format!(
                "{}: Service {service}: its load balancer has no address yet",
                site.name()
            )),
        }
        None
    }

    fn expose(&mut self, sites: &[Site], source: usize, publisher: &Publisher, exposure: Exposure) {
        if publisher.service_taken {
            return self.refuse(Refusal::ServiceTaken {
                cluster: sites[source].name().to_owned(),
                name: OWN_SERVICE,
            });
        }
        let there = publisher.own_service.is_some();
        self.pending
            .push(format!("Service {OWN_SERVICE} has to be there first"));
        let chart = publisher.service.as_ref();
        self.steps.push(Step {
            site: source,
            stage: Stage::Exposure,
            change: if there { Change::Replace } else { Change::Add },
            object: format!("Service {OWN_SERVICE}"),
            what: format!("{} to its mesh etcd", exposure.service_type()),
            write: Some(Write::Service {
                exposure,
                selector: publisher.selector.clone(),
                affinity: chart.is_some_and(|it| it.affinity),
            }),
        });
    }

    /// Users for peers in the etcd of a cluster.
    pub(super) fn let_in(&mut self, index: usize, site: &Site, peers: BTreeSet<ClusterName>) {
        if peers.is_empty() || !site.publisher.as_ref().is_some_and(|it| it.users) {
            return;
        }
        let held = site.held.users.as_ref();
        let text = held.map(|it| {
            String::from_utf8_lossy(it.data.get(users::KEY).map_or(b"", |it| it)).into_owned()
        });
        let listed = text.as_deref().map_or(Ok(BTreeSet::new()), users::listed);
        let listed = match listed {
            Ok(listed) => listed,
            Err(problem) => {
                return self.refuse(Refusal::Users {
                    cluster: site.name().to_owned(),
                    name: users::CONFIG_MAP.to_owned(),
                    problem,
                });
            }
        };
        let missing = peers
            .iter()
            .filter(|peer| !listed.contains(&users::user(peer)));
        let missing: BTreeSet<_> = missing.cloned().collect();
        if let (Some(held), false) = (held, missing.is_empty()) {
            let advice = "add the peers there, and run helm upgrade".to_owned();
            if let Some(refusal) =
                files::of_helm(site, "ConfigMap", users::CONFIG_MAP, held, advice)
            {
                return self.refuse(refusal);
            }
        }
        for peer in peers {
            let is_missing = missing.contains(&peer);
            let edit = Edit {
                add: [peer.clone()].into(),
                ..Edit::default()
            };
            self.steps.push(Step {
                site: index,
                stage: Stage::Users,
                change: if is_missing {
                    Change::Add
                } else {
                    Change::Keep
                },
                object: format!("ConfigMap {}", users::CONFIG_MAP),
                what: format!("user {}", users::user(&peer)),
                write: is_missing.then_some(Write::Users(edit)),
            });
        }
    }

    /// The files by which a cluster reads a peer.
    pub(super) fn tell(
        &mut self,
        index: usize,
        reader: &Site,
        peer: &ClusterName,
        (endpoint, decided): (&Endpoint, &Decided),
    ) {
        let direct = files::of_peer(peer, endpoint, &decided.credentials);
        let advice = files::advice(peer, endpoint);
        let told = format!("{endpoint}, with {}", decided.told);
        let copies = reader.publisher.as_ref().is_some_and(|it| it.copies);
        let mesh = reader.held.mesh.as_ref();
        let operator = reader.held.operator.as_ref();
        if copies {
            let data = (&direct, advice.clone());
            let step = self.peer_step(index, reader, (MESH_SECRET, mesh), peer, data);
            self.push(step, Stage::Mesh, format!("{peer}: {told}"));
        }
        match &reader.importer {
            Some(Importer::OwnStore { endpoint }) => {
                let data = files::of_own_store(peer, endpoint);
                let held = (OPERATOR_SECRET, operator);
                let step = self.peer_step(index, reader, held, peer, (&data, advice));
                self.push(
                    step,
                    Stage::Operator,
                    format!("{peer}: its copy in the own etcd"),
                );
            }
            Some(Importer::Peers) => {
                let held = (OPERATOR_SECRET, operator);
                let step = self.peer_step(index, reader, held, peer, (&direct, advice));
                self.push(step, Stage::Operator, format!("{peer}: {told}"));
            }
            None => {}
        }
    }

    fn push(&mut self, step: Option<Step>, stage: Stage, what: String) {
        self.steps.extend(step.map(|step| Step {
            stage,
            what,
            ..step
        }));
    }

    fn peer_step(
        &mut self,
        index: usize,
        reader: &Site,
        (name, object): (&'static str, Option<&Object>),
        peer: &ClusterName,
        (data, advice): (&Data, String),
    ) -> Option<Step> {
        let change = change(object, peer, data);
        if change != Change::Keep
            && let Some(refusal) = files::against(reader, name, object, peer, (data, advice))
        {
            self.refuse(refusal);
            return None;
        }
        Some(Step {
            site: index,
            stage: Stage::Rest,
            change,
            object: format!("Secret {name}"),
            what: String::new(),
            write: (change != Change::Keep).then(|| Write::Peer {
                secret: name,
                peer: peer.clone(),
                data: data.clone(),
                ours: object.is_none_or(|it| it.ours),
            }),
        })
    }
}

/// What becomes of the keys of a peer. Keys that are not needed any more are a change too.
fn change(object: Option<&Object>, peer: &ClusterName, data: &Data) -> Change {
    let Some(object) = object else {
        return Change::Add;
    };
    let there = files::keys_of(object, peer);
    if there.is_empty() {
        return Change::Add;
    }
    let same = data
        .iter()
        .all(|(key, content)| object.data.get(key) == Some(content));
    let manager = files::manager(peer);
    let is_ours = |key: &str| {
        object
            .managers
            .get(key)
            .is_some_and(|it| it.contains(&manager))
    };
    let mut stale = there
        .iter()
        .filter(|key| is_ours(key) && !data.contains_key(**key));
    if same && stale.next().is_none() {
        Change::Keep
    } else {
        Change::Replace
    }
}

/// The Secret with which a cluster reads peers' etcds, and what it holds.
pub(super) fn secret_for_reading(site: &Site) -> (&'static str, Option<&Object>) {
    if site.publisher.as_ref().is_some_and(|it| it.copies) {
        (MESH_SECRET, site.held.mesh.as_ref())
    } else {
        (OPERATOR_SECRET, site.held.operator.as_ref())
    }
}

fn one_way(reader: &Site, read: &Site) -> String {
    format!(
        "{} reads {}, and not the other way round: {}",
        reader.name(),
        read.name(),
        if read.importer.is_none() {
            format!("{} imports nothing (operator.enabled)", read.name())
        } else {
            format!(
                "{} publishes nothing (clustermesh.useAPIServer)",
                reader.name()
            )
        }
    )
}

/// What could not be found out of a cluster.
pub(super) fn notices(site: &Site) -> Vec<String> {
    let unknown = site.unknown.iter();
    unknown
        .map(|what| format!("{}: unknown: {what}", site.name()))
        .collect()
}
