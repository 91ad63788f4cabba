//! All cases, one array per file.

pub mod conflicts;
pub mod connectivity;
pub mod dns;
pub mod endpoints;
pub mod exporting;
pub mod importing;

use crate::case::Case;

/// Every case, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let files = [
        exporting::CASES,
        exporting::service_types::CASES,
        importing::life::CASES,
        importing::content::CASES,
        importing::settings::CASES,
        importing::metadata::CASES,
        conflicts::CASES,
        conflicts::ports::CASES,
        conflicts::settings::CASES,
        conflicts::precedence::CASES,
        conflicts::timing::CASES,
        endpoints::slices::CASES,
        endpoints::presence::CASES,
        endpoints::traffic::CASES,
        endpoints::ports::CASES,
        endpoints::pods::CASES,
        dns::CASES,
        dns::headless::CASES,
        dns::names::CASES,
        connectivity::CASES,
        connectivity::backends::CASES,
    ];
    files.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::case::{Feature, Group};

    #[test]
    fn every_case_has_an_id_of_its_own() {
        let mut seen = BTreeSet::new();
        for case in all() {
            assert!(seen.insert(case.id), "{} is there twice", case.id);
        }
    }

    #[test]
    fn all_twenty_seven_upstream_specs_are_there() {
        let specs = [
            "S1", "I1", "I3", "I4", "I5", "I6", "I7", "I9", "I12", "I13", "L1", "H1", "H2", "X1",
            "T1", "E1", "D1", "D2", "D3", "D4", "D5", "D6", "C1", "C2", "C3", "C4", "C5",
        ];
        for spec in specs {
            let cases = all().filter(|case| case.upstream == Some(spec));
            // One where the suite plays the kubelet, one where pods run.
            let expected = if spec == "E1" { 2 } else { 1 };
            assert_eq!(cases.count(), expected, "cases for {spec}");
        }
    }

    #[test]
    fn every_upstream_spec_is_run_where_pods_run() {
        let here = |case: &&Case| !case.features.contains(&Feature::Backends);
        let specs: BTreeSet<_> = all()
            .filter(here)
            .filter_map(|case| case.upstream)
            .collect();

        assert_eq!(specs.len(), 27);
    }

    #[test]
    fn the_upstream_specs_are_core_where_they_are_required_there() {
        for case in all() {
            let Some(spec) = case.upstream else { continue };
            let optional = [
                "I9", "L1", "E1", "D1", "D2", "D3", "D4", "D5", "D6", "C2", "C3", "C4", "C5",
            ];
            let group = if optional.contains(&spec) {
                Group::Extended
            } else {
                Group::Core
            };
            assert_eq!(case.group(), group, "{spec}, {}", case.id);
        }
    }
}
