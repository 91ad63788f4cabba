//! What is to be made of an answer: what is wrong, what is behind, what nobody knows, and what to do next. Pure.
//!
//! A peer or store is well only when every single thing about it is known and good; whatever is missing makes it unknown.

use tombolo_core::wire::key::Resource;

use super::answer::{Answer, Asked, Lease, OwnStore};

mod api_server;
mod copies;
mod operator;
mod peer;
mod process;

pub use api_server::{ANSWER_MAX_AGE, WATCH_MAX_AGE};
pub use peer::{Lag, lag};

/// Oldest reading of a store's head that counts, in seconds.
pub const HEAD_MAX_AGE: f64 = 10.0;

/// A failure explains what is not published when it is at most that old, in seconds: the next attempt comes within that time.
const FAILURE_RECENT: f64 = 60.0;

/// The kinds that a cluster publishes.
pub const PUBLISHED: [Resource; 2] = [Resource::ServiceExports, Resource::Services];

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Level {
    /// Worth knowing; does not count.
    Notice,
    /// Not up to date; it may become so by itself.
    Behind,
    /// Not known; so it may be anything.
    Unknown,
    /// Wrong, and will hardly mend itself.
    Problem,
}

/// What all findings come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Verdict {
    /// Everything is known and up to date.
    Well,
    /// Something is not up to date; nothing worse.
    Behind,
    /// Something is not known; nothing is known to be wrong.
    Unknown,
    /// Something is wrong.
    Problem,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about: `peer rome`, `store`, `process`.
    pub subject: String,
    /// What is the matter.
    pub what: String,
    /// What to do next.
    pub next: String,
}

impl Finding {
    /// A finding.
    pub fn new(
        level: Level,
        subject: impl Into<String>,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            level,
            subject: subject.into(),
            what: what.into(),
            next: next.into(),
        }
    }
}

impl Verdict {
    /// What findings come to. Nothing found is well; so whoever calls this has looked at everything.
    pub fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let worst = findings.into_iter().map(|finding| finding.level).max();
        match worst {
            None | Some(Level::Notice) => Self::Well,
            Some(Level::Behind) => Self::Behind,
            Some(Level::Unknown) => Self::Unknown,
            Some(Level::Problem) => Self::Problem,
        }
    }
}

/// What is the matter with a process, by its answer.
pub fn findings(answer: &Answer) -> Vec<Finding> {
    let mut found = process::findings(answer);
    found.extend(api_server::findings(&answer.api_server));
    if let Some(leadership) = &answer.leadership {
        found.extend(operator::of_leadership(leadership));
        found.extend(operator::of_queues(&answer.queues, leadership.leads));
    }
    if let Some(peers) = &answer.peers {
        let stands_by = answer.copies.as_ref().is_some_and(|copies| !copies.leads);
        if !peers.configured && !stands_by {
            found.push(Finding::new(
                Level::Unknown,
                "peers",
                "the configuration of the peers cannot be read, or has not been yet",
                "check --clustermesh-config and the log of the process; ask again with --wait",
            ));
        }
        let of_peers = peers.peers.iter();
        found.extend(of_peers.flat_map(|peer| peer::findings(peer, answer.at)));
        let copies = answer.copies.iter();
        found.extend(copies.flat_map(|it| copies::findings(it, peers, answer.store.as_ref())));
    }
    found.extend(answer.store.iter().flat_map(of_store));
    found
}

/// Whether it is known where a store is.
fn of_head(asked: &Asked, subject: &str, endpoints: &str) -> Option<Finding> {
    if asked.head.is_none() {
        let why = asked.error.as_deref().unwrap_or("no reason given");
        return Some(Finding::new(
            Level::Unknown,
            subject,
            format!(
                "its store did not say how far it is, so nobody knows how far behind this process is: {why}"
            ),
            format!(
                "check {endpoints} from where the process runs; a store that hangs looks like this before it counts as lost"
            ),
        ));
    }
    (!(0.0..=HEAD_MAX_AGE).contains(&asked.age_seconds)).then(|| {
        let age = span(asked.age_seconds);
        let what = format!("its store was asked {age} ago, which is too long");
        Finding::new(Level::Unknown, subject, what, "ask again")
    })
}

/// What is the matter with the own store.
pub fn of_store(store: &OwnStore) -> Vec<Finding> {
    let subject = "store";
    let found = |level, what: String, next| Finding::new(level, subject, what, next);
    let mut all: Vec<_> = of_head(&store.asked, subject, &store.endpoints)
        .into_iter()
        .collect();
    match (&store.failures.last, store.published) {
        (_, true) => {}
        (Some(last), false) if last.seconds_ago <= FAILURE_RECENT => all.push(found(
            Level::Problem,
            format!("not everything is published: {}", last.message),
            "mend the cause; peers keep what was published before",
        )),
        (_, false) => all.push(found(
            Level::Behind,
            "not everything is published yet".to_owned(),
            "ask again with --wait; see the log for what it waits for",
        )),
    }
    if store.waiting > 0 {
        let count = store.waiting;
        all.push(found(
            Level::Behind,
            format!("{count} names wait to be published"),
            "ask again; if they stay, see the warnings `cannot publish` in the log",
        ));
    }
    if let Some(first) = &store.left_out.first {
        let count = store.left_out.count;
        all.push(found(
            Level::Problem,
            format!("{count} names cannot be published as they are: {first}"),
            "change these objects; the warnings `left out` in the log name all of them; peers keep what was published of them before",
        ));
    }
    let shown = |kind| store.asked.current.contains(kind);
    if all.is_empty() && !PUBLISHED.iter().all(shown) {
        all.push(found(
            Level::Behind,
            "the process did not show in time that it saw everything in the store".to_owned(),
            "ask again; if it stays so, check the load of process and store, see /livez and the log",
        ));
    }
    all.extend(lease(&store.lease, subject));
    all
}

fn lease(lease: &Lease, subject: &str) -> Option<Finding> {
    let ttl = lease.ttl_seconds;
    let half = std::time::Duration::from_secs(ttl).as_secs_f64() / 2.0;
    match lease.confirmed_seconds_ago {
        Some(ago) if (0.0..=half).contains(&ago) => None,
        Some(ago) => Some(Finding::new(
            Level::Problem,
            subject,
            format!(
                "its leases were last prolonged {} ago, and end after {ttl}s: peers will soon take this cluster for lost",
                span(ago)
            ),
            "check the store; what goes with the leases is written again when it is back",
        )),
        None => Some(Finding::new(
            Level::Unknown,
            subject,
            "its leases have not been confirmed yet",
            "ask again with --wait",
        )),
    }
}

/// A length of time in two units at most: `12s`, `3m 5s`, `2h 14m`, `3d 4h`.
pub fn span(seconds: f64) -> String {
    if seconds.is_nan() {
        return "an unknown time".to_owned();
    }
    if seconds < 1.0 {
        return "less than 1s".to_owned();
    }
    let whole = std::time::Duration::try_from_secs_f64(seconds).map_or(u64::MAX, |it| it.as_secs());
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let mut rest = whole;
    let mut parts = Vec::new();
    for (unit, length) in units {
        let count = rest / length;
        rest %= length;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.truncate(2);
    parts.join(" ")
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
