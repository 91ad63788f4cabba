//! Deliberately wrong behaviour: one plausible bug at a time, so that the conformance suite can itself be tested.
//!
//! The code of a bug stands where it would be made, behind [`is`]. Without the cargo feature `mutants`, which nothing turns
//! on by default, [`is`] is constantly false and there is no way to choose. Nothing but a test build may ever choose.

/// A bug. Names, and which case finds it: `e2e/src/mutants/list.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The youngest export wins instead of the oldest.
    NewestWins,
    /// Of equally old exports that of the greater cluster name wins.
    TiesReversed,
    /// Only the first conflict is reported.
    FirstConflictOnly,
    /// The cluster whose export wins hears of no conflict.
    ConflictOnYoungerOnly,
    /// A conflict that was reported is never taken back.
    ConflictStays,
    /// The service has the oldest export's ports instead of the union.
    OldestPortsOnly,
    /// Ports are matched by number and protocol, never by name.
    PortsByNumber,
    /// The application protocol of a port is lost.
    AppProtocolLost,
    /// Exported labels of all clusters are mixed, key by key.
    LabelsMixed,
    /// ExternalName Services are exported.
    ExternalNameExported,
    /// A good export has no condition `Valid`.
    ValidMissing,
    /// The import outlives the last export.
    ImportOutlivesExports,
    /// A cluster imports only what it exports itself.
    ImportNeedsExport,
    /// The import's status does not list the cluster that it is in.
    OwnClusterUnlisted,
    /// The import says that it has no EndpointSlices.
    SlicesDenied,
    /// The import's IPs are not in the order of its families.
    IpsUnordered,
    /// A headless import gets IPs.
    HeadlessWithIps,
    /// Session affinity is lost on the way.
    AffinityLost,
    /// The derived Service has no session affinity, though the import has.
    AffinityNotDerived,
    /// Each write of a condition moves the time of its last transition.
    TransitionTimeMoves,
    /// Pods of a cluster that does not export get traffic.
    UnexportedServes,
    /// Endpoints that are not ready are sent to the peers.
    UnreadyServes,
    /// A cluster that lost a port conflict gets traffic for that port.
    LoserServes,
    /// Slices are marked under the prefix of the API group instead of that of labels.
    GroupPrefixOnLabels,
    /// Slices say that they belong to the local Service of the name instead of the derived one.
    SlicesOfLocalService,
    /// Slices that were imported are published again.
    ImportsRepublished,
}

#[cfg(not(feature = "mutants"))]
/// Whether this bug is to be made: never, in a build without the feature `mutants`.
pub const fn is(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use chosen::{NAMES, choose, chosen, is, parse};

/// The choice, in builds with the feature.
#[cfg(feature = "mutants")]
mod chosen {
    use std::sync::OnceLock;

    use super::Mutant;

    static CHOSEN: OnceLock<Mutant> = OnceLock::new();

    /// Every mutant with its name.
    pub const NAMES: &[(Mutant, &str)] = &[
        (Mutant::NewestWins, "newest-wins"),
        (Mutant::TiesReversed, "ties-reversed"),
        (Mutant::FirstConflictOnly, "first-conflict-only"),
        (Mutant::ConflictOnYoungerOnly, "conflict-on-younger-only"),
        (Mutant::ConflictStays, "conflict-stays"),
        (Mutant::OldestPortsOnly, "oldest-ports-only"),
        (Mutant::PortsByNumber, "ports-by-number"),
        (Mutant::AppProtocolLost, "app-protocol-lost"),
        (Mutant::LabelsMixed, "labels-mixed"),
        (Mutant::ExternalNameExported, "external-name-exported"),
        (Mutant::ValidMissing, "valid-missing"),
        (Mutant::ImportOutlivesExports, "import-outlives-exports"),
        (Mutant::ImportNeedsExport, "import-needs-export"),
        (Mutant::OwnClusterUnlisted, "own-cluster-unlisted"),
        (Mutant::SlicesDenied, "slices-denied"),
        (Mutant::IpsUnordered, "ips-unordered"),
        (Mutant::HeadlessWithIps, "headless-with-ips"),
        (Mutant::AffinityLost, "affinity-lost"),
        (Mutant::AffinityNotDerived, "affinity-not-derived"),
        (Mutant::TransitionTimeMoves, "transition-time-moves"),
        (Mutant::UnexportedServes, "unexported-serves"),
        (Mutant::UnreadyServes, "unready-serves"),
        (Mutant::LoserServes, "loser-serves"),
        (Mutant::GroupPrefixOnLabels, "group-prefix-on-labels"),
        (Mutant::SlicesOfLocalService, "slices-of-local-service"),
        (Mutant::ImportsRepublished, "imports-republished"),
    ];

    /// Whether this bug is to be made.
    pub fn is(mutant: Mutant) -> bool {
        CHOSEN.get() == Some(&mutant)
    }

    /// The bug that is made, by name; none unless one was chosen.
    pub fn chosen() -> Option<&'static str> {
        let chosen = CHOSEN.get()?;
        let entry = NAMES.iter().find(|(mutant, _)| mutant == chosen);
        entry.map(|(_, name)| *name)
    }

    /// The mutant of that name.
    pub fn parse(name: &str) -> Option<Mutant> {
        let entry = NAMES.iter().find(|(_, known)| *known == name);
        entry.map(|(mutant, _)| *mutant)
    }

    /// Makes this bug from now on, in the whole process. Returns false when another was chosen before: that one stays.
    pub fn choose(mutant: Mutant) -> bool {
        CHOSEN.set(mutant).is_ok()
    }
}
