//! Rule: the service has the union of all ports (`KEP-1645#145`); of two definitions that cannot both stand, the older one
//! does (`KEP-1645#147`, `KEP-1645#148`).
//!
//! Ports are matched by name first, then by number and protocol. A definition that was taken never changes because of a
//! younger export. Port lists that differ are a conflict even when the union holds all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    Conflict, ConflictReason,
    disagreement::{counted, shorten},
};
use crate::{
    mutant::{self, Mutant},
    names::PortName,
    service::{ExportSpec, Protocol, ServicePort},
};

/// Most disputes that a message spells out.
const SENTENCES_MAX: usize = 16;

/// The union of ports in order of precedence, and the conflict over them, if there is one.
pub(super) fn merge(ordered: &[&ExportSpec]) -> (Vec<ServicePort>, Option<Conflict>) {
    let mut union = Union::default();
    for export in ordered {
        for port in &export.ports {
            union.add(Definition { port, export });
        }
    }
    let message = union.conflict_text(ordered);
    let conflict = message.map(|message| Conflict {
        reason: ConflictReason::Port,
        message,
    });
    let first = ordered.first().map(|export| &export.cluster);
    let wanted = |definition: &&Definition<'_>| {
        !mutant::is(Mutant::OldestPortsOnly) || Some(&definition.export.cluster) == first
    };
    let taken = union.taken.iter().filter(wanted);
    let mut ports: Vec<_> = taken.map(|definition| definition.port.clone()).collect();
    if mutant::is(Mutant::AppProtocolLost) {
        for port in &mut ports {
            port.app_protocol = None;
        }
    }
    (ports, conflict)
}

/// A port as one cluster defines it.
#[derive(Clone, Copy)]
struct Definition<'a> {
    port: &'a ServicePort,
    export: &'a ExportSpec,
}

/// The layout is Cilium's, except that an application protocol is its text and not the address of it:
/// `{{http TCP <nil> 80} paris 2026-11-29 15:02:12 +0000 UTC}`.
impl fmt::Display for Definition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let app_protocol = match app_protocol(self.port) {
            "" => "<nil>".to_owned(),
            stated => shorten(stated.to_owned()),
        };
        write!(
            f,
            "{{{{{} {} {app_protocol} {}}} {} {}}}",
            self.port.name,
            self.port.protocol,
            self.port.port,
            self.export.cluster,
            self.export
                .created_at
                .strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC"),
        )
    }
}

/// How a younger definition contradicts one that was taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// One name, two numbers or protocols. The younger definition is dropped.
    DuplicatedName,
    /// One number and protocol, two names.
    Name,
    /// Equal, but for the application protocol.
    AppProtocol,
}

struct Dispute<'a> {
    kind: Kind,
    winner: Definition<'a>,
    loser: Definition<'a>,
}

impl fmt::Display for Dispute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { winner, loser, .. } = self;
        match self.kind {
            Kind::DuplicatedName => write!(
                f,
                "Duplicated port name \"{}\". Using port definition \"{winner}\"",
                loser.port.name
            ),
            Kind::Name => write!(
                f,
                "Conflicting port name on \"{loser}\". Using the port name \"{}\"",
                winner.port.name
            ),
            Kind::AppProtocol => write!(
                f,
                "Conflicting appProtocol on \"{loser}\". Using the appProtocol \"{}\"",
                shorten(app_protocol(winner.port).to_owned())
            ),
        }?;
        write!(
            f,
            " from oldest service export in cluster \"{}\".",
            winner.export.cluster
        )
    }
}

/// The definitions taken so far, and the disputes over them.
#[derive(Default)]
struct Union<'a> {
    taken: Vec<Definition<'a>>,
    by_name: BTreeMap<&'a PortName, usize>,
    by_number: BTreeMap<(Protocol, u16), usize>,
    disputes: Vec<Dispute<'a>>,
    disputed: BTreeSet<(usize, Kind)>,
}

impl<'a> Union<'a> {
    fn add(&mut self, definition: Definition<'a>) {
        let port = definition.port;
        let number = (port.protocol, port.port);
        let numbered = self.by_number.get(&number).copied();
        let named = if mutant::is(Mutant::PortsByNumber) {
            numbered.filter(|&taken| self.taken[taken].port.name == port.name)
        } else {
            self.by_name.get(&port.name).copied()
        };
        match (named, numbered) {
            (Some(winner), _) if Some(winner) != numbered => {
                self.dispute(Kind::DuplicatedName, winner, definition);
            }
            (None, None) => {
                self.by_name.insert(&port.name, self.taken.len());
                self.by_number.insert(number, self.taken.len());
                self.taken.push(definition);
            }
            (None, Some(winner)) => self.dispute(Kind::Name, winner, definition),
            (Some(winner), _) => {
                if app_protocol(self.taken[winner].port) != app_protocol(port) {
                    self.dispute(Kind::AppProtocol, winner, definition);
                }
            }
        }
    }

    /// Notes a dispute, unless an older export already had the same one over the same definition.
    fn dispute(&mut self, kind: Kind, winner: usize, loser: Definition<'a>) {
        if self.disputed.insert((winner, kind)) {
            self.disputes.push(Dispute {
                kind,
                winner: self.taken[winner],
                loser,
            });
        }
    }

    /// What differs, as Cilium says it, then how many clusters do not export exactly what is used. None without conflict.
    fn conflict_text(&self, ordered: &[&ExportSpec]) -> Option<String> {
        let odd = || ordered.iter().filter(|export| !self.equals(&export.ports));
        let count = || counted(odd().count(), ordered.len());
        if let Some(disputes) = self.disputes_text() {
            return Some(format!("{disputes} {}", count()));
        }
        // Cilium names the first whose list is not the union, in the same order; that may be the oldest.
        let (first_odd, oldest) = (odd().next()?, ordered.first()?);
        Some(format!(
            "Ports from cluster \"{}\" does not match ports of oldest service export in cluster \"{}\". {} Using \"{}\" from all clusters.",
            first_odd.cluster,
            oldest.cluster,
            count(),
            shorten(self.list())
        ))
    }

    /// One sentence per dispute, the oldest first; none without disputes.
    fn disputes_text(&self) -> Option<String> {
        let shown = self.disputes.iter().take(SENTENCES_MAX);
        let mut sentences: Vec<_> = shown.map(ToString::to_string).collect();
        match self.disputes.len().saturating_sub(SENTENCES_MAX) {
            0 => {}
            more => sentences.push(format!("There are {more} more conflicting ports.")),
        }
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// The ports that are used: `http 80/TCP, dns 53/UDP`.
    fn list(&self) -> String {
        let ports = self.taken.iter().map(|Definition { port, .. }| {
            let text = format!("{} {}/{}", port.name, port.port, port.protocol);
            text.trim_start().to_owned()
        });
        ports.collect::<Vec<_>>().join(", ")
    }

    fn equals(&self, ports: &[ServicePort]) -> bool {
        self.taken.len() == ports.len()
            && self
                .taken
                .iter()
                .zip(ports)
                .all(|(taken, port)| same_port(taken.port, port))
    }
}

fn same_port(a: &ServicePort, b: &ServicePort) -> bool {
    (&a.name, a.protocol, a.port, app_protocol(a)) == (&b.name, b.protocol, b.port, app_protocol(b))
}

/// The application protocol; empty when absent.
fn app_protocol(port: &ServicePort) -> &str {
    port.app_protocol.as_deref().unwrap_or_default()
}
