//! The answer as text: the verdict first, then who was asked and what they know, then what to do. Pure.

use std::collections::BTreeSet;

use jiff::{Timestamp, Unit};
use tombolo_core::{
    peer_status::{KindStatus, PeerStatus},
    wire::key::Resource,
};

mod process;

use super::report::{Process, Report, Row};
use crate::{
    cli::render::{printable, table},
    status::{
        Answer, Level, Verdict,
        answer::{Peer, Peers},
        judge::{lag, span},
    },
};

/// So many peers of a process are listed even when they are well.
const ALL_PEERS_UP_TO: usize = 20;

/// How to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    /// Whether peers without trouble are listed, however many there are.
    pub(super) all: bool,
    /// Whether the verdict is coloured.
    pub(super) colour: bool,
}

/// The whole answer; ends with a line break.
pub(super) fn render(report: &Report, style: Style) -> String {
    let mut sections = vec![format!(
        "{}: {}",
        word(report.verdict, style.colour),
        report.summary
    )];
    let processes = report.processes.iter();
    sections.extend(processes.map(|process| section(process, report, style)));
    let to_do = report
        .findings
        .iter()
        .filter(|row| row.finding.level > Level::Notice);
    let to_do: Vec<_> = to_do.collect();
    if !to_do.is_empty() {
        let items = to_do
            .iter()
            .enumerate()
            .map(|(number, row)| item(number + 1, row));
        let items: Vec<_> = items.collect();
        sections.push(format!("What to do:\n{}", items.join("\n")));
    }
    let notices = report
        .findings
        .iter()
        .filter(|row| row.finding.level == Level::Notice);
    let notices: Vec<_> = notices
        .enumerate()
        .map(|(number, row)| item(number + 1, row))
        .collect();
    if !notices.is_empty() {
        sections.push(format!("Worth knowing:\n{}", notices.join("\n")));
    }
    sections.join("\n\n") + "\n"
}

fn word(verdict: Verdict, colour: bool) -> String {
    let (word, code) = match verdict {
        Verdict::Well => ("WELL", 32),
        Verdict::Behind => ("BEHIND", 33),
        Verdict::Unknown => ("UNKNOWN", 35),
        Verdict::Problem => ("PROBLEM", 31),
    };
    if colour {
        format!("\u{1b}[1;{code}m{word}\u{1b}[0m")
    } else {
        word.to_owned()
    }
}

fn item(number: usize, row: &Row) -> String {
    let finding = &row.finding;
    let whose = if row.process.is_empty() {
        String::new()
    } else {
        format!(" ({})", printable(&row.process))
    };
    format!(
        "  {number}. {}{whose}: {}\n     Next: {}",
        printable(&finding.subject),
        printable(&finding.what),
        printable(&finding.next)
    )
}

/// What one process knows.
fn section(process: &Process, report: &Report, style: Style) -> String {
    let Some(answer) = &process.answer else {
        let error = process.error.as_deref().unwrap_or("no reason given");
        return format!(
            "{}: no answer: {}",
            printable(&process.address),
            printable(error)
        );
    };
    let id = answer
        .cluster
        .as_ref()
        .map_or(String::new(), |it| format!(" (id {})", it.id));
    let up = u32::try_from(answer.up_seconds).unwrap_or(u32::MAX);
    let mut parts = vec![format!(
        "{}{id} at {}, version {}, up {}",
        printable(&process.name()),
        printable(&process.address),
        printable(&answer.version),
        span(f64::from(up))
    )];
    parts.extend(process::leadership(answer));
    parts.push(process::api_server(&answer.api_server));
    parts.extend(answer.store.iter().map(process::store));
    parts.extend(
        answer
            .copies
            .iter()
            .map(|copies| process::copies(copies, style.all)),
    );
    if let Some(peers) = &answer.peers {
        parts.push(of_peers(peers, answer, process, report, style));
    }
    parts.join("\n")
}

fn of_peers(
    peers: &Peers,
    answer: &Answer,
    process: &Process,
    report: &Report,
    style: Style,
) -> String {
    if peers.peers.is_empty() {
        let known = if peers.configured {
            "no peers are configured"
        } else {
            "its peers are not known yet"
        };
        return format!(" {known}");
    }
    let name = process.name();
    let troubled: BTreeSet<_> = report
        .findings
        .iter()
        .filter(|row| row.process == name && row.finding.level > Level::Notice)
        .filter_map(|row| row.finding.subject.strip_prefix("peer "))
        .collect();
    let everyone = style.all || peers.peers.len() <= ALL_PEERS_UP_TO;
    let shown = peers
        .peers
        .iter()
        .filter(|peer| everyone || troubled.contains(peer.status.cluster.as_str()));
    let rows: Vec<_> = shown.map(|peer| row(peer, answer.at)).collect();
    let left_out = peers.peers.len() - rows.len();
    let header = [
        "PEER",
        "ID",
        "STATE",
        "CONNECTED",
        "SYNCED",
        "BEHIND",
        "RECORDS",
        "REFUSED",
        "FAILURES",
        "EXPIRES",
        "CAPABILITIES",
    ];
    let listed = if rows.is_empty() {
        String::new()
    } else {
        table(&header, &rows)
    };
    match left_out {
        0 => listed,
        count if listed.is_empty() => format!(" {count} peers are well (--all lists them)"),
        count => format!("{listed}\n and {count} peers that are well (--all lists them)"),
    }
}

fn row(peer: &Peer, at: Timestamp) -> Vec<String> {
    let status = &peer.status;
    let published = || status.kinds.iter().filter(|(_, kind)| kind.published);
    let synced = published().map(|(kind, known)| {
        let no = if known.synced { "" } else { "not " };
        format!("{no}{}", kind.name())
    });
    let records = published().map(|(_, known)| known.records.to_string());
    let refused: u64 = status.kinds.values().map(|kind| kind.refused).sum();
    vec![
        status.cluster.to_string(),
        status
            .config
            .as_ref()
            .map_or_else(dash, |config| config.id.to_string()),
        status.state.to_string(),
        if status.connected { "yes" } else { "no" }.to_owned(),
        or_dash(synced.collect::<Vec<_>>().join(", ")),
        or_dash(behind(peer, published(), at)),
        or_dash(records.collect::<Vec<_>>().join(", ")),
        refused.to_string(),
        failures(status, at),
        status.expires_in_seconds.map_or_else(dash, |seconds| {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            format!("in {}", span(f64::from(seconds)))
        }),
        capabilities(status),
    ]
}

/// How far the furthest kind is behind.
fn behind<'a>(
    peer: &Peer,
    published: impl Iterator<Item = (&'a Resource, &'a KindStatus)>,
    at: Timestamp,
) -> String {
    if peer.asked.head.is_none() {
        return "unknown".to_owned();
    }
    let late = published.filter(|(kind, _)| !peer.asked.current.contains(kind));
    let late = late.map(|(_, known)| lag(peer, known, at));
    let worst = late.max_by(|a, b| a.revisions.cmp(&b.revisions));
    worst.map_or_else(
        || "0".to_owned(),
        |lag| format!("{} revisions, {}", lag.revisions, span(lag.seconds)),
    )
}

fn failures(status: &PeerStatus, at: Timestamp) -> String {
    let Some(last) = &status.last_failure else {
        return status.failures.to_string();
    };
    let ago = (at - last.at).total(Unit::Second).unwrap_or_default();
    format!("{}, {} ago: {}", status.failures, span(ago), last.reason)
}

/// What is unlike a peer that can everything.
fn capabilities(status: &PeerStatus) -> String {
    let Some(config) = &status.config else {
        return dash();
    };
    let can = &config.capabilities;
    let exports = match can.service_exports_enabled {
        Some(true) => "exports",
        Some(false) => "exports disabled",
        None => "no exports",
    };
    let mut words = vec![exports];
    words.extend(can.cached.then_some("kvstoremesh"));
    words.extend((!can.synced_canaries).then_some("no canaries"));
    words.join(", ")
}

fn dash() -> String {
    "-".to_owned()
}

fn or_dash(text: String) -> String {
    if text.is_empty() { dash() } else { text }
}
