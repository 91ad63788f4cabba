//! The specs of the upstream suite (`sigs.k8s.io/mcs-api/conformance` at v0.5.0): what they are called there, so that a report of
//! this suite and one of theirs can be laid side by side. Names only.

/// A spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// What cases of this suite call it.
    pub id: &'static str,
    /// Its title there, which identifies it.
    pub title: &'static str,
    /// Its labels there, `Required` or `Optional` first.
    pub labels: &'static [&'static str],
}

const fn spec(id: &'static str, labels: &'static [&'static str], title: &'static str) -> Spec {
    Spec { id, title, labels }
}

const REQUIRED: &[&str] = &["Required"];
const REQUIRED_IP: &[&str] = &["Required", "ClusterIP"];
const REQUIRED_HEADLESS: &[&str] = &["Required", "Headless"];
const EXPORTED: &[&str] = &["Optional", "ExportedLabels"];
const DNS_IP: &[&str] = &["Optional", "DNS", "ClusterIP"];
const DNS_HEADLESS: &[&str] = &["Optional", "DNS", "Headless"];
const CONNECTED: &[&str] = &["Optional", "Connectivity", "ClusterIP"];
const STRICT: &[&str] = &[
    "Optional",
    "Connectivity",
    "ClusterIP",
    "StrictPortConflict",
];

/// All of them.
pub const SPECS: &[Spec] = &[
    spec(
        "S1",
        REQUIRED,
        "A ServiceImport should only exist as long as there's at least one exporting cluster",
    ),
    spec(
        "I9",
        EXPORTED,
        "Only labels and annotations specified as exported in the ServiceExport should be propagated to the ServiceImport",
    ),
    spec(
        "L1",
        EXPORTED,
        "A service exported on two clusters with conflicting annotations and labels should apply the conflict resolution policy and report a Conflict condition on each ServiceExport",
    ),
    spec(
        "I1",
        REQUIRED_IP,
        "Exporting a ClusterIP service should create a ServiceImport of type ClusterSetIP in the service's namespace in each cluster. Unexporting should delete the ServiceImport",
    ),
    spec(
        "I3",
        REQUIRED_IP,
        "The SessionAffinity for a ClusterSetIP ServiceImport should match the exported service's SessionAffinity",
    ),
    spec(
        "I4",
        REQUIRED_IP,
        "The InternalTrafficPolicy for a ClusterSetIP ServiceImport should match the exported service's InternalTrafficPolicy",
    ),
    spec(
        "I5",
        REQUIRED_IP,
        "The TrafficDistribution for a ClusterSetIP ServiceImport should match the exported service's TrafficDistribution",
    ),
    spec(
        "I6",
        REQUIRED_IP,
        "An IP should be allocated for a ClusterSetIP ServiceImport for each IP family",
    ),
    spec(
        "I7",
        REQUIRED_IP,
        "The ports for a ClusterSetIP ServiceImport should match those of the exported service",
    ),
    spec(
        "I12",
        REQUIRED_IP,
        "A ClusterIP service exported on two clusters should expose the union of the constituent service ports and raise a conflict",
    ),
    spec(
        "I13",
        REQUIRED_IP,
        "A ClusterIP service exported on two clusters with conflicting ports should apply the conflict resolution policy and report a Conflict condition on each ServiceExport",
    ),
    spec(
        "H1",
        REQUIRED_HEADLESS,
        "Exporting a headless service should create a ServiceImport of type Headless in the service's namespace in each cluster. Unexporting should delete the ServiceImport",
    ),
    spec(
        "H2",
        REQUIRED_HEADLESS,
        "No clusterset IP should be allocated for a Headless ServiceImport",
    ),
    spec(
        "X1",
        &["Required", "ExternalName"],
        "Exporting an ExternalName service should set ServiceExport Valid condition to False",
    ),
    spec(
        "T1",
        REQUIRED,
        "A service exported on two clusters with conflicting headlessness should apply the conflict resolution policy and report a Conflict condition on the ServiceExport",
    ),
    spec(
        "E1",
        &["Optional", "EndpointSlice"],
        "Exporting a service should create an MCS EndpointSlice in the service's namespace in each cluster with the required MCS labels. Unexporting should delete the EndpointSlice.",
    ),
    spec(
        "D1",
        DNS_IP,
        "A DNS lookup of the <service>.<ns>.svc.<domain> domain for a ClusterIP service should resolve to the clusterset IP",
    ),
    spec(
        "D2",
        DNS_IP,
        "A DNS SRV query of the <service>.<ns>.svc.<domain> domain for a ClusterIP service should return valid SRV records",
    ),
    spec(
        "D3",
        DNS_IP,
        "DNS lookups of the <service>.<ns>.svc.cluster.local domain for a ClusterIP service should only resolve local services",
    ),
    spec(
        "D4",
        DNS_HEADLESS,
        "A DNS query of the <service>.<ns>.svc.<domain> domain for a headless service should return the ready endpoint addresses of all the backing pods",
    ),
    spec(
        "D5",
        &["Optional", "DNS", "Headless", "EndpointSlice"],
        "A DNS query of the <hostname>.<clusterid>.<service>.<ns>.svc.<domain> domain for a headless StatefulSet service should return the requested pod's endpoint address",
    ),
    spec(
        "D6",
        DNS_HEADLESS,
        "A DNS SRV query of the <service>.<ns>.svc.<domain> domain for a headless service should return valid SRV records",
    ),
    spec(
        "C1",
        REQUIRED,
        "Connectivity to a service that is not exported should be inaccessible",
    ),
    spec(
        "C2",
        CONNECTED,
        "Connectivity to an exported ClusterIP service should be accessible through DNS",
    ),
    spec(
        "C3",
        CONNECTED,
        "Connectivity to a ClusterIP service existing in two clusters but exported from one should only access the exporting cluster",
    ),
    spec(
        "C4",
        STRICT,
        "Connectivity to exported services with same port name but different port numbers on each cluster should only route traffic to the cluster that exposes the port",
    ),
    spec(
        "C5",
        STRICT,
        "Connectivity to exported services with different port name on each cluster should route traffic to each port only to the cluster that exposes it",
    ),
];

/// The spec of that id, if there is one.
pub fn lookup(id: &str) -> Option<&'static Spec> {
    SPECS.iter().find(|spec| spec.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn every_spec_has_a_case_of_its_group_and_every_case_names_a_known_spec() {
        for spec in SPECS {
            let mut cases = cases::all().filter(|case| case.upstream == Some(spec.id));
            let first = cases
                .next()
                .unwrap_or_else(|| panic!("{} has no case", spec.id));
            for case in cases.chain([first]) {
                assert_eq!(case.group().upstream(), spec.labels[0], "{}", case.id);
            }
        }
        for case in cases::all() {
            let known = case.upstream.is_none_or(|id| lookup(id).is_some());
            assert!(known, "{} names {:?}", case.id, case.upstream);
        }
        assert_eq!(SPECS.len(), 27);
    }
}
