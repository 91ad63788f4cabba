//! The rules of KEP-1645 that the cases cite, in our own words.
//!
//! The numbers are this project's: they are never reused, and new rules are appended. A case that cites a number that
//! is not in [`RULES`] fails a test.

use std::fmt;

/// A citation of a rule, e.g. `KEP-1645#30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule(pub u16);

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KEP-1645#{}", self.0)
    }
}

/// How strong the wording of a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Stated as what happens.
    Must,
    /// Recommended or expected.
    Should,
}

/// A rule with its number, strength and a short title.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its number.
    pub rule: Rule,
    /// Its strength.
    pub level: Level,
    /// What it says, in short.
    pub title: &'static str,
}

const fn must(number: u16, title: &'static str) -> Entry {
    entry(number, Level::Must, title)
}

const fn should(number: u16, title: &'static str) -> Entry {
    entry(number, Level::Should, title)
}

const fn entry(number: u16, level: Level, title: &'static str) -> Entry {
    Entry {
        rule: Rule(number),
        level,
        title,
    }
}

/// Every MUST of KEP-1645 about exporting, importing, conflicts and status, those about DNS and the recommendations that cases cite, by
/// number. From 100 to 119 they are of its `specification.md`.
pub const RULES: &[Entry] = &[
    must(
        1,
        "a ClusterSet is a group of clusters that trust each other and agree on who is a member",
    ),
    must(2, "the implementation defines and tracks the members"),
    must(
        3,
        "a namespace means the same in every cluster, and different namespaces do not mix",
    ),
    must(4, "a cluster's name is unique and a DNS label"),
    must(
        5,
        "a cluster's id is its name, or its name and one more DNS label",
    ),
    must(
        7,
        "only behaviour counts, not how many programs or people bring it about",
    ),
    must(
        8,
        "one authority governs a namespace and sees that equal names mean one service",
    ),
    must(10, "nothing is exported without a ServiceExport"),
    must(
        11,
        "a ServiceExport exports the Service of its name, namespace and cluster",
    ),
    must(
        12,
        "exports of one name in several clusters are one service",
    ),
    must(
        13,
        "a Service without its own ServiceExport is not part of the combined service",
    ),
    must(14, "deleting the ServiceExport ends the export"),
    must(
        15,
        "ports, backends and traffic settings come from the exported Service",
    ),
    must(
        17,
        "exported labels and annotations come from the spec of the ServiceExport only",
    ),
    must(19, "an import repeats no IP family"),
    must(
        21,
        "differing IP families are an IPFamilyConflict where an IP would reach a part of the backends only",
    ),
    must(
        30,
        "every member cluster that has the namespace gets the import, exporters too",
    ),
    must(31, "a cluster without the namespace gets no import"),
    must(
        33,
        "one import per name and cluster, however many clusters export",
    ),
    must(34, "the import lives as long as any export is left"),
    must(38, "the import's status lists the exporting clusters"),
    must(39, "the import says whether EndpointSlices of it are there"),
    must(40, "the import is what routing and DNS in a cluster go by"),
    must(
        41,
        "only remote backends, local and remote ones, and only local ones: all of it works",
    ),
    must(
        50,
        "Services with a cluster IP become imports of type ClusterSetIP",
    ),
    must(51, "headless Services become imports of type Headless"),
    must(
        52,
        "NodePort and LoadBalancer Services become imports of type ClusterSetIP and stay as they are",
    ),
    must(
        53,
        "ExternalName Services are refused: Valid is False, InvalidServiceType",
    ),
    must(
        54,
        "the type can follow when the older export goes, and the ServiceExports say so",
    ),
    must(60, "an import of type ClusterSetIP has one or more IPs"),
    must(62, "the IPs stay the same as long as the import lives"),
    must(63, "the IPs lead to the backends of the combined service"),
    must(64, "the IPs match the import's IP families"),
    must(65, "an import of type Headless has no IP"),
    must(70, "the local Service is not changed in any way"),
    must(
        71,
        "consumers have to use the ClusterSet's zone to reach the combined service",
    ),
    must(
        81,
        "the name SERVICE.NAMESPACE.svc.clusterset.local is answered once there is an export",
    ),
    must(
        82,
        "for an import of type ClusterSetIP it leads to the clusterset IPs",
    ),
    must(
        83,
        "for a headless import it leads to the addresses of ready endpoints",
    ),
    must(84, "there are SRV records"),
    must(
        85,
        "pods of a headless import have names with hostname and cluster id",
    ),
    must(
        86,
        "the name CLUSTERID.SERVICE.NAMESPACE.svc.clusterset.local is reserved and not used",
    ),
    must(
        100,
        "dns-version.clusterset.local says the version of the schema",
    ),
    must(
        102,
        "an import of type ClusterSetIP has an SRV record for each named port",
    ),
    must(
        104,
        "a headless import without ready endpoint has no name (NXDOMAIN)",
    ),
    must(105, "the name of a pod leads to all its addresses"),
    must(
        108,
        "a headless import has an SRV record for each ready endpoint and named port, of all clusters",
    ),
    must(
        121,
        "EndpointSlices, where there are any, follow the rules for them",
    ),
    must(
        122,
        "EndpointSlices of an import exist in each importing cluster",
    ),
    must(
        123,
        "an imported EndpointSlice holds endpoints of one cluster only",
    ),
    must(
        124,
        "imported EndpointSlices are not marked as managed by Kubernetes' own controller",
    ),
    must(
        125,
        "imported EndpointSlices carry the name of the import as a label",
    ),
    must(
        126,
        "imported EndpointSlices carry the source cluster's id as a label",
    ),
    must(127, "imported EndpointSlices go when the export ends"),
    must(
        129,
        "whoever makes the imports looks after their EndpointSlices",
    ),
    must(
        140,
        "clusters that disagree get Conflict True on all their exports",
    ),
    must(141, "the oldest export wins"),
    must(142, "a conflict that appears does not change traffic"),
    must(144, "every cluster comes to the same result"),
    must(
        145,
        "the import has the union of all ports; differing ports are a PortConflict",
    ),
    should(
        146,
        "traffic to a port only reaches clusters that expose it",
    ),
    must(
        147,
        "the import has no port name and no pair of protocol and number twice",
    ),
    should(
        148,
        "ports are merged by name first, then by protocol and number",
    ),
    must(
        149,
        "headlessness follows the oldest export; the others are a TypeConflict",
    ),
    must(
        150,
        "session affinity and its time-out follow the oldest export",
    ),
    must(151, "the internal traffic policy follows the oldest export"),
    must(152, "the traffic distribution follows the oldest export"),
    must(
        153,
        "exported labels and annotations are those of the oldest export, whole",
    ),
    should(154, "the reasons of several conflicts are joined by commas"),
    must(
        155,
        "without conflict, the condition Conflict is False with reason NoConflicts",
    ),
    must(
        160,
        "CRDs are installed apart from Kubernetes, in an order that the implementation sees to",
    ),
    must(
        161,
        "the implementation supports the version of the CRDs that is installed",
    ),
    must(162, "DNS follows the specification for multi-cluster DNS"),
    must(170, "Valid says whether the export is acceptable"),
    must(171, "Valid is False with NoService or InvalidServiceType"),
    must(
        172,
        "Ready is True with Exported or Ready, False with Pending or Failed, Unknown with Pending",
    ),
    should(
        174,
        "the message of a conflict names the field, the winner and why it won",
    ),
    should(
        175,
        "lastTransitionTime is when the condition's status last changed (metav1.Condition)",
    ),
];

impl Rule {
    /// Where the KEP says it: the section of its README.
    pub fn section(self) -> &'static str {
        match self.0 {
            ..=9 => "terminology",
            10..=23 => "exporting-services",
            24..=41 => "importing-services",
            42..=54 => "service-types",
            55..=66 => "clustersetip",
            67..=119 => "dns",
            120..=133 => "using-endpointslice-objects-to-track-endpoints",
            145..=148 => "service-port",
            149 => "headlessness",
            150 => "session-affinity",
            151 => "internal-traffic-policy",
            152 => "traffic-distribution",
            153 => "labels-and-annotations",
            160..=163 => "version-skew-strategy",
            134..=144 | 154.. => "global-properties",
        }
    }
}

/// The entry of a rule, if there is one.
pub fn lookup(rule: Rule) -> Option<&'static Entry> {
    RULES.iter().find(|entry| entry.rule == rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn every_rule_that_a_case_cites_is_known() {
        for case in cases::all() {
            assert!(!case.rules.is_empty(), "{} cites no rule", case.id);
            for rule in case.rules {
                assert!(lookup(*rule).is_some(), "{} cites unknown {rule}", case.id);
            }
        }
    }

    #[test]
    fn rules_are_in_order_and_have_one_number_each() {
        assert!(RULES.is_sorted_by(|a, b| a.rule < b.rule));
    }
}
