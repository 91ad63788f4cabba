//! What is the matter with the API server, as far as a process can tell. Pure.

use super::{Finding, Level, span};
use crate::status::answer::{ApiServer, Watched};

/// Oldest answer of the API server that counts, in seconds. It is asked when the question comes, with 3 s for the answer.
pub const ANSWER_MAX_AGE: f64 = 10.0;

/// Oldest beginning of a watch that counts, in seconds: watches are begun anew every 25 s
/// ([`crate::cluster::client::WATCH_TIMEOUT_SECONDS`]), and the API server has some time for it.
pub const WATCH_MAX_AGE: f64 = 40.0;

const SUBJECT: &str = "API server";

/// What is the matter with the API server. An operator writes to it, a mesh role publishes what it says.
pub(super) fn findings(server: &ApiServer) -> Vec<Finding> {
    if let Some(found) = silence(server) {
        return vec![found];
    }
    server.watches.iter().filter_map(of_watch).collect()
}

fn silence(server: &ApiServer) -> Option<Finding> {
    let next = "check the network and the API server; what is known is kept";
    if let Some(why) = &server.error {
        let what = format!("it does not answer: {why}");
        return Some(Finding::new(Level::Unknown, SUBJECT, what, next));
    }
    match server.answered_seconds_ago {
        Some(ago) if (0.0..=ANSWER_MAX_AGE).contains(&ago) => None,
        Some(ago) => {
            let ago = span(ago);
            let what = format!("it answered {ago} ago, which is too long");
            Some(Finding::new(Level::Unknown, SUBJECT, what, next))
        }
        None => {
            let what = "it has not answered since the process began";
            Some(Finding::new(Level::Unknown, SUBJECT, what, next))
        }
    }
}

fn of_watch(watch: &Watched) -> Option<Finding> {
    let path = &watch.path;
    let what = match &watch.failure {
        Some(why) => format!("{path} cannot be watched: {why}"),
        None if (0.0..=WATCH_MAX_AGE).contains(&watch.begun_seconds_ago) => return None,
        None => format!(
            "the watch of {path} was begun {} ago, which is too long: it is begun anew every 25s",
            span(watch.begun_seconds_ago)
        ),
    };
    Some(Finding::new(
        Level::Unknown,
        SUBJECT,
        what,
        "check that the kind is served and that the process may list and watch it; see the log; what changes there is not seen meanwhile",
    ))
}
