//! What is the matter with a peer. Pure.

use jiff::Timestamp;
use tombolo_core::{
    peer_status::{KindStatus, PeerState, PeerStatus},
    wire::key::Resource,
};

use super::{Finding, Level, PUBLISHED, of_head, span};
use crate::status::answer::Peer;

/// What is the matter with a peer, at the time of the answer.
pub(super) fn findings(peer: &Peer, at: Timestamp) -> Vec<Finding> {
    let status = &peer.status;
    let subject = format!("peer {}", status.cluster);
    let mut found: Vec<_> = trust(status, &subject).into_iter().collect();
    if found.is_empty() {
        found.extend(of_head(&peer.asked, &subject, &status.endpoint));
    }
    if found.is_empty() {
        found.extend(kinds(peer, at, &subject));
    }
    found.extend(file(status, &subject));
    found.extend(limits(status, &subject));
    found.extend(refused(status, &subject));
    found
}

/// Whether the peer can be trusted now.
fn trust(status: &PeerStatus, subject: &str) -> Option<Finding> {
    let why = why(status);
    let (level, what, next) = match status.state {
        PeerState::Ready => {
            let why = status.last_error.as_deref()?;
            let what = format!("something is wrong with it although it is followed: {why}");
            (Level::Problem, what, "mend the cause".to_owned())
        }
        PeerState::Listing => (
            Level::Behind,
            "it is being read for the first time, or its canaries are waited for".to_owned(),
            format!(
                "ask again with --wait; if it stays so, check that the mesh role of {} is ready",
                status.cluster
            ),
        ),
        PeerState::Connecting => match why {
            None => (
                Level::Behind,
                "the first connection has not been made yet".to_owned(),
                "ask again with --wait".to_owned(),
            ),
            Some(why) => (
                Level::Problem,
                format!("it was never read since this process began: {why}"),
                "mend the cause, it is tried again every few seconds; what objects of this cluster say of the peer is kept".to_owned(),
            ),
        },
        PeerState::Suspect => (
            Level::Problem,
            format!(
                "it cannot be trusted now: {}",
                why.unwrap_or("its canary, its heartbeat, its cluster-config or a capability is gone")
            ),
            format!("mend the cause, it is tried again every few seconds; {}", kept(status)),
        ),
        PeerState::Expired => (
            Level::Problem,
            format!(
                "it was not heard of for longer than the cache time-to-live, and what it exported is no longer used: {}",
                why.unwrap_or("no failure was noted")
            ),
            "mend the connection, or remove the peer's file from the configuration".to_owned(),
        ),
    };
    Some(Finding::new(level, subject, what, next))
}

fn why(status: &PeerStatus) -> Option<&str> {
    let last = status.last_failure.as_ref();
    let last = last.map(|failure| failure.text.as_str());
    status.last_error.as_deref().or(last)
}

fn kept(status: &PeerStatus) -> String {
    match status.expires_in_seconds {
        Some(seconds) => format!(
            "what it exported stays in use for {} more",
            span(std::time::Duration::from_secs(seconds).as_secs_f64())
        ),
        None => "what it exported stays in use".to_owned(),
    }
}

/// Whether every kind is up to date.
fn kinds(peer: &Peer, at: Timestamp, subject: &str) -> Vec<Finding> {
    let status = &peer.status;
    if let Some(what) = unsaid(status) {
        let next = "use the status command of the version that runs there";
        return vec![Finding::new(Level::Unknown, subject, what, next)];
    }
    let mut published = status
        .kinds
        .iter()
        .filter(|(_, kind)| kind.published)
        .peekable();
    if published.peek().is_none() {
        let what = "it publishes nothing that this process follows";
        let next = "if that is not meant: enable MCS-API or global services there";
        return vec![Finding::new(Level::Notice, subject, what, next)];
    }
    published
        .filter_map(|(kind, known)| of_kind(peer, *kind, known, at, subject))
        .collect()
}

/// What is not said of a peer that is said to be ready.
fn unsaid(status: &PeerStatus) -> Option<&'static str> {
    let Some(config) = &status.config else {
        return Some("it is ready, but nothing is said of its cluster-config");
    };
    let kind = |kind| status.kinds.get(kind);
    if PUBLISHED.iter().any(|of| kind(of).is_none()) {
        return Some("it is ready, but nothing is said of what is followed of it");
    }
    let exports = config.capabilities.service_exports_enabled == Some(true);
    if exports && kind(&Resource::ServiceExports).is_some_and(|kind| !kind.published) {
        return Some("it publishes exports, but they are not followed");
    }
    (!status.connected || !status.synced).then_some("it is ready, but not connected or not synced")
}

fn of_kind(
    peer: &Peer,
    kind: Resource,
    known: &KindStatus,
    at: Timestamp,
    subject: &str,
) -> Option<Finding> {
    let name = kind.name();
    if !known.synced {
        return Some(Finding::new(
            Level::Behind,
            subject,
            format!("{name}: what is held is not known to be complete"),
            "ask again with --wait; if it stays so, check that the mesh role of the peer is ready",
        ));
    }
    if peer.asked.current.contains(&kind) {
        return None;
    }
    let behind = lag(peer, known, at);
    Some(Finding::new(
        Level::Behind,
        subject,
        format!(
            "{name}: the reader has not shown that it is at the head of the store: {} revisions behind, for {}",
            behind.revisions,
            span(behind.seconds)
        ),
        "ask again; a reader that stays behind is stuck or starved: check the load of process and store, /livez and the log",
    ))
}

/// How far a kind is behind its store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lag {
    /// Revisions of the store, those of other keys included.
    pub revisions: i64,
    /// Since when, in seconds.
    pub seconds: f64,
}

/// How far a kind of a peer is behind its store, as far as the store's head is known.
pub fn lag(peer: &Peer, known: &KindStatus, at: Timestamp) -> Lag {
    let head = peer
        .asked
        .head
        .unwrap_or(peer.status.head)
        .max(peer.status.head);
    let since = known.behind_since.or(peer.status.last_contact);
    let seconds = since.map_or(0.0, |since| {
        (at - since).total(jiff::Unit::Second).unwrap_or(0.0)
    });
    Lag {
        revisions: (head - known.revision).max(0),
        seconds: seconds.max(0.0),
    }
}

/// What is wrong with the peer's file.
fn file(status: &PeerStatus, subject: &str) -> Option<Finding> {
    let error = status.file_error.as_deref()?;
    let what = format!("its file cannot be used: {error}");
    let next = "mend the file; until then the peer is followed as it said before, if it ever did";
    Some(Finding::new(Level::Problem, subject, what, next))
}

/// Limits that the peer exceeds.
fn limits(status: &PeerStatus, subject: &str) -> Option<Finding> {
    let beyond: u64 = status.kinds.values().map(|kind| kind.over_limit).sum();
    if status.limited.is_empty() && beyond == 0 {
        return None;
    }
    let names: Vec<_> = status.limited.iter().map(|limit| limit.as_str()).collect();
    Some(Finding::new(
        Level::Problem,
        subject,
        format!(
            "it exceeds what a peer may take ({}): {beyond} of its records are not taken over",
            names.join(", ")
        ),
        "let it publish less, or raise the limits of this process",
    ))
}

/// Records that are refused now, or were once.
fn refused(status: &PeerStatus, subject: &str) -> Option<Finding> {
    let now: u64 = status.kinds.values().map(|kind| kind.refused_now).sum();
    if now > 0 {
        return Some(Finding::new(
            Level::Behind,
            subject,
            format!(
                "{now} of its records are refused: what they are about is unknown, and what was known of it is kept"
            ),
            "see the warnings `a record is refused` with this peer in the log: they name key, field and rule; have them mended or deleted there",
        ));
    }
    let refused: u64 = status.kinds.values().map(|kind| kind.refused).sum();
    (refused > 0).then(|| {
        Finding::new(
            Level::Notice,
            subject,
            format!("{refused} of its records were refused since the process began"),
            "see the warnings `a record is refused` with this peer in the log: they name key, field and rule",
        )
    })
}
