//! The report that the upstream suite writes, and what it comes to. Pure.

use std::fmt;

use serde::Deserialize;

/// File that the suite writes into its working directory.
pub const YAML: &str = "report.yaml";
/// The same for people.
pub const HTML: &str = "report.html";

/// What is read of `report.yaml`; other members are left to their readers.
#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    #[serde(default)]
    groups: Vec<Group>,
    /// Why the suite as a whole failed: text, when it did.
    #[serde(default, rename = "suitefailure")]
    suite_failure: Option<String>,
}

/// `Required` or `Optional`.
#[derive(Debug, Clone, Deserialize)]
struct Group {
    name: String,
    #[serde(default)]
    tests: Vec<Spec>,
}

/// One spec.
#[derive(Debug, Clone, Deserialize)]
struct Spec {
    desc: String,
    #[serde(default)]
    passed: bool,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    message: Option<String>,
}

/// How many specs of a group did what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Name of the group.
    pub group: String,
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Neither: skipped, also by a filter.
    pub skipped: usize,
}

impl Report {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| format!("{YAML}: {error}"))
    }

    /// Totals of each group.
    pub fn totals(&self) -> Vec<Totals> {
        self.groups.iter().map(Group::totals).collect()
    }

    /// Titles and messages of the specs that failed.
    pub fn failures(&self) -> Vec<String> {
        let specs = self.groups.iter().flat_map(|group| &group.tests);
        let failed = specs.filter(|spec| spec.failed);
        failed
            .map(|spec| {
                // Titles of nested specs have two spaces in places.
                let words: Vec<_> = spec.desc.split_whitespace().collect();
                let message = spec.message.as_deref().unwrap_or_default().trim();
                format!("{}: {message}", words.join(" "))
            })
            .collect()
    }

    /// Why the suite failed outside of its specs.
    pub fn suite_failure(&self) -> Option<&str> {
        let text = self.suite_failure.as_deref().map(str::trim);
        text.filter(|text| !text.is_empty())
    }
}

impl Group {
    fn totals(&self) -> Totals {
        let count = |matches: fn(&Spec) -> bool| self.tests.iter().filter(|it| matches(it)).count();
        let (passed, failed) = (count(|it| it.passed), count(|it| it.failed));
        Totals {
            group: self.name.clone(),
            passed,
            failed,
            skipped: count(|it| !it.passed && !it.failed),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            passed,
            failed,
            skipped,
        } = self;
        let total = passed + failed + skipped;
        write!(
            f,
            "{group}: {passed} of {total} passed, {failed} failed, {skipped} skipped"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
groups:
  - name: Required
    tests:
      - {desc: 'Exporting  a service', ref: x, labels: [ClusterIP], passed: true, failed: false, skipped: false, conformant: 'Yes', message: ''}
      - {desc: 'A  conflict', passed: false, failed: true, skipped: false, message: 'no condition'}
  - name: Optional
    tests:
      - {desc: DNS, passed: false, failed: false, skipped: true, message: 'not 2 clusters'}
suitefailure: ''
dnsdomain: clusterset.local
passed: 1
total: 3
implementation: {organization: '', project: '', version: '', url: ''}
";

    #[test]
    fn totals_are_counted_per_group() {
        let report = Report::parse(REPORT).unwrap();

        let totals: Vec<_> = report.totals().iter().map(ToString::to_string).collect();

        assert_eq!(
            totals,
            [
                "Required: 1 of 2 passed, 1 failed, 0 skipped",
                "Optional: 0 of 1 passed, 0 failed, 1 skipped"
            ]
        );
        assert_eq!(report.failures(), ["A conflict: no condition"]);
        assert_eq!(report.suite_failure(), None);
    }

    #[test]
    fn a_failure_of_the_suite_is_told() {
        let report = Report::parse("groups: []\nsuitefailure: is the MCS API installed?\n");

        let report = report.unwrap();

        assert_eq!(report.suite_failure(), Some("is the MCS API installed?"));
        assert!(Report::parse("groups: 3").is_err());
    }
}
