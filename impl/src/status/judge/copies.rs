//! What is the matter with copies of peers in the own store. Pure.

use std::collections::BTreeSet;

use tombolo_core::wire::key::Resource;

use super::{FAILURE_RECENT, Finding, Level, lease, of_head};
use crate::status::answer::{Copies, OwnStore, PeerCopy, Peers};

const SUBJECT: &str = "copies";

/// What is the matter with the copies of these peers.
pub(super) fn findings(copies: &Copies, peers: &Peers, store: Option<&OwnStore>) -> Vec<Finding> {
    let endpoints = store.map_or("the own store", |store| store.endpoints.as_str());
    if !copies.leads {
        return standby(copies, endpoints).into_iter().collect();
    }
    let mut found: Vec<_> = of_head(&copies.asked, SUBJECT, endpoints)
        .into_iter()
        .collect();
    if !copies.listed {
        found.push(lacking(
            copies,
            SUBJECT,
            "what the own store holds is not known yet".to_owned(),
        ));
    }
    if found.is_empty() {
        found.extend(unseen(copies));
    }
    if copies.waiting > 0 {
        found.push(lacking(
            copies,
            SUBJECT,
            format!(
                "{} records of peers wait to be copied into the own store",
                copies.waiting
            ),
        ));
    }
    if copies.lease.held > 0 || copies.peers.iter().any(holds) {
        found.extend(lease(&copies.lease, SUBJECT));
    }
    found.extend(peers.peers.iter().filter_map(|peer| {
        let cluster = &peer.status.cluster;
        let copy = copies.peers.iter().find(|copy| copy.cluster == *cluster);
        of_peer(copies, copy, cluster.as_str())
    }));
    let known = |copy: &&PeerCopy| {
        let mut configured = peers.peers.iter();
        configured.any(|peer| peer.status.cluster == copy.cluster)
    };
    let left = copies.peers.iter().filter(|copy| !known(copy));
    found.extend(left.filter_map(|copy| leftover(copies, copy)));
    found
}

/// Whether a process that does not copy knows one that does.
fn standby(copies: &Copies, endpoints: &str) -> Option<Finding> {
    let next = "check that the process which holds the lock runs; ask again with --wait";
    if copies.holder.is_some() {
        return of_head(&copies.asked, SUBJECT, endpoints);
    }
    let why = copies.asked.error.as_deref();
    let what = format!(
        "it stands by, and nobody is known to copy: {}",
        why.unwrap_or("no other process holds the lock")
    );
    Some(Finding::new(Level::Unknown, SUBJECT, what, next))
}

/// The kinds of which the process has not shown that it saw all copies.
fn unseen(copies: &Copies) -> Option<Finding> {
    let missing = missing(&copies.asked.current)?;
    Some(Finding::new(
        Level::Behind,
        SUBJECT,
        format!(
            "the process did not show in time that it saw every copy in the own store: {missing}"
        ),
        "ask again; if it stays so, check the load of process and store, see /livez and the log",
    ))
}

/// What is the matter with the copy of a configured peer.
fn of_peer(copies: &Copies, copy: Option<&PeerCopy>, cluster: &str) -> Option<Finding> {
    let subject = format!("copy of {cluster}");
    let Some(copy) = copy else {
        let what = "nothing is copied of it yet".to_owned();
        return Some(lacking(copies, &subject, what));
    };
    let mut lacks = Vec::new();
    if !copy.stays {
        lacks.push("it is being taken out although the peer is configured".to_owned());
    }
    if !copy.accepted {
        lacks.push("the peer was not read since the process began".to_owned());
    }
    if !copy.config {
        lacks.push("its cluster-config is not written".to_owned());
    }
    if copy.waiting > 0 {
        lacks.push(format!("{} records wait", copy.waiting));
    }
    if copy.steps > 0 {
        lacks.push(format!(
            "{} cluster-configs and canaries are to be written or deleted",
            copy.steps
        ));
    }
    lacks.extend(missing(&copy.canaries).map(|kinds| format!("no canary stands for {kinds}")));
    let what = || format!("it is not complete: {}", lacks.join(", "));
    (!lacks.is_empty()).then(|| lacking(copies, &subject, what()))
}

/// What is the matter with the copy of a peer that was taken out. That it is still there is not.
fn leftover(copies: &Copies, copy: &PeerCopy) -> Option<Finding> {
    let to_do = copy.waiting + copy.steps;
    (to_do > 0).then(|| {
        let what = format!("the peer was taken out, and {to_do} keys of its copy wait");
        lacking(copies, &format!("copy of {}", copy.cluster), what)
    })
}

/// Something that is not there yet: a problem when calls to the store have failed just now.
fn lacking(copies: &Copies, subject: &str, what: String) -> Finding {
    match &copies.failures.last {
        Some(last) if last.seconds_ago <= FAILURE_RECENT => Finding::new(
            Level::Problem,
            subject,
            format!("{what}: {}", last.message),
            "mend the cause; readers keep what was copied before",
        ),
        Some(_) | None => Finding::new(
            Level::Behind,
            subject,
            what,
            "ask again with --wait; if it stays so, see the warnings of the reflector in the log",
        ),
    }
}

fn holds(copy: &PeerCopy) -> bool {
    copy.config || !copy.canaries.is_empty()
}

/// The kinds that are not among these; none when all are.
fn missing(there: &[Resource]) -> Option<String> {
    let there: BTreeSet<_> = there.iter().collect();
    let missing = Resource::ALL.iter().filter(|kind| !there.contains(kind));
    let names: Vec<_> = missing.map(|kind| kind.name()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
