//! The mutants: what is wrong with each, which rule that breaks, and which cases should find it.
//!
//! The names are those of the test build; a run begins by comparing the two lists.

use tombolo_conformance::rules::Rule;

/// A wrong implementation.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name in `TOMBOLO_MUTANT`.
    pub name: &'static str,
    /// What is wrong with it.
    pub wrong: &'static str,
    /// The rule that it breaks.
    pub rule: Rule,
    /// The cases that are made to find it; they are run first.
    pub killers: &'static [&'static str],
}

const fn mutant(
    name: &'static str,
    wrong: &'static str,
    rule: u16,
    killers: &'static [&'static str],
) -> Mutant {
    Mutant {
        name,
        wrong,
        rule: Rule(rule),
        killers,
    }
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    mutant(
        "newest-wins",
        "the youngest export wins",
        141,
        &["conflicts/headlessness", "conflicts/port-number"],
    ),
    mutant(
        "ties-reversed",
        "of equally old exports the greater cluster name wins",
        141,
        &["conflicts/tie-break"],
    ),
    mutant(
        "first-conflict-only",
        "of several conflicts only the first is reported",
        154,
        &["conflicts/all-reasons"],
    ),
    mutant(
        "conflict-on-younger-only",
        "the oldest export hears of no conflict",
        140,
        &["conflicts/headlessness", "conflicts/port-union"],
    ),
    mutant(
        "conflict-stays",
        "a conflict is never taken back",
        155,
        &["conflicts/resolved", "conflicts/withdrawn"],
    ),
    mutant(
        "oldest-ports-only",
        "the import has the oldest export's ports only",
        145,
        &["conflicts/port-union", "endpoints/port-of-one"],
    ),
    mutant(
        "ports-by-number",
        "ports are matched by number, not by name first",
        147,
        &["conflicts/port-number", "conflicts/resolved"],
    ),
    mutant(
        "app-protocol-lost",
        "a port loses its application protocol",
        15,
        &["importing/ports"],
    ),
    mutant(
        "labels-mixed",
        "exported labels are merged key by key",
        153,
        &["conflicts/exported-metadata"],
    ),
    mutant(
        "external-name-exported",
        "ExternalName Services are exported",
        53,
        &["exporting/external-name"],
    ),
    mutant(
        "valid-missing",
        "a good export has no condition Valid",
        170,
        &["importing/cluster-set-ip", "exporting/no-service"],
    ),
    mutant(
        "import-outlives-exports",
        "the import stays after the last export",
        34,
        &["importing/last-export", "importing/headless"],
    ),
    mutant(
        "import-needs-export",
        "only clusters that export get the import",
        30,
        &["importing/cluster-set-ip", "importing/headless"],
    ),
    mutant(
        "own-cluster-unlisted",
        "status.clusters lacks the cluster it is in",
        38,
        &["importing/clusters"],
    ),
    mutant(
        "slices-denied",
        "status.endpointSliceObjects is always Absent",
        39,
        &["endpoints/presence", "endpoints/presence-headless"],
    ),
    mutant(
        "ips-unordered",
        "the IPs are not in the order of the families",
        64,
        &["importing/ips"],
    ),
    mutant(
        "headless-with-ips",
        "a headless import gets IPs",
        65,
        &["importing/no-ips-for-headless"],
    ),
    mutant(
        "affinity-lost",
        "session affinity is lost on the way",
        15,
        &["importing/session-affinity"],
    ),
    mutant(
        "affinity-not-derived",
        "session affinity does not reach the derived Service",
        15,
        &["importing/derived-affinity"],
    ),
    mutant(
        "transition-time-moves",
        "each write moves a condition's lastTransitionTime",
        175,
        &["conflicts/transition-times"],
    ),
    mutant(
        "unexported-serves",
        "pods of a cluster without export get traffic",
        13,
        &["endpoints/not-exported"],
    ),
    mutant(
        "unready-serves",
        "other clusters' unready pods get traffic",
        63,
        &["endpoints/traffic"],
    ),
    mutant(
        "loser-serves",
        "who lost a port conflict still gets traffic for the port",
        146,
        &["endpoints/port-conflict"],
    ),
    mutant(
        "group-prefix-on-labels",
        "slices are labelled multicluster.x-k8s.io/…",
        125,
        &["endpoints/labels"],
    ),
    mutant(
        "slices-of-local-service",
        "imported slices carry the local Service's name",
        70,
        &["endpoints/local-service"],
    ),
    mutant(
        "imports-republished",
        "imported slices are published again",
        123,
        &["endpoints/labels"],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tombolo_conformance::{cases, rules};

    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own() {
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();

        assert_eq!(names.len(), MUTANTS.len());
        assert!(names.len() >= 10, "{names:?}");
    }

    #[test]
    fn every_mutant_has_a_killer_that_cites_the_rule_it_breaks() {
        for Mutant {
            name,
            rule,
            killers,
            ..
        } in MUTANTS
        {
            assert!(
                rules::lookup(*rule).is_some(),
                "{name} breaks unknown {rule}"
            );
            let found: Vec<_> = cases::all()
                .filter(|case| killers.contains(&case.id))
                .collect();
            assert_eq!(found.len(), killers.len(), "{name}: of {killers:?}");
            assert!(
                found.iter().any(|case| case.rules.contains(rule)),
                "{name}: none of {killers:?} cites {rule}"
            );
        }
    }
}
