//! What a run of the upstream suite comes to. Pure.

use std::process::ExitStatus;

use super::report::Report;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every spec that was run passed.
    Passed,
    /// Specs failed: their titles and messages.
    Failed(Vec<String>),
    /// It could not be tested, so nothing is known: why.
    Untested(String),
    /// No spec was run: why, and what to do.
    NotRun(String),
    /// The user ended it.
    Interrupted,
}

impl Outcome {
    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed(_) => 1,
            Self::Untested(_) => 2,
            Self::NotRun(_) => 3,
            Self::Interrupted => 130,
        }
    }

    /// Whether logs are worth keeping. Who ended it has nothing to find out, and wants nothing to be left.
    pub fn keeps_logs(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Untested(_) | Self::NotRun(_) => true,
            Self::Passed | Self::Interrupted => false,
        }
    }

    /// The last lines for people.
    pub fn text(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Failed(specs) => {
                format!("failed:\n  {}", specs.join("\n  "))
            }
            Self::Untested(why) => format!("could not test: {why}"),
            Self::NotRun(why) => format!("not run: {why}"),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// Judges how the suite's program ended, and the report that it left, if any.
pub fn judge(status: ExitStatus, report: Option<Result<Report, String>>) -> Outcome {
    let report = match report {
        Some(Ok(report)) => report,
        Some(Err(error)) => return Outcome::Untested(error),
        None => {
            return Outcome::Untested(format!(
                "the suite ended with {status} and wrote no report; see its output above"
            ));
        }
    };
    if let Some(failure) = report.suite_failure() {
        return Outcome::Untested(format!("the suite failed: {failure}"));
    }
    let failures = report.failures();
    if !failures.is_empty() {
        return Outcome::Failed(failures);
    }
    if !status.success() {
        return Outcome::Untested(format!(
            "the suite ended with {status}, although no spec of its report failed"
        ));
    }
    let totals = report.totals();
    let passed: usize = totals.iter().map(|it| it.passed).sum();
    if passed == 0 {
        let skipped: usize = totals.iter().map(|it| it.skipped).sum();
        return Outcome::NotRun(format!(
            "all {skipped} specs of the report were skipped; take filters out of UPSTREAM_FLAGS"
        ));
    }
    Outcome::Passed
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn judged(code: i32, report: &str) -> Outcome {
        judge(ExitStatus::from_raw(code << 8), Some(Report::parse(report)))
    }

    fn report(passed: bool, failed: bool) -> String {
        format!(
            "groups: [{{name: Required, tests: [{{desc: x, passed: {passed}, failed: {failed}}}]}}]"
        )
    }

    #[test]
    fn only_specs_that_were_run_and_passed_pass() {
        assert_eq!(judged(0, &report(true, false)), Outcome::Passed);
        let nothing = judged(0, &report(false, false));
        assert!(matches!(nothing, Outcome::NotRun(_)), "{nothing:?}");
        let empty = judged(0, "groups: []");
        assert!(matches!(empty, Outcome::NotRun(_)), "{empty:?}");
    }

    #[test]
    fn a_spec_that_failed_fails_the_run_whatever_the_exit_code() {
        for code in [0, 1] {
            let outcome = judged(code, &report(false, true));

            assert_eq!(outcome.exit_code(), 1, "{outcome:?}");
        }
    }

    #[test]
    fn an_end_that_the_report_does_not_explain_is_no_result() {
        let killed = ExitStatus::from_raw(9);

        let outcomes = [
            judge(killed, None),
            judge(ExitStatus::default(), None),
            judged(0, "no report"),
            judged(1, &report(true, false)),
            judged(0, "groups: []\nsuitefailure: no CRDs"),
        ];

        for outcome in outcomes {
            assert_eq!(outcome.exit_code(), 2, "{outcome:?}");
        }
    }

    #[test]
    fn codes_and_texts_tell_the_outcomes_apart() {
        let not_run = Outcome::NotRun("no binary".to_owned());

        assert_eq!(not_run.exit_code(), 3);
        assert_eq!(not_run.text(), "not run: no binary");
        assert_eq!(Outcome::Interrupted.exit_code(), 130);
        assert_eq!(Outcome::Passed.exit_code(), 0);
    }

    #[test]
    fn logs_are_kept_when_there_is_something_to_find_out() {
        let failed = Outcome::Failed(vec!["x".to_owned()]);
        let untested = Outcome::Untested("no clusters".to_owned());

        assert!(failed.keeps_logs() && untested.keeps_logs());
        assert!(!Outcome::Passed.keeps_logs() && !Outcome::Interrupted.keeps_logs());
    }
}
