//! All cases, one array per file.

pub mod conflicts;
pub mod endpoints;
pub mod exporting;
pub mod importing;

use crate::case::Case;

/// Every case, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let files = [
        exporting::CASES,
        importing::life::CASES,
        importing::content::CASES,
        conflicts::CASES,
        endpoints::slices::CASES,
        endpoints::traffic::CASES,
    ];
    files.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_an_id_of_its_own() {
        let mut seen = BTreeSet::new();
        for case in all() {
            assert!(seen.insert(case.id), "{} is there twice", case.id);
        }
    }

    #[test]
    fn the_five_upstream_specs_are_covered() {
        for row in ["S1", "I1", "I7", "X1", "H1"] {
            assert!(
                all().any(|case| case.upstream == Some(row)),
                "no case for {row}"
            );
        }
    }
}
