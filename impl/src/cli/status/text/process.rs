//! What a process says beside its peers: who leads, what waits, its API server, its store, its copies. Pure.

use super::{ALL_PEERS_UP_TO, dash};
use crate::{
    cli::render::table,
    status::{
        Answer,
        answer::{ApiServer, Asked, Copies, Leadership, Lease, OwnStore, PeerCopy, Work},
        judge::{PUBLISHED, WATCH_MAX_AGE, span},
    },
};
use tombolo_core::wire::key::Resource;

/// Whether an operator leads, or who does, and what it still has to do.
pub(super) fn leadership(answer: &Answer) -> Option<String> {
    let leadership = answer.leadership.as_ref()?;
    let sum = |of: fn(&Work) -> u64| answer.queues.iter().map(of).sum::<u64>().to_string();
    let oldest = answer.queues.iter().filter_map(|work| work.oldest_seconds);
    let oldest = oldest.reduce(f64::max);
    let renewed = leadership.renewed_seconds_ago;
    let row = vec![
        if leadership.leads {
            "leader"
        } else {
            "standby"
        }
        .to_owned(),
        holder(leadership),
        match (leadership.leads, renewed) {
            (true, _) => dash(),
            (false, None) => "not seen".to_owned(),
            (false, Some(ago)) => format!("{} ago", span(ago)),
        },
        sum(|work| work.waiting + work.working),
        sum(|work| work.retrying),
        oldest.map_or_else(dash, span),
    ];
    let header = [
        "OPERATOR", "LEASE", "RENEWED", "QUEUED", "RETRIED", "OLDEST",
    ];
    Some(table(&header, &[row]))
}

/// Who holds the Lease.
fn holder(leadership: &Leadership) -> String {
    match &leadership.holder {
        _ if !leadership.elected => "no election".to_owned(),
        None => "nobody".to_owned(),
        Some(holder) => holder.clone(),
    }
}

/// Whether the API server answers.
pub(super) fn api_server(server: &ApiServer) -> String {
    let answered = server.answered_seconds_ago;
    let lives = |begun: f64| (0.0..=WATCH_MAX_AGE).contains(&begun);
    let live = server
        .watches
        .iter()
        .filter(|watch| watch.failure.is_none() && lives(watch.begun_seconds_ago));
    let (live, all) = (live.count(), server.watches.len());
    let row = vec![
        match (&server.error, answered) {
            (Some(error), _) => format!("no: {error}"),
            (None, Some(ago)) => format!("yes, {} ago", span(ago)),
            (None, None) => "never".to_owned(),
        },
        format!("{live} of {all} live"),
    ];
    table(&["API SERVER", "WATCHES"], &[row])
}

/// The own store.
pub(super) fn store(store: &OwnStore) -> String {
    let keys = store
        .keys
        .iter()
        .map(|keys| format!("{} {}", keys.count, keys.kind));
    let row = vec![
        store.endpoints.clone(),
        head(&store.asked),
        yes(PUBLISHED
            .iter()
            .all(|kind| store.asked.current.contains(kind))),
        if store.published { "all" } else { "not all" }.to_owned(),
        keys.collect::<Vec<_>>().join(", "),
        store.waiting.to_string(),
        lease(&store.lease),
    ];
    let header = [
        "OWN STORE",
        "REVISION",
        "CURRENT",
        "PUBLISHED",
        "KEYS",
        "WAITING",
        "LEASES",
    ];
    table(&header, &[row])
}

/// The copies of the peers. Of many those that are complete are left out, unless all are to be shown.
pub(super) fn copies(copies: &Copies, all: bool) -> String {
    if !copies.leads {
        let row = vec![
            "standby".to_owned(),
            head(&copies.asked),
            copies.holder.clone().unwrap_or_else(|| "nobody".to_owned()),
        ];
        return table(&["COPIES", "REVISION", "LOCK"], &[row]);
    }
    let current = Resource::ALL
        .iter()
        .all(|kind| copies.asked.current.contains(kind));
    let row = vec![
        "leader".to_owned(),
        head(&copies.asked),
        yes(current && copies.listed),
        copies.waiting.to_string(),
        lease(&copies.lease),
    ];
    let whole = table(
        &["COPIES", "REVISION", "CURRENT", "WAITING", "LEASES"],
        &[row],
    );
    let everyone = all || copies.peers.len() <= ALL_PEERS_UP_TO;
    let shown = copies
        .peers
        .iter()
        .filter(|copy| everyone || !is_complete(copy));
    let rows: Vec<_> = shown.map(of_copy).collect();
    if rows.is_empty() {
        return whole;
    }
    let header = ["COPY OF", "CONFIG", "CANARIES", "WAITING", "STEPS", "STATE"];
    format!("{whole}\n{}", table(&header, &rows))
}

fn of_copy(copy: &PeerCopy) -> Vec<String> {
    let state = match (copy.stays, copy.accepted) {
        (false, _) => "taken out",
        (true, true) => "followed",
        (true, false) => "of an earlier life",
    };
    vec![
        copy.cluster.to_string(),
        yes(copy.config),
        format!("{} of {}", copy.canaries.len(), Resource::ALL.len()),
        copy.waiting.to_string(),
        copy.steps.to_string(),
        state.to_owned(),
    ]
}

fn is_complete(copy: &PeerCopy) -> bool {
    let canaries = copy.canaries.len() == Resource::ALL.len();
    copy.stays && copy.accepted && copy.config && canaries && copy.waiting + copy.steps == 0
}

fn head(asked: &Asked) -> String {
    let unknown = || "unknown".to_owned();
    asked.head.map_or_else(unknown, |head| head.to_string())
}

fn lease(lease: &Lease) -> String {
    lease.confirmed_seconds_ago.map_or_else(
        || "not confirmed".to_owned(),
        |ago| format!("{}, prolonged {} ago", lease.held, span(ago)),
    )
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
