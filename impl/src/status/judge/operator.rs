//! What is the matter with an operator beside its peers: whether somebody writes, and what is still to be written. Pure.

use super::{Finding, Level, span};
use crate::status::answer::{Leadership, Work};

/// Whether this replica writes, or knows one that is alive.
pub(super) fn of_leadership(leadership: &Leadership) -> Option<Finding> {
    if leadership.leads {
        return None;
    }
    let why = why(leadership)?;
    let failed = leadership.failure.as_deref();
    let failed = failed.map_or_else(String::new, |failure| format!("; {failure}"));
    Some(Finding::new(
        Level::Unknown,
        "leader",
        format!("{why}{failed}"),
        "check that the API server answers and that a replica runs: kubectl get lease -A --field-selector metadata.name=tombolo-operator; ask again with --wait",
    ))
}

/// Why a replica that does not write knows of none that does.
fn why(leadership: &Leadership) -> Option<String> {
    if !leadership.elected {
        return Some("it takes itself for the only replica, and does not write".to_owned());
    }
    let Some(holder) = &leadership.holder else {
        return Some(
            "nobody is known to lead: the Lease has no holder, or was not seen".to_owned(),
        );
    };
    if Some(holder) == leadership.identity.as_ref() {
        return Some("this replica holds the Lease, and has not renewed it in time".to_owned());
    }
    match leadership.renewed_seconds_ago {
        Some(ago) if (0.0..=leadership.believed_seconds).contains(&ago) => None,
        Some(ago) => Some(format!(
            "{holder} was last seen to renew its Lease {} ago, and is believed for {}",
            span(ago),
            span(leadership.believed_seconds)
        )),
        None => Some(format!(
            "{holder} holds the Lease, and was not seen to renew it yet"
        )),
    }
}

/// What is still to be done by the replica that writes. A standby collects names, and is not to work on them.
pub(super) fn of_queues(queues: &[Work], leads: bool) -> Vec<Finding> {
    let leading = queues.iter().filter(|_| leads);
    leading.filter_map(of_queue).collect()
}

fn of_queue(work: &Work) -> Option<Finding> {
    let counts = [
        (work.waiting, "wait"),
        (work.working, "are in work"),
        (work.retrying, "failed and are tried again"),
    ];
    let mut parts: Vec<_> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.extend(
        work.oldest_seconds
            .map(|oldest| format!("the oldest for {}", span(oldest))),
    );
    parts.extend(work.held.then(|| "nothing is handed out yet".to_owned()));
    (!parts.is_empty()).then(|| {
        Finding::new(
            Level::Behind,
            format!("controller {}", work.controller),
            format!("names are not worked on: {}", parts.join(", ")),
            "ask again; if they stay, see the warnings with this controller in the log",
        )
    })
}
